# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""How close do two CPU stages come to twice one? What does a hop cost? See README.md."""

import argparse
import statistics
import sys
import threading
import time
from pathlib import Path

import torch
import torch.nn as nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from timing import compare, machine, table, timed

import kerf
from kerf import _core


def probe_scaling(seconds=1.0):
    """Work done by two threads at once over work done by one: 2 on two idle cores."""
    a = torch.randn(384, 384)

    def work(counts, i, stop):
        torch.set_num_threads(1)
        while time.perf_counter() < stop:
            torch.mm(a, a)
            counts[i] += 1

    def rate(threads):
        counts = [0] * threads
        stop = time.perf_counter() + seconds
        workers = [threading.Thread(target=work, args=(counts, i, stop)) for i in range(threads)]
        [w.start() for w in workers]
        [w.join() for w in workers]
        return sum(counts)

    before = torch.get_num_threads()
    rate(1)
    ratio = statistics.median(rate(2) / rate(1) for _ in range(3))
    torch.set_num_threads(before)
    return ratio


class Blocks(nn.Module):
    """Equal blocks, so that halves are balanced."""

    def __init__(self, count=8, width=512):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(count)
        )

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def halves(graph):
    """Node indices of the two equal halves: blocks 0..n/2-1 and the rest."""
    scopes = [node["scope"] for node in graph.nodes]
    count = 1 + max(int(s.split(".")[1]) for s in scopes if s.startswith("blocks."))
    cut = next(i for i, s in enumerate(scopes) if s.startswith(f"blocks.{count // 2}"))
    return [list(range(cut)), list(range(cut, len(scopes)))]


def make(graph, model, cluster, stages, devices, m, batch, profile=None):
    profile = profile or _core.estimate(graph)
    plan = _core.make_plan(graph, profile, cluster, stages, devices, n_microbatches=m, batch=batch)
    return kerf.Pipeline(model, plan, graph=graph), plan


def scaling(m, pairs):
    model = Blocks().eval()
    rows = 64
    x = torch.randn(m * rows, 512)
    graph = kerf.trace(model, (x,))
    cluster = _core.make_cluster(["cpu:0", "cpu:1"])
    two_stages = halves(graph)
    profile = kerf.profile(model, graph, (x,), batch=rows, devices=cluster)
    one, _ = make(graph, model, cluster, [sum(two_stages, [])], ["cpu:0"], m, m * rows, profile)
    two, plan = make(graph, model, cluster, two_stages, ["cpu:0", "cpu:1"], m, m * rows, profile)
    expected = model(x).detach()
    for pipe in (one, two):
        torch.testing.assert_close(pipe(x), expected, rtol=1e-4, atol=1e-5)
    times = [stage.time for stage in plan.stages]
    balance = max(times) / min(times)
    c = compare(lambda: one(x), lambda: two(x), pairs)
    ceiling = m * 2 / (m + 1)
    return [
        ["one stage, one core", f"{c.a * 1e3:.1f} ms", ""],
        [
            "two stages, two cores",
            f"{c.b * 1e3:.1f} ms",
            f"predicted {plan.predicted_step_time * 1e3:.1f} ms",
        ],
        ["balance of the measured halves", f"{balance:.3f}", "target <= 1.03"],
        ["speed-up", f"{c.ratio:.3f} (A/A ±{c.spread:.3f})", f"ceiling {ceiling:.3f}"],
        ["share of the ceiling", f"{c.ratio / ceiling:.3f}", "target >= 0.92"],
    ]


class Tiny(nn.Module):
    def forward(self, x):
        return x + 1 + 1


def hop(calls=300):
    """One more hop of a tiny tensor: two one-node stages on two devices against both on one."""
    model = Tiny().eval()
    x = torch.randn(2, 4)
    graph = kerf.trace(model, (x,))
    cluster = _core.make_cluster(["cpu:0", "cpu:1"])
    stages = [[i] for i in range(graph.num_nodes)]
    assert len(stages) == 2
    same, _ = make(graph, model, cluster, stages, ["cpu:0", "cpu:0"], 1, 2)
    across, _ = make(graph, model, cluster, stages, ["cpu:0", "cpu:1"], 1, 2)
    assert torch.equal(same(x), model(x)) and torch.equal(across(x), model(x))
    for pipe in (same, across):
        for _ in range(50):
            pipe(x)
    differences = [timed(lambda: across(x)) - timed(lambda: same(x)) for _ in range(calls)]
    whole = [timed(lambda: across(x)) for _ in range(calls)]
    return [
        ["cost of a hop", f"{statistics.median(differences) * 1e6:.1f} us", "target <= 50 us"],
        ["a whole call of two tiny stages", f"{statistics.median(whole) * 1e6:.1f} us", ""],
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--microbatches", type=int, default=32)
    parser.add_argument("--pairs", type=int, default=30)
    options = parser.parse_args()
    scale = probe_scaling()
    rows = [["two threads against one, plain GEMM", f"{scale:.2f}x", "1.9 needed"]]
    if scale >= 1.9:
        rows += scaling(options.microbatches, options.pairs)
    else:
        rows.append(["speed-up", "skipped: two threads do not scale here", ""])
    rows += hop()
    print(machine())
    print(table(["what", "measured", "limit"], rows))


if __name__ == "__main__":
    main()
