# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The greedy split that the published latencies are compared with."""

import problem as judge


def greedy_split(problem):
    """Classes in a depth-first topological order; accelerators filled one after another."""
    device = [judge.CPU] * problem.num_nodes
    accelerator, room = 0, problem.memory
    for nodes in fused_order(problem):
        size = sum(problem.size[v] for v in nodes)
        if size > room and size <= problem.memory and accelerator < problem.accelerators:
            accelerator, room = accelerator + 1, problem.memory
        if size <= room and accelerator < problem.accelerators:
            room -= size
            for v in nodes:
                device[v] = accelerator
    return device


def fused_order(problem):
    """Strongly connected colour classes as lists of nodes, in depth-first topological order."""
    count = len(problem.classes)
    after = [set() for _ in range(count)]
    before = [set() for _ in range(count)]
    for v, targets in enumerate(problem.successors):
        for w in targets:
            a, b = problem.class_of[v], problem.class_of[w]
            if a != b:
                after[a].add(b)
                before[b].add(a)
    finished = finish_order(after, range(count))
    seen, components = set(), []
    for root in reversed(finished):  # Kosaraju: components come out in topological order
        if root not in seen:
            component, todo = [], [root]
            seen.add(root)
            while todo:
                c = todo.pop()
                component.append(c)
                for b in before[c] - seen:
                    seen.add(b)
                    todo.append(b)
            components.append([v for c in component for v in problem.classes[c]])
    return components


def finish_order(after, roots):
    seen, finished = set(), []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(sorted(after[root])))]
        while stack:
            c, targets = stack[-1]
            step = next((t for t in targets if t not in seen), None)
            if step is None:
                finished.append(c)
                stack.pop()
            else:
                seen.add(step)
                stack.append((step, iter(sorted(after[step]))))
    return finished
