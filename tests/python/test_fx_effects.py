# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Modules that change tensors in place: split, they compute what they computed whole."""

import operator

import pytest
import torch
import torch.nn.functional as F
from fx_graphs import ops
from torch import fx, nn
from torch.fx import symbolic_trace

from kerf.fx import (
    Device,
    InfeasibleError,
    NodeLatency,
    Partitioner,
    PartitionerConfig,
    PartitionError,
    PartitionMode,
    get_size_of_all_nodes,
)
from kerf.fx._effects import effects
from kerf.fx._modules import Modules

aten = torch.ops.aten

# ---- what single nodes do


def of(op, target, *args, root=None, **kwargs):
    """What a call changes and shares, by the names of its arguments x, y and z."""
    graph = fx.Graph()
    leaf = {name: graph.placeholder(name) for name in "xyz"}
    leaf["ys"] = [leaf["y"], leaf["z"]]
    put = lambda value: leaf.get(value, value) if isinstance(value, str) else value  # noqa: E731
    args = [put(a) for a in args]
    graph.create_node(op, target, tuple(args), {k: put(v) for k, v in kwargs.items()})
    change = graph.call_method("zero_", (graph.placeholder("other"),))  # else nothing matters
    graph.output(None)
    module = fx.GraphModule(root or nn.Module(), graph)
    nodes = [n for n in module.graph.nodes if n.op != "output"]
    found = effects(nodes, Modules(module))
    names = lambda pairs: "".join(  # noqa: E731
        nodes[b].name for a, b in pairs if nodes[a].name != change.name
    )
    return names(found["mutates"]), names(found["aliases"])


def function(target, *args, **kwargs):
    return of("call_function", target, *args, **kwargs)


def method(name, *args, **kwargs):
    return of("call_method", name, *args, **kwargs)


def module(called, *args):
    root = nn.Module()
    root.called = called
    return of("call_module", "called", *args, root=root)


NOTHING, CHANGED, VIEW = ("", ""), ("x", "x"), ("", "x")


@pytest.mark.parametrize("name", "add_ relu_ copy_ zero_ squeeze_ __iadd__ __imul__".split())
def test_methods_that_change_their_tensor(name):
    assert method(name, "x", "y") == CHANGED


@pytest.mark.parametrize(
    "name",
    "view reshape transpose permute t squeeze unsqueeze expand expand_as view_as narrow select "
    "split chunk unbind flatten unflatten contiguous detach diagonal movedim swapaxes to float "
    "half type type_as as_strided unfold __getitem__ tensor_split real ravel adjoint cpu".split(),
)
def test_methods_that_may_be_views(name):
    assert method(name, "x", 0) == VIEW


@pytest.mark.parametrize("name", "add sigmoid size dim __len__ __add__ clone matmul item".split())
def test_methods_that_do_nothing(name):
    assert method(name, "x", "y") == NOTHING


def test_items_are_changed_and_nothing_is_returned():
    assert method("__setitem__", "x", 0, "y") == ("x", "")
    assert function(operator.setitem, "x", 0, "y") == ("x", "")


@pytest.mark.parametrize("target", [operator.iadd, operator.imul, torch.relu_, F.relu_])
def test_functions_that_change_their_tensor(target):
    assert function(target, "x", "y") == CHANGED
    assert function(torch.Tensor.add_, "x", 1) == CHANGED


def test_functions_that_are_told_to():
    assert function(F.relu, "x") == function(F.relu, "x", inplace=False) == NOTHING
    assert function(F.relu, "x", inplace=True) == function(F.relu, "x", True) == CHANGED
    assert function(F.relu, input="x", inplace=True) == CHANGED
    assert function(F.leaky_relu, "x", 0.1, True) == CHANGED
    assert function(torch.add, "x", "y", out="z") == ("z", "z")
    assert function(torch.aminmax, "x", out="ys") == ("yz", "yz")
    assert function(torch._foreach_add_, "ys", 1) == ("yz", "yz")


