# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a model's code takes from outside of its modules: globals, functions, hooks."""

import sys
import types

import pytest
import torch
from comparing import assert_same
from torch import nn

import kerf

X = torch.randn(4, 8)
THIS = sys.modules[__name__]
SCALE = 2.0
TABLE = {"shift": [1.0, 2.0]}
UNUSED = 1
CALLS = 0
SETTINGS = types.ModuleType("settings_of_tests")
SETTINGS.gain = 3.0
sys.modules[SETTINGS.__name__] = SETTINGS


class Config:
    def __init__(self):
        self.bias = 0.5


CONFIG = Config()


def helper(x):
    return inner_helper(x) * 2


def inner_helper(x):
    return x + 1


def other_helper(x):
    return x - 1


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x)

    def unused(self, x):
        return x * UNUSED


class Mixin(Base):
    def forward(self, x):
        return super().forward(x) * 2


class Model(Mixin):
    def forward(self, x):
        y = super().forward(x)
        y = y * SCALE + TABLE["shift"][1] + SETTINGS.gain
        return helper(y) + Base.forward(self, x) + CONFIG.bias


def pipeline(model):
    return kerf.Pipeline(model, kerf.plan(kerf.trace(model, X), ["cpu:0"]))


def patched(self, x):
    return self.linear(x) + 1


