# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Timing on noisy machines: contenders take turns, ratios are taken within a turn.

Each turn runs A B A. The ratio of the two A runs of all turns tells what this machine calls
"equal": a difference between A and B within that spread is noise.
"""

import dataclasses
import platform
import statistics
import time


@dataclasses.dataclass
class Comparison:
    """Median times in seconds, and how much faster B is than A."""

    a: float
    b: float
    ratio: float  # median of A / B: above 1, B is faster
    spread: float  # half the interquartile range of A / A
    pairs: int


def compare(a, b, pairs=30, warmup=3, sync=lambda: None):
    for _ in range(warmup):
        a()
        b()
    ratios, same, times_a, times_b = [], [], [], []
    for i in range(pairs):
        # The order within a turn alternates, so that neither profits from what the other left.
        first = timed(a, sync)
        middle = timed(b, sync)
        last = timed(a, sync)
        ratios.append((first if i % 2 else last) / middle)
        same.append(first / last)
        times_a += [first, last]
        times_b.append(middle)
    low, _, high = statistics.quantiles(same, n=4)
    return Comparison(
        statistics.median(times_a),
        statistics.median(times_b),
        statistics.median(ratios),
        (high - low) / 2,
        pairs,
    )


def timed(function, sync=lambda: None):
    sync()
    start = time.perf_counter()
    function()
    sync()
    return time.perf_counter() - start


def geomean(values):
    return statistics.geometric_mean(values)


def table(header, rows):
    """A Markdown table with aligned columns."""
    text = [header, ["---"] * len(header), *[[str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in text) for i in range(len(header))]
    lines = []
    for row in text:
        cells = [
            c * (w if c == "---" else 1) if c == "---" else c.ljust(w)
            for c, w in zip(row, widths, strict=True)
        ]
        cells = ["-" * w if c.startswith("---") else c for c, w in zip(cells, widths, strict=True)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine():
    import torch

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            model = next(line.split(":")[1].strip() for line in info if "model name" in line)
    except (OSError, StopIteration):
        pass
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no accelerator"
    return (
        f"{model}, {torch.get_num_threads()} threads, {device}, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )
