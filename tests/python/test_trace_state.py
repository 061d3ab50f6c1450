# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Attributes that a forward reads and writes itself; notes that are shown."""

import copy
import dataclasses
import warnings

import pytest
import torch
from comparing import assert_same, eager
from models import build
from torch import nn

import kerf

X = torch.randn(4, 8)


def shown(call):
    """What ``call`` gives, and the texts of Kerf's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    texts = [w for w in caught if issubclass(w.category, kerf.KerfWarning)]
    assert all(w.filename == __file__ for w in texts)
    return result, [str(w.message) for w in texts]


def pipeline(model, graph):
    return kerf.Pipeline(model, kerf.plan(graph, devices=["cpu:0"]))


class Warming(nn.Module):
    """Its result depends on how often it was called."""

    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x * self.step


def test_a_module_that_depends_on_what_it_changes_runs_as_it_is():
    model = nn.Sequential(nn.Linear(8, 8), Warming()).eval()
    graph, texts = shown(lambda: kerf.trace(model, X))
    assert [n["op"] for n in graph.nodes][-1] == "opaque"
    assert "reads attribute '1.step' and changes it" in texts[0]
    with pipeline(model, graph) as pipe:
        for step in range(3):
            model[1].step = step
            found = pipe(X)
            model[1].step = step
            assert_same(found, eager(model, (X,), {}))


def test_a_model_that_depends_on_what_it_changes_is_refused():
    with pytest.raises(kerf.ExportError, match="attribute 'step' and changes it.*buffer"):
        kerf.trace(Warming().eval(), X)
    with pytest.raises(kerf.ExportError, match="attribute 'step' and changes it.*buffer"):
        kerf.trace(Warming().train(), X)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.log = []

    def forward(self, x):
        self.calls += 1
        self.log.append("call")
        return x + 1


def test_a_counter_is_left_alone_and_said():
    model = nn.Sequential(Counting()).eval()
    graph, texts = shown(lambda: kerf.trace(model, X))
    assert any("changes attribute '0.calls'" in text for text in texts)
    with pipeline(model, graph) as pipe:
        for _ in range(2):
            assert_same(pipe(X), eager(model, (X,), {}))


class Lazy(nn.Module):
    """Sets itself up at the first call, and writes something at every call."""

    def __init__(self):
        super().__init__()
        self.ready = False

    def forward(self, x):
        if not self.ready:
            self.factor = 2.0
            self.ready = True
        self.width = x.shape[-1]
        self.last = object()
        return x * self.factor * self.width if self.last else x


def test_what_a_first_call_sets_up_is_part_of_the_model():
    model = Lazy().eval()
    graph, texts = shown(lambda: kerf.trace(model, X))
    assert not texts
    with pipeline(model, graph) as pipe:
        for _ in range(2):
            assert_same(pipe(X), eager(model, (X,), {}))
        model.factor = 3.0
        with pytest.raises(ValueError, match="factor=3.0"):
            pipe(X)
    fresh = Lazy().eval()
    with pipeline(fresh, graph) as pipe:
        for _ in range(2):
            assert_same(pipe(X), eager(fresh, (X,), {}))


def test_a_trace_leaves_classes_as_they_were():
    before = dict(vars(nn.Module))
    kerf.trace(nn.Linear(8, 8).eval(), X)
    assert dict(vars(nn.Module)) == before
    with pytest.raises(kerf.ExportError):
        kerf.trace(nn.Linear(7, 8).eval(), X)
    assert dict(vars(nn.Module)) == before


# Notes


class Branch(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


def test_opaque_blocks_and_static_batches_are_shown():
    model = nn.Sequential(nn.Linear(8, 8), Branch()).eval()
    graph, texts = shown(lambda: kerf.trace(model, X))
    assert texts == graph.notes and "module '1' runs as Python" in texts[0]
    graph, texts = shown(lambda: kerf.trace(nn.Linear(8, 8).eval(), torch.randn(8)))
    assert texts == graph.notes
    fixed = nn.Flatten(0).eval()
    graph, texts = shown(lambda: kerf.trace(fixed, X, batch_dims={}))
    assert graph.is_static and not texts  # as was asked for


def test_what_needs_no_word_gets_none():
    _, texts = shown(lambda: kerf.trace(nn.Linear(8, 8).eval(), X))
    assert not texts


# Profiles


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 8)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, ids, x):
        ids.add_(1)  # out of the table after three times
        x[:, :4].mul_(2.0)
        self.seen.add_(1)
        return self.table(ids) + x


def test_a_profile_writes_nothing_of_the_callers():
    model = Writer().eval()
    ids, x = torch.zeros(4, dtype=torch.long), torch.ones(4, 16)[:, ::2]
    graph = kerf.trace(model, (ids, x))
    for batch in (None, 2):
        kerf.profile(model, graph, (ids, x), batch=batch, budget_seconds=0.1)
        assert not ids.any() and torch.equal(x, torch.ones(4, 8)) and model.seen == 0


def test_a_profile_of_another_model_is_refused():
    graph = kerf.trace(nn.Sequential(nn.ReLU()).eval(), X)
    with pytest.raises(ValueError, match="is a GELU; it was a ReLU"):
        kerf.profile(nn.Sequential(nn.GELU()).eval(), graph, X)


class Cached(nn.Module):
    """Keeps a table and its length, and makes it again only for a greater length."""

    def __init__(self):
        super().__init__()
        self.length = 0
        self.table = None

    def forward(self, x):
        if x.shape[-1] > self.length:
            self.length = x.shape[-1]
            self.table = torch.arange(self.length) * 0.5
        return x * self.table


def test_a_cache_of_tensors_is_left_as_it_was():
    model = nn.Sequential(Cached()).eval()
    graph, texts = shown(lambda: kerf.trace(model, X))
    assert model[0].length == 0 and model[0].table is None
    assert any("stores a tensor in attribute '0.table'" in text for text in texts)
    with pipeline(model, graph) as pipe:
        for _ in range(2):
            assert_same(pipe(X), eager(model, (X,), {}))


class CountsAndKeeps(nn.Module):
    """A counter that no tensor goes with, beside a tensor, and a cache."""

    def __init__(self, depends=True):
        super().__init__()
        self.cached = Cached()
        self.calls = 0
        self.last = None
        self.depends = depends

    def forward(self, x):
        self.calls += 1
        self.last = x
        y = self.cached(x)
        return y * self.calls if self.depends else y


def test_a_counter_beside_a_stored_tensor_is_state():
    with pytest.raises(kerf.ExportError, match="attribute 'calls' and changes it"):
        kerf.trace(CountsAndKeeps().eval(), X)
    model = nn.Sequential(CountsAndKeeps()).eval()
    alone = copy.deepcopy(model)
    graph, texts = shown(lambda: kerf.trace(model, X))
    assert "runs as Python" in texts[0] and "'0.calls'" in texts[0]
    assert model[0].calls == 0 and model[0].last is None
    with pipeline(model, graph) as pipe:
        for _ in range(3):
            assert_same(pipe(X), eager(alone, (X,), {}))


def test_a_counter_beside_a_stored_tensor_that_nothing_depends_on_is_said():
    model = CountsAndKeeps(depends=False).eval()
    graph, texts = shown(lambda: kerf.trace(model, X))
    assert [n["op"] for n in graph.nodes].count("opaque") == 0
    assert any("changes attribute 'calls'" in text for text in texts)
    assert not any("changes attribute 'cached.length'" in text for text in texts)
    assert model.calls == 0 and model.last is None and model.cached.length == 0
    with pipeline(model, graph) as pipe:
        for _ in range(2):
            assert_same(pipe(X), eager(model, (X,), {}))


class Log:
    def __init__(self):
        self.lines = []
        self.by_name = {"calls": []}


class Logging(nn.Module):
    def __init__(self, depends):
        super().__init__()
        self.log = Log()
        self.depends = depends

    def forward(self, x):
        self.log.lines.append("call")
        self.log.by_name["calls"].append(len(self.log.lines))
        return x * len(self.log.lines) if self.depends else x + 1


@pytest.mark.parametrize("depends", [False, True])
def test_a_trace_leaves_no_lines_in_the_lists_of_objects(depends):
    model = nn.Sequential(Logging(depends)).eval()
    log = model[0].log
    graph = kerf.trace(model, X)
    assert [n["op"] for n in graph.nodes] == ["opaque" if depends else "aten.add.Tensor"]
    assert log is model[0].log and log.lines == [] and log.by_name == {"calls": []}
    if depends:
        with pytest.raises(kerf.ExportError, match="log.lines"):
            kerf.trace(model[0], X)
        assert log.lines == []
    with pipeline(model, graph) as pipe:
        for step in range(1, 3):
            assert_same(pipe(X), X * step if depends else X + 1)


class SetUpObject(nn.Module):
    """Its first call fills an object's list, and remembers that in a flag of its own."""

    def __init__(self):
        super().__init__()
        self.log = Log()
        self.ready = False

    def forward(self, x):
        if not self.ready:
            self.log.lines.append(2.0)
            self.ready = True
        return x * self.log.lines[0]


