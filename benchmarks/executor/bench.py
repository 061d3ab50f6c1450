# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Is one stage in the C++ executor as fast as eager PyTorch? See README.md."""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from real_models import MODELS
from timing import compare, geomean, machine, table

import kerf


def run(name, batch, device, pairs):
    torch.manual_seed(0)
    model, args, kwargs = MODELS[name](batch)
    graph = kerf.trace(model, args, kwargs)
    model = model.to(device)
    args = tuple(a.to(device) for a in args)
    kwargs = {k: v.to(device) for k, v in kwargs.items()}
    plan = kerf.plan(graph, devices=["cpu:0" if device == "cpu" else device], method="single")
    pipe = kerf.Pipeline(model, plan)

    def eager():
        with torch.no_grad():
            return model(*args, **kwargs)

    difference = pipe.check(*args, tolerance=1e-4 if device == "cpu" else 1e-3, **kwargs)
    sync = (lambda: None) if device == "cpu" else torch.cuda.synchronize
    result = compare(eager, lambda: pipe(*args, **kwargs), pairs, sync=sync)
    return result, difference


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    options = parser.parse_args()
    rows, ratios = [], []
    for name in options.models:
        for batch in options.batches:
            c, difference = run(name, batch, options.device, options.pairs)
            ratios.append(c.ratio)
            floor = 1 - max(0.03, c.spread)
            rows.append(
                [
                    name,
                    batch,
                    f"{c.a * 1e3:.2f}",
                    f"{c.b * 1e3:.2f}",
                    f"{c.ratio:.3f}",
                    f"±{c.spread:.3f}",
                    f"{difference:.1e}",
                    "yes" if c.ratio >= floor else "NO",
                ]
            )
            print(f"  {name}, batch {batch}: {c.ratio:.3f}", file=sys.stderr, flush=True)
    print(machine())
    print(
        table(
            [
                "model",
                "batch",
                "eager ms",
                "Kerf ms",
                "eager / Kerf",
                "A/A",
                "max diff",
                "within A/A",
            ],
            rows,
        )
    )
    print(f"\ngeomean {geomean(ratios):.3f}, {options.pairs} pairs each")


if __name__ == "__main__":
    main()