# what is changed -> how it is named
CHANGES = {
    f"'{__name__}.SCALE', which the model's code uses, is 3.0; it was 2.0": (THIS, "SCALE", 3.0),
    f"'{__name__}.TABLE'": (THIS, "TABLE", {"shift": [1.0, 3.0]}),
    "'settings_of_tests.gain'": (SETTINGS, "gain", 4.0),
    f"'{__name__}.CONFIG.bias'": (CONFIG, "bias", 1.5),
    f"'{__name__}.helper'.*the function other_helper": (THIS, "helper", other_helper),
    f"'{__name__}.inner_helper'": (THIS, "inner_helper", other_helper),
    f"'{__name__}.Base.forward'": (Base, "forward", patched),
    f"'{__name__}.Mixin.forward'": (Mixin, "forward", patched),
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_change_outside_is_named(words, monkeypatch):
    holder, name, value = CHANGES[words]
    model = Model().eval()
    pipe = pipeline(model)
    with torch.no_grad():
        expected = model(X)
        assert_same(pipe(X), expected)
    with monkeypatch.context() as patch:
        patch.setattr(holder, name, value)
        with pytest.raises(ValueError, match=words):
            pipe(X)
        with torch.no_grad():
            assert not torch.equal(model(X), expected)
        with pytest.raises(ValueError, match=words):
            kerf.Pipeline(model, pipe.plan)
    with torch.no_grad():
        assert_same(pipe(X), expected)


def test_a_list_in_a_global_that_is_changed_in_place_is_named():
    model = Model().eval()
    pipe = pipeline(model)
    TABLE["shift"][1] = 5.0
    try:
        with pytest.raises(ValueError, match="TABLE"):
            pipe(X)
    finally:
        TABLE["shift"][1] = 2.0
    pipe(X)


def test_what_the_code_does_not_use_may_change(monkeypatch):
    pipe = pipeline(Model().eval())
    monkeypatch.setattr(THIS, "UNUSED", 2)
    monkeypatch.setattr(THIS, "NEW", 2, raising=False)
    monkeypatch.setattr(SETTINGS, "other", 2, raising=False)
    monkeypatch.setattr(THIS, "inner_helper", types.FunctionType(inner_helper.__code__, globals()))
    pipe(X)


def test_a_graph_from_a_file_knows_them(tmp_path, monkeypatch):
    model = Model().eval()
    kerf.trace(model, X).save(tmp_path / "m.graph")
    graph = kerf.load_graph(tmp_path / "m.graph")
    plan = kerf.plan(graph, ["cpu:0"])
    kerf.Pipeline(model, plan)(X)
    monkeypatch.setattr(THIS, "SCALE", 7.0)
    with pytest.raises(ValueError, match="SCALE'.*is 7.0; it was 2.0"):
        kerf.Pipeline(model, plan)


class Counting(Base):
    def __init__(self, used):
        super().__init__()
        self.used = used

    def forward(self, x):
        global CALLS
        CALLS += 1
        return super().forward(x) + (CALLS if self.used else 0)


def test_a_global_counter_is_left_alone_unless_the_result_depends_on_it():
    model = Counting(used=False).eval()
    before = CALLS
    pipe = pipeline(model)
    assert before == CALLS
    model(X)
    pipe(X)
    with pytest.raises(kerf.ExportError, match="changes the global '.*CALLS', and its result"):
        kerf.trace(Counting(used=True).eval(), X)


def hooked(closed):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    model[0].register_forward_hook(lambda module, args, output: output * closed["gain"])
    return model


def test_numbers_that_hooks_close_over_are_watched():
    closed = {"gain": 2.0}
    pipe = pipeline(hooked(closed))
    pipe(X)
    closed["gain"] = 3.0
    with pytest.raises(ValueError, match="module '0' has"):
        pipe(X)
    closed["gain"] = 2.0
    pipe(X)


def test_tensors_that_hooks_close_over_are_watched(tmp_path):
    closed = {"gain": torch.full((8,), 2.0)}
    model = hooked(closed)
    pipe = pipeline(model)
    with torch.no_grad():
        assert_same(pipe(X), model(X))
    closed["gain"].add_(1)
    with pytest.raises(ValueError, match="gain' was changed"):
        pipe(X)


def test_weights_that_hooks_close_over_may_change():
    closed = {}
    model = hooked(closed)
    closed["gain"] = model[0].bias
    pipe = pipeline(model)
    with torch.no_grad():
        model[0].bias.add_(1)
        assert_same(pipe(X), model(X))
        model[1].register_forward_hook(lambda *_: None).remove()
        assert_same(pipe(X), model(X))


def test_globals_of_hooks_are_watched(monkeypatch):
    model = nn.Sequential(nn.Linear(8, 8)).eval()
    model[0].register_forward_hook(lambda module, args, output: output * SCALE)
    pipe = pipeline(model)
    monkeypatch.setattr(THIS, "SCALE", 3.0)
    with pytest.raises(ValueError, match="SCALE'"):
        pipe(X)


class Asking(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.how = how

    def forward(self, x):
        y = self.linear(x)
        if self.how == "mode":
            return y + 1 if torch.is_grad_enabled() else y
        if self.how == "weight":
            return y + 1 if self.linear.weight.requires_grad else y
        if torch.is_grad_enabled() and self.linear.weight.requires_grad:
            self.noticed = True
        return y


def test_gradient_mode_counts_where_the_code_asks_for_it():
    model = Asking("mode").eval()
    pipe = pipeline(model)
    assert_same(pipe(X), model(X).detach())
    with torch.no_grad(), pytest.raises(ValueError, match="gradient mode is off; it was on"):
        pipe(X)
    with torch.no_grad():
        pipe = pipeline(model)
        assert_same(pipe(X), model(X))
    with pytest.raises(ValueError, match="gradient mode is on; it was off"):
        pipe(X)


def test_what_requires_gradients_counts_where_the_code_asks_for_it():
    model = Asking("weight").eval()
    pipe = pipeline(model)
    assert model.linear.weight.requires_grad
    assert_same(pipe(X), model(X).detach())
    model.linear.weight.requires_grad_(False)
    with pytest.raises(ValueError, match="weight 'linear.weight' does not require gradients; it"):
        pipe(X)
    model.linear.weight.requires_grad_(True)
    pipe(X)


@pytest.mark.parametrize("model", [Asking("neither"), nn.Linear(8, 8)])
def test_gradients_change_no_numbers_elsewhere(model):
    pipe = pipeline(model.eval())
    with torch.no_grad():
        assert_same(pipe(X), model(X))
    for weight in model.parameters():
        weight.requires_grad_(False)
    assert_same(pipe(X), model(X))
