# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Objects that a model changes: caches that it fills, lists and fields that it sets.

A pipeline does to the caller's objects what the model would have done to them.
"""

import collections
import json

import models
import pytest
import torch
from comparing import assert_same
from torch import nn
from transformers import DynamicCache, StaticCache

import kerf
from kerf import ExportError

PROMPT, STEPS = 8, 20
DECODERS = ["gpt2", "llama_tied", "qwen2"]


def cut(model, n_microbatches=1, **kwargs):
    """A pipeline of two stages for calls like this one."""
    graph = kerf.trace(model, (), kwargs)
    plan = kerf.plan(graph, devices=["cpu:0", "cpu:1"], n_microbatches=n_microbatches)
    assert len(plan.stages) == 2
    return kerf.Pipeline(model, plan)


def decoder(name):
    model, _, kwargs = models.build(name)
    return model, kwargs["input_ids"]


def next_tokens(result):
    return result.logits[:, -1:].argmax(-1)


def greedy(prefill, decode, ids, cache, steps=STEPS):
    """The tokens of ``steps`` greedy steps after a prompt; all through one cache."""
    tokens = [next_tokens(prefill(input_ids=ids, past_key_values=cache))]
    for _ in range(steps):
        tokens.append(next_tokens(decode(input_ids=tokens[-1], past_key_values=cache)))
    return torch.cat(tokens, 1)


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_static_cache_decodes_as_eager_does(name):
    model, ids = decoder(name)

    def empty():
        return StaticCache(config=model.config, max_cache_len=PROMPT + STEPS + 1)

    filled = empty()
    model(input_ids=ids, past_key_values=filled)
    with (
        cut(model, input_ids=ids, past_key_values=empty()) as prefill,
        cut(model, input_ids=ids[:, :1], past_key_values=filled) as decode,
    ):
        # A trace leaves the example as it was.
        assert filled.get_seq_length() == PROMPT
        ours, theirs = empty(), empty()
        assert torch.equal(greedy(prefill, decode, ids, ours), greedy(model, model, ids, theirs))
        assert ours.get_seq_length() == theirs.get_seq_length() == PROMPT + STEPS
        assert_same(ours, theirs)


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_dynamic_cache_goes_from_prefill_to_decode(name):
    model, ids = decoder(name)
    example = DynamicCache(config=model.config)
    with cut(model, input_ids=ids, past_key_values=example) as prefill:
        assert example.get_seq_length() == 0
        model(input_ids=ids, past_key_values=example)
        with cut(model, input_ids=ids[:, :1], past_key_values=example) as decode:
            ours, theirs = (DynamicCache(config=model.config) for _ in range(2))
            found = greedy(prefill, decode, ids, ours, 1)
            assert torch.equal(found, greedy(model, model, ids, theirs, 1))
            assert_same(ours, theirs)
            with pytest.raises(ValueError, match="size 9, expected 8; it was traced as"):
                decode(input_ids=ids[:, :1], past_key_values=ours)


@torch.no_grad()
def test_the_result_holds_the_callers_own_cache():
    model, ids = decoder("gpt2")
    with cut(model, input_ids=ids, past_key_values=DynamicCache(config=model.config)) as pipe:
        cache = DynamicCache(config=model.config)
        layers = cache.layers
        result = pipe(input_ids=ids, past_key_values=cache)
        assert result.past_key_values is cache
        assert cache.layers is layers
        assert len(layers) == 2


@torch.no_grad()
def test_a_cache_may_be_cut_with_its_batch():
    model, _ = decoder("gpt2")
    ids = models.ids(batch=4)
    with cut(model, 2, input_ids=ids, past_key_values=DynamicCache(config=model.config)) as pipe:
        ours, theirs = (DynamicCache(config=model.config) for _ in range(2))
        found = pipe(input_ids=ids, past_key_values=ours)
        assert_same(found.logits, model(input_ids=ids, past_key_values=theirs).logits)
        assert_same(ours, theirs)


@torch.no_grad()
def test_a_counter_that_micro_batches_share_is_refused():
    model, _ = decoder("gpt2")
    ids = models.ids(batch=4)
    cache = StaticCache(config=model.config, max_cache_len=16)
    model(input_ids=ids, past_key_values=cache)
    with pytest.raises(
        NotImplementedError, match=r"layers\.0\.cumulative_length.*n_microbatches=1"
    ):
        cut(model, 2, input_ids=ids[:, :1], past_key_values=cache)


@torch.no_grad()
def test_the_graph_says_after_loading_what_the_model_changes(tmp_path):
    model, ids = decoder("gpt2")
    graph = kerf.trace(model, (), {"input_ids": ids, "past_key_values": DynamicCache()})
    graph.save(tmp_path / "a.graph")
    loaded = kerf.load_graph(tmp_path / "a.graph")
    assert loaded == graph
    with kerf.Pipeline(model, kerf.plan(loaded, devices=["cpu:0"]), graph=loaded) as pipe:
        cache = DynamicCache()
        pipe(input_ids=ids, past_key_values=cache)
        assert cache.get_seq_length() == PROMPT


# Other things that a forward does to its arguments


class Changing(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)
        self.change = change

    def forward(self, x, state):
        h = self.up(x).relu()
        made = self.change(h, state)
        return self.down(h), made


class Box:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def _append(h, state):
    state.append(h)


def _replace(h, state):
    state["last"] = h
    state["count"] = state.pop("n") + 1


def _set_fields(h, box):
    box.last, box.steps = h, box.steps + 1
    del box.old
    box.items.insert(0, box.steps)
    return box


def _swap(h, state):
    state["a"], state["b"] = Box(x=h), state["a"]
    return state["b"]


def _keep_order(h, state):
    state["z"] = state.pop("a") + h.sum()


def _write(h, state):
    state.mul_(2).add_(h)


def _push(h, state):
    state.append(h)
    return state


CHANGES = {
    "a list grows": (_append, lambda: [torch.zeros(2, 4)]),
    "a dictionary gets other keys": (_replace, lambda: {"n": 1, "x": torch.ones(3)}),
    "fields are set and deleted": (_set_fields, lambda: Box(steps=3, old=1, items=[7])),
    "one object takes another's place": (_swap, lambda: (lambda b: {"a": b, "b": b})(Box(x=1))),
    "an ordered dictionary": (_keep_order, lambda: collections.OrderedDict(a=torch.ones(()), b=2)),
    "a tensor is written": (_write, lambda: torch.ones(2, 4)),
    "a queue": (_push, lambda: collections.deque([torch.zeros(2, 4)], maxlen=1)),
}


@pytest.mark.parametrize("kind", CHANGES)
@torch.no_grad()
def test_arguments_are_changed_as_the_model_changes_them(kind):
    torch.manual_seed(0)
    change, make = CHANGES[kind]
    model = Changing(change).eval()
    x = torch.randn(2, 4)
    graph = kerf.trace(model, (x, make()))
    plan = kerf.plan(graph, devices=["cpu:0", "cpu:1"])
    with kerf.Pipeline(model, plan) as pipe:
        ours, theirs = make(), make()
        found, expected = pipe(x, ours), model(x, theirs)
        assert_same([found, ours], [expected, theirs])
        # What the result shares with the arguments in eager it shares here.
        assert (found[1] is ours) == (expected[1] is theirs)


@torch.no_grad()
def test_one_list_in_two_places_is_refused():
    class Two(nn.Module):
        def forward(self, x, a, b):
            a.append(x + 1)
            b.append(x + 2)
            return x * 2

    model, x = Two().eval(), torch.randn(2, 4)
    graph = kerf.trace(model, (x, [], []))
    with kerf.Pipeline(model, kerf.plan(graph, devices=["cpu:0"])) as pipe:
        a, b = [], []
        pipe(x, a, b)
        assert torch.equal(a[0], x + 1) and torch.equal(b[0], x + 2)
        with pytest.raises(ValueError, match="one object or list is passed in two places"):
            pipe(x, a := [], a)
        assert a == []


@torch.no_grad()
def test_a_registered_node_that_is_changed_is_refused_by_name():
    from transformers.modeling_outputs import BaseModelOutput

    def change(h, state):
        state["last_hidden_state"] = h

    state = BaseModelOutput(last_hidden_state=torch.ones(2, 4))
    with pytest.raises(ExportError, match="forward changes argument state"):
        kerf.trace(Changing(change).eval(), (torch.randn(2, 4), state))


@torch.no_grad()
def test_check_works_on_copies():
    model, ids = decoder("gpt2")
    with cut(model, input_ids=ids, past_key_values=DynamicCache()) as pipe:
        cache = DynamicCache()
        assert pipe.check(input_ids=ids, past_key_values=cache) < 1e-4
        assert cache.get_seq_length() == 0


@pytest.mark.parametrize(
    "result",
    [
        {"given": 5},
        {"given": -1},
        {"given": "0"},
        {"dict": [], "given": 0},
        {"set": [], "given": 0},
        {"object": "types:SimpleNamespace", "fields": [["x", 1]], "given": 0},
        {"tuple": [], "given": 0},
    ],
)
def test_a_file_changes_nothing_but_what_is_passed_and_is_of_that_kind(tmp_path, result):
    model, x = Changing(_append).eval(), torch.randn(2, 4)
    path = tmp_path / "edited.graph"
    graph = kerf.trace(model, (x, []))
    graph.save(path)
    text = path.read_text()
    spec = json.dumps({"format": 2, "result": result, "arguments": []})
    path.write_text(text.replace(json.dumps(graph.out_spec), json.dumps(spec)))
    assert path.read_text() != text
    loaded = kerf.load_graph(path)
    state = []
    with pytest.raises(ValueError, match=r"\[call\] .*; expected .*; "):
        kerf.Pipeline(model, kerf.plan(loaded, devices=["cpu:0"]), graph=loaded)(x, state)
    assert state == []
