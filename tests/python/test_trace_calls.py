# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Calls and results of every form, and their way into another process."""

import collections
import dataclasses
import json
import os
import pickle
import subprocess
import sys
import types

import models
import pytest
import reference
import torch
import torch.nn as nn

from kerf import _classes, _pytree
from kerf._call import Signature

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Record:
    value: torch.Tensor
    label: str = "plain"


class Cache:
    """An object that is no pytree, with a tensor twice, a cycle, and things that are no tensors."""

    __slots__ = ("__dict__", "slot")

    def __init__(self, value):
        self.value = value
        self.history = [value, {"shifted": value + 1}]
        self.dtype = value.dtype
        self.device = value.device
        self.kind = Pair
        self.limit = float("inf")
        self.slot = value - 1
        self.itself = self


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.eval()

    def forward(self, x, mode="double", *, options=None, mask=None):
        y = self.linear(x)
        if mode == "double":
            y = 2 * y
        if options is not None:
            y = y * options["scale"] + options["list"][0]
        if mask is not None:
            y = y * mask
        return {
            "pair": Pair(y, None),
            "record": Record(y + 1),
            "cache": Cache(y),
            "plain": [1, 2.5, "text", (True, b"ab", 3j)],
            "ordered": collections.OrderedDict(a=y - 1),
            "counts": collections.defaultdict(list, k=[y]),
        }


def check_everything(got, x, model):
    y = 2 * model.linear(x)
    assert type(got["pair"]) is Pair and torch.equal(got["pair"].first, y)
    assert type(got["record"]) is Record and got["record"].label == "plain"
    cache = got["cache"]
    assert type(cache) is Cache
    assert cache.itself is cache and cache.history[0] is cache.value
    assert torch.equal(cache.slot, y - 1) and torch.equal(cache.history[1]["shifted"], y + 1)
    assert cache.dtype is torch.float32 and cache.device == torch.device("cpu")
    assert cache.kind is Pair and cache.limit == float("inf")
    assert got["plain"] == [1, 2.5, "text", (True, b"ab", 3j)]
    assert type(got["ordered"]) is collections.OrderedDict
    assert got["counts"].default_factory is list and got["counts"]["k"][0] is cache.value


def test_results_of_any_class_come_back():
    model, x = Everything(), torch.randn(3, 4)
    recording = reference.record(model, x)
    with torch.no_grad():
        check_everything(recording.run(x), x, model)


