# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A published placement problem, and what a split of it costs.

Written from the definitions alone and sharing no line with Kerf: every plan of a run is scored
here again. `device[v]` is an accelerator's number, or CPU.
"""

import dataclasses
import heapq
import json
import math

CPU = -1
EQUAL = 1e-6  # relative: Kerf's figure and ours


class Mismatch(Exception):
    """A plan is not what it claims to be: the benchmark stops."""


@dataclasses.dataclass
class Problem:
    ids: list
    accelerator_time: list
    cpu_time: list
    size: list
    supported: list
    backward: list
    transfer: list  # of a node's output tensor
    successors: list
    predecessors: list
    classes: list  # of node numbers that share a device
    class_of: list
    accelerators: int
    cpus: int
    memory: float

    @property
    def num_nodes(self):
        return len(self.ids)


def load(path):
    with open(path) as file:
        return from_json(json.load(file))


def from_json(data):
    nodes = data["nodes"]
    number = {node["id"]: i for i, node in enumerate(nodes)}
    successors = [set() for _ in nodes]
    transfer = [None] * len(nodes)
    for edge in data["edges"]:
        source, target = number[edge["sourceId"]], number[edge["destId"]]
        successors[source].add(target)
        if transfer[source] is not None and abs(transfer[source] - edge["cost"]) > EQUAL:
            raise Mismatch(f"node {edge['sourceId']}: its out-edges have different costs")
        transfer[source] = edge["cost"]
    predecessors = [[] for _ in nodes]
    for source, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(source)
    classes = {}
    for i, node in enumerate(nodes):
        colour = node.get("colorClass")
        classes.setdefault(("own", i) if colour is None else colour, []).append(i)
    class_of = [0] * len(nodes)
    for number, members in enumerate(classes.values()):
        for i in members:
            class_of[i] = number
    return Problem(
        ids=[node["id"] for node in nodes],
        accelerator_time=[node["fpgaLatency"] for node in nodes],
        cpu_time=[node["cpuLatency"] for node in nodes],
        size=[node.get("size", 0.0) for node in nodes],
        supported=[bool(node.get("supportedOnFpga", True)) for node in nodes],
        backward=[bool(node.get("isBackwardNode", False)) for node in nodes],
        transfer=[cost or 0.0 for cost in transfer],
        successors=[sorted(targets) for targets in successors],
        predecessors=predecessors,
        classes=list(classes.values()),
        class_of=class_of,
        accelerators=data["maxFPGAs"],
        cpus=data["maxCPUs"],
        memory=data["maxSizePerFPGA"],
    )


def order_of(problem):
    """A topological order."""
    waiting = [len(sources) for sources in problem.predecessors]
    order = [v for v, count in enumerate(waiting) if count == 0]
    for v in order:
        for target in problem.successors[v]:
            waiting[target] -= 1
            if waiting[target] == 0:
                order.append(target)
    return order


def max_load(problem, device):
    """Compute, every tensor that comes in once, every tensor that goes out once.

    Several CPUs share their classes, the longest first, each to the CPU with least.
    """
    load = dict.fromkeys(range(problem.accelerators), 0.0) | {CPU: 0.0}
    for v, own in enumerate(device):
        load[own] += problem.cpu_time[v] if own == CPU else problem.accelerator_time[v]
        readers = {device[target] for target in problem.successors[v]} - {own}
        if readers:
            for payer in (readers | {own}) - {CPU}:
                load[payer] += problem.transfer[v]
    if problem.cpus > 1:
        load[CPU] = shared_among_cpus(problem, device)
    return max(load.values())


def shared_among_cpus(problem, device):
    times = [
        sum(problem.cpu_time[v] for v in members)
        for members in problem.classes
        if device[members[0]] == CPU
    ]
    cpus = [0.0] * problem.cpus
    for time in sorted(times, reverse=True):
        heapq.heapreplace(cpus, cpus[0] + time)
    return max(cpus)


def fits(problem, device):
    used = [0.0] * problem.accelerators
    for v, own in enumerate(device):
        if own != CPU:
            used[own] += problem.size[v]
    return all(bytes_used <= problem.memory for bytes_used in used)


def is_convex(problem, device):
    """No path of forward nodes leaves a device and comes back to it."""
    order = [v for v in order_of(problem) if not problem.backward[v]]
    for d in set(device):
        left = [False] * problem.num_nodes  # outside, and a path from d leads here
        for v in order:
            sources = [u for u in problem.predecessors[v] if not problem.backward[u]]
            if device[v] == d:
                if any(left[u] for u in sources):
                    return False
            else:
                left[v] = any(device[u] == d or left[u] for u in sources)
    return True


def has_stage_order(problem, device):
    """The devices of forward nodes can be put in a row that every tensor follows."""
    targets = {d: set() for d in set(device)}
    for v in range(problem.num_nodes):
        for w in problem.successors[v]:
            if not (problem.backward[v] or problem.backward[w]) and device[v] != device[w]:
                targets[device[v]].add(device[w])
    while free := [d for d, after in targets.items() if not after]:
        for d in free:
            del targets[d]
        for after in targets.values():
            after.difference_update(free)
    return not targets


def pieces_of(problem, device, order):
    """A piece for each node: (accelerator, how often paths to it came back there at most)."""
    level = [0] * problem.num_nodes
    for d in set(device) - {CPU}:
        seen = [-1] * problem.num_nodes  # the last piece of d on any path to the node
        for v in order:
            for u in problem.predecessors[v]:
                if device[v] != d:
                    seen[v] = max(seen[v], level[u] if device[u] == d else seen[u])
                else:
                    level[v] = max(level[v], level[u] if device[u] == d else seen[u] + 1)
    return [(CPU, v) if d == CPU else (d, level[v]) for v, d in enumerate(device)]


def latency(problem, device):
    """One sample alone; a piece starts when all its inputs are there; infinite if they deadlock."""
    order = order_of(problem)
    piece = pieces_of(problem, device, order)
    duration = dict.fromkeys(piece, 0.0)
    sources = {p: set() for p in piece}
    for v, own in enumerate(piece):
        duration[own] += problem.cpu_time[v] if own[0] == CPU else problem.accelerator_time[v]
        readers = {piece[target] for target in problem.successors[v]} - {own}
        for reader in readers:
            sources[reader].add(own)
        if readers:
            for payer in readers | {own}:
                duration[payer] += 0.0 if payer[0] == CPU else problem.transfer[v]
    return longest_path(duration, sources)


def longest_path(duration, sources):
    targets = {p: [] for p in duration}
    for p, before in sources.items():
        for source in before:
            targets[source].append(p)
    waiting = {p: len(before) for p, before in sources.items()}
    ready = [p for p, count in waiting.items() if count == 0]
    done = {}
    for p in ready:
        done[p] = duration[p] + max((done[source] for source in sources[p]), default=0.0)
        for target in targets[p]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return max(done.values()) if len(done) == len(duration) else math.inf


def checked(problem, plan, contiguous=False):
    """The devices of a Kerf plan, or Mismatch: all nodes, colours, memory, its value, its bound."""
    if set(plan["assignment"]) != {str(i) for i in problem.ids}:
        raise Mismatch("the assignment does not name every node once")
    devices = [plan["assignment"][str(i)] for i in problem.ids]
    device = [CPU if d == "cpu" else d for d in devices]
    if any(d != CPU and not (type(d) is int and 0 <= d < problem.accelerators) for d in device):
        raise Mismatch("a device that the problem does not have")
    if any(not problem.supported[v] for v, d in enumerate(device) if d != CPU):
        raise Mismatch("a node on an accelerator that does not support it")
    if CPU in device and problem.cpus == 0:
        raise Mismatch("a node on a CPU that is not there")
    if any(len({device[v] for v in members}) > 1 for members in problem.classes):
        raise Mismatch("a colour class on two devices")
    if not fits(problem, device):
        raise Mismatch("an accelerator over its memory")
    score = latency if plan["minimised"] == "latency" else max_load
    value = score(problem, device)
    if not math.isclose(value, plan["objective"], rel_tol=EQUAL):
        raise Mismatch(f"the plan says {plan['objective']}, the split costs {value}")
    if plan["lower_bound"] > value * (1 + EQUAL):
        raise Mismatch(f"a lower bound of {plan['lower_bound']} above a split of {value}")
    if plan["contiguous"] != is_convex(problem, device):
        raise Mismatch(f"the plan says contiguous: {plan['contiguous']}, and it is not so")
    if contiguous and not (plan["contiguous"] and has_stage_order(problem, device)):
        raise Mismatch("asked for a contiguous split, got another")
    return device
