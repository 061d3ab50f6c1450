# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Contiguous optima by plain enumeration, to check Kerf's on problems nobody has published."""

import math

import numpy as np


def ideals_of(problem):
    """Every set of forward nodes that holds its predecessors, as bits. Smallest first."""
    forward = [v for v in range(problem.num_nodes) if not problem.backward[v]]
    needs = {v: sum(1 << u for u in problem.predecessors[v]) for v in forward}
    layer, found = {0}, [0]
    while layer:
        larger = set()
        for ideal in layer:
            for v in forward:
                if not ideal >> v & 1 and needs[v] & ~ideal == 0:
                    larger.add(ideal | 1 << v)
        found += larger
        layer = larger
    return found


def contiguous_optimum(problem):
    """All pairs of ideals, for small problems: each class has one forward node, memory is ample."""
    ideals = ideals_of(problem)
    devices = problem.accelerators
    worth = {0: {(0, 0): 0.0}}  # ideal: {(accelerators, CPUs) used: least max load}
    for i, ideal in enumerate(ideals[1:], 1):
        best = {}
        for smaller in ideals[:i]:
            if smaller & ~ideal:
                continue
            on_accelerator, on_cpu = stage_loads(problem, ideal & ~smaller)
            for (used, cpus), value in worth[smaller].items():
                if used < devices:
                    keep_least(best, (used + 1, cpus), max(value, on_accelerator))
                if cpus < problem.cpus:
                    keep_least(best, (used, cpus + 1), max(value, on_cpu))
        worth[ideal] = best
    return min(worth[ideals[-1]].values())


def keep_least(table, key, value):
    table[key] = min(value, table.get(key, math.inf))


def stage_loads(problem, forward):
    inside = [False] * problem.num_nodes
    for members in problem.classes:
        if any(not problem.backward[v] and forward >> v & 1 for v in members):
            for v in members:
                inside[v] = True
    load, cpu_load = 0.0, 0.0
    for v, own in enumerate(inside):
        if own:
            load += problem.accelerator_time[v]
            cpu_load += problem.cpu_time[v]
        readers = {inside[w] for w in problem.successors[v]}
        if (not own) in readers:
            load += problem.transfer[v]
    return load, cpu_load


def chain_optimum(problem):
    """The best cut of the file's order into runs of nodes: exact where that order is the only one,
    else a contiguous split that can be had. Every run is tried; memory is ample."""
    count, devices = problem.num_nodes, problem.accelerators
    assert order_is_topological(problem)
    readers = problem.successors
    load = np.zeros(count + 1)  # load[i]: of the run from i to what is next
    cpu_load = np.zeros(count + 1)
    # least[c][s]: by the nodes done; s accelerators and c CPUs used.
    least = np.full((2, devices + 1, count + 1), np.inf)
    least[0, 0, 0] = 0.0
    previous_reader = list(range(count))  # of each tensor; at first its maker
    for v in range(count):
        load[: v + 1] += problem.accelerator_time[v]
        cpu_load[: v + 1] += problem.cpu_time[v]
        for u in problem.predecessors[v]:
            load[previous_reader[u] + 1 : v + 1] += problem.transfer[u]  # comes in, not yet there
            previous_reader[u] = v
            if readers[u][-1] == v:
                load[: u + 1] -= problem.transfer[u]  # all its readers are inside
        if readers[v]:
            load[: v + 1] += problem.transfer[v]
        end = v + 1
        for c in (0, 1):
            for s in range(devices + 1):
                options = [np.inf]
                if s > 0:
                    options.append(np.maximum(least[c, s - 1, :end], load[:end]).min())
                if c > 0:
                    options.append(np.maximum(least[c - 1, s, :end], cpu_load[:end]).min())
                least[c, s, end] = min(options)
    return float(least[:, :, count].min())


def order_is_topological(problem):
    return all(u < v for v, sources in enumerate(problem.predecessors) for u in sources)
