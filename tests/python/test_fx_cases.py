# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own cases for its partitioner, in both modes; with compat=True down to every detail."""

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

from kerf.fx import (
    Device,
    NodeLatency,
    Partitioner,
    PartitionerConfig,
    PartitionMode,
    get_latency_of_partitioned_graph,
    get_partition_to_latency_mapping,
    get_size_of_all_nodes,
)

both_modes = pytest.mark.parametrize("compat", [True, False], ids=["compat", "default"])


def devices(*memory, ids=None):
    return [Device(f"dev_{i}", m, ids[i] if ids else i) for i, m in enumerate(memory)]


def traced(model, *inputs):
    module = symbolic_trace(model)
    get_size_of_all_nodes(module, list(inputs))
    return module


class Run:
    """One call; the outputs of the split module are the traced module's."""

    def __init__(self, model, inputs, compat, *config, **more):
        self.model = model
        self.module = traced(model, *inputs)
        self.partitioner = Partitioner(compat)
        config = PartitionerConfig(*[c(self.module) if callable(c) else c for c in config], **more)
        result = self.partitioner.partition_graph(self.module, model, config)
        self.dag = result.dag.nodes
        self.split = result.module_with_submodules
        torch.testing.assert_close(self.split(*inputs), self.module(*inputs), rtol=0, atol=0)

    def details(self):
        """Names of nodes, bytes and devices of every partition."""
        return [
            (sorted(map(str, p.nodes)), p.used_mem_bytes, p.logical_device_ids)
            for p in self.partitioner.partitions
        ]

    def emitted(self):
        return [str(node) for node in self.dag]

    def devices(self):
        return [node.logical_device_ids for node in self.dag]

    def cost(self, rate, latencies):
        partitions = self.partitioner.partitions
        mapping = get_partition_to_latency_mapping(partitions, latencies)
        return get_latency_of_partitioned_graph(partitions, mapping, rate)


def latencies(module, computer):
    """Memory time is total_size; computing is the output's for linear, else by `computer`."""
    return {
        n: NodeLatency(
            n.size_bytes.total_size,
            n.size_bytes.output_size if n.op == "call_module" else computer(n.size_bytes),
        )
        for n in module.graph.nodes
        if n.op not in ("placeholder", "get_attr", "output")
    }


class Add(nn.Module):
    def forward(self, a, b):
        return a + b


@both_modes
def test_find_single_partition(compat):
    run = Run(Add(), [torch.rand(1), torch.rand(1)], compat, devices(125, 150, 125))
    assert run.devices() == [[1]]
    assert run.details() == [(["a", "add", "b"], 12, [1])]


@both_modes
def test_lack_of_devices(compat):
    with pytest.raises(RuntimeError) as raised:
        Run(Add(), [torch.rand(4), torch.rand(4)], compat, devices(4, 4), PartitionMode.size_based)
    if compat:
        assert str(raised.value) == "Devices do not have enough memory for the module"


class LinearAdd(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, a):
        return self.linear(a) + a


@both_modes
def test_large_node_error(compat):
    five = devices(40, 40, 40, 40, 40, ids=[0, 0, 0, 0, 0] if compat else None)
    with pytest.raises(RuntimeError) as raised:
        Run(LinearAdd(), [torch.rand(4)], compat, five, PartitionMode.size_based)
    if compat:
        assert str(raised.value) == "linear is too large to fit any device"


class ThreeAdds(nn.Module):
    def forward(self, a, b):
        return a + b + torch.rand(4) + torch.rand(4)


@both_modes
def test_partition_node_manipulation(compat):
    run = Run(ThreeAdds(), [torch.rand(4), torch.rand(4)], compat, devices(1000))
    [partition] = run.partitioner.partitions
    assert partition.used_mem_bytes == 112
    last = next(n for n in partition.nodes if n.name == "add_2")
    partition.remove_node(last)
    assert partition.used_mem_bytes == 80
    assert "_tensor_constant1" not in map(str, partition.nodes)
    partition.add_node(last)
    assert partition.used_mem_bytes == 112


class AddLinearAdd(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.c = torch.rand(4)

    def forward(self, a, b):
        return self.linear(a + b) + self.c


@both_modes
def test_size_based_partition(compat):
    inputs = [torch.rand(4), torch.rand(4)]
    run = Run(AddLinearAdd(), inputs, compat, devices(125, 125, 125), PartitionMode.size_based)
    assert run.devices() == [[0], [1], [2]]
    if compat:
        assert run.details() == [
            (["a", "add", "b"], 48, [0]),
            (["linear"], 112, [1]),
            (["add_1", "c"], 48, [2]),
        ]
        assert run.emitted() == ["submod_0", "submod_1", "submod_2"]


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, a):
        b = torch.rand(4)
        d = self.linear(a + b)
        return torch.rand(4) + a + d


@both_modes
def test_partition_device_mapping(compat):
    run = Run(TwoBranches(), [torch.rand(4)], compat, devices(120, 160), PartitionMode.size_based)
    assert run.devices() == [[0], [1], [0]]
    if compat:
        assert run.details() == [
            (["_tensor_constant0", "a", "add"], 48, [0]),
            (["_tensor_constant1", "a", "add_1", "linear"], 160, [1]),
            (["add_2"], 48, [0]),
        ]
        assert [len(node.output_nodes) for node in run.dag] == [1, 2, 1]


