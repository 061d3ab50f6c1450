#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Models in less memory than their weights take: against the disk, against computing, and alone.

    python benchmarks/streaming/bench.py disk    # twice the allowed memory, from a file
    python benchmarks/streaming/bench.py unit    # what a unit costs by coming and going
    python benchmarks/streaming/bench.py gpu     # 7 GB where a GPU has 2 GiB, against peers

Answers are compared first.
"""

import argparse
import copy
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from timing import compare, machine, table, timed  # noqa: E402

import kerf  # noqa: E402


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def forget(path):
    """Takes a file out of the system's memory, so that it is read from the disk."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def read(path, buffer):
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def disk(options):
    from safetensors.torch import save_model

    torch.manual_seed(0)
    model = nn.Sequential(*[Block(1024) for _ in range(options.layers)]).eval()
    total = sum(p.nbytes for p in model.parameters())
    print(f"{total / 2**20:.0f} MiB of weights, half of them allowed")
    print("tokens  cache   plain model  reading    Kerf    share of the slower, of the best times")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = pathlib.Path(folder) / "model.safetensors"
        save_model(model, str(path))
        with kerf.empty_weights():
            empty = nn.Sequential(*[Block(1024) for _ in range(options.layers)]).eval()
        placed = kerf.place(empty, max_memory={"cpu": total // 2}, checkpoint=folder)
        share = sum(u.bytes for u in placed.placement.units if u.residence == "streamed") / total
        buffer = bytearray(16 << 20)
        for tokens in (1, 64, 256):
            x = torch.randn(tokens, 1024)
            with torch.no_grad():
                assert torch.equal(placed(x), model(x))
            for cold in (False, True):
                rows = {"plain": [], "reading": [], "kerf": []}
                for _ in range(options.pairs):
                    with torch.no_grad():
                        rows["plain"].append(timed(lambda x=x: model(x)))
                    if cold:
                        forget(path)
                    # What is not resident is all that has to be read.
                    rows["reading"].append(timed(lambda: read(path, buffer)) * share)
                    if cold:
                        forget(path)
                    rows["kerf"].append(timed(lambda x=x: placed(x)))
                plain, reading, took = (statistics.median(rows[k]) for k in rows)
                best = {k: min(rows[k]) for k in rows}
                print(
                    f"{tokens:6}  {'cold' if cold else 'warm'}  {plain * 1e3:9.1f} ms "
                    f"{reading * 1e3:7.1f} ms {took * 1e3:7.1f} ms    "
                    f"{max(plain, reading) / took:.2f}   "
                    f"{max(best['plain'], best['reading']) / best['kerf']:.2f}",
                    flush=True,
                )
        placed.remove()


def unit(options):
    """Units without weights to speak of, streamed, against the same model as it is."""
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(200)]).eval()
    device = torch.device(options.device)
    is_host = device.type == "cpu"
    sync = (lambda: None) if is_host else torch.accelerator.synchronize
    plain_model = copy.deepcopy(model).to(device)
    x = torch.randn(1, 8, device=device)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        plain = statistics.median(timed(lambda: plain_model(x), sync) for _ in range(50))
        limits = {"cpu": "4KiB", "disk": folder} if is_host else {device: "4KiB"}
        placed = kerf.place(model, max_memory=limits, host_computes=False)
        for _ in range(5):
            model(x)
        took = statistics.median(timed(lambda: model(x), sync) for _ in range(options.pairs * 5))
        streamed = sum(u.residence == "streamed" for u in placed.placement.units)
        placed.remove()
    print(
        f"{(took - plain) / streamed * 1e6:.1f} us for each of {streamed} streamed units, "
        f"on {device}"
    )