def test_another_process_rebuilds_the_result(tmp_path):
    """The description goes through JSON alone; the model's package vouches for its classes."""
    model, args, kwargs = models.build("t5")
    graph = reference.record(model, args, kwargs).graph
    (tmp_path / "spec.json").write_text(graph.out_spec)
    script = f"""
import json, sys, torch
sys.path.insert(0, {os.path.dirname(models.__file__)!r})
import models
from kerf._call import Result
leaves = [torch.full((2,), float(i)) for i in range({len(graph.outputs)})]
text = open({str(tmp_path / "spec.json")!r}).read()
out = Result.from_json(text, models.build("t5")[0]).build(leaves)
cache = out.past_key_values
print(type(out).__name__, type(cache).__name__, len(cache.self_attention_cache.layers))
assert cache.self_attention_cache.layers[0].keys is leaves[1]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Seq2SeqLMOutput", "EncoderDecoderCache", "2"]


def test_nested_arguments_none_and_strings_are_matched():
    model, x = Everything(), torch.randn(2, 4)
    options = {"scale": 3.0, "list": [x, "unused"]}
    recording = reference.record(model, (x, "single"), {"options": options, "mask": None})
    assert [i["path"] for i in recording.graph.inputs] == ["args.0", "kwargs.options.list.0"]
    new = torch.randn(5, 4)
    call = {"options": {"scale": 3.0, "list": [new, "unused"]}, "mask": None}
    with torch.no_grad():
        got = recording.run((new, "single"), call)
        assert torch.equal(got["pair"].first, model(new, "single", **call)["pair"].first)


def test_arguments_are_matched_by_name():
    model, x = Everything(), torch.randn(2, 4)
    recording = reference.record(model, x)
    with torch.no_grad():
        by_name = recording.run((), {"x": x})
        with_default = recording.run((x, "double"), {"mask": None})
    assert torch.equal(by_name["pair"].first, with_default["pair"].first)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "'x' is missing"),
        ((0,), {}, "argument x is 0; the model was traced with a tensor"),
        (([torch.zeros(2, 4)],), {}, "argument x is .*list"),
        ((torch.zeros(2, 4),), {"mask": torch.zeros(2, 4)}, "'mask' was not given"),
        ((torch.zeros(2, 4), "single"), {}, "'mode' was not given"),
        ((torch.zeros(2, 4),), {"x": torch.zeros(2, 4)}, "'x' is given twice"),
    ],
)
def test_a_call_of_another_form_is_refused_by_name(args, kwargs, message):
    signature, _ = Signature.of_call(Everything(), (torch.zeros(2, 4),), {}, torch.device("cpu"))
    signature = Signature.from_json(signature.to_json())
    with pytest.raises(ValueError, match=message):
        signature.tensors(args, kwargs)


X = torch.zeros(2, 4)
LONG = {f"a_name_{i}": X for i in range(20)}


@pytest.mark.parametrize(
    ("traced", "given", "words"),
    [
        ([X] * 12, [X] * 13, "argument value is 13 items long; the model was traced with 12"),
        (LONG, {**LONG, "more": X}, "value is one that has 'more'; .* with one without it"),
        ({**LONG, "more": X}, LONG, "value is one without 'more'; .* with one that has it"),
        ({"a": X, "b": X}, {"b": X, "a": X}, "has 'b' first; .* that has 'a' first"),
        (
            {"a": [X, {"b": LONG}]},
            {"a": [X, {"b": X}]},
            r"value\.a\.1\.b is a tensor; .* dict of 20",
        ),
        ({3: X}, {3: None}, r"value\.3 is None; .* a tensor"),
        (X, None, "value is None; the model was traced with a tensor"),
        ((X, X), [X, X], "value is a list of 2; .* a tuple of 2"),
        ("a" * 100, "a" * 99 + "b", r"value is \.\.\.a*b'; .* with \.\.\.a*'"),
        (Pair(X, 1), Pair(X, 1.0), r"value\.1 is 1.0; .* with 1;"),
        (types.SimpleNamespace(a=X), Pair(X, 1), "value is a .*Pair; .* types.SimpleNamespace"),
        (1, True, "value is True; .* with 1;"),
        (2.0, 2, "value is 2; .* with 2.0;"),
        (torch.float32, torch.float64, "value is torch.float64; .* torch.float32"),
        (float, int, "value is builtins:int; .* builtins:float"),
    ],
)
def test_what_was_traced_and_what_is_given_read_differently(traced, given, words):
    class Takes(nn.Module):
        def forward(self, value):
            return value

    signature, _ = Signature.of_call(Takes(), (traced,), {}, torch.device("cpu"))
    with pytest.raises(ValueError, match=words):
        signature.inputs((given,), {})


def test_one_tensor_passed_twice_is_two_inputs():
    class Sum(nn.Module):
        def forward(self, x, y):
            return x.relu() + y

    x = torch.randn(2, 4)
    recording = reference.record(Sum(), (x, x))
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    assert torch.equal(recording.run((a, b)), a.relu() + b)
    storages = [i["storage"] for i in recording.graph.inputs]
    assert storages[0] == storages[1]


def test_cache_objects_may_be_passed_in():
    model, _, kwargs = models.build("gpt2")
    with torch.no_grad():
        past = model(**kwargs).past_key_values
    call = {"input_ids": kwargs["input_ids"][:, :1], "past_key_values": past}
    pickled = pickle.dumps(call)  # eager extends the cache that it is given
    recording = reference.record(model, (), pickle.loads(pickled))
    paths = [i["path"] for i in recording.graph.inputs]
    assert "kwargs.past_key_values.layers.0.keys" in paths
    with torch.no_grad():
        expected = model(**pickle.loads(pickled))
        reference.assert_same(expected, recording.run((), pickle.loads(pickled)))


def test_registered_pytree_nodes_are_used():
    class Box:
        def __init__(self, inner):
            self.inner = inner
            self.lock = __import__("threading").Lock()  # no field-by-field copy of this one

    torch.utils._pytree.register_pytree_node(Box, lambda b: ([b.inner], None), lambda c, _: Box(*c))
    try:
        found = _pytree.describe({"box": Box(torch.ones(2))})
        spec = json.loads(json.dumps(found.spec))
        again = _pytree.build(spec, found.tensors, classes=_classes.OWN)
        assert type(again["box"]) is Box and again["box"].inner is found.tensors[0]
    finally:
        torch.utils._pytree._deregister_pytree_node(Box)


def test_nothing_is_registered_with_torch_by_a_trace():
    before = set(torch.utils._pytree.SUPPORTED_NODES)
    model, args, kwargs = models.build("gpt2")
    reference.record(model, args, kwargs)
    assert set(torch.utils._pytree.SUPPORTED_NODES) == before


def test_objects_that_cannot_be_rebuilt_are_named():
    with pytest.raises(_pytree.PytreeError, match=r"out\.lock is a lock"):
        _pytree.describe({"lock": __import__("threading").Lock()}, root="out")