def test_what_a_first_call_puts_into_an_object_holds_together():
    model = SetUpObject().eval()
    graph = kerf.trace(model, X)
    with pipeline(model, graph) as pipe:
        for _ in range(2):
            assert_same(pipe(X), 2 * X)
            assert_same(eager(model, (X,), {}), 2 * X)


def test_a_trace_does_not_write_into_tensors_that_are_attributes():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = torch.zeros(())

        def forward(self, x):
            self.calls.add_(1)
            return x * self.calls

    for blocks in ((), [Counts]):
        model = nn.Sequential(Counts()).eval()
        graph = kerf.trace(model, X, basic_blocks=blocks)
        assert model[0].calls == 0
        with pipeline(model, graph) as pipe:
            assert_same(pipe(X), X)
            assert_same(pipe(X), 2 * X)


class Recurrent(nn.Module):
    """Leaves a tensor for its next call in an attribute that is no buffer."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.prev = torch.zeros(8)
        self.seen = []

    def forward(self, x):
        y = self.a(x) + self.prev
        self.prev = y.detach().mean(0)
        self.seen.append(len(self.seen))
        return y


class Store:
    def __init__(self):
        self.total = torch.zeros(8)
        self.totals = [torch.zeros(8)]
        self.calls = 0


@dataclasses.dataclass(slots=True)
class SlottedStore:
    total: torch.Tensor = dataclasses.field(default_factory=lambda: torch.zeros(8))
    totals: list = dataclasses.field(default_factory=lambda: [torch.zeros(8)])
    calls: int = 0


WRITES = {
    "total written": lambda store: store.total.add_(1),
    "total replaced": lambda store: setattr(store, "total", store.total + 1),
    "totals.0 written": lambda store: store.totals[0].add_(1),
    "totals replaced": lambda store: store.totals.__setitem__(0, store.totals[0] + 1),
    "calls counted": lambda store: setattr(store, "calls", store.calls + 1),
}


@pytest.mark.parametrize("store", [Store, SlottedStore])
@pytest.mark.parametrize("write", WRITES)
def test_what_an_object_keeps_is_state(write, store):
    class Stores(nn.Module):
        def __init__(self):
            super().__init__()
            self.store = store()

        def forward(self, x):
            WRITES[write](self.store)
            return x + self.store.total + self.store.totals[0] + self.store.calls

    def is_fresh(kept):
        return not kept.total.any() and not kept.totals[0].any() and kept.calls == 0

    model = Stores().eval()
    name = write.split()[0]
    with pytest.raises(kerf.ExportError, match=f"attribute 'store.{name}' and changes it"):
        kerf.trace(model, X)
    assert is_fresh(model.store)  # a trace is no call
    model = nn.Sequential(Stores()).eval()
    graph, texts = shown(lambda: kerf.trace(model, X))
    assert "runs as Python" in texts[0] and is_fresh(model[0].store)
    with pipeline(model, graph) as pipe:
        for step in range(1, 4):
            assert_same(pipe(X), X + step)


def test_a_tensor_that_is_read_and_replaced_is_state():
    x = torch.randn(4, 8)
    with pytest.raises(kerf.ExportError, match="reads attribute 'prev' and changes it"):
        kerf.trace(Recurrent().eval(), x)
    model = nn.Sequential(Recurrent(), nn.Linear(8, 8)).eval()
    alone = copy.deepcopy(model)
    pipe = kerf.Pipeline(model, kerf.plan(kerf.trace(model, x), ["cpu:0", "cpu:1"]))
    with torch.no_grad():
        for _ in range(3):  # the block runs as it is, with its state
            torch.testing.assert_close(pipe(x), alone(x))
    assert model[0].seen == [0, 1, 2]  # a trace leaves nothing behind


def test_hooks_that_transformers_leaves_behind_change_nothing():
    model, args, kwargs = build("llama_tied")
    plan = kerf.plan(kerf.trace(model, args, kwargs), ["cpu:0", "cpu:1"])
    pipe = kerf.Pipeline(model, plan)
    with torch.no_grad():
        model(**kwargs, output_hidden_states=True)
        expected = model(**kwargs)
    torch.testing.assert_close(pipe(**kwargs).logits, expected.logits)
    kerf.Pipeline(model, plan)
    traced_after = kerf.plan(kerf.trace(model, args, kwargs), ["cpu:0", "cpu:1"])
    kerf.Pipeline(build("llama_tied")[0], traced_after)
