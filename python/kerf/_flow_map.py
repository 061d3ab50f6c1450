# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Where a plan puts the layers of a ``DataFlow``."""

import collections

import torch

from kerf._moves import total_bytes
from kerf._weights import torch_device


def refuse_foreign(plan, there):
    for stage in plan.stages:
        name = torch_device(plan.cluster, stage.device)
        if name not in map(str, there):
            raise ValueError(
                f"[kerf.dataflow] the plan has a stage on {name}; expected devices of this "
                f"machine: {', '.join(map(str, there))}; plan for these with devices="
            )


def _node_devices(plan):
    return {
        node: torch.device(torch_device(plan.cluster, stage.device))
        for stage in plan.stages
        for node in stage.nodes
    }


def weight_devices(graph, plan):
    """``(names, device of the first node that uses it)`` of every weight that is used."""
    where, first = _node_devices(plan), {}
    for node in graph.nodes:
        for name in node["inputs"]:
            first.setdefault(name, where[node["name"]])
    return [(w["names"], first[w["name"]]) for w in graph.weights if w["name"] in first]


def planned_map(layers, ties, graph, plan):
    """``{layer: device}``: where most bytes of its weights are used, else most of its time."""
    from kerf._core import estimate

    together = {name: name for name in layers}  # tied layers count as one
    for (a, _), (b, _) in ties:
        old, new = together[b.name], together[a.name]
        together = {name: new if to == old else to for name, to in together.items()}
    sizes = {
        path: total_bytes([t]) for layer in layers.values() for path, *_, t in layer.registered()
    }
    score = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0.0]))
    for names, device in weight_devices(graph, plan):
        score[together[_layer_of(names[0], layers)]][device][0] += sizes.get(names[0], 0)
    where = _node_devices(plan)
    costs = estimate(graph, batch=plan.batch).nodes
    for node, cost in zip(graph.nodes, costs, strict=True):
        layer = together[_layer_of(node["scope"], layers)]
        score[layer][where[node["name"]]][1] += cost.forward
    best = {name: max(on, key=on.get) for name, on in score.items() if name}
    chosen, last = {}, next(iter(where.values()), None)
    for name in list(layers)[1:] if last is not None else ():
        group = together[name]
        if group:  # else it shares a weight with the model itself, and stays with that
            # A layer that does nothing here, such as dropout, stays with the one before it.
            chosen[name] = last = best.get(group, last)
    return chosen


def _layer_of(path, layers):
    """The innermost layer that holds it."""
    while path and path not in layers:
        path = path.rpartition(".")[0]
    return path
