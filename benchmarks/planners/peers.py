# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Graph and hypergraph partitioners on a placement problem, many starts, the best by max load.

    peers.py <mtkahypar|metis> problem.json <seeds>      writes one line of JSON

Both see colour classes as vertices. What they minimise (sum of external degrees, edge cut) is not
the max load, so every split they give is scored by it afterwards; a pass then moves classes from
the busiest accelerator to the CPU while that helps. The cpu time reported is that of the
partitioners' calls alone: scoring, the pass and Python's start-up are not charged to them.
"""

import importlib
import json
import math
import resource
import sys

import problem as judge
from problem import CPU

IMBALANCES = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 0.75, 1.0)
UFACTORS = (30, 100, 300, 1000)
HEAVIEST = 1_000_000  # integer weight of the largest vertex or edge


class Classes:
    """The problem in colour classes (vertices) and tensors between them (nets)."""

    def __init__(self, problem):
        self.problem = problem
        members = problem.classes
        self.time = [sum(problem.accelerator_time[v] for v in m) for m in members]
        self.cpu_time = [sum(problem.cpu_time[v] for v in m) for m in members]
        self.size = [sum(problem.size[v] for v in m) for m in members]
        nets = {}
        for v, targets in enumerate(problem.successors):
            pins = frozenset(problem.class_of[u] for u in [v, *targets])
            if len(pins) > 1 and problem.transfer[v] > 0:
                nets[pins] = nets.get(pins, 0.0) + problem.transfer[v]
        self.nets = [(sorted(pins), cost) for pins, cost in nets.items()]
        self.nets_of = [[] for _ in members]
        for number, (pins, _) in enumerate(self.nets):
            for u in pins:
                self.nets_of[u].append(number)

    def spread(self, part):
        return [part[c] for c in self.problem.class_of]

    def moved_to_cpu(self, part):
        """Classes of the busiest accelerator go to the CPU, the best first, while that helps."""
        part = list(part)
        load, pins_on = self.loads(part)
        while True:
            busiest = max(load, key=load.get)
            best, choice = load[busiest], None
            if busiest != CPU:
                for u in (u for u, d in enumerate(part) if d == busiest):
                    left = load[busiest] - self.time[u] + self.cut_change(u, busiest, pins_on)
                    value = max(left, load[CPU] + self.cpu_time[u])
                    if value < best - 1e-12:
                        best, choice = value, (u, left)
            if choice is None:
                return part
            u, load[busiest] = choice
            load[CPU] += self.cpu_time[u]
            part[u] = CPU
            for net in self.nets_of[u]:
                pins_on[net][busiest] -= 1
                pins_on[net][CPU] = pins_on[net].get(CPU, 0) + 1

    def loads(self, part):
        load = dict.fromkeys(range(self.problem.accelerators), 0.0) | {CPU: 0.0}
        for u, d in enumerate(part):
            load[d] += self.cpu_time[u] if d == CPU else self.time[u]
        pins_on = []
        for pins, cost in self.nets:
            counts = {}
            for u in pins:
                counts[part[u]] = counts.get(part[u], 0) + 1
            if len(counts) > 1:
                for d in counts:
                    load[d] += 0.0 if d == CPU else cost
            pins_on.append(counts)
        return load, pins_on

    def cut_change(self, u, device, pins_on):
        change = 0.0
        for net in self.nets_of[u]:
            pins, cost = self.nets[net]
            here = pins_on[net][device]
            if here == len(pins):
                change += cost
            elif here == 1:
                change -= cost
        return change


def integers(values):
    largest = max(values, default=0.0) or 1.0
    return [round(value / largest * HEAVIEST) for value in values]


def part_counts(accelerators):
    return [k for k in range(accelerators - 2, accelerators + 1) if k >= 2]


def mtkahypar_splits(classes, seeds):
    import mtkahypar

    library = mtkahypar.initialize(1)
    presets = mtkahypar.PresetType
    weights = integers(classes.time)
    costs = [max(1, cost) for cost in integers([cost for _, cost in classes.nets])]
    nets = [pins for pins, _ in classes.nets]
    counts = part_counts(classes.problem.accelerators)
    seeds = math.ceil(seeds * 3 / len(counts))  # as many runs whether one part count is void or not
    for preset in (presets.DEFAULT, presets.QUALITY, presets.DETERMINISTIC):
        context = library.context_from_preset(preset)
        context.logging = False
        for k in counts:
            for imbalance in IMBALANCES:
                context.set_partitioning_parameters(k, imbalance, mtkahypar.Objective.SOED)
                for seed in range(seeds):
                    mtkahypar.set_seed(seed)
                    graph = library.create_hypergraph(
                        context, len(weights), len(nets), nets, weights, costs
                    )
                    yield graph.partition(context).get_partition()


def metis_splits(classes, seeds):
    import pymetis

    weights = integers(classes.time)
    problem = classes.problem
    between = {}
    for v, targets in enumerate(problem.successors):
        for w in targets:
            a, b = problem.class_of[v], problem.class_of[w]
            if a != b:
                between.setdefault(a, {}).setdefault(b, 0.0)
                between.setdefault(b, {}).setdefault(a, 0.0)
                between[a][b] += problem.transfer[v]
                between[b][a] += problem.transfer[v]
    starts, neighbours, costs = [0], [], []
    for u in range(len(weights)):
        for w, cost in sorted(between.get(u, {}).items()):
            neighbours.append(w)
            costs.append(cost)
        starts.append(len(neighbours))
    costs = [max(1, cost) for cost in integers(costs)]
    for ufactor in UFACTORS:
        for seed in range(seeds):
            _, part = pymetis.part_graph(
                problem.accelerators,
                pymetis.CSRAdjacency(starts, neighbours),
                vweights=weights,
                eweights=costs,
                recursive=False,
                options=pymetis.Options(ufactor=ufactor, seed=seed),
            )
            yield part


def best_of(classes, splits):
    """(max load, split of nodes), memory respected; None if no split fits."""
    best = None
    for split in splits:
        for part in (split, classes.moved_to_cpu(split)):
            device = classes.spread(part)
            if judge.fits(classes.problem, device):
                value = judge.max_load(classes.problem, device)
                if best is None or value < best[0]:
                    best = value, device
    return best


def user_seconds():
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def main(peer, path, seeds):
    classes = Classes(judge.load(path))
    partition = {"mtkahypar": mtkahypar_splits, "metis": metis_splits}[peer]
    importlib.import_module("pymetis" if peer == "metis" else peer)
    before = user_seconds()
    splits = [list(part) for part in partition(classes, int(seeds))]
    cpu = user_seconds() - before
    distinct = list(dict.fromkeys(map(tuple, splits)))
    best = best_of(classes, distinct)
    report = {"runs": len(splits), "distinct": len(distinct), "cpu": cpu}
    if best is not None:
        report |= {"value": best[0], "device": best[1]}
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
