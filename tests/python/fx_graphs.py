# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Small random FX modules, devices and latencies; a plain judge of plans."""

from __future__ import annotations

import operator
import random
from typing import NamedTuple

import torch
from torch import fx, nn

from kerf.fx import Device, NodeLatency, get_size_of_all_nodes

LEAVES = ("placeholder", "get_attr")
SHAPES = ("chain", "diamond", "residual", "wide", "mixed", "embedding")


class Case(NamedTuple):
    """A module with sizes, and what one call of a partitioner takes."""

    name: str
    module: fx.GraphModule
    inputs: list
    devices: list
    rate: float
    latencies: dict


def ops(module):
    return [n for n in module.graph.nodes if n.op not in (*LEAVES, "output")]


def total_bytes(module):
    return sum(n.size_bytes.total_size for n in module.graph.nodes if n.op != "output")


class Draw:
    """Builds one module, operation by operation. Values are rows of four numbers."""

    def __init__(self, rng, shape):
        self.rng = rng
        self.shape = shape
        self.root = nn.Module()
        self.graph = fx.Graph()
        self.rows = {}  # of every value
        self.inputs = [torch.rand(2, 4) for _ in range(rng.randint(1, 2))]
        self.values = [self._leaf(f"x{i}", 2) for i in range(len(self.inputs))]
        self.ids = None

    def _leaf(self, name, rows):
        node = self.graph.placeholder(name)
        self.rows[node] = rows
        return node

    def _constant(self):
        name = f"c{len(self.rows)}"
        self.root.register_buffer(name, torch.rand(self.rng.choice((1, 2)), 4))
        node = self.graph.get_attr(name)
        self.rows[node] = getattr(self.root, name).shape[0]
        return node

    def _module(self, kind):
        name = f"{kind.__name__.lower()}{len(self.rows)}"
        made = {
            nn.Linear: lambda: nn.Linear(4, 4, bias=self.rng.random() < 0.5),
            nn.ReLU: nn.ReLU,
            nn.Embedding: lambda: nn.Embedding(self.rng.choice((10, 20, 40)), 4),
        }[kind]()
        setattr(self.root, name, made)
        return name

    def _record(self, node, rows):
        self.rows[node] = rows
        self.values.append(node)
        return node

    def unary(self, x):
        kind = self.rng.choice(("linear", "relu", "sigmoid", "neg", "tanh"))
        if kind == "linear":
            node = self.graph.call_module(self._module(nn.Linear), (x,))
        elif kind == "relu":
            node = self.graph.call_module(self._module(nn.ReLU), (x,))
        elif kind == "sigmoid":
            node = self.graph.call_method("sigmoid", (x,))
        else:
            node = self.graph.call_function(getattr(torch, kind), (x,))
        return self._record(node, self.rows[x])

    def binary(self, x, y):
        a, b = self.rows[x], self.rows[y]
        if a != b and 1 not in (a, b):
            return self._record(self.graph.call_function(torch.cat, ([x, y],)), a + b)
        if self.rng.random() < 0.2:
            return self._record(self.graph.call_function(torch.add, (x,), {"other": y}), max(a, b))
        return self._record(self.graph.call_function(operator.add, (x, y)), max(a, b))

    def slice(self, x):
        return self._record(self.graph.call_function(operator.getitem, (x, slice(0, 1))), 1)

    def lookup(self):
        """Rows of a table, by ids as they come or by computed ones."""
        if self.ids is None:
            self.ids = [self.graph.placeholder("ids")]
            self.inputs.append(torch.randint(0, 3, (2,)))
        if self.rng.random() < 0.4:
            self.ids.append(self.graph.call_function(operator.add, (self.ids[0], len(self.ids))))
        where = self.rng.choice(self.ids)
        node = self.graph.call_module(self._module(nn.Embedding), (where,))
        return self._record(node, 2)

    def any_value(self):
        return self._constant() if self.rng.random() < 0.2 else self.rng.choice(self.values)

    def any_op(self, x):
        roll = self.rng.random()
        if roll < 0.35:
            return self.unary(x)
        if roll < 0.4:
            return self.slice(x)
        return self.binary(x, self.any_value())

    # ---- whole graphs

    def chain(self, n):
        x = self.values[0]
        for _ in range(n):
            x = self.unary(x) if self.rng.random() < 0.7 else self.binary(x, self._constant())

    def diamond(self, n):
        x = self.values[0]
        for _ in range(max(1, n // 4)):
            x = self.unary(x)
            x = self.binary(self.unary(x), self.unary(x))

    def residual(self, n):
        x = self.values[0]
        for _ in range(max(1, n // 3)):
            x = self.binary(x, self.unary(self.unary(x)))

    def wide(self, n):
        branches = [self.unary(self.values[0]) for _ in range(max(2, n // 2))]
        x = branches[0]
        for other in branches[1:]:
            x = self.binary(x, other)

    def mixed(self, n):
        for _ in range(n):
            self.any_op(self.rng.choice(self.values))

    def embedding(self, n):
        x = self.unary(self.values[0])
        for _ in range(self.rng.randint(1, 4)):
            found = self.lookup()
            x = self.binary(x, found) if self.rng.random() < 0.5 else x
        for value in [v for v in self.values if "embedding" in v.name and not v.users]:
            x = self.binary(x, value)
        for _ in range(n // 4):
            x = self.unary(x)

    def build(self, n):
        getattr(self, self.shape)(n)
        made = [v for v in self.values if v.op not in LEAVES]
        unread = [v for v in made if not v.users]
        kept = unread if self.rng.random() < 0.7 else [made[-1]]
        self.graph.output(tuple(kept) if len(kept) > 1 else kept[0])
        return fx.GraphModule(self.root, self.graph)


def draw_module(rng, shape=None, n=None):
    """A traced module whose nodes have sizes, and inputs for it."""
    shape = shape or rng.choice(SHAPES)
    draw = Draw(rng, shape)
    module = draw.build(n or rng.randint(3, 8))
    get_size_of_all_nodes(module, draw.inputs)
    return module, draw.inputs


def draw_devices(rng, total):
    """Devices that together hold the module, mostly, and alone do not, mostly."""
    count = rng.randint(2, 4)
    kind = rng.choice(("equal", "equal", "unequal", "tight", "one id", "twins"))
    share = rng.choice((1.0, 1.3, 1.6, 2.0, 2.5, 3.0)) * total / count
    memory = [int(share)] * count
    if kind == "unequal":
        memory = [int(share * rng.choice((0.5, 0.75, 1.0, 1.5))) for _ in range(count)]
    elif kind == "tight":
        memory = [int(share) // 16 * 16 + rng.choice((0, 16)) for _ in range(count)]
    devices = [Device(f"dev_{i}", m, i) for i, m in enumerate(memory)]
    if kind == "one id":
        devices[1] = Device("dev_1", memory[1] + rng.choice((0, 16)), 0)
    elif kind == "twins":  # equal in every field: one key
        devices[1] = devices[0]
    return devices


def draw_table_devices(rng, module):
    """Equal ones, each with room for the rest of the module and for a table or two."""
    tables = [n.size_bytes.total_size for n in ops(module) if "embedding" in n.name]
    rest = total_bytes(module) - sum(tables)
    memory = int(rest * rng.choice((1.0, 1.5, 2.0)) + max(tables) * rng.choice((1, 1.5, 2)))
    return [Device(f"dev_{i}", memory, i) for i in range(rng.choice((2, 3, 4, 8)))]


def draw_latencies(rng, module):
    """Whole numbers make ties, the others rounding."""
    whole = rng.random() < 0.5
    out = {}
    for node in ops(module):
        mem = node.size_bytes.total_size if whole else rng.uniform(0, 100)
        out[node] = NodeLatency(mem, rng.choice((1, 2 * mem)) if whole else rng.uniform(0, 100))
    return out


def draw_case(seed, shape=None, n=None):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    module, inputs = draw_module(rng, shape, n)
    if shape == "embedding" and rng.random() < 0.7:
        devices = draw_table_devices(rng, module)
    else:
        devices = draw_devices(rng, total_bytes(module))
    rate = rng.choice((0.5, 1, 2.0, 3.7, 16))
    return Case(f"seed {seed}", module, inputs, devices, rate, draw_latencies(rng, module))


# ---- the judge: shares no code with the package


def extra(node, held):
    inputs = dict.fromkeys(node.all_input_nodes)
    outside = sum(i.size_bytes.output_size for i in inputs if i not in held)
    return outside + node.size_bytes.total_size


def union_bytes(nodes):
    return sum(extra(node, nodes) for node in nodes)


def exact_bytes(module, nodes):
    """Weights, buffers and constants once by storage; other tensors once each."""
    held = {}
    for node in nodes:
        tensors = []
        if node.op == "call_module":
            called = module.get_submodule(node.target)
            tensors = [*called.parameters(), *called.buffers()]
        elif node.op == "get_attr":
            tensors = [getattr(module, node.target)]
        held |= {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    made_or_read = set(nodes).union(*(n.all_input_nodes for n in nodes))
    tensors = sum(n.size_bytes.output_size for n in made_or_read if n.op != "get_attr")
    return sum(held.values()) + tensors


def with_leaves(nodes):
    return {leaf for n in nodes for leaf in n.all_input_nodes if leaf.op in LEAVES} | set(nodes)


def part_of(partitions):
    """The partition, by place, of every operation."""
    return {n: i for i, p in enumerate(partitions) for n in p.nodes if n.op not in LEAVES}


def edges(partitions):
    place = part_of(partitions)
    pairs = {(place[i], place[n]) for n in place for i in n.all_input_nodes if i in place}
    return {(a, b) for a, b in pairs if a != b}


def is_acyclic(partitions):
    left, arrows = set(range(len(partitions))), edges(partitions)
    while left:
        free = {p for p in left if not any(b == p and a in left for a, b in arrows)}
        if not free:
            return False
        left -= free
    return True


def faults(module, partitions, devices):
    """Why a plan is none: what is lost, doubled, unmapped, cyclic, or too large."""
    found = []
    held = [n for p in partitions for n in p.nodes if n.op not in LEAVES]
    if sorted(held) != ops(module):
        found.append("operations are lost or doubled")
    if any(not p.logical_device_ids for p in partitions):
        found.append("a partition has no device")
    if not is_acyclic(partitions):
        found.append("cyclic")
    memory = {d.logical_id: d.available_mem_bytes for d in devices}
    for number in {i for p in partitions for i in p.logical_device_ids}:
        if number not in memory:
            found.append(f"no device {number}")
            continue
        nodes = set().union(*(p.nodes for p in partitions if number in p.logical_device_ids))
        if union_bytes(with_leaves(nodes)) > memory[number]:
            found.append(f"device {number} holds too much")
    return found


def path_cost(partitions, latencies, rate):
    """Seconds by the original's model: longest paths inside partitions and over them."""
    arrows, place = edges(partitions), part_of(partitions)
    inside, finish = [], {}
    for partition in partitions:
        longest = {}
        for n in sorted(n for n in partition.nodes if n.op not in LEAVES):
            before = [longest[i] for i in n.all_input_nodes if i in longest]
            longest[n] = max(before, default=0.0) + max(latencies[n])
        inside.append(max(longest.values(), default=0.0))

    def transfer(a, b):
        if partitions[a].logical_device_ids == partitions[b].logical_device_ids:
            return 0.0
        # The original also charges leaves that both hold.
        parent, child = partitions[a].nodes, partitions[b].nodes
        sent = {i for n in child for i in n.all_input_nodes if i in parent}
        return sum(i.size_bytes.output_size for i in sent) / rate

    def end(p):
        if p not in finish:
            arrivals = [end(a) + transfer(a, b) for a, b in arrows if b == p]
            finish[p] = max(arrivals, default=0.0) + inside[p]
        return finish[p]

    assert place
    return max(end(p) for p in range(len(partitions)))
