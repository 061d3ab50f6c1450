# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Long calls answer signals: what a handler raises comes out of the call, soon and as it is."""

import contextlib
import os
import signal
import threading
import time

import pytest
import torch
import torch.nn as nn
from comparing import hand_plan

import kerf

LAYERS, WIDTH, LONG = 40, 512, 8192  # seconds of products, none of them long
DEVICES = {"workers": ["cpu:0", "cpu:1"], "caller": ["cpu:0"]}


class Enough(Exception):
    pass


@contextlib.contextmanager
def signalled(handler, after=0.15, number=signal.SIGUSR1):
    """Sends this process a signal in a moment, from another thread."""
    before = signal.signal(number, handler)
    timer = threading.Timer(after, os.kill, (os.getpid(), number))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(number, before)


def raise_enough(*_):
    raise Enough


@contextlib.contextmanager
def ends_soon():
    """Much sooner than the work takes; a busy machine may be late."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 1.5


@pytest.fixture(scope="module")
def chain():
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]).eval()
    return model, kerf.trace(model, (torch.randn(4, WIDTH),))


def pipeline(chain, devices):
    model, graph = chain
    half = graph.num_nodes // 2
    stages = [list(range(half)), list(range(half, graph.num_nodes))]
    return kerf.Pipeline(model, hand_plan(graph, stages, devices, 16, batch=LONG), graph=graph)


@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
def test_what_a_handler_raises_ends_a_call_and_the_next_one_works(chain, devices):
    pipe = pipeline(chain, devices)
    x = torch.randn(LONG, WIDTH)
    with signalled(raise_enough), ends_soon(), pytest.raises(Enough):
        pipe(x)
    few = x[:4]
    torch.testing.assert_close(pipe(few), chain[0](few), rtol=1e-3, atol=1e-4)


def test_control_c_ends_a_call(chain):
    pipe = pipeline(chain, DEVICES["workers"])
    handler = signal.default_int_handler
    with signalled(handler, number=signal.SIGINT), ends_soon(), pytest.raises(KeyboardInterrupt):
        pipe(torch.randn(LONG, WIDTH))


def test_a_handler_that_raises_nothing_changes_nothing(chain):
    pipe = pipeline(chain, DEVICES["workers"])
    x, seen = torch.randn(256, WIDTH), []
    expected = pipe(x)
    with signalled(lambda *_: seen.append(1), after=0.03):
        while not seen:
            torch.testing.assert_close(pipe(x), expected)


def test_control_c_ends_a_measurement(chain):
    model, graph = chain
    x = torch.randn(LONG, WIDTH)
    with signalled(raise_enough), ends_soon(), pytest.raises(Enough):
        kerf.profile(model, graph, (x,), budget_seconds=60)


@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
def test_a_handler_that_calls_the_running_pipeline_is_told_so(chain, devices):
    # The first call tries the samples beforehand, with a lock held; later ones do not.
    pipe = pipeline(chain, devices)
    x, told = torch.randn(LONG, WIDTH), []

    def call(*_):
        try:
            pipe(x[:4])
        except RuntimeError as error:
            told.append(str(error))
        raise Enough

    for _ in range(2):
        with signalled(call), pytest.raises(Enough):
            pipe(x)
    assert all("called again from inside that call" in text for text in told)
    assert told


class Endless(nn.Module):
    """An opaque block that ends only when its Python code is told to."""

    def forward(self, x):
        if float(x.sum()) > 1e6:
            while True:
                time.sleep(0.001)
        return x * 2


def with_block(block, devices):
    model = nn.Sequential(nn.Linear(4, 4), block, nn.Linear(4, 4)).eval()
    graph = kerf.trace(model, (torch.ones(2, 4),), basic_blocks=[type(block)])
    return model, kerf.Pipeline(model, hand_plan(graph, [[0], [1], [2]], devices), graph=graph)


@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
def test_control_c_ends_a_block_that_would_run_for_ever(devices):
    model, pipe = with_block(Endless(), devices)
    with torch.no_grad():
        model[0].bias.fill_(1e7)
    with signalled(raise_enough), ends_soon(), pytest.raises(Enough):
        pipe(torch.ones(2, 4))
    with torch.no_grad():
        model[0].bias.zero_()
    pipe(torch.ones(2, 4))


class Calls(nn.Module):
    inner = None  # a pipeline: of the class, so that no module's attribute changes

    def forward(self, x):
        return x * 2 if self.inner is None else self.inner(x)


def test_control_c_ends_a_block_of_a_pipeline_that_a_block_calls(monkeypatch):
    model, inner = with_block(Endless(), DEVICES["workers"])
    _, outer = with_block(Calls(), DEVICES["workers"])
    with torch.no_grad():
        model[0].bias.fill_(1e7)
    monkeypatch.setattr(Calls, "inner", inner)
    with signalled(raise_enough), ends_soon(), pytest.raises(Enough):
        outer(torch.ones(2, 4))