def mlp(*widths):
    pairs = zip(widths, widths[1:])
    return nn.Sequential(*(m for a, b in pairs for m in (nn.Linear(a, b), nn.ReLU())))


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = mlp(4, 4, 4, 4, 4)
        rows = (500000, 1000000, 1000000, 1000000, 500000)
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, 4, mode="sum", sparse=True) for n in rows)
        self.top = mlp(24, 24, 24, 24)

    def forward(self, a, b, offset):
        x = self.bottom(a)
        sums = [torch.randint(10, (8,)) + b for _ in self.tables]
        found = [
            table(total if i % 2 == 0 else torch.randint(10, (8,)), offset)
            for i, (table, total) in enumerate(zip(self.tables, sums))
        ]
        return self.top(torch.cat([x, *found], dim=1))


@both_modes
def test_sparse_nn_partition(compat):
    inputs = [torch.rand(2, 4), torch.randint(10, (8,)), torch.randint(1, (2,))]
    three = devices(33000000, 33000000, 33000000)
    run = Run(Recommender(), inputs, compat, three, PartitionMode.sparse_nn)
    assert len(run.split.graph.nodes) == 24
    partitions = run.partitioner.partitions
    if compat:
        assert [(p.used_mem_bytes, p.logical_device_ids) for p in partitions] == [
            (1312, [0, 1]),
            (32000208, [0]),
            (8736, [0, 1]),
            (32000304, [1]),
        ]
        assert run.emitted() == ["submod_0", "submod_1", "submod_3", "submod_2"]
        assert partitions[0].logical_device_ids is partitions[2].logical_device_ids  # S2


class Latency(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, a):
        add = a + torch.rand(4)
        add_1 = add + torch.rand(4)
        add_2 = add_1 + self.linear(add)
        return add_1 + add_2


@both_modes
def test_partition_latency(compat):
    run = Run(Latency(), [torch.rand(4)], compat, devices(200, 200))
    times = latencies(run.module, lambda size: 2 * size.output_size)
    mapping = get_partition_to_latency_mapping(run.partitioner.partitions, times)
    expected = {0: (128.0, 80.0, 160.0), 1: (16.0, 32.0, 32.0)}
    assert {p.partition_id: latency for p, latency in mapping.items()} == expected
    assert run.cost(2, times) == 208.0
    assert [(p.used_mem_bytes, p.logical_device_ids) for p in mapping] == [(192, [0]), (48, [1])]


class CostAware(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, a):
        add = a + torch.rand(4)
        add_1 = add + torch.rand(4)
        linear = self.linear(add)
        add_2 = add_1 + torch.rand(4)
        add_3 = add_1 + linear
        return add_2 + add_3


@pytest.mark.parametrize(
    "mode, compat, cost",
    [
        ("cost_aware", True, 160),
        ("cost_aware", False, 160),
        ("size_based", True, 176),
        ("kl_based", True, 176),
        ("kl_based", False, 160),
    ],
)
def test_cost_aware_partition(mode, compat, cost):
    times = {}

    def fill(module):
        times.update(latencies(module, lambda size: 1))
        return times

    four = devices(125, 125, 125, 125)
    run = Run(CostAware(), [torch.rand(4)], compat, four, PartitionMode[mode], 2, fill)
    assert run.cost(2, times) == cost
    if not compat:
        assert run.partitioner.cost == cost
    if mode == "cost_aware" and compat:
        assert run.details() == [
            (["_tensor_constant0", "a", "add"], 48, [0]),
            (["_tensor_constant1", "add_1"], 48, [0]),
            (["linear"], 112, [1]),
            (["_tensor_constant2", "add_2", "add_3", "add_4"], 112, [2]),
        ]
        assert run.emitted() == ["submod_0", "submod_2", "submod_1", "submod_3"]


class WithAttributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = torch.rand(4)
        self.c = torch.rand(4)

    def forward(self, a):
        return self.c + (a + self.b)


@both_modes
def test_aot_based_partition(compat):
    def plan(module):
        return {n: i for i, n in enumerate(n for n in module.graph.nodes if n.op[:4] == "call")}

    run = Run(
        WithAttributes(),
        [torch.rand(4)],
        compat,
        devices(200),
        PartitionMode.aot_based,
        0.0,
        {},
        plan,
        {0: [0], 1: [0]},
    )
    assert [(node.size_bytes, node.logical_device_ids) for node in run.dag] == [(48, [0])] * 2


@both_modes
def test_saturate_host(compat, capsys):
    six = devices(200, 200, 100, 100, 200, 100)
    run = Run(Latency(), [torch.rand(4)], compat, six, saturate_host=True)
    assert [p.logical_device_ids for p in run.partitioner.partitions] == [[0, 4], [1, 2]]
    assert capsys.readouterr().out == ("[0, 4]\n[1, 2]\n" if compat else "")


class KernighanLin(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.b = torch.rand(4)
        self.c = torch.rand(4)
        self.d = torch.rand(4)

    def forward(self, a):
        add = a + self.b
        add_1 = add + self.c
        add_2 = add_1 + self.linear(add)
        add_3 = add_1 + self.d
        add_2 + add_3
        return add_3


@pytest.mark.parametrize(
    "mode, compat, sizes, cost",
    [
        ("size_based", True, [192, 80], 240),
        ("kl_based", True, [176, 112], 208),
        ("kl_based", False, None, 200),
        ("cost_aware", True, None, 200),
        ("cost_aware", False, None, 200),
    ],
)
def test_kl_based_partition(mode, compat, sizes, cost):
    times = {}

    def fill(module):
        times.update(latencies(module, lambda size: 2 * size.output_size))
        return times

    four = devices(200, 200, 200, 200)
    run = Run(KernighanLin(), [torch.rand(4)], compat, four, PartitionMode[mode], 2, fill)
    if sizes:
        assert [node.size_bytes for node in run.dag] == sizes
    assert run.cost(2, times) <= cost if not compat else run.cost(2, times) == cost
