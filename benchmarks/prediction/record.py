#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Records what models take on a GPU, with PyTorch alone: the truth that predictions are held to.

    python benchmarks/prediction/record.py times --out h200_times.json
    python benchmarks/prediction/record.py memory --out h200_memory.json
    python benchmarks/prediction/record.py blocks --out h200_blocks.json.gz

Weights are random (seed 0), inputs too. A model that fails is listed with its error.
"""

import argparse
import gc
import gzip
import importlib.metadata
import json
import pathlib
import statistics
import sys
import time

import torch
import transformers
from torch.utils.checkpoint import checkpoint

IMAGES = (
    "resnet18 resnet50 resnext50_32x4d densenet121 mobilenet_v3_large efficientnet_b0 googlenet "
    "inception_v3 vgg16 convnext_tiny vit_b_16 swin_t"
).split()
MORE_IMAGES = "wide_resnet50_2 squeezenet1_1 shufflenet_v2_x1_0 regnet_y_400mf".split()
TEXTS = "gpt2 bert roberta distilbert t5 llama opt mistral".split()
BLOCKS = "resnet18 densenet121 googlenet vit_b_16 gpt2 t5".split()
TOKENS = 128
VOCABULARY = 8192
BATCH = 8  # of a training step
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 768, "intermediate_size": 2048}


def text_model(name):
    t = transformers
    heads = {"num_hidden_layers": 8, "num_attention_heads": 12}
    configs = {
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=VOCABULARY)),
        "bert": lambda: t.BertForMaskedLM(t.BertConfig(**SMALL, **heads)),
        "roberta": lambda: t.RobertaForMaskedLM(t.RobertaConfig(**SMALL, **heads)),
        "distilbert": lambda: t.DistilBertForMaskedLM(t.DistilBertConfig(vocab_size=VOCABULARY)),
        "t5": lambda: t.T5ForConditionalGeneration(t.T5Config(vocab_size=VOCABULARY)),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**SMALL, **heads)),
        "opt": lambda: t.OPTForCausalLM(
            t.OPTConfig(vocab_size=VOCABULARY, hidden_size=768, ffn_dim=3072, **heads)
        ),
        "mistral": lambda: t.MistralForCausalLM(
            t.MistralConfig(**SMALL, **heads, num_key_value_heads=4)
        ),
    }
    model = configs[name]()
    for config in [m.config for m in model.modules() if hasattr(m, "config")]:
        config.use_cache = False
    return model


def image_model(name):
    import torchvision  # a machine that measures other models need not have it

    extra = (
        {"aux_logits": False, "init_weights": False}
        if name in ("googlenet", "inception_v3")
        else {}
    )
    return getattr(torchvision.models, name)(weights=None, **extra)


def inputs_of(name, batch, device="cuda"):
    """A model's keyword arguments."""
    if name in TEXTS:
        ids = torch.randint(0, VOCABULARY, (batch, TOKENS), device=device)
        both = {"input_ids": ids, "decoder_input_ids": ids}
        return both if name == "t5" else {"input_ids": ids}
    side = 299 if name == "inception_v3" else 224
    return {"x": torch.randn(batch, 3, side, side, device=device)}


def make(name, batch, training, device="cuda"):
    """The model on the device, and its keyword arguments."""
    torch.manual_seed(0)
    model = text_model(name) if name in TEXTS else image_model(name)
    return model.to(device).train(training), inputs_of(name, batch, device)


def call(model, inputs):
    if "x" in inputs:
        return model(inputs["x"])
    return model(**inputs).logits


def add_checkpoints(model):
    """Recomputes every block that repeats: children of sequences that hold several modules."""
    names = []
    inside = ()
    for name, module in model.named_modules():
        parent = model.get_submodule(name.rpartition(".")[0])
        is_block = isinstance(parent, (torch.nn.Sequential, torch.nn.ModuleList))
        if inside and name.startswith(inside):
            continue
        if not is_block or sum(1 for _ in module.modules()) < 4:
            continue
        names.append(name)
        inside = (*inside, name + ".")
        forward = module.forward

        def recomputed(*args, forward=forward, **kwargs):
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)

        module.forward = recomputed
    return names


def free():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "low": low, "high": high, "runs": len(values)}