@pytest.mark.parametrize(
    "target",
    [torch.reshape, torch.transpose, torch.split, torch.chunk, torch.unbind, torch.squeeze]
    + [torch.flatten, torch.detach, torch.diagonal, torch.movedim, operator.getitem, F.dropout]
    + [torch.narrow, torch.select, torch.as_strided, torch.Tensor.view],
)
def test_functions_that_may_be_views(target):
    assert function(target, "x", 0) == VIEW


def test_functions_that_hold_their_arguments():
    for target in (tuple, list, torch.broadcast_tensors, torch.meshgrid):
        assert function(target, "ys") == ("", "yz")


def test_attributes_that_are_views_and_those_that_are_facts():
    for name in ("T", "mT", "data", "values"):
        assert function(getattr, "x", name) == VIEW
    for name in ("shape", "dtype", "device", "ndim"):
        assert function(getattr, "x", name) == NOTHING


def test_operators_do_what_their_schemas_say():
    assert function(aten.add_.Tensor, "x", "y") == CHANGED
    assert function(aten.add.Tensor, "x", "y") == NOTHING
    assert function(aten.add.out, "x", "y", out="z") == ("z", "z")
    assert function(aten.view.default, "x", [4]) == VIEW
    assert function(aten.split.Tensor, "x", 2) == VIEW
    assert function(aten.add_, "x", "y") == CHANGED
    assert function(aten.transpose, "x", 0, 1) == VIEW
    assert function(aten.index_put_.default, "x", "ys", "y") == CHANGED
    assert function(aten._foreach_add_.Scalar, "ys", 1) == ("yz", "")  # it returns nothing
    assert function(aten.dropout.default, "x", 0.5, False) == VIEW  # of which it says nothing


def test_statistics_are_changed_in_training():
    stats = (None, None, "y", "z")
    assert function(aten.batch_norm.default, "x", *stats, True, 0.1, 1e-5, True) == ("yz", "")
    assert function(aten.batch_norm.default, "x", *stats, False, 0.1, 1e-5, True) == NOTHING
    assert function(F.batch_norm, "x", "y", "z", training=True) == ("yz", "")
    assert function(F.batch_norm, "x", "y", "z") == NOTHING
    assert function(F.instance_norm, "x", "y", "z") == ("yz", "")  # unless it is told not to
    assert function(F.instance_norm, "x", "y", "z", use_input_stats=False) == NOTHING
    functional = aten._native_batch_norm_legit_functional.default  # it returns new statistics
    assert function(functional, "x", *stats, True, 0.1, 1e-5) == NOTHING


def test_modules():
    assert module(nn.ReLU(inplace=True), "x") == CHANGED
    assert module(nn.ReLU(), "x") == NOTHING
    assert module(nn.Flatten(), "x") == module(nn.Identity(), "x") == VIEW
    assert module(nn.Dropout().eval(), "x") == module(nn.Dropout(0.0), "x") == VIEW
    assert module(nn.Dropout(), "x") == NOTHING
    assert module(nn.Linear(2, 2), "x") == NOTHING


def test_what_is_not_pytorchs_has_no_effects():
    def own_(x, inplace=True, out=None):
        return x

    own_.__module__ = "somebody"
    assert function(own_, "x", inplace=True) == function(own_, "x", out="y") == NOTHING


def test_constants_that_share_their_memory():
    root = nn.Module()
    root.a = nn.Buffer(torch.zeros(4))
    root.b = nn.Buffer(root.a[:2])
    graph = fx.Graph()
    a, b, again = (graph.get_attr(name) for name in ("a", "b", "a"))
    graph.call_method("add_", (b, 1))
    graph.output((a, again))
    traced = fx.GraphModule(root, graph)
    nodes = [n for n in traced.graph.nodes if n.op != "output"]
    assert effects(nodes, Modules(traced)) == {
        "aliases": [(3, 1), (1, 0), (2, 0)],
        "mutates": [(3, 1)],
    }


# ---- whole models


class AddInPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.a(x)
        z = self.b(y)
        y.add_(1)
        return z, y * 2


