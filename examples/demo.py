# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The whole way through Kerf: GPT-2 is traced, measured, cut in two, checked, run and trained.

    python examples/demo.py [--out out] [--layers 12] [--width 768] [--batch 8] [--length 64]

The model comes from its config with random weights, so nothing is downloaded. Two logical CPU
devices, each with its own cores and memory limit, stand for two cards.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import kerf

DEVICES = ["cpu:0", "cpu:1"]
MAX_MEMORY = {"cpu:0": "2GiB", "cpu:1": "1GiB"}
N_MICROBATCHES = 4


def main():
    options = parse_options()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    model, ids = make_model(options)

    with step("trace"):
        graph = kerf.trace(model, kwargs={"input_ids": ids})
    print(f"{graph!r}\n")

    micro_batch = -(-options.batch // N_MICROBATCHES)
    with step(f"measure every operator at micro-batch size {micro_batch}"):
        profile = kerf.profile(
            model, graph, kwargs={"input_ids": ids}, batch=micro_batch, devices=DEVICES
        )
    print(f"{profile!r}\n")

    with step("plan and verify"):
        plan = kerf.plan(graph, DEVICES, MAX_MEMORY, n_microbatches=N_MICROBATCHES, profile=profile)
    print(f"\n{plan}\n")

    with kerf.Pipeline(model, plan) as pipe, torch.no_grad():
        with step("run, and compare with the model"):
            difference = pipe.check(input_ids=ids)
        print(f"largest difference from the model: {difference:.3g} (logits and cache)\n")
        timeline, step_time = measure(pipe, ids, options.calls)

    print(kerf.compare_timelines(kerf.simulate(plan), timeline))
    print(f"\n{timeline}\n")
    print(
        f"predicted step {plan.predicted_step_time * 1e3:.1f} ms, measured {step_time * 1e3:.1f} ms"
        f" (median of {options.calls} calls, all of Python included)"
    )
    train(model, ids, options.steps)
    graph.save(out / "model.graph")
    profile.save(out / "profile.json", graph)
    plan.save(out / "plan.json")
    timeline.save(out / "timeline.json")
    print(f"\n{out}/ has model.graph, profile.json, plan.json and timeline.json; now try")
    print(f"  kerf report {out}/plan.json --graph {out}/model.graph --timeline {out}/timeline.json")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="out", help="folder for the files")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=64, help="tokens a sample")
    parser.add_argument("--calls", type=int, default=5, help="timed calls")
    parser.add_argument("--steps", type=int, default=3, help="training steps")
    return parser.parse_args()


def make_model(options):
    torch.manual_seed(0)
    config = GPT2Config(n_layer=options.layers, n_embd=options.width, n_head=options.width // 64)
    ids = torch.randint(config.vocab_size, (options.batch, options.length))
    return GPT2LMHeadModel(config).eval(), ids


def train(model, ids, steps):
    """A few steps of the same model, which makes its own loss from labels."""
    batch = {"input_ids": ids, "labels": ids}
    with step("\ntrace in train mode, and plan its training"):
        graph = kerf.trace(model.train(), kwargs=batch)
        plan = kerf.plan(
            graph, DEVICES, n_microbatches=N_MICROBATCHES, training=True, schedule="1f1b"
        )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with kerf.Pipeline(model, plan) as pipe:
        for number in range(steps):
            with step(f"training step {number}"):
                loss = pipe.train_step(**batch)
                optimizer.step()
                optimizer.zero_grad()
            print(f"  loss {loss.item():.3f}")


class step:
    """Says what is going on and how long it took."""

    def __init__(self, what):
        self.what = what

    def __enter__(self):
        self.start = time.perf_counter()

    def __exit__(self, *exception):
        print(f"{self.what}: {time.perf_counter() - self.start:.2f} s")


def measure(pipe, ids, calls):
    """The timeline and the wall time of the median call."""
    pipe.record = True
    runs = []
    for _ in range(calls):
        start = time.perf_counter()
        pipe(input_ids=ids)
        runs.append((time.perf_counter() - start, pipe.timeline))
    runs.sort(key=lambda run: run[0])
    return runs[len(runs) // 2][1], statistics.median(run[0] for run in runs)


if __name__ == "__main__":
    main()