def time_forward(name, batch, runs=40):
    model, inputs = make(name, batch, training=False)
    issued, walls, device = [], [], []
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.no_grad():
        for _ in range(10):
            call(model, inputs)
        torch.cuda.synchronize()
        for _ in range(runs):
            before = time.perf_counter()
            call(model, inputs)
            issued.append(1e3 * (time.perf_counter() - before))
            torch.cuda.synchronize()
            walls.append(1e3 * (time.perf_counter() - before))
        # Behind a kernel that sleeps until the host is done: what the device takes by itself.
        cycles = int(2e6 * 2.0 * (max(issued) + 1))
        for _ in range(runs):
            torch.cuda._sleep(cycles)
            start.record()
            call(model, inputs)
            end.record()
            torch.cuda.synchronize()
            device.append(start.elapsed_time(end))
    return {
        "wall_ms": quartiles(walls),
        "issue_ms": quartiles(issued),
        "device_ms": quartiles(device),
    }


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
}


def train_step(model, inputs, optimizer):
    loss = call(model, inputs).float().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def saved_storages(model, inputs):
    """Bytes of the storages that backward keeps, parameters and buffers left out."""
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    seen = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if tensor.is_cuda and storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # an output that keeps itself would never be freed

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call(model, inputs)
    return sorted(seen.values(), reverse=True)


def step_memory(name, optimizer_name, checkpointed):
    free()
    empty = torch.cuda.memory_allocated()  # what libraries keep: workspaces
    model, inputs = make(name, BATCH, training=True)
    regions = add_checkpoints(model) if checkpointed else []
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    free()
    steps = []
    for _ in range(4):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        train_step(model, inputs, optimizer)
        torch.cuda.synchronize()
        steps.append(
            {
                "allocated_before": before,
                "peak_allocated": torch.cuda.max_memory_allocated(),
                "peak_reserved": torch.cuda.max_memory_reserved(),
                "allocated_after": torch.cuda.memory_allocated(),
            }
        )
    saved = saved_storages(model, inputs)
    return {
        "allocated_empty": empty,
        "parameter_bytes": sum(p.nbytes for p in model.parameters()),
        "buffer_bytes": sum(b.nbytes for b in model.buffers()),
        "input_bytes": sum(t.nbytes for t in inputs.values()),
        "recomputed": regions,
        "saved_bytes": sum(saved),
        "largest_saved": saved[:12],
        "num_saved": len(saved),
        "steps": steps,
    }


def allocator_events(name, optimizer_name="adamw"):
    """Every block of the second step as [what, number, bytes], numbered as they are asked for."""
    free()
    model, inputs = make(name, BATCH, training=True)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    train_step(model, inputs, optimizer)
    torch.cuda.synchronize()
    reserved_before = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=400_000, context=None)
    train_step(model, inputs, optimizer)
    torch.cuda.synchronize()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    number, events = {}, []
    for entry in trace:
        what = entry["action"]
        if what == "alloc":
            number[entry["addr"]] = len(number)
        if what in ("segment_alloc", "segment_free", "segment_map", "segment_unmap"):
            events.append([what, -1, entry["size"]])
        elif what in ("alloc", "free_requested"):
            # Blocks from before the step have no number.
            events.append([what, number.get(entry["addr"], -1), entry["size"]])
    return {
        "reserved_before": reserved_before,
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
        "events": events,
    }


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def about():
    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "transformers": transformers.__version__,
        "torchvision": version("torchvision"),
        "date": time.strftime("%Y-%m-%d"),
        "step": "output.float().mean().backward(); step(); zero_grad(set_to_none=True)",
        "tokens": TOKENS,
        "training_batch": BATCH,
        "tf32": torch.backends.cuda.matmul.allow_tf32,
    }


def tasks(kind):
    if kind == "times":
        for name in [*IMAGES, *MORE_IMAGES, *TEXTS]:
            for batch in (1, 8, 32):
                yield f"{name} {batch}", lambda n=name, b=batch: time_forward(n, b)
    elif kind == "memory":
        for name in [*IMAGES, *TEXTS]:
            for optimizer in OPTIMIZERS:
                for again in (False, True):
                    label = f"{name} {optimizer}{' checkpointed' if again else ''}"
                    yield label, lambda n=name, o=optimizer, a=again: step_memory(n, o, a)
    else:
        for name in BLOCKS:
            yield name, lambda n=name: allocator_events(n)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("times", "memory", "blocks"))
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", help="models with this in their name")
    options = parser.parse_args()
    rows, failed = {}, 0
    for label, task in tasks(options.what):
        if options.only and options.only not in label:
            continue
        free()
        try:
            rows[label] = task()
        except Exception as error:  # recorded, and the exit status says so
            rows[label] = {"error": f"{type(error).__name__}: {error}"[:300]}
            failed += 1
            print(label, rows[label]["error"], file=sys.stderr)
        text = json.dumps({**about(), "rows": rows}, indent=None if options.what == "blocks" else 1)
        if options.out.suffix == ".gz":
            options.out.write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            options.out.write_text(text + "\n")
    print(f"{len(rows)} rows, {failed} failed: {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