class ViewAndAdd(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.a(x)
        flat = y.view(-1)
        z = self.b(y)
        flat.add_(1)
        return z, y * 2, flat.sum()


class Blocks(nn.Module):
    """Like a ResNet: activations in place, on what others do not read, and after sums."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(2, 2, 3, padding=1) for _ in range(8))
        self.norms = nn.ModuleList(nn.BatchNorm2d(2) for _ in range(8))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        layers = list(zip(self.convs, self.norms))
        for (conv, norm), (last, last_norm) in zip(layers[::2], layers[1::2]):
            y = last_norm(last(self.relu(norm(conv(x)))))
            x = self.relu(y + x)
        return x


class SetItem(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Buffer(torch.zeros(8, 8))
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        c = self.c + x
        before = self.a(c)
        c[0] = x[0]
        return before, self.b(c)


def traced(model, x):
    module = symbolic_trace(model)
    get_size_of_all_nodes(module, [x])
    return module


def exported(model, x):
    return torch.export.export(model, (x,)).module()


MODELS = [
    (AddInPlace, (2, 8), traced),
    (AddInPlace, (2, 8), exported),
    (ViewAndAdd, (2, 8), traced),
    (ViewAndAdd, (2, 8), exported),
    (Blocks, (1, 2, 4, 4), traced),
    (Blocks, (1, 2, 4, 4), exported),
    (SetItem, (8, 8), exported),
]


def flat(result):
    return list(result) if isinstance(result, tuple) else [result]


def config_of(module, mode, share, count=3, given=None):
    get_size_of_all_nodes(module)
    total = sum(n.size_bytes.total_size for n in module.graph.nodes if n.op != "output")
    devices = [Device(f"d{i}", int(total * share), i) for i in range(count)]
    times = {n: NodeLatency(n.size_bytes.total_size, 1.0) for n in ops(module)}
    given = given or ({}, {})
    return PartitionerConfig(devices, PartitionMode[mode], 100.0, times, *given)


@pytest.mark.parametrize("mode", ["size_based", "sparse_nn", "cost_aware", "kl_based"])
@pytest.mark.parametrize("model, shape, trace", MODELS)
def test_changes_in_place_come_in_the_models_order(model, shape, trace, mode):
    torch.manual_seed(0)
    model, x = model().eval(), torch.rand(shape)
    module = trace(model, x)
    want = flat(module(x.clone()))
    most = 0
    for share in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5):
        try:
            result = Partitioner().partition_graph(module, model, config_of(module, mode, share))
        except InfeasibleError:
            continue
        most = max(most, len(result.dag.nodes))
        for got, expected in zip(flat(result.module_with_submodules(x.clone())), want):
            torch.testing.assert_close(got, expected, rtol=0, atol=0)
    assert most > 1 or mode == "sparse_nn"


def test_a_given_plan_may_not_take_a_change_from_a_reader():
    x = torch.rand(2, 8)
    module = traced(AddInPlace(), x)
    a, b, add_, mul = ops(module)
    devices = {0: [0], 1: [1]}
    apart = config_of(module, "aot_based", 2.0, 3, ({a: 0, b: 1, add_: 0, mul: 0}, devices))
    with pytest.raises(PartitionError, match="in place") as raised:
        Partitioner().partition_graph(module, module, apart)
    assert "'b'" in str(raised.value) and "add_" in str(raised.value)
    together = config_of(module, "aot_based", 2.0, 3, ({a: 0, b: 1, add_: 1, mul: 1}, devices))
    result = Partitioner().partition_graph(module, module, together)
    for got, want in zip(result.module_with_submodules(x), module(x)):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("mode", ["cost_aware", "kl_based", "size_based"])
def test_activations_in_place_stay_free_to_be_cut_apart(mode):
    """Each is the only reader of what it changes: nothing has to stay together."""
    module = traced(Blocks().eval(), torch.rand(1, 2, 4, 4))
    result = Partitioner().partition_graph(module, module, config_of(module, mode, 0.35, 4))
    used = {i for node in result.dag.nodes for i in node.logical_device_ids}
    assert len(used) >= 3


def test_without_latencies_changes_in_place_need_none():
    module = traced(AddInPlace(), torch.rand(2, 8))
    config = config_of(module, "size_based", 0.9)._replace(node_to_latency_mapping={})
    assert len(Partitioner().partition_graph(module, module, config).dag.nodes) == 2
