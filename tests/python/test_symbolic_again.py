# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Symbolic traces of code that does something else at a later call: refused, and nothing of the
model has changed."""

import dataclasses
import datetime
import functools
import itertools
import os
import random
import secrets
import time
import uuid

import numpy
import pytest
import torch
import torch.nn.functional as F
from given_code import Model, trace, x

from kerf import ExportError
from kerf.symbolic import symbolic_trace

# Counters that decide late


@dataclasses.dataclass(slots=True)
class Slots:
    calls: int = 0


calls_of_all = 0


def in_an_attribute(model):
    model.calls += 1
    return model.calls


def in_a_list(model):
    model.counts[0] += 1
    return model.counts[0]


def in_slots(model):
    model.slots.calls += 1
    return model.slots.calls


def in_a_global(model):
    global calls_of_all
    calls_of_all += 1
    return calls_of_all


def in_a_closure():
    calls = 0

    def count(model):
        nonlocal calls
        calls += 1
        return calls

    return count


COUNTS = [in_an_attribute, in_a_list, in_slots, in_a_global, in_a_closure()]


def counting(count, decide):
    forward = lambda model, x: model.linear(x) * (2 if decide(count(model)) else 3)  # noqa: E731
    return Model(forward, calls=0, counts=[0], slots=Slots())


@pytest.mark.parametrize("count", COUNTS, ids=lambda f: f.__qualname__.split(".")[0])
@pytest.mark.parametrize(
    "decide",
    [
        lambda n: n == 10,
        lambda n: 3 * n + 1 == 3_000_001,
        lambda n: n in (5, 900),
        lambda n: n in {5, 9},
        lambda n: {7: True}.get(n, False),
        lambda n: n % 100 == 99,
        lambda n: divmod(n, 50)[1] == 49,
        lambda n: n / 4 == 2.5,
        lambda n: n // 10 == 4,
        lambda n: not n - 30,
    ],
)
def test_a_number_that_decides_at_one_late_call_is_refused(count, decide):
    model = counting(count, decide)
    with pytest.raises(ExportError, match="does something else when called again"):
        symbolic_trace(model, meta_args={"x": x()})
    assert (model.calls, model.counts, model.slots.calls, calls_of_all) == (0, [0], 0, 0)


@pytest.mark.parametrize("count", COUNTS, ids=lambda f: f.__qualname__.split(".")[0])
@pytest.mark.parametrize("decide", [lambda n: n < 0, lambda n: n == -5, lambda n: not n])
def test_a_number_that_decides_at_no_call_to_come_is_left_out(count, decide):
    model = counting(count, decide)
    gm, given = symbolic_trace(model, meta_args={"x": x()}), x()
    assert torch.equal(gm(given), model.linear(given) * 3)


# What two calls may differ in


def a_keyword(model, x):
    model.calls += 1
    return F.leaky_relu(model.linear(x), negative_slope=0.1 * model.calls)


def the_order_of_two_equal_calls(model, x):
    model.calls = (model.calls + 1) % 2
    first, second = torch.relu(x), torch.relu(-x)
    return model.linear(first - second if model.calls else second - first)


def a_constant(model, x):
    model.calls = (model.calls + 1) % 2
    return model.linear(x) * model.scales[model.calls]


def numbers_of_an_array(model, x):
    model.calls += 1
    return model.linear(x) * torch.from_numpy(numpy.full(8, model.calls, dtype=numpy.float32))


@pytest.mark.parametrize(
    "forward", [a_keyword, the_order_of_two_equal_calls, a_constant, numbers_of_an_array]
)
def test_a_second_call_that_differs_is_refused(forward):
    with pytest.raises(ExportError, match="attribute 'calls' and does something else"):
        trace(forward, calls=0, scales=[torch.tensor(2.0), torch.tensor(3.0)])


# Globals


TABLE, NUMBERS = {"calls": 0}, itertools.count()


def counts_in_a_table(model, x):
    TABLE["calls"] += 1
    return model.linear(x) * TABLE["calls"]


def takes_from_a_global(model, x):
    return model.linear(x) * next(NUMBERS)


def test_globals_that_the_code_changes_are_refused_and_put_back():
    with pytest.raises(ExportError, match=r"sets the attribute '\S*test_symbolic_again\.TABLE'"):
        trace(counts_in_a_table)
    with pytest.raises(ExportError, match="a count that outlives the call"):
        trace(takes_from_a_global)
    assert TABLE == {"calls": 0} and next(NUMBERS) == 0


@functools.lru_cache
def cached(n):
    return torch.arange(n).float()


@functools.lru_cache
def cached_of(model, n):
    return model.linear.weight.detach() * n


def test_caches_of_functions_are_left_without_what_a_trace_has_made():
    def forward(model, x):
        model.calls += 1  # so that the code is followed twice
        return model.linear(x) * cached(8) @ cached_of(model, 2)

    model = Model(forward, calls=0)
    gm, given = symbolic_trace(model, meta_args={"x": x()}), x()
    torch.testing.assert_close(gm(given), model(given))
    kept = cached(8)
    symbolic_trace(model, meta_args={"x": x()})
    assert cached(8) is kept  # it had data


# Clocks, chance and addresses


@pytest.mark.parametrize(
    "draw",
    [
        lambda: numpy.random.default_rng().random(),
        lambda: numpy.random.RandomState().rand(),
        lambda: random.Random().random(),
        lambda: random.SystemRandom().random(),
        lambda: int.from_bytes(os.urandom(4), "big"),
        lambda: secrets.randbelow(1 << 30),
        lambda: uuid.uuid4().int % (1 << 30),
        lambda: time.time() % 1,
        lambda: time.perf_counter_ns() % 1000_003,
        lambda: datetime.datetime.now().microsecond,
        lambda: torch.Generator().seed() % (1 << 30),
        lambda: id(object()) + time.monotonic(),
    ],
)
def test_what_differs_from_call_to_call_is_refused_with_its_line(draw):
    line = rf"test_symbolic_again\.py:{draw.__code__.co_firstlineno}"
    with pytest.raises(ExportError, match=rf"has changed nothing; its code names .* \({line}\)"):
        trace(lambda model, x: model.linear(x) * float(draw()))


@pytest.mark.parametrize("array", [True, False])
def test_a_generator_that_forward_seeds_gives_the_same_at_every_call(array):
    def forward(model, x):
        drawn = numpy.random.default_rng(3).random(8, dtype=numpy.float32)
        noise = torch.from_numpy(drawn) if array else random.Random(3).random()
        return model.linear(x) * noise

    model = Model(forward)
    gm, given = symbolic_trace(model, meta_args={"x": x()}), x()
    torch.testing.assert_close(gm(given), model(given))


def test_a_clock_that_is_only_noted_is_left_out():
    def forward(model, x):
        start = time.perf_counter()
        y = model.linear(x)
        model.seconds = time.perf_counter() - start
        return y

    model = Model(forward, seconds=0.0)
    gm, given = symbolic_trace(model, meta_args={"x": x()}), x()
    assert torch.equal(gm(given), model.linear(given))
    assert model.seconds == 0.0
