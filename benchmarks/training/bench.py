#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps: against eager, against what was simulated, and what a hop costs.

    python benchmarks/training/bench.py eager       # one stage against the model itself
    python benchmarks/training/bench.py schedules   # two stages, measured against simulated
    python benchmarks/training/bench.py hop         # stages that do next to nothing
    python benchmarks/training/bench.py memory      # gpipe and 1f1b: measured against predicted
    python benchmarks/training/bench.py peer        # torch.distributed.pipelining, the same cuts
    python benchmarks/training/bench.py ceiling     # two stages against m p / (m + p - 1)
    python benchmarks/training/bench.py dropout     # two stages that draw at the same time

Gradients are compared first: a row is printed only for a step that gives the model's.
"""

import argparse
import pathlib
import statistics
import sys
import threading
import warnings

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from peer import Peer  # noqa: E402
from timing import compare, geomean, timed  # noqa: E402

import kerf  # noqa: E402


def language(kind, batch, length):
    import transformers as t

    torch.manual_seed(0)
    if kind == "gpt2":
        config = t.GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=2000)
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        model = t.GPT2LMHeadModel(config)
    elif kind == "llama":
        model = t.LlamaForCausalLM(
            t.LlamaConfig(
                hidden_size=256,
                intermediate_size=512,
                num_hidden_layers=4,
                vocab_size=2000,
                num_attention_heads=4,
                num_key_value_heads=2,
            )
        )
    else:
        config = t.BertConfig(
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
            vocab_size=2000,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        model = t.BertForMaskedLM(config)
    ids = torch.randint(0, 2000, (batch, length))
    return model.train(), (), {"input_ids": ids}


class ConvNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, s, 1), nn.GroupNorm(4, b), nn.ReLU(inplace=True))
            for a, b, s in [(3, width, 1), (width, width, 1), (width, 2 * width, 2)]
            + [(2 * width, 2 * width, 1), (2 * width, 4 * width, 2), (4 * width, 4 * width, 1)]
        )
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def mlp(width, layers, batch):
    torch.manual_seed(0)
    body = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*body).train(), (torch.randn(batch, width),), {}


def lstm(batch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(128, 256, 2, batch_first=True)
            self.head = nn.Linear(256, 50)

        def forward(self, x):
            return self.head(self.rnn(x)[0])

    torch.manual_seed(0)
    return Model().train(), (torch.randn(batch, 32, 128),), {}


def convnet(batch):
    torch.manual_seed(0)
    return ConvNet().train(), (torch.randn(batch, 3, 32, 32),), {}


MODELS = {
    "gpt2 4x256": lambda b: language("gpt2", b, 64),
    "llama 4x256": lambda b: language("llama", b, 64),
    "bert 4x256": lambda b: language("bert", b, 64),
    "convnet": convnet,
    "lstm 2x256": lstm,
    "mlp 8x512": lambda b: mlp(512, 8, b),
}


def loss_fn(result, target):
    del target
    logits = result if isinstance(result, torch.Tensor) else result.logits
    return (logits.float() ** 2).mean()


def gradients(model):
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def check(model, pipe, args, kwargs):
    """Largest relative difference of the gradients from those of the model itself."""
    model.zero_grad()
    pipe.train_step(*args, **kwargs, loss_fn=loss_fn)
    found = gradients(model)
    model.zero_grad()
    loss_fn(model(*args, **kwargs), None).backward()
    worst = 0.0
    for name, expected in gradients(model).items():
        scale = max(1e-6, expected.abs().max().item())
        worst = max(worst, (found[name] - expected).abs().max().item() / scale)
    assert worst < 1e-3, worst
    return worst


def plan_of(graph, model, args, kwargs, devices, n_microbatches, **options):
    return kerf.plan(
        graph,
        devices,
        n_microbatches=n_microbatches,
        training=True,
        recompute="none",
        model=model,
        args=args,
        kwargs=kwargs,
        **options,
    )


def against_eager(options):
    ratios = []
    print("model          batch   eager     Kerf   ratio  spread   off by")
    for name, make in MODELS.items():
        for batch in (1, 8):
            model, args, kwargs = make(batch)
            graph = kerf.trace(model, args, kwargs)
            plan = kerf.plan(graph, ["cpu:0"], training=True, recompute="none")
            with kerf.Pipeline(model, plan, frozen=True) as pipe:
                worst = check(model, pipe, args, kwargs)

                def eager(model=model, args=args, kwargs=kwargs):
                    model.zero_grad()
                    loss_fn(model(*args, **kwargs), None).backward()

                def kerf_step(model=model, pipe=pipe, args=args, kwargs=kwargs):
                    model.zero_grad()
                    pipe.train_step(*args, **kwargs, loss_fn=loss_fn)

                row = compare(eager, kerf_step, pairs=options.pairs)
            ratios.append(row.ratio)
            print(
                f"{name:14} {batch:5} {row.a * 1e3:6.2f} ms {row.b * 1e3:6.2f} ms {row.ratio:6.3f}"
                f" {row.spread:6.3f}  {worst:.1e}",
                flush=True,
            )
    print(f"geometric mean {geomean(ratios):.3f}; the limit is the same kernels without Python")


def schedules(options):
    print("model          schedule      m   simulated  measured   ratio  spread")
    for name in ("mlp 8x512", "gpt2 4x256", "convnet"):
        batch = 32
        model, args, kwargs = MODELS[name](batch)
        graph = kerf.trace(model, args, kwargs)
        for schedule in ("gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"):
            more = {"stages_per_device": 2} if schedule == "interleaved_1f1b" else {}
            plan = plan_of(
                graph, model, args, kwargs, ["cpu:0", "cpu:1"], 8, schedule=schedule, **more
            )
            with kerf.Pipeline(model, plan, frozen=True) as pipe:
                check(model, pipe, args, kwargs)
                pipe.record = True
                ends = []
                for _ in range(options.pairs):
                    model.zero_grad()
                    pipe.train_step(*args, **kwargs, loss_fn=loss_fn)
                    ends.append(pipe.timeline.step_time)
            low, middle, high = statistics.quantiles(ends, n=4)
            predicted = kerf.simulate(plan).step_time
            print(
                f"{name:14} {schedule:17} 8 {predicted * 1e3:8.2f} ms {middle * 1e3:6.2f} ms "
                f"{predicted / middle:6.3f} {(high - low) / 2 / middle:6.3f}",
                flush=True,
            )


def hop(options):
    """Two stages on two cores with nothing to compute, against one: what a micro-batch adds."""
    model, args, kwargs = mlp(8, 2, 64)
    graph = kerf.trace(model, args, kwargs)
    times = {}
    for devices in (["cpu:0"], ["cpu:0", "cpu:1"]):
        for m in (1, 33):
            plan = kerf.plan(
                graph, devices, n_microbatches=m, training=True, recompute="none", method="even"
            )
            with kerf.Pipeline(model, plan, frozen=True) as pipe:
                steps = []
                for _ in range(20 + options.pairs * 5):
                    model.zero_grad()
                    steps.append(timed(lambda p=pipe: p.train_step(*args, loss_fn=loss_fn)))
                times[len(devices), m] = statistics.median(steps[20:])
    each = {d: (times[d, 33] - times[d, 1]) / 32 for d in (1, 2)}
    print(
        f"per micro-batch, forward and backward: {each[1] * 1e6:.1f} us in one stage, "
        f"{each[2] * 1e6:.1f} us in two"
    )


def memory(options):
    del options
    model, args, kwargs = mlp(512, 12, 256)
    graph = kerf.trace(model, args, kwargs)
    for schedule in ("gpipe", "1f1b"):
        plan = plan_of(graph, model, args, kwargs, ["cpu:0", "cpu:1"], 8, schedule=schedule)
        predicted = kerf.simulate(plan)
        with kerf.Pipeline(model, plan, frozen=True) as pipe:
            check(model, pipe, args, kwargs)
            model.zero_grad()
            pipe.record = True
            pipe.train_step(*args, **kwargs, loss_fn=loss_fn)
            for device in ("cpu:0", "cpu:1"):
                # Nobody has made an optimizer, whose state the plan counts.
                state = sum(s.optimizer_bytes for s in plan.stages if s.device == device)
                expected = (predicted.peak(device) - state) / 2**20
                measured = pipe.timeline.peak(device) / 2**20
                print(f"{schedule:6} {device}: {expected:.2f} MiB, measured {measured:.2f} MiB")


class Block(nn.Module):
    """A layer of a GPT-2: attention and a perceptron, each after a norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).split(width, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def small_mlp():
    """Stages of two layers of 64: what a step costs besides its kernels."""
    torch.manual_seed(0)
    layers = [m for _ in range(4) for m in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers).train(), (torch.randn(64, 64),)


def small_gpt():
    torch.manual_seed(0)
    body = [Block(128, 4) for _ in range(4)]
    model = nn.Sequential(nn.Embedding(1000, 128), *body, nn.LayerNorm(128), nn.Linear(128, 1000))
    return model.train(), (torch.randint(0, 1000, (16, 64)),)


def stage_of_layers(graph, cuts):
    """The plan that cuts a Sequential before the layers `cuts`, as the peer does."""
    stages = {}
    for node in graph.nodes:
        layer = int(node["scope"].split(".")[0])
        stages[node["name"]] = sum(layer >= cut for cut in cuts)
    return stages


def cut_at(graph, cuts, n_microbatches, schedule):
    stages = len(cuts) + 1
    names = [f"cpu:{i}" for i in range(stages)]
    return kerf.plan(
        graph,
        names,
        n_microbatches=n_microbatches,
        training=True,
        recompute="none",
        schedule=schedule,
        method="aot",
        node_to_partition=stage_of_layers(graph, cuts),
        partition_to_device=dict(enumerate(names)),
    )


def against_peer(options):
    """torch.distributed.pipelining with the same cuts, its processes and our threads in turns."""
    print("model          stages  schedule  pipelining     Kerf   ratio  spread   off by")
    stages = options.stages
    # Four blocks each: of a layer and its activation, after nothing; of one layer, after a table.
    for name, make, layers, first in (("mlp 64", small_mlp, 2, 0), ("gpt-2 like", small_gpt, 1, 1)):
        model, args = make()
        cuts = [first + s * layers * 4 // stages for s in range(1, stages)]
        graph = kerf.trace(model, args)
        for schedule in ("gpipe", "1f1b"):
            plan = cut_at(graph, cuts, 8, schedule)
            with (
                kerf.Pipeline(model, plan, frozen=True) as pipe,
                Peer(make, cuts, loss_fn, schedule, 8) as peer,
            ):
                model.zero_grad()
                pipe.train_step(*args, loss_fn=loss_fn)
                found, expected = gradients(model), peer.gradients()
                assert found.keys() == expected.keys()
                worst = max(
                    ((found[n] - g).abs().max() / g.abs().max().clamp_min(1e-9)).item()
                    for n, g in expected.items()
                )
                assert worst < 1e-3, worst

                def kerf_step(model=model, pipe=pipe, args=args):
                    model.zero_grad()
                    pipe.train_step(*args, loss_fn=loss_fn)

                row = compare(peer.step, kerf_step, pairs=options.pairs)
            print(
                f"{name:14} {stages:6}  {schedule:8} {row.a * 1e3:8.2f} ms {row.b * 1e3:6.2f} ms"
                f" {row.ratio:7.2f} {row.spread:7.3f}  {worst:.1e}",
                flush=True,
            )


def both_at_once(work):
    """How much longer a step of `work` takes on this machine while another core does the same."""

    def alone():
        torch.set_num_threads(1)
        work()

    def together():
        threads = [threading.Thread(target=alone) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def one():
        thread = threading.Thread(target=alone)
        thread.start()
        thread.join()

    return 1 / compare(one, together, pairs=15).ratio


def ceiling(options):
    """Two equal stages against one on one core, m = 32; perfect is m p / (m + p - 1)."""
    m = 32
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(256, 4) for _ in range(4)]).train()
    x = torch.randn(2 * m, 64, 256)
    graph = kerf.trace(model, (x,))
    piece = torch.randn(512, 512)
    loss_of_cores = both_at_once(lambda: [piece @ piece for _ in range(20)])
    for schedule in ("gpipe", "1f1b"):
        one = cut_at(graph, [], m, schedule)
        two = cut_at(graph, [2], m, schedule)
        with (
            kerf.Pipeline(model, one, frozen=True) as a,
            kerf.Pipeline(model, two, frozen=True) as b,
        ):
            check(model, b, (x,), {})
            row = compare(
                lambda: a.train_step(x, loss_fn=loss_fn),
                lambda: b.train_step(x, loss_fn=loss_fn),
                pairs=options.pairs,
            )
        perfect = m * 2 / (m + 1)
        print(
            f"{schedule:6} {row.a * 1e3:.1f} ms in one stage, {row.b * 1e3:.1f} ms in two: "
            f"{row.ratio:.3f} of {perfect:.3f}, share {row.ratio / perfect:.3f} "
            f"± {row.spread:.3f}; two products at once take {loss_of_cores:.3f} of one's time here",
            flush=True,
        )


def dropout(options):
    """Two stages that draw at the same time: does dropout cost more than its own time?"""
    times = {}
    for p in (0.0, 0.1):
        torch.manual_seed(0)
        layers = [
            m
            for _ in range(4)
            for m in (nn.Linear(512, 512), nn.Dropout(p) if p else nn.Identity())
        ]
        model = nn.Sequential(*layers).train()
        x = torch.randn(1024, 512)
        graph = kerf.trace(model, (x,))
        for stages in (1, 2):
            plan = cut_at(graph, [4] if stages == 2 else [], 8, "1f1b")
            with kerf.Pipeline(model, plan, frozen=True) as pipe:
                steps = []
                for _ in range(5 + options.pairs):
                    model.zero_grad()
                    steps.append(timed(lambda pipe=pipe, x=x: pipe.train_step(x, loss_fn=loss_fn)))
                times[p, stages] = statistics.median(steps[5:])
    own = (times[0.1, 1] - times[0.0, 1]) / 2  # two cores share it
    limit = times[0.0, 2] + own
    print(
        f"two stages: {times[0.0, 2] * 1e3:.2f} ms without dropout, "
        f"{times[0.1, 2] * 1e3:.2f} ms with; its own time, shared by two cores, is "
        f"{own * 1e3:.2f} ms: "
        f"{times[0.1, 2] / limit:.3f} of the sum"
    )


QUESTIONS = {
    "eager": against_eager,
    "schedules": schedules,
    "hop": hop,
    "memory": memory,
    "peer": against_peer,
    "ceiling": ceiling,
    "dropout": dropout,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=list(QUESTIONS))
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stages", type=int, default=2, help="for peer: 2 or 4")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    QUESTIONS[options.what](options)


if __name__ == "__main__":
    main()
