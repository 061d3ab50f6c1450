# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Scores plans again from the files alone, sharing no line with Kerf.

It reads the text form as the generator writes it: f32 tensors, no writes to memory, sizes that are
numbers or multiples of B.
"""

import dataclasses
import graphlib
import json
import math
import re

DEFINED = re.compile(r"%(\S+): f32\[([^\]]*)\]")
USED = re.compile(r"%([\w.]+)")
EQUAL = 1e-6


class Mismatch(Exception):
    """A plan that is not what it says it is."""


@dataclasses.dataclass
class Problem:
    names: list  # nodes, in the file's order; a node is called like its first tensor
    bytes: dict  # by tensor
    maker: dict  # by tensor
    uses: dict  # by node: tensors
    time: dict  # ns, by node

    @property
    def num_edges(self):
        return sum(len(sources) for sources in self.uses.values())

    @property
    def total_time(self):
        return math.fsum(self.time.values())


def load(path):
    """The problem in PATH.graph and PATH.profile.json."""
    names, sizes, makers, uses = [], {}, {}, {}
    batch = 1
    with open(f"{path}.graph") as lines:
        for line in lines:
            if line.startswith("batch "):
                batch = int(line.split()[1])
            if line.startswith("%"):
                left, right = line.split(" = ", 1)
                node = DEFINED.match(left).group(1)
                names.append(node)
                # Each once, in the order of the text: what METIS is given must not vary.
                uses[node] = list(dict.fromkeys(u for u in USED.findall(right) if u in sizes))
                for tensor, shape in DEFINED.findall(left):
                    sizes[tensor] = 4 * math.prod(size(text, batch) for text in shape.split(","))
                    makers[tensor] = node
    with open(f"{path}.profile.json") as file:
        costs = json.load(file)["nodes"]
    time = {cost["node"]: cost["forward_ns"] for cost in costs}
    if set(time) != set(names):
        raise Mismatch(f"{path}: the profile is of other nodes")
    return Problem(names, sizes, makers, uses, time)


def size(text, batch):
    return math.prod(batch if factor == "B" else int(factor) for factor in text.strip().split("*"))


def assignment(problem, plan):
    """The stage of each node, after looking that all are there once and stages can run."""
    stage = {}
    for number, entry in enumerate(plan["stages"]):
        for node in entry["nodes"]:
            if node in stage:
                raise Mismatch(f"{node} is in two stages")
            stage[node] = number
    if set(stage) != set(problem.names):
        raise Mismatch("the plan is of other nodes")
    if not acyclic(problem, stage):
        raise Mismatch("stages wait for each other")
    return stage


def acyclic(problem, part):
    after = {}
    for node, tensors in problem.uses.items():
        for source in (problem.maker[tensor] for tensor in tensors):
            if part[source] != part[node]:
                after.setdefault(part[node], set()).add(part[source])
    try:
        graphlib.TopologicalSorter(after).prepare()
    except graphlib.CycleError:
        return False
    return True


def busiest(problem, plan):
    """What the busiest device spends: its nodes, and each tensor that it must fetch, once."""
    stage = assignment(problem, plan)
    devices = [entry["name"] for entry in plan["cluster"]["devices"]]
    links = plan["cluster"]["links"]
    number = {name: i for i, name in enumerate(devices)}
    device = {n: number[plan["stages"][s]["device"]] for n, s in stage.items()}
    load = [0.0] * len(devices)
    fetched = set()
    for node in problem.names:
        here = device[node]
        load[here] += problem.time[node]
        for tensor in problem.uses[node]:
            there = device[problem.maker[tensor]]
            if there == here or (tensor, here) in fetched:
                continue
            fetched.add((tensor, here))
            link = links[there][here]
            rate = link["bytes_per_second"]
            load[here] += link["latency_ns"] + (problem.bytes[tensor] / rate * 1e9 if rate else 0)
    return max(load)


def check(problem, plan):
    value, claim = busiest(problem, plan), plan["predicted"]["busiest_ns"]
    if not math.isclose(value, claim, rel_tol=EQUAL):
        raise Mismatch(f"the plan says {claim} ns, the judge {value} ns")
    if plan["lower_bound"]["value_ns"] > value * (1 + EQUAL):
        raise Mismatch("a lower bound above the plan's own value")


def edge_cut(problem, part):
    return sum(
        part[problem.maker[tensor]] != part[node]
        for node in problem.names
        for tensor in problem.uses[node]
    )


def imbalance(problem, part, parts):
    """Nodes of the largest part, as a multiple of an equal share."""
    count = {}
    for name in problem.names:
        count[part[name]] = count.get(part[name], 0) + 1
    return max(count.values()) * parts / len(problem.names)
