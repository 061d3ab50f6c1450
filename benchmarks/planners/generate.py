# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Problems in the published format: Inception-v3, a GNMT-like translator, a T5-like chain.

Times are ms of an accelerator of 10 Tflop/s and 400 GB/s (CPU: 23 times as slow, as in the
published operator graphs), transfers those of 12 GB/s, sizes bytes.
"""

import random

FLOPS_PER_MS = 10e9
MEMORY_PER_MS = 400e6
LINK_PER_MS = 12e6
CPU_SLOWER = 23.0
LAUNCH_MS = 0.005
GIB = float(2**30)


class Builder:
    def __init__(self, seed=0):
        self.random = random.Random(seed)
        self.nodes = []
        self.edges = []
        self.output_bytes = []

    def op(self, name, inputs, output_bytes, flops=0.0, weights=0.0, time=None):
        moved = output_bytes + weights + sum(self.output_bytes[i] for i in inputs)
        if time is None:
            time = LAUNCH_MS + max(flops / FLOPS_PER_MS, moved / MEMORY_PER_MS)
            time *= self.random.uniform(0.9, 1.1)
        number = len(self.nodes)
        self.nodes.append({"name": name, "time": time, "size": weights})
        self.output_bytes.append(output_bytes)
        self.edges += [(i, number) for i in inputs]
        return number

    def problem(self, accelerators, training=False, memory=16 * GIB, communication=1.0):
        """Training mirrors the graph: a node and its gradient have one colour."""
        count = len(self.nodes)
        cost = [communication * size / LINK_PER_MS for size in self.output_bytes]
        nodes = [self.node(i, i, 1.0, training) for i in range(count)]
        edges = [(i, j, cost[i]) for i, j in self.edges]
        if training:
            gradient = [0.0] * count  # one tensor a node: its largest input's gradient
            for i, j in self.edges:
                gradient[j] = max(gradient[j], cost[i])
            nodes += [self.node(i, count + i, 2.0, training) for i in range(count)]
            edges += [(count + j, count + i, gradient[j]) for i, j in self.edges]
        return {
            "maxSizePerFPGA": memory,
            "maxFPGAs": accelerators,
            "maxCPUs": 1,
            "nodes": nodes,
            "edges": [{"sourceId": i, "destId": j, "cost": c} for i, j, c in edges],
        }

    def node(self, i, number, factor, training):
        backward = number != i
        node = {
            "id": number,
            "name": self.nodes[i]["name"] + ("_grad" if backward else ""),
            "supportedOnFpga": True,
            "fpgaLatency": factor * self.nodes[i]["time"],
            "cpuLatency": CPU_SLOWER * factor * self.nodes[i]["time"],
            "isBackwardNode": backward,
            # In training: the optimiser's state, and the activation that is kept.
            "size": self.nodes[i]["size"] + (self.output_bytes[i] if training else 0.0),
        }
        return node | ({"colorClass": i} if training else {})


# ---- Inception-v3: Szegedy et al. 2016, as torchvision has it, every conv a conv, bn and relu


class Inception(Builder):
    def __init__(self, batch=32, ops_per_conv=3, seed=0):
        super().__init__(seed)
        self.batch = batch
        self.ops_per_conv = ops_per_conv

    def bytes_of(self, shape):
        channels, side = shape
        return 4.0 * self.batch * channels * side * side

    def conv(self, x, channels, kernel=(1, 1), side=None):
        source, (in_channels, in_side) = x
        shape = (channels, side or in_side)
        weights = 4.0 * in_channels * channels * kernel[0] * kernel[1]
        flops = 2.0 * (weights / 4.0) * self.batch * shape[1] ** 2
        out = self.bytes_of(shape)
        v = self.op("conv", [source], out, flops, weights)
        if self.ops_per_conv > 1:
            v = self.op("bn", [v], out, weights=16.0 * channels)
        if self.ops_per_conv > 2:
            v = self.op("relu", [v], out)
        return v, shape

    def pool(self, x, side=None):
        source, (channels, in_side) = x
        shape = (channels, side or in_side)
        return self.op("pool", [source], self.bytes_of(shape)), shape

    def concat(self, *branches):
        shape = (sum(b[1][0] for b in branches), branches[0][1][1])
        return self.op("concat", [b[0] for b in branches], self.bytes_of(shape)), shape

    def chain(self, x, *convs):
        for conv in convs:
            x = self.conv(x, *conv)
        return x

    def stem(self):
        x = self.op("input", [], self.bytes_of((3, 299))), (3, 299)
        x = self.chain(x, (32, (3, 3), 149), (32, (3, 3), 147), (64, (3, 3)))
        x = self.chain(self.pool(x, 73), (80,), (192, (3, 3), 71))
        return self.pool(x, 35)

    def module_a(self, x, pool_channels):
        return self.concat(
            self.conv(x, 64),
            self.chain(x, (48,), (64, (5, 5))),
            self.chain(x, (64,), (96, (3, 3)), (96, (3, 3))),
            self.conv(self.pool(x), pool_channels),
        )

    def module_b(self, x):
        return self.concat(
            self.conv(x, 384, (3, 3), 17),
            self.chain(x, (64,), (96, (3, 3)), (96, (3, 3), 17)),
            self.pool(x, 17),
        )

    def module_c(self, x, c):
        row, column = (1, 7), (7, 1)
        return self.concat(
            self.conv(x, 192),
            self.chain(x, (c,), (c, row), (192, column)),
            self.chain(x, (c,), (c, column), (c, row), (c, column), (192, row)),
            self.conv(self.pool(x), 192),
        )

    def module_d(self, x):
        return self.concat(
            self.chain(x, (192,), (320, (3, 3), 8)),
            self.chain(x, (192,), (192, (1, 7)), (192, (7, 1)), (192, (3, 3), 8)),
            self.pool(x, 8),
        )

    def module_e(self, x):
        middle, twice = self.conv(x, 384), self.chain(x, (448,), (384, (3, 3)))
        return self.concat(
            self.conv(x, 320),
            self.concat(self.conv(middle, 384, (1, 3)), self.conv(middle, 384, (3, 1))),
            self.concat(self.conv(twice, 384, (1, 3)), self.conv(twice, 384, (3, 1))),
            self.conv(self.pool(x), 192),
        )

    def head(self, x):
        x = self.pool(x, 1)
        weights = 4.0 * x[1][0] * 1000
        self.op("fc", [x[0]], 4.0 * self.batch * 1000, weights * self.batch / 2, weights)


def inception():
    b = Inception()
    x = b.stem()
    for channels in (32, 64, 64):
        x = b.module_a(x, channels)
    x = b.module_b(x)
    for channels in (128, 160, 160, 192):
        x = b.module_c(x, channels)
    x = b.module_d(x)
    b.head(b.module_e(b.module_e(x)))
    return b


def small_inception(seed=0):
    """Few enough ideals to try them all in Python."""
    b = Inception(ops_per_conv=1, seed=seed)
    x = b.stem()
    b.head(b.module_b(b.module_a(x, 32)))
    return b


# ---- GNMT-like: two encoder stacks (one a direction) and a decoder stack, joined by attention


def gnmt(layers=8, hidden=1024, batch=64, length=50, seed=0):
    b = Builder(seed)
    state = 4.0 * batch * length * hidden
    step = 2.0 * 8 * hidden * hidden * batch * length
    table = 4.0 * 32000 * hidden

    def stack(name, x):
        for layer in range(layers):
            skip = x
            for part in ("gates", "cell", "dropout"):
                heavy = part == "gates"
                x = b.op(
                    f"{name}{layer}_{part}",
                    [x],
                    4 * state if heavy else state,
                    step if heavy else 0.0,
                    4.0 * 8 * hidden * hidden if heavy else 0.0,
                )
            x = b.op(f"{name}{layer}_residual", [x, skip], state)
        return x

    source = b.op("source_embedding", [b.op("source", [], 8.0 * batch * length)], state, 0.0, table)
    target = b.op("target_embedding", [b.op("target", [], 8.0 * batch * length)], state, 0.0, table)
    encoded = b.op("concat", [stack("forward", source), stack("backward", source)], 2 * state)
    decoded = stack("decoder", target)
    scores = b.op("scores", [encoded, decoded], 4.0 * batch * length**2, step / 8)
    context = b.op("context", [scores, encoded], state, step / 8)
    joined = b.op("attended", [context, decoded], state, step / 4, 8.0 * hidden * hidden)
    flops = 2.0 * hidden * 32000 * batch * length
    b.op("loss", [b.op("head", [joined], state, flops, table)], 4.0)
    return b


# ---- T5-like: 24 encoder blocks of 10 ms, 24 decoder blocks of 1.5 ms, 128 nodes a block


def t5(block_nodes=128, branched=False, blocks=24, seed=0):
    """A third of the nodes hold the time; `branched`: decoders meet the encoder in mid-block."""
    b = Builder(seed)
    tensor = 4.0 * 4 * 512 * 1024

    def block(name, x, total, cross=None, at=0):
        heavy = b.random.sample(range(block_nodes), max(1, round(0.35 * block_nodes)))
        share = {i: b.random.uniform(0.5, 1.5) for i in heavy}
        scale = total / sum(share.values())
        joins = {block_nodes // 2 - 1, block_nodes - 1}
        skip = x
        for i in range(block_nodes):
            inputs = [x] + ([skip] if i in joins and skip != x else [])
            inputs += [cross] if cross is not None and i == at else []
            weights = 4e6 if i in share else 0.0
            x = b.op(f"{name}_{i}", inputs, tensor, weights=weights, time=share.get(i, 0.0) * scale)
            skip = x if i in joins else skip
        return x

    ids = b.op("ids", [], 8.0 * 4 * 512, time=0.0)
    embedding = b.op("embedding", [ids], tensor, weights=1.3e8, time=0.1)
    x = embedding
    for i in range(blocks):
        x = block(f"encoder{i}", x, 10.0)
    encoded = b.op("encoder_norm", [x], tensor, time=0.1)
    x = b.op("decoder_embedding", [embedding if branched else encoded], tensor, time=0.1)
    for i in range(blocks):
        x = block(f"decoder{i}", x, 1.5, encoded, block_nodes // 2 if branched else 0)
    x = b.op("decoder_norm", [x], tensor, time=0.1)
    b.op("head", [x], tensor, weights=1.3e8, time=0.5)
    return b


def in_series(data, copies):
    """A problem several times over: the end of each copy's longest path feeds the start of the next
    one's, by a tensor as large as the last on that path. Memory for all copies."""
    ids = [node["id"] for node in data["nodes"]]
    before = {i: 0 for i in ids}
    for edge in data["edges"]:
        before[edge["destId"]] += 1
    outputs = {i: [] for i in ids}
    for edge in data["edges"]:
        outputs[edge["sourceId"]].append(edge)
    order = [i for i in ids if before[i] == 0]
    depth = {i: 0 for i in ids}
    into = {}
    for i in order:
        for edge in outputs[i]:
            target = edge["destId"]
            into[target] = edge
            depth[target] = max(depth[target], depth[i] + 1)
            before[target] -= 1
            if before[target] == 0:
                order.append(target)
    height = {i: 0 for i in ids}
    for i in reversed(order):
        height[i] = max((height[edge["destId"]] + 1 for edge in outputs[i]), default=0)
    last = max(ids, key=lambda i: depth[i])
    first = max((i for i in ids if depth[i] == 0), key=lambda i: height[i])
    nodes, edges = [], []
    id_step = max(ids) + 1
    colour_step = max(node.get("colorClass") or 0 for node in data["nodes"]) + 1
    for copy in range(copies):
        for node in data["nodes"]:
            more = {**node, "id": node["id"] + copy * id_step}
            if node.get("colorClass") is not None:
                more["colorClass"] = node["colorClass"] + copy * colour_step
            nodes.append(more)
        shift = copy * id_step
        for edge in data["edges"]:
            ends = {"sourceId": edge["sourceId"] + shift, "destId": edge["destId"] + shift}
            edges.append({**edge, **ends})
        if copy > 0:
            ends = {"sourceId": last + shift - id_step, "destId": first + shift}
            edges.append({**into[last], **ends})
    memory = data["maxSizePerFPGA"] * copies
    return {**data, "nodes": nodes, "edges": edges, "maxSizePerFPGA": memory}
