# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""pipe.stream: batches that follow each other through the stages, results in order."""

import signal
import threading
import time

import pytest
import torch
from torch import nn

import kerf


class Layers(nn.Module):
    """Three linear layers with something between them that tests give."""

    def __init__(self, width=16, dropout=0.0):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.dropout = dropout

    def forward(self, x, bias=None):
        for layer in self.layers:
            x = torch.tanh(layer(x))
            x = nn.functional.dropout(x, self.dropout, training=self.dropout > 0)
        return x if bias is None else x + bias


def pipeline(model=None, args=None, devices=2, n_microbatches=2, **options):
    model = (model or Layers()).eval()
    args = (torch.randn(4, 16),) if args is None else args
    graph = kerf.trace(model, args)
    plan = kerf.plan(
        graph,
        [f"cpu:{d}" for d in range(devices)],
        options.pop("max_memory", None),
        method="even",
        n_microbatches=n_microbatches,
    )
    return model, kerf.Pipeline(model, plan, **options)


def batches(count, rows=4):
    return [torch.randn(rows, 16) for _ in range(count)]


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def assert_same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("window", [None, 1, 2, 7])
def test_results_come_in_order_and_are_those_of_single_calls(devices, window):
    _, pipe = pipeline(devices=devices)
    given = batches(9)
    assert_same(list(pipe.stream(given, window=window)), [pipe(x) for x in given])


def test_batches_may_differ_in_size():
    model, pipe = pipeline()
    given = [torch.randn(rows, 16) for rows in (4, 1, 7, 3, 2, 8)]
    for x, y in zip(given, pipe.stream(given), strict=True):
        torch.testing.assert_close(y, model(x))


def test_no_batches_give_no_results():
    _, pipe = pipeline()
    assert list(pipe.stream([])) == []


def test_a_batch_is_given_as_the_model_is_called():
    model, pipe = pipeline(args=(torch.randn(4, 16), torch.randn(16)))
    x, bias = torch.randn(4, 16), torch.randn(16)
    given = [(x, bias), [x, bias], {"x": x, "bias": bias}, {"bias": bias, "x": x}]
    assert_same(list(pipe.stream(given)), [pipe(x, bias)] * 4)