def llama(device):
    """7.0 GB in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=32,
        vocab_size=32000,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(torch.float32)


CAP = 2 << 30
WEIGHTS = CAP - (64 << 20)  # the rest is for what 512 tokens compute


def with_kerf(model):
    placed = kerf.place(model, max_memory={0: WEIGHTS, "cpu": "100GiB"})
    print(placed.placement, flush=True)
    return placed


def with_kerf_streaming(model):
    return kerf.place(model, max_memory={0: WEIGHTS, "cpu": "100GiB"}, host_computes=False)


def with_accelerate(model):
    from accelerate import dispatch_model, infer_auto_device_map

    sizes = {0: CAP, "cpu": 100 << 30}
    split = infer_auto_device_map(
        model, sizes, no_split_module_classes=["LlamaDecoderLayer"], dtype=torch.bfloat16
    )
    return dispatch_model(model, split, main_device=0)


def with_diffusers(model):
    from diffusers.hooks import apply_group_offloading

    apply_group_offloading(
        model,
        onload_device=torch.device("cuda:0"),
        offload_device=torch.device("cpu"),
        offload_type="leaf_level",
        use_stream=True,
        record_stream=True,
    )
    return model


CONTENDERS = {
    "kerf": with_kerf,
    "kerf, streaming alone": with_kerf_streaming,
    "accelerate": with_accelerate,
    "diffusers": with_diffusers,
}


class Contender:
    """A model of its own, and what calls of it take beside what the others hold."""

    def __init__(self, name, source):
        self.name = name
        model = copy.deepcopy(source)
        self.before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        self.model = CONTENDERS[name](model)
        self.setup = time.perf_counter() - start
        self.times = []

    def call(self, ids):
        with torch.no_grad():
            return self.model(ids.to("cuda"), use_cache=False).logits

    def peak(self, ids):
        """Of the second call: bytes beside what was there before."""
        held = torch.cuda.memory_allocated()
        self.call(ids)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self.call(ids)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - held + self.own

    def measure_own(self):
        self.own = torch.cuda.memory_allocated() - self.before


def link_speed():
    """Bytes per second from pinned memory."""
    source = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    times = [timed(lambda: target.copy_(source, non_blocking=True), sync) for _ in range(5)]
    return (1 << 30) / min(times)


def sync():
    torch.cuda.synchronize()


def differs(found, expected):
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def gpu(options):
    """A Llama-like model of 7 GB where 2 GiB are allowed."""
    source = llama("cuda")
    total = sum(p.nbytes for p in source.parameters())
    inputs = {n: torch.randint(32000, (1, n)) for n in (512, 1)}
    with torch.no_grad():
        expected = {n: source(ids.cuda(), use_cache=False).logits for n, ids in inputs.items()}
    fits(source, inputs[512], options)
    source = source.cpu()
    torch.cuda.empty_cache()
    contenders = []
    for name in CONTENDERS:
        try:
            contenders.append(Contender(name, source))
            contenders[-1].measure_own()
        except Exception as error:  # a peer that is not there or does not run has no row
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
    del source
    link = link_speed()
    limit = (total - CAP) / link
    print(
        f"{total / 1e9:.2f} GB of weights, {CAP / 2**30:.0f} GiB allowed, "
        f"link {link / 1e9:.1f} GB/s"
    )
    rows = []
    for tokens, ids in inputs.items():
        for contender in contenders:
            contender.times.clear()
            for _ in range(8):  # what the host computes is settled after that many calls
                contender.call(ids)
            contender.peak_bytes = contender.peak(ids)
            contender.error = differs(contender.call(ids), expected[tokens])
            assert contender.error < 5e-2, (contender.name, tokens, contender.error)  # of bfloat16
        for _ in range(options.pairs):
            for contender in contenders:
                contender.times.append(timed(lambda c=contender, ids=ids: c.call(ids), sync))
        first = statistics.median(contenders[0].times)
        for contender in contenders:
            took = statistics.median(contender.times)
            rows.append(
                [
                    tokens,
                    contender.name,
                    f"{took * 1e3:.1f} ms",
                    f"{min(contender.times) * 1e3:.1f} ms",
                    f"{took / first:.2f}",
                    f"{limit * 1e3:.1f} ms",
                    f"{contender.peak_bytes / 2**30:.2f} GiB",
                    f"{contender.error:.1e}",
                    f"{contender.setup:.1f} s",
                ]
            )
    header = ["tokens", "", "median", "best", "of Kerf's", "limit (link alone)", "peak"]
    print(table([*header, "differs by", "set-up"], rows), flush=True)
    print("kerf:", contenders[0].model.stats, flush=True)
    generate(contenders, options)


def generate(contenders, options):
    ids = torch.randint(32000, (1, 32))
    for contender in contenders:
        model = contender.model
        try:

            def make(n, model=model):
                with torch.no_grad():
                    return model.generate(
                        ids.to("cuda"), max_new_tokens=n, do_sample=False, pad_token_id=0
                    )

            make(3)
            took = timed(lambda: make(options.new_tokens), sync)
        except Exception as error:
            print(f"{contender.name}: generate: {type(error).__name__}: {error}", flush=True)
            continue
        print(
            f"generate: {contender.name}: {took / options.new_tokens * 1e3:.1f} ms a token",
            flush=True,
        )


def fits(model, ids, options):
    """All weights fit: against the plain module."""
    placed_model = copy.deepcopy(model).cpu()
    placed = kerf.place(placed_model, max_memory={0: "12GiB"})
    ids = ids.cuda()
    with torch.no_grad():
        for few in (ids, ids[:, :1]):
            assert torch.equal(
                placed(few, use_cache=False).logits, model(few, use_cache=False).logits
            )
            one = compare(
                lambda few=few: model(few, use_cache=False),
                lambda few=few: placed_model(few, use_cache=False),
                options.pairs * 4,
                sync=sync,
            )
            print(
                f"all fits, {few.shape[1]} tokens: plain {one.a * 1e3:.2f} ms, "
                f"Kerf {one.b * 1e3:.2f} ms, plain / Kerf {one.ratio:.3f} (+-{one.spread:.3f})",
                flush=True,
            )
    placed.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["disk", "unit", "gpu"])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--threads", type=int, help="default: all")
    parser.add_argument("--device", default="cpu", help="of the units")
    parser.add_argument("--new-tokens", type=int, default=20)
    parser.add_argument("--folder", help="for the file; default: the system's own for such")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(machine())
    {"disk": disk, "unit": unit, "gpu": gpu}[options.what](options)


if __name__ == "__main__":
    main()
