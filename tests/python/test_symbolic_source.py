# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A model that is changed after its trace: the traced module refuses calls, or follows."""

import copy
import gc
import pickle
import types

import pytest
import torch
from given_code import Model, x
from torch import nn

from kerf.symbolic import GuardError, symbolic_trace

SETTINGS = {"scale": 2.0}


class Scaled(Model):
    shift = 1.0

    def __init__(self):
        super().__init__(None)
        self.scale, self.options = 2.0, {"power": [1, 2]}
        self.drop = nn.Dropout(0.5)
        self.own = nn.Parameter(torch.ones(8))
        self.mask = nn.Buffer(torch.ones(8))
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.config = types.SimpleNamespace(bias=1.0)
        self.epoch, self.best = 0, 1e9
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = self.inner(self.drop(self.linear(x))) * self.own * self.mask * SETTINGS["scale"]
        return y * self.scale ** self.options["power"][1] + self.config.bias + self.shift

    def epoch_ends(self, loss):
        self.epoch, self.best = self.epoch + 1, min(self.best, loss)


def set_in(table, key, value):
    return lambda model: table(model).__setitem__(key, value)


@pytest.mark.parametrize(
    "change, name",
    [
        (lambda m: setattr(m, "scale", 3.0), "scale"),
        (lambda m: setattr(m, "linear", nn.Linear(8, 8)), "linear"),
        (lambda m: setattr(m, "own", nn.Parameter(torch.zeros(8))), "own"),
        (lambda m: setattr(m, "mask", torch.zeros(8)), "mask"),
        (lambda m: m.load_state_dict(Scaled().state_dict(), assign=True), "own"),
        (lambda m: setattr(m.inner, "0", nn.Identity()), "inner.0"),
        (lambda m: m.inner.append(nn.ReLU()), "inner"),
        (lambda m: setattr(m.config, "bias", 2.0), "config"),
        (set_in(lambda m: m.options["power"], 1, 3), "options"),
        (lambda m: setattr(m, "options", {"power": [1, 3]}), "options"),
        (lambda m: setattr(Scaled, "shift", 2.0), "shift"),
        (set_in(lambda m: SETTINGS, "scale", 3.0), r"\S*test_symbolic_source.SETTINGS"),
    ],
    ids=range(12),
)
def test_a_model_that_is_another_after_its_trace_is_refused(change, name, monkeypatch):
    monkeypatch.setattr(Scaled, "shift", 1.0)
    monkeypatch.setitem(SETTINGS, "scale", 2.0)
    model, given = Scaled().eval(), x()
    gm = symbolic_trace(model, meta_args={"x": given})
    alone = copy.deepcopy(gm)
    before = gm(given)
    assert torch.equal(before, model(given))
    change(model)
    text = rf"'{name}' of the model is another than when it was traced \(forward: .*source.py:\d+\)"
    for made in (gm, copy.copy(gm)):
        with pytest.raises(GuardError, match=text):
            made(given)
    assert torch.equal(alone(given), before)


def test_what_no_call_reads_and_what_is_the_same_again_is_no_change():
    model, given = Scaled().eval(), x()
    gm = symbolic_trace(model, meta_args={"x": given})
    model(given)  # counts
    model.epoch_ends(0.5)
    model.scale, model.options = float("2.0"), model.options
    model.unread = 3
    model.train().eval()
    model.requires_grad_(False)
    model.load_state_dict(Scaled().state_dict())
    assert torch.equal(gm(given), model(given))


def test_modules_of_one_node_are_the_models_own_and_may_change():
    model, given = Scaled().eval(), x()
    gm = symbolic_trace(model, meta_args={"x": given})
    model.linear.weight = nn.Parameter(torch.zeros(8, 8))
    assert torch.equal(gm(given), model(given))
    gm.train()
    model.drop.p = 1.0
    assert torch.equal(gm.train()(given), model.train()(given))


def scaled(model, x):
    return model.linear(x) * model.scale


def test_a_traced_module_outlives_its_model_and_is_pickled_without():
    model, given = Model(scaled, scale=2.0), x()
    gm = symbolic_trace(model, meta_args={"x": given})
    before = gm(given)
    unpickled = pickle.loads(pickle.dumps(gm))
    model.scale = 3.0
    assert torch.equal(unpickled(given), before)
    del model
    gc.collect()
    assert torch.equal(gm(given), before)


def test_a_traced_module_is_compiled_and_exported():
    gm, given = symbolic_trace(Scaled().eval(), meta_args={"x": x()}), x()
    compiled = torch.compile(gm, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(given), gm(given))
    exported = torch.export.export(gm, (given,))
    torch.testing.assert_close(exported.module()(given), gm(given))