class SlowLast(nn.Module):
    """A block at the end that tells when it runs, and waits for what the test says."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.last = Gate()

    def forward(self, x):
        return self.last(self.first(x))


class Gate(nn.Module):
    opened = threading.Event()
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        self.opened.wait(10)
        if float(x.sum()) > 1e9:  # does not export: the module runs as Python
            return x
        return x + 1


@pytest.fixture
def gated():
    Gate.opened = threading.Event()
    Gate.opened.set()
    model = SlowLast().eval()
    graph = kerf.trace(model, (torch.randn(4, 16),))
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], method="even")
    pipe = kerf.Pipeline(model, plan, batch_independent=True)
    assert len(plan.stages) == 2
    Gate.calls = 0
    yield model, pipe
    Gate.opened.set()


def test_the_window_bounds_what_is_asked_for(gated):
    _, pipe = gated
    asked = []

    def source():
        for x in batches(20):
            asked.append(x)
            yield x

    done = 0
    for _ in pipe.stream(source(), window=3):
        done += 1
        assert len(asked) <= done + 2  # the one just given had room made for it
    assert done == len(asked) == 20


def test_the_next_batch_enters_before_the_last_one_leaves(gated):
    _, pipe = gated
    Gate.opened.clear()
    asked = []

    def source():
        for x in batches(3):
            asked.append(x)
            if len(asked) == 3:
                Gate.opened.set()  # two are under way, and none has left
            yield x

    assert len(list(pipe.stream(source(), window=3))) == 3


def test_without_a_word_for_it_blocks_see_one_batch_at_a_time():
    Gate.opened.set()
    model = SlowLast().eval()
    graph = kerf.trace(model, (torch.randn(4, 16),))
    pipe = kerf.Pipeline(model, kerf.plan(graph, ["cpu:0", "cpu:1"], method="even"))
    asked = []

    def source():
        for x in batches(3):
            asked.append(x)
            yield x

    for done, _ in enumerate(pipe.stream(source(), window=3), 1):
        assert len(asked) == done


def test_leaving_the_loop_ends_what_is_under_way_and_the_pipeline_serves_again():
    _, pipe = pipeline()
    given = batches(10)
    expected = pipe(given[0])
    for y in pipe.stream(iter(given)):
        assert torch.equal(y, expected)
        break
    assert_same(list(pipe.stream(given)), [pipe(x) for x in given])
    stream = pipe.stream(given)
    next(stream)
    stream.close()
    assert torch.equal(pipe(given[0]), expected)


def test_a_stream_that_is_never_begun_costs_nothing():
    _, pipe = pipeline()
    pipe.stream(batches(3))
    pipe(batches(1)[0])


@pytest.mark.parametrize("k", [0, 1, 4, 7])
def test_a_wrong_batch_is_refused_at_its_turn(k):
    _, pipe = pipeline()
    given = batches(8)
    given[k] = torch.randn(4, 17)
    found = []
    with pytest.raises(ValueError, match=r"expected 16"):
        for y in pipe.stream(given):
            found.append(y)
    assert_same(found, [pipe(x) for x in given[:k]])
    assert len(list(pipe.stream(batches(3)))) == 3


def test_what_the_source_raises_comes_at_its_turn():
    _, pipe = pipeline()
    given = batches(3)

    def source():
        yield from given
        raise LookupError("no more data")

    found = []
    with pytest.raises(LookupError, match="no more data"):
        for y in pipe.stream(source()):
            found.append(y)
    assert_same(found, [pipe(x) for x in given])


class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), Thrower()

    def forward(self, x):
        return self.last(self.first(x))


class Thrower(nn.Module):
    def forward(self, x):
        if float(x.abs().max()) > 100:
            raise ArithmeticError("too large")
        return x + 1


@pytest.mark.parametrize("k", [0, 2, 5])
def test_an_error_in_a_batch_comes_at_its_turn_and_the_pipeline_can_be_used_again(k):
    model = Picky().eval()
    graph = kerf.trace(model, (torch.randn(4, 16),))
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], method="even")
    pipe = kerf.Pipeline(model, plan, batch_independent=True)
    given = batches(6)
    given[k] = given[k] * 1e4
    found = []
    with pytest.raises(ArithmeticError, match="too large"):
        for y in pipe.stream(given):
            found.append(y)
    assert_same(found, [pipe(x) for x in given[:k]])
    good = [x for i, x in enumerate(given) if i != k]
    assert_same(list(pipe.stream(good)), [pipe(x) for x in good])


def test_other_calls_of_the_pipeline_are_served_in_between():
    _, pipe = pipeline()
    given = batches(6)
    expected = [pipe(x) for x in given]
    for i, y in enumerate(pipe.stream(given)):
        assert torch.equal(y, expected[i])
        assert torch.equal(pipe(given[-1]), expected[-1])


def test_other_threads_are_served_while_a_stream_rests():
    _, pipe = pipeline()
    given = batches(4)
    expected = [pipe(x) for x in given]
    stream = pipe.stream(given)
    assert torch.equal(next(stream), expected[0])
    found = []
    thread = threading.Thread(target=lambda: found.append(pipe(given[1])))
    thread.start()
    thread.join(20)
    assert torch.equal(found[0], expected[1])
    assert_same(list(stream), expected[1:])


def test_two_streams_take_turns():
    _, pipe = pipeline()
    given = batches(5)
    expected = [pipe(x) for x in given]
    pairs = list(zip(pipe.stream(given), pipe.stream(reversed(given)), strict=True))
    assert_same([a for a, _ in pairs], expected)
    assert_same([b for _, b in pairs], expected[::-1])


def test_a_weight_that_is_changed_meanwhile_is_refused():
    model, pipe = pipeline()
    given = batches(6)
    with pytest.raises(RuntimeError, match="weights were changed while batches were under way"):
        for _ in pipe.stream(given):
            model.layers[0].weight.mul_(2)
    assert_same(list(pipe.stream(given)), [pipe(x) for x in given])
    for y, x in zip(pipe.stream(given, window=1), given, strict=True):  # none is under way
        torch.testing.assert_close(y, model(x))
        model.layers[0].weight.mul_(0.9)


def test_random_numbers_are_those_of_single_calls():
    _, pipe = pipeline(Layers(dropout=0.5))
    given = batches(5)
    torch.manual_seed(3)
    found = list(pipe.stream(given))
    torch.manual_seed(3)
    assert_same(found, [pipe(x) for x in given])


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.last(self.first(x)) + self.calls


def test_a_model_that_writes_buffers_sees_one_batch_at_a_time():
    model, pipe = pipeline(Counter(), n_microbatches=1)
    given = batches(4)
    model.calls.zero_()
    found = list(pipe.stream(given, window=4))
    assert model.calls.item() == 4
    model.calls.zero_()
    assert_same(found, [pipe(x) for x in given])


def test_limits_of_memory_make_the_window_smaller():
    model, free = pipeline(n_microbatches=1)
    needed = {use.name: use.predicted_bytes for use in free.plan.devices}
    given = batches(5)
    sizes = []
    for extra in (0, 256, 512, 1024, 100_000):
        limits = {name: bytes + extra for name, bytes in needed.items()}
        _, pipe = pipeline(model, max_memory=limits, n_microbatches=1)
        sizes.append(kerf._core.stream_window(pipe.plan, pipe.graph))
        assert_same(list(pipe.stream(given)), [pipe(x) for x in given])
        if sizes[-1] < 3:
            with pytest.raises(ValueError, match=f"expected at most {sizes[-1]}"):
                pipe.stream(given, window=3)
    assert sizes[0] == 1 and sizes == sorted(sizes) and sizes[-1] == 3 and 2 in sizes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "batches is 3, an int"),
        ((None,), "batches is None"),
        ((torch.randn(4, 16),), r"Tensor|tensor\(.*; expected batches"),
        (({"x": torch.randn(4, 16)},), "a dict; expected batches"),
        (([], 3), "positional"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, message):
    _, pipe = pipeline()
    with pytest.raises((ValueError, TypeError), match=message):
        pipe.stream(*arguments)


@pytest.mark.parametrize("window", [0, -1, 1.5, "2", True])
def test_wrong_windows_are_refused(window):
    _, pipe = pipeline()
    with pytest.raises((ValueError, TypeError), match=r"kerf.Pipeline.stream\] window is"):
        pipe.stream([], window=window)


def test_a_closed_pipeline_streams_no_more():
    _, pipe = pipeline()
    stream = pipe.stream(batches(8))
    next(stream)
    pipe.close()
    with pytest.raises(RuntimeError, match="closed"):
        list(stream)
    with pytest.raises(RuntimeError, match="closed"):
        pipe.stream(batches(1))


def test_ctrl_c_ends_a_stream():
    model, pipe = pipeline(Layers(512), (torch.randn(64, 512),), n_microbatches=4)
    x = torch.randn(64, 512)

    def source():
        while True:
            yield x

    timer = threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,))
    before = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in pipe.stream(source()):
            pass
    assert time.monotonic() - before < 5
    torch.testing.assert_close(pipe(x), model(x))


def test_a_recorded_stream_is_one_timeline():
    _, pipe = pipeline()
    pipe.record = True
    given = batches(5)
    list(pipe.stream(given))
    timeline = pipe.timeline
    assert timeline.n_microbatches == 10
    computed = [e for e in timeline.events if e.kind == "compute"]
    assert len(computed) == 10 * 2
    for stage in range(2):
        ends = 0.0
        for event in (e for e in computed if e.stage == stage):
            assert event.start >= ends
            ends = event.end
