#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps: against eager, against what was simulated, and what a hop costs.

    python benchmarks/training/bench.py eager       # one stage against the model itself
    python benchmarks/training/bench.py schedules   # two stages, measured against simulated
    python benchmarks/training/bench.py hop         # stages that do next to nothing
    python benchmarks/training/bench.py memory      # gpipe and 1f1b: measured against predicted

Gradients are compared first: a row is printed only for a step that gives the model's.
"""

import argparse
import pathlib
import statistics
import sys
import warnings

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["eager", "schedules", "hop", "memory"])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    questions = {"eager": against_eager, "schedules": schedules, "hop": hop, "memory": memory}
    questions[options.what](options)


if __name__ == "__main__":
    main()
