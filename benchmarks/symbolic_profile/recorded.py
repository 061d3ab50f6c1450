#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Holds predictions to what gpu.py measured once, without a GPU. See README.md.

    python benchmarks/symbolic_profile/recorded.py [resnet18 vit_b_16 ...]

h200_torchvision.json has the measurements; graphs/ has the graphs of the symbolic profiles,
kerf.graph_of(gm), of the same models. Exit status 1 when a figure is off by more than its target.
It needs neither PyTorch nor torchvision.
"""

import argparse
import gzip
import json
import pathlib
import sys

import kerf
from kerf import _core

HERE = pathlib.Path(__file__).parent
TARGETS = {"forward": 0.005, "peak": 0.01, "reserved": 0.05}  # those of gpu.py


def predicted(name):
    """{figure: megabytes}"""
    path = HERE / "graphs" / f"{name}.graph.gz"
    graph = _core.parse_graph(gzip.decompress(path.read_bytes()).decode())
    memory = kerf.memory(graph, optimizer="sgd", device_kind="cuda")
    figures = (memory.added_by_forward, memory.peak, memory.reserved)
    return {key: value / 1e6 for key, value in zip(TARGETS, figures, strict=True)}


def rows(names=()):
    """(name, {figure: (predicted, measured)}), in megabytes"""
    recorded = json.loads((HERE / "h200_torchvision.json").read_text())["rows"]
    for name in names or recorded:
        ours = predicted(name)
        yield name, {key: (ours[key], recorded[name][key]) for key in TARGETS}


def misses(table):
    """(name, figure) of those that are off by more than their target"""
    for name, figures in table:
        for key, (ours, theirs) in figures.items():
            if abs(ours / theirs - 1) > TARGETS[key]:
                yield name, key


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    table = list(rows(parser.parse_args().names))
    missed = set(misses(table))
    print("| model | forward | peak of a step | reserved |\n| --- | --- | --- | --- |")
    for name, figures in table:
        cells = []
        for key, (ours, theirs) in figures.items():
            text = f"{ours:.2f} / {theirs:.2f}, {100 * (ours / theirs - 1):+.2f} %"
            cells.append(f"**{text}**" if (name, key) in missed else text)
        print(f"| {name} | {' | '.join(cells)} |")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
