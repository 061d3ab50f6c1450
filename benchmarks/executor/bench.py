# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Is one stage in the C++ executor as fast as eager PyTorch? See README.md."""

import argparse
import gc
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from real_models import LAUNCH_BOUND, LONG, MODELS, TORCHVISION, torchvision_model
from timing import compare, geomean, machine, table

import kerf


class Case:
    """One model on one device: eager, the pipeline, and what both can be held to."""

    def __init__(self, factory, batch, device, **more):
        torch.manual_seed(0)
        self.device = device
        self.model, args, kwargs = factory(batch, **more)
        self.graph = kerf.trace(self.model, args, kwargs)
        self.model = self.model.to(device)
        self.args = tuple(a.to(device) for a in args)
        self.kwargs = {k: v.to(device) for k, v in kwargs.items()}
        self.on_card = device != "cpu"
        self.sync = torch.cuda.synchronize if self.on_card else (lambda: None)

    def pipeline(self, **options):
        name = self.device if self.on_card else "cpu:0"
        plan = kerf.plan(self.graph, devices=[name], method="single")
        pipe = kerf.Pipeline(self.model, plan, **options)
        return pipe, lambda: pipe(*self.args, **self.kwargs)

    def eager(self):
        with torch.no_grad():
            return self.model(*self.args, **self.kwargs)

    def check(self, pipe):
        """The largest difference from eager's results, of the fourth call: it is a replay."""
        for _ in range(3):
            pipe(*self.args, **self.kwargs)
        tolerance = 1e-4 if not self.on_card else 1e-3
        if any(p.dtype is torch.bfloat16 for p in self.model.parameters()):
            tolerance = 5e-2
        return pipe.check(*self.args, tolerance=tolerance, **self.kwargs)

    def replayed(self):
        """The pipeline's own kernels as one CUDA graph, with nothing around it: the limit."""
        _, call = self.pipeline(cuda_graphs=False)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            graph.kept = call()
        return graph

    def peak(self, function):
        """The most bytes allocated while ``function`` runs, above what is there before."""
        function()
        self.sync()
        gc.collect()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        function()
        self.sync()
        return torch.cuda.max_memory_allocated() - before


def small_batches(options):
    names = {n: f for n, f in LAUNCH_BOUND.items()} if options.many else dict(MODELS)
    if options.many and options.device != "cpu":
        names.update({f"torchvision {n}": torchvision_model(n) for n in TORCHVISION[:7]})
    names = {n: f for n, f in names.items() if not options.models or n in options.models}
    rows, ratios, limits = [], [], []
    for name, factory in names.items():
        for batch in options.batches:
            case = Case(factory, batch, options.device)
            pipe, call = case.pipeline()
            difference = case.check(pipe)
            c = compare(case.eager, call, options.pairs, sync=case.sync)
            row = [name, batch, f"{c.a * 1e3:.2f}", f"{c.b * 1e3:.2f}", f"{c.ratio:.3f}"]
            row += [f"±{c.spread:.3f}"]
            if case.on_card:
                limit = case.replayed()
                held = compare(limit.replay, call, options.pairs, sync=case.sync)
                limits.append(held.ratio)
                row += [f"{held.a * 1e3:.2f}", f"{held.ratio:.3f}"]
                del limit
                row += [pipe.recorded()[0]["why_not"] or "yes"]
            row += [f"{difference:.1e}", "yes" if c.ratio >= 1 - max(0.03, c.spread) else "NO"]
            rows.append(row)
            ratios.append(c.ratio)
            print(f"  {name}, batch {batch}: {c.ratio:.3f}", file=sys.stderr, flush=True)
            del case, pipe, call
            gc.collect()
    header = ["model", "batch", "eager ms", "Kerf ms", "eager / Kerf", "A/A"]
    if limits:
        header += ["replayed ms", "replayed / Kerf", "recorded"]
    print(table([*header, "max diff", "within A/A"], rows))
    print(f"\ngeomean of eager / Kerf {geomean(ratios):.3f}, {options.pairs} pairs each")
    if limits:
        print(f"geomean of replayed / Kerf {geomean(limits):.3f}")


def long_inputs(options):
    rows = []
    for name, (factory, length) in LONG.items():
        for tokens in options.tokens:
            one = min(length, tokens)
            case = Case(factory, tokens // one, options.device, length=one)
            pipe, call = case.pipeline()
            difference = case.check(pipe)
            c = compare(case.eager, call, max(5, options.pairs // 3), sync=case.sync)
            peaks = case.peak(case.eager), case.peak(call)
            rows.append(
                [
                    name,
                    f"{tokens // one} x {one}",
                    f"{c.a * 1e3:.2f}",
                    f"{c.b * 1e3:.2f}",
                    f"{c.ratio:.3f}",
                    f"±{c.spread:.3f}",
                    f"{peaks[0] / 2**20:.0f}",
                    f"{peaks[1] / 2**20:.0f}",
                    f"{pipe.recorded()[0]['device_bytes'] / 2**20:.0f}",
                    f"{difference:.1e}",
                ]
            )
            print(f"  {name}, {tokens} tokens: {c.ratio:.3f}", file=sys.stderr, flush=True)
            del case, pipe, call
            gc.collect()
            torch.cuda.empty_cache()
    header = ["model", "tokens", "eager ms", "Kerf ms", "eager / Kerf", "A/A"]
    print(table([*header, "eager MiB", "Kerf MiB", "recordings MiB", "max diff"], rows))


def compiled(options):
    rows = []
    for name in ("GPT-2 small", "BERT base", "Llama-like bf16", "Qwen2-like bf16"):
        case = Case(LAUNCH_BOUND[name], 1, options.device)
        pipe, call = case.pipeline()
        case.check(pipe)
        for mode in ("default", "reduce-overhead"):
            torch._dynamo.reset()
            fast = torch.compile(case.model, mode=mode)

            def run(fast=fast, case=case):
                torch.compiler.cudagraph_mark_step_begin()
                with torch.no_grad():
                    return fast(*case.args, **case.kwargs)

            start = time.perf_counter()
            for _ in range(3):
                run()
            case.sync()
            seconds = time.perf_counter() - start
            c = compare(run, call, 10, sync=case.sync)
            rows.append(
                [name, mode, f"{seconds:.1f}", f"{c.a * 1e3:.2f}", f"{c.b * 1e3:.2f}"]
                + [f"{c.ratio:.3f}"]
            )
            print(f"  {name}, {mode}: {c.ratio:.3f}", file=sys.stderr, flush=True)
    print(table(["model", "torch.compile", "compile s", "compiled ms", "Kerf ms", "ratio"], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--models", nargs="+", default=[])
    parser.add_argument("--many", action="store_true", help="24 models in place of three")
    parser.add_argument("--tokens", type=int, nargs="+", default=[], help="long inputs, on a card")
    parser.add_argument("--compiled", action="store_true", help="torch.compile next to it")
    options = parser.parse_args()
    print(machine())
    if options.tokens:
        long_inputs(options)
    elif options.compiled:
        compiled(options)
    else:
        small_batches(options)


if __name__ == "__main__":
    main()
