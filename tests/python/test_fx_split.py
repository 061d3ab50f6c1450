# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What comes out of kerf.fx is called as what went in, and is the plan, whatever the names."""

import pytest
import torch
from fx_graphs import ops
from torch import nn
from torch.fx import symbolic_trace

from kerf.fx import (
    Device,
    InfeasibleError,
    Partitioner,
    PartitionerConfig,
    PartitionMode,
    get_size_of_all_nodes,
)


def halves(module, share=0.7):
    """The module in two parts or more."""
    Partitioner().partition_graph(module, module, PartitionerConfig([Device("", 1 << 50, 0)]))
    total = sum(n.size_bytes.total_size for n in module.graph.nodes if n.op != "output")
    while True:
        devices = [Device(f"d{i}", int(share * total), i) for i in range(2)]
        try:
            result = Partitioner().partition_graph(module, module, PartitionerConfig(devices))
            break
        except InfeasibleError:
            share *= 1.1
    assert len(result.dag.nodes) > 1
    return result


# ---- the form of calls


class Trees(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, data, *, scale):
        y = self.b(torch.relu(self.a(data["x"])) * scale)
        return {"y": y, "rest": [data["w"] + 1, (y * 2,)]}


def test_an_export_keeps_its_arguments_and_results():
    data, scale = {"x": torch.rand(2, 4), "w": torch.rand(2, 4)}, torch.rand(4)
    exported = torch.export.export(Trees(), (data,), {"scale": scale}).module()
    module = halves(exported).module_with_submodules
    got, want = module(data, scale=scale), exported(data, scale=scale)
    assert list(got) == ["y", "rest"] and type(got["rest"][1]) is tuple
    torch.testing.assert_close(got, want)
    with pytest.raises(Exception, match="scale|[Ii]nput"):
        module(data)


def test_an_export_with_one_result_returns_no_tuple():
    x = torch.rand(2, 4)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(halves(exported).module_with_submodules(x), model(x))


def test_an_exported_transformer_returns_its_own_class():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=20, intermediate_size=16, **sizes)
    model, ids = transformers.BertModel(config).eval(), torch.randint(0, 20, (1, 4))
    with torch.no_grad():
        exported = torch.export.export(model, (ids,), strict=False).module()
        got, want = halves(exported).module_with_submodules(ids), exported(ids)
    assert type(got) is type(want) and isinstance(got, transformers.utils.ModelOutput)
    torch.testing.assert_close(got.last_hidden_state, want.last_hidden_state)


def test_trees_of_a_trace_are_kept():
    class Pair(nn.Module):
        def forward(self, pair):
            return {"sum": torch.relu(pair[0]) + pair[1]}

    tree = (torch.fx.PH, torch.fx.PH)
    module = symbolic_trace(Pair(), concrete_args={"pair": tree})
    pair = (torch.rand(4), torch.rand(4))
    torch.fx.passes.shape_prop.ShapeProp(module).propagate(pair)
    result = halves(module)
    torch.testing.assert_close(result.module_with_submodules(pair), module(pair))


# ---- names


class Constant(nn.Module):
    """A constant, and a module, that are called as submodules would be."""

    def __init__(self):
        super().__init__()
        self.submod_0 = nn.Buffer(torch.rand(4, 4))
        self.submod_1 = nn.Linear(4, 4)
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.submod_1(x @ self.submod_0) + self.linear(x)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.submod_1 = nn.Module()
        self.submod_1.w = nn.Buffer(torch.rand(4, 4))
        self.w, self.v = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.w(x @ self.submod_1.w) + self.v(x) + self.submod_1.w


class OneName(nn.Module):
    """Two modules whose paths differ by a dot alone."""

    def __init__(self):
        super().__init__()
        self.a = nn.Module()
        self.a.b = nn.Linear(4, 4)
        self.a_b = nn.Linear(4, 4)
        self.a_b_1 = nn.Linear(4, 4)

    def forward(self, x):
        return self.a_b_1(self.a_b(self.a.b(x)))


@pytest.mark.parametrize("kind", [Constant, Nested, OneName])
def test_names_that_the_splitter_takes_for_its_own(kind):
    model, x = kind(), torch.rand(4, 4)
    module = symbolic_trace(model)
    get_size_of_all_nodes(module, [x])
    want, code = module(x), module.code
    before = {name: id(value) for name, value in module.state_dict(keep_vars=True).items()}
    for mode in (PartitionMode.size_based, PartitionMode.aot_based):
        number = {n: i % 2 if kind is not OneName else 0 for i, n in enumerate(ops(module))}
        number = {n: 0 if i < 2 else 1 for i, n in enumerate(number)}
        config = PartitionerConfig(
            [Device("a", 1000, 0), Device("b", 1000, 1)],
            mode,
            node_to_partition_mapping=number,
            partition_to_logical_device_mapping={0: [0], 1: [1]},
        )
        partitioner = Partitioner()
        result = partitioner.partition_graph(module, model, config)
        split = result.module_with_submodules
        torch.testing.assert_close(split(x), want)
        names = {f"submod_{p.partition_id}" for p in partitioner.partitions}
        assert {node.submodule_node.target for node in result.dag.nodes} == names
        calls = [n for s in names for n in getattr(split, s).graph.nodes if n.op.startswith("call")]
        assert len(calls) == len(ops(module))
        weights = {id(p) for p in split.parameters()}
        assert weights == {id(p) for p in model.parameters()}
    assert module.code == code
    assert before == {name: id(value) for name, value in module.state_dict(keep_vars=True).items()}
