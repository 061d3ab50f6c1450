# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers that choose a path in train mode: decided where none can, refused elsewhere."""

import random
import threading

import gradients
import models
import numpy
import pytest
import torch
import torch.nn as nn

from kerf._chance import _UNKNOWN, _truth
from kerf._errors import ExportError
from kerf._trace import trace


class Drops(nn.Module):
    """Leaves its layer out when ``decide`` says so."""

    def __init__(self, decide):
        super().__init__()
        self.decide = decide
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        if self.training and self.decide():
            return x * 1
        return self.linear(x)


def around(decide):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), Drops(decide)).train()


NEVER = {
    "rand < 0": lambda: torch.rand([]) < 0.0,
    "rand(1) < 0": lambda: torch.rand(1) < 0,
    "0 > rand": lambda: 0.0 > torch.rand([]),
    "rand <= -1": lambda: torch.rand(()) <= -1.0,
    "rand > 1": lambda: torch.rand([]) > 1.0,
    "rand >= 1": lambda: torch.rand([]) >= 1,
    "not rand >= 0": lambda: not torch.rand([]) >= 0.0,
    "not rand < 1": lambda: not torch.rand([]) < 1.0,
    "torch.lt": lambda: torch.lt(torch.rand([]), 0.0),
    "rand_like": lambda: torch.rand_like(torch.zeros(())) < 0.0,
    "item": lambda: torch.rand(1).item() < 0.0,
    "comparison.item": lambda: (torch.rand([]) < 0.0).item(),
}
SOMETIMES = {
    "rand < 0.1": lambda: torch.rand([]) < 0.1,
    "rand <= 0": lambda: torch.rand([]) <= 0.0,
    "0.9 < rand": lambda: 0.9 < torch.rand([]),
    "item": lambda: torch.rand(1).item() < 0.1,
    "a tensor": lambda: torch.rand([]) < torch.tensor(0.1),
}


@pytest.mark.parametrize("name", NEVER)
def test_what_no_number_can_change_is_decided(name):
    recording = gradients.check(around(NEVER[name]), torch.randn(3, 4))
    operators = [r["op"] for r in recording.nodes]
    assert operators.count("aten.linear.default") == 2
    assert "opaque" not in operators and recording.graph.notes == []


@pytest.mark.parametrize("bound", [-1, -0.5, 0, 0.0, 0.25, 1, 1.0, 1.5, float("inf")])
@pytest.mark.parametrize("relation", ["lt", "le", "gt", "ge"])
def test_decisions_hold_for_all_numbers_that_rand_gives(relation, bound):
    numbers = torch.cat([torch.rand(1000), torch.tensor([0.0, 2**-24, 1 - 2**-24])])
    answers = set(getattr(torch, relation)(numbers, bound).tolist())
    truth = _truth(relation, bound)
    if truth is _UNKNOWN:
        assert answers == {True, False}
    else:
        assert answers == {truth}


@pytest.mark.parametrize("bound", [float("nan"), None, "0", torch.zeros(())])
def test_nothing_is_decided_about_what_is_no_number(bound):
    assert _truth("lt", bound) is _UNKNOWN


@pytest.mark.parametrize("name", SOMETIMES)
def test_a_path_that_a_number_chooses_is_refused_with_module_line_and_what_to_do(name):
    with pytest.raises(ExportError) as caught:
        trace(around(SOMETIMES[name]), torch.randn(3, 4))
    error = caught.value
    assert error.module == "1"
    assert "test_trace_chance.py:" in error.location
    for part in ("module '1' at", "draws a random number", "config.layerdrop = 0", "basic_blocks"):
        assert part in str(error)


def test_a_comparison_that_decides_nothing_is_an_operator():
    class Masks(nn.Module):
        def forward(self, x):
            return torch.where(torch.rand(4) < 0.5, x, -x)

    model = nn.Sequential(nn.Linear(4, 4), Masks()).train()
    operators = [r["op"] for r in gradients.check(model, torch.randn(3, 4)).nodes]
    assert "aten.lt.Scalar" in operators and "opaque" not in operators


def test_a_block_may_draw_as_it_likes():
    graph = trace(around(SOMETIMES["rand < 0.1"]), torch.randn(3, 4), basic_blocks=["1"])
    assert [n["op"] for n in graph.nodes] == ["aten.linear.default", "opaque"]
    assert graph.nodes[1]["random"]


@pytest.mark.parametrize("name", ["opt", "bart"])
def test_layer_drop_of_transformers_is_refused_above_zero(name):
    model, args, kwargs = models.build(name)
    decoder = model.model.decoder
    trace(model.train(), args, kwargs)
    decoder.layerdrop = 0.1
    with pytest.raises(
        ExportError, match=r"'model\.decoder' at .*modeling_\w+\.py:\d+ \(`.*layerdrop = 0"
    ):
        trace(model.train(), args, kwargs)


def test_a_model_that_drops_layers_and_masks_by_numpy_is_traced_without_both():
    model, args, kwargs = models.build("wav2vec2")
    model.config.layerdrop = 0.0
    with pytest.raises(ExportError, match=r"modeling_wav2vec2\.py:\d+ .*NumPy's random generator"):
        trace(model.train(), args, kwargs)
    model.config.apply_spec_augment = False
    gradients.check(model, args, kwargs, relative=1e-5)


# Python's and NumPy's generators

rand = numpy.random.rand  # bound early, as user code does
PLAIN = {
    "random": lambda: random.random() < 0.1,
    "uniform": lambda: random.uniform(0, 1) < 0.1,
    "choice": lambda: random.choice([True, False]),
    "numpy": lambda: numpy.random.random() < 0.1,
    "early": lambda: rand() < 0.1,
}


@pytest.mark.parametrize("name", PLAIN)
def test_numbers_of_other_generators_are_refused_with_file_and_line(name):
    model = around(PLAIN[name])
    random.seed(1)
    numpy.random.seed(1)
    before = random.getstate(), numpy.random.get_state()[1].tolist()
    with pytest.raises(ExportError, match="(Python|NumPy)'s random generator.*torch.rand") as e:
        trace(model, torch.randn(3, 4))
    line = PLAIN[name].__code__.co_firstlineno
    assert e.value.location.endswith(f"test_trace_chance.py:{line}")
    assert e.value.module == "1"
    assert before == (random.getstate(), numpy.random.get_state()[1].tolist())
    trace(model.eval(), torch.randn(3, 4))


def test_the_line_is_that_which_draws_after_a_call():
    def nothing():
        return 0

    class Root(nn.Module):
        def forward(self, x):
            y = x * nothing()
            y = y + nothing() * float(self.draw())
            return y + nothing()

    model = Root().train()
    for draw in (random.random, numpy.random.random):
        model.draw = draw
        with pytest.raises(ExportError, match=r"own forward at .*\(`y = y \+ nothing\(\) \* float"):
            trace(model, torch.randn(3, 4))


def test_other_threads_may_draw():
    done = threading.Event()
    drawn = []

    def draw():
        while not done.wait(0.001):
            drawn.append(random.random())

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        graphs = [trace(around(lambda: False), torch.randn(3, 4)) for _ in range(3)]
    finally:
        done.set()
        thread.join()
    assert len(graphs) == 3 and drawn
