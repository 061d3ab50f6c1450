# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors that a model's code finds elsewhere than in its modules: they are weights of the model
under another name, or their numbers are watched."""

import dataclasses
import functools
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from comparing import assert_same
from torch import nn

import kerf

X = torch.randn(4, 8)
GLOBAL = nn.Parameter(torch.randn(8, 8))
OTHER = types.ModuleType("other_module_of_tests")
OTHER.table = torch.randn(8, 8)
sys.modules[OTHER.__name__] = OTHER


def helper(x):
    return x @ GLOBAL


@dataclasses.dataclass
class Box:
    weight: torch.Tensor


class Slotted:
    __slots__ = ("weight",)

    def __init__(self, weight):
        self.weight = weight


class Base(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.own = nn.Linear(8, 8)
        self.keep(self.own.weight if weight is None else weight)

    def forward(self, x):
        return self.own(x) + F.linear(x, self.found())


def model_of(keep, found):
    return type("Model", (Base,), {"keep": keep, "found": found})


def keep_closure(self, weight):
    self.found = lambda: weight


def keep_nested(self, weight):
    def outer():
        return lambda: weight

    self.found = outer()


def keep_partial(self, weight):
    self.found = functools.partial(lambda w: w, weight)


def keep_default(self, weight):
    def found(w=weight):
        return w

    self.found = found


def keep_module(self, weight):
    linear = nn.Linear(8, 8)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    linear.weight.data = weight.data
    self.others = [linear]


# name -> (how the model keeps a tensor, how it finds it, where the tensor is put back)
KEPT = {
    "list": (
        lambda m, w: setattr(m, "list", [w]),
        lambda m: m.list[0],
        lambda m, w: m.list.__setitem__(0, w),
    ),
    "tuple in a dict": (
        lambda m, w: setattr(m, "dict", {"a": (w,)}),
        lambda m: m.dict["a"][0],
        lambda m, w: m.dict.__setitem__("a", (w,)),
    ),
    "hidden attribute": (
        lambda m, w: m.__dict__.__setitem__("hidden", w),
        lambda m: m.hidden,
        lambda m, w: m.__dict__.__setitem__("hidden", w),
    ),
    "object": (
        lambda m, w: setattr(m, "box", Box(w)),
        lambda m: m.box.weight,
        lambda m, w: setattr(m.box, "weight", w),
    ),
    "slot": (
        lambda m, w: setattr(m, "box", Slotted(w)),
        lambda m: m.box.weight,
        lambda m, w: setattr(m.box, "weight", w),
    ),
    "closure": (
        keep_closure,
        None,
        lambda m, w: setattr(m.found.__closure__[0], "cell_contents", w),
    ),
    "nested closure": (
        keep_nested,
        None,
        lambda m, w: setattr(m.found.__closure__[0], "cell_contents", w),
    ),
    "partial": (keep_partial, None, lambda m, w: keep_partial(m, w)),
    "default": (keep_default, None, lambda m, w: setattr(m.found, "__defaults__", (w,))),
    "class": (
        lambda m, w: setattr(type(m), "shared", [w]),
        lambda m: m.shared[0],
        lambda m, w: m.shared.__setitem__(0, w),
    ),
    "module in a list": (
        keep_module,
        lambda m: m.others[0].weight,
        lambda m, w: setattr(m.others[0], "weight", nn.Parameter(w.detach())),
    ),
}


def build(name, weight):
    keep, found, _ = KEPT[name]
    methods = {"keep": keep} if found is None else {"keep": keep, "found": found}
    return type("Model", (Base,), methods)(weight).eval()


def pipeline(model, x=X):
    return kerf.Pipeline(model, kerf.plan(kerf.trace(model, x), ["cpu:0"]))


def step(model, weight):
    optimizer = torch.optim.SGD([weight], lr=0.5)
    weight.grad = torch.ones_like(weight)
    optimizer.step()


IN_PLACE = {
    "load_state_dict": lambda m, w: m.load_state_dict(
        {k: v + 1 for k, v in m.state_dict().items()}
    ),
    "optimizer": step,
    "add_": lambda m, w: w.detach().add_(1),
    "data.add_": lambda m, w: w.data.add_(1),
}


@pytest.mark.parametrize("change", IN_PLACE)
@pytest.mark.parametrize("name", KEPT)
def test_a_registered_weight_is_that_weight(name, change):
    model = build(name, None)
    pipe = pipeline(model)
    with torch.no_grad():
        assert_same(pipe(X), model(X))
    IN_PLACE[change](model, model.own.weight)
    with torch.no_grad():
        assert_same(pipe(X), model(X))


@pytest.mark.parametrize("name", KEPT)
def test_a_registered_weight_that_is_replaced_is_refused_or_right(name):
    model = build(name, None)
    pipe = pipeline(model)
    model.own.weight = nn.Parameter(torch.randn(8, 8))
    with torch.no_grad(), pytest.raises(ValueError, match="no longer weight 'own.weight'"):
        pipe(X)
    model = build(name, None)
    pipe = pipeline(model)
    model.own.weight.data = torch.randn(8, 8)
    try:
        with torch.no_grad():
            assert_same(pipe(X), model(X))
    except ValueError as error:
        assert "no longer weight 'own.weight'" in str(error)


CHANGES = {k: v for k, v in IN_PLACE.items() if k in ("optimizer", "add_")} | {
    "data": lambda m, w: setattr(w, "data", torch.randn(8, 8)),
}


def tensor_of(model, name):
    found = KEPT[name][1]
    return model.found() if found is None else found(model)


@pytest.mark.parametrize("change", [*CHANGES, "replaced"])
@pytest.mark.parametrize("name", KEPT)
def test_numbers_of_other_tensors_are_watched(name, change):
    model = build(name, torch.randn(8, 8))
    pipe = pipeline(model)
    with torch.no_grad():
        assert_same(pipe(X), model(X))
        assert_same(pipe(X), model(X))
    if change == "replaced":
        KEPT[name][2](model, torch.randn(8, 8))
    else:
        CHANGES[change](model, tensor_of(model, name))
    with torch.no_grad():
        try:
            found = pipe(X)
        except ValueError as error:
            assert "register" in str(error) or "trace" in str(error)
        else:
            assert_same(found, model(X))


class UsesGlobals(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.own = nn.Linear(8, 8)
        self.how = how

    def forward(self, x):
        y = self.own(x)
        if self.how == "global":
            return y + x @ GLOBAL
        if self.how == "helper":
            return y + helper(x)
        return y + x @ OTHER.table


@pytest.mark.parametrize("change", [*CHANGES, "replaced"])
@pytest.mark.parametrize("how", ["global", "helper", "module"])
def test_globals_are_watched(how, change, monkeypatch):
    model = UsesGlobals(how).eval()
    pipe = pipeline(model)
    holder, name = (OTHER, "table") if how == "module" else (sys.modules[__name__], "GLOBAL")
    monkeypatch.setattr(holder, name, getattr(holder, name))
    with torch.no_grad():
        assert_same(pipe(X), model(X))
    if change == "replaced":
        monkeypatch.setattr(holder, name, torch.randn(8, 8))
    else:
        CHANGES[change](model, getattr(holder, name))
    with pytest.raises(ValueError, match=f"the tensor '{holder.__name__}.{name}' was changed"):
        pipe(X)


def test_a_change_between_trace_and_pipeline_is_seen():
    model = build("list", torch.randn(8, 8))
    plan = kerf.plan(kerf.trace(model, X), ["cpu:0"])
    kerf.Pipeline(model, plan)
    model.list[0].data.add_(1)
    with pytest.raises(ValueError, match=r"list"):
        kerf.Pipeline(model, plan)


def test_places_are_found_in_a_graph_from_a_file(tmp_path):
    model = UsesGlobals("global").eval()
    graph = kerf.trace(model, X)
    graph.save(tmp_path / "m.graph")
    graph = kerf.load_graph(tmp_path / "m.graph")
    pipe = kerf.Pipeline(model, kerf.plan(graph, ["cpu:0"]), graph=graph)
    with torch.no_grad():
        assert_same(pipe(X), model(X))
        GLOBAL.add_(1)
    with pytest.raises(ValueError, match="GLOBAL' was changed"):
        pipe(X)


def test_a_global_that_forward_writes_is_refused():
    class Writes(nn.Module):
        def forward(self, x):
            OTHER.table.add_(1)
            return x + OTHER.table.sum()

    with pytest.raises(kerf.ExportError, match="writes into the tensor 'other_module.*register"):
        kerf.trace(Writes().eval(), X)
