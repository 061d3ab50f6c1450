#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Holds predicted memory of training steps to what a GPU took (h200_memory.json).

    python benchmarks/prediction/memory.py [--only resnet] [--measured]

--measured: with the workspaces that kerf.profile measured of each operator, by itself, in another
process (h200_training.json.gz), in place of the rules for them. Graphs are in training_graphs/,
traced in train mode from the models that record.py makes; it needs neither PyTorch nor a GPU.
"""

import argparse
import collections
import gzip
import json
import math
import pathlib
import statistics
import tempfile

import kerf
from kerf import _core

HERE = pathlib.Path(__file__).parent
FIGURES = ("saved", "peak", "reserved")


def graph_of(label):
    """The graph of a recorded row; None when there is none (opt cannot be traced in train mode)."""
    name, _, *checkpointed = label.split()
    names = [f"{name}.checkpointed"] if checkpointed else []
    for each in [*names, name]:  # models without repeated blocks have one graph
        path = HERE / "training_graphs" / f"{each}.graph.gz"
        if path.exists():
            return _core.parse_graph(gzip.decompress(path.read_bytes()).decode())
    return None


def measured_profile(graph, row, batch):
    """A profile with a row's workspaces; None when the row was measured on another graph."""
    names = [node["name"] for node in graph.nodes]
    if names != row["node"]:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "profile.json"
        _core.estimate(graph, "h200", batch, True).save(path, graph)
        content = json.loads(path.read_text())
        content["source"] = "measured"
        each = zip(content["nodes"], row["workspace"], row["backward_workspace"], strict=True)
        for node, forward, backward in each:
            node["peak"] = node["inputs"] + node["weights"] + node["outputs"] + forward
            node["backward_workspace"] = backward
        path.write_text(json.dumps(content))
        return _core.load_profile(path, graph)


def rows(only="", measured=False):
    """(label, {figure: (predicted, recorded)}) of every row that has a graph.

    measured: rows without measured workspaces are left out.
    """
    recorded = json.loads((HERE / "h200_memory.json").read_text())
    profiles = json.loads(gzip.decompress((HERE / "h200_training.json.gz").read_bytes()))["rows"]
    for label, row in recorded["rows"].items():
        graph = graph_of(label) if only in label else None
        if graph is None:
            continue
        batch = 0 if graph.is_static else recorded["training_batch"]
        profile = None
        if measured:
            of_model = profiles[f"{label.split()[0]} {recorded['training_batch']}"]
            profile = measured_profile(graph, of_model, batch)
            if profile is None:
                continue
        optimizer = label.split()[1]
        memory = kerf.memory(
            graph, batch=batch, optimizer=optimizer, device_kind="h200", profile=profile
        )
        saved = _core.saved_sets(graph, batch, accelerator=True)
        step = row["steps"][2]
        yield (
            label,
            {
                "saved": (saved["made"] + saved["inputs"], row["saved_bytes"]),
                "peak": (memory.peak, step["peak_allocated"]),
                "reserved": (memory.reserved, step["peak_reserved"]),
            },
        )


# Of PyTorch 2.11 on compute capability 9.0: cuBLAS, cuBLASLt.
LIBRARIES = (32 << 20, 32 << 20, 1 << 20)


def recorded_blocks(name):
    """What h200_blocks.json.gz has of a model, its events as (made or given up, number, bytes)."""
    recorded = json.loads(gzip.decompress((HERE / "h200_blocks.json.gz").read_bytes()))["rows"]
    row = recorded[name]
    events = [
        (what == "alloc", number, size)
        for what, number, size in row["events"]
        if what in ("alloc", "free_requested")
    ]
    return {**row, "events": events}


def replayed(name):
    """{figure: (replayed, recorded)}: the blocks of a recorded step through kerf's allocator.

    The record begins with the second step. The first one is taken to ask for the same blocks, and
    for the optimizer's state before the optimizer's temporaries, which are its last blocks. Numbers
    in the record are not unique: of blocks of one number and size, the first is given up first.
    """
    row, graph = recorded_blocks(name), graph_of(f"{name} adamw")
    stay = {w["storage"]: _bytes_of(w) for w in graph.weights if w["kind"] != "constant"}
    trained = {w["storage"] for w in graph.weights if w["requires_grad"]}
    last = max(i for i, event in enumerate(row["events"]) if event[0])
    optimizer = last + 1 - len(trained)
    allocator = _core.CachingAllocator()
    for size in (*LIBRARIES, *stay.values(), *(_bytes_of(i) for i in graph.inputs)):
        allocator.allocate(size)
    allocator.empty_cache()
    for step in (1, 2):
        allocator.reset_peaks()
        before = allocator.reserved
        held = collections.defaultdict(collections.deque)
        for i, (is_made, number, size) in enumerate(row["events"]):
            if step == 1 and i == optimizer:
                for _, _, each in row["events"][optimizer : last + 1]:
                    allocator.allocate(each)
                    allocator.allocate(each)
            if is_made:
                held[number, size].append(allocator.allocate(size))
            else:
                allocator.free(held[number, size].popleft())
    return {
        "reserved_before": (before, row["reserved_before"]),
        "peak_reserved": (allocator.peak_reserved, row["peak_reserved"]),
        "peak_allocated": (allocator.peak_allocated, row["peak_allocated"]),
    }


def _bytes_of(value):
    element = {"float32": 4, "int64": 8}[value["dtype"]]
    batch = json.loads((HERE / "h200_memory.json").read_text())["training_batch"]
    sizes = [size if isinstance(size, int) else batch for size in value["shape"]]
    return element * math.prod(sizes)


def block_differences(name):
    """Bytes of the blocks of a recorded step that are not predicted, and of predicted ones that are
    not recorded, by size, as shares of all recorded bytes."""
    row, graph = recorded_blocks(name), graph_of(f"{name} adamw")
    batch = 0 if graph.is_static else 8
    memory = kerf.memory(graph, batch=batch, optimizer="adamw", device_kind="h200", blocks=True)
    recorded = collections.Counter(size for is_made, _, size in row["events"] if is_made)
    predicted = collections.Counter(size for is_made, _, size, _ in memory.blocks if is_made)

    def total(blocks):
        return sum(size * number for size, number in blocks.items())

    every = total(recorded)
    return total(recorded - predicted) / every, total(predicted - recorded) / every


def errors(table):
    """{figure: (median, worst)} of |predicted / recorded - 1|."""
    out = {}
    for figure in FIGURES:
        wrong = [abs(row[figure][0] / row[figure][1] - 1) for _, row in table]
        out[figure] = (statistics.median(wrong), max(wrong))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="rows with this in their label")
    parser.add_argument("--measured", action="store_true", help="workspaces as measured")
    options = parser.parse_args()
    table = list(rows(options.only, options.measured))
    print(f"{'MB predicted, recorded, ratio':32}" + "".join(f"{f:>26}" for f in FIGURES))
    for label, row in table:
        cells = (f"{p / 1e6:9.1f} {t / 1e6:9.1f} {p / t:6.3f}" for p, t in row.values())
        print(f"{label:32}" + "".join(cells))
    print(f"{len(table)} rows")
    for figure, (median, worst) in errors(table).items():
        print(f"{figure:9} median {100 * median:.2f} %, worst {100 * worst:.2f} %")


if __name__ == "__main__":
    main()
