# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A graph file describes values and never code: nothing in it is imported, looked up or run."""

import collections
import enum
import json
import sys
import types

import pytest
import torch
from torch import nn

import kerf
from kerf import _classes, _pytree
from kerf._call import Result, Signature

Pair = collections.namedtuple("Pair", "first second")


class Colour(enum.Enum):
    RED = 1


class Box:
    """A plain holder of fields, with code that must not run when one is rebuilt."""

    ran = []

    def __new__(cls, *args):
        cls.ran.append("new")
        return super().__new__(cls)

    def __setattr__(self, name, value):
        self.ran.append(name)
        super().__setattr__(name, value)

    @property
    def trap(self):
        return None

    @trap.setter
    def trap(self, value):
        self.ran.append("trap")


class Slotted:
    __slots__ = ("value",)


class WithFinalizer:
    def __del__(self):
        Box.ran.append("del")


class Vouching(nn.Module):
    """A model whose own module vouches for the classes above."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()


def read(spec, model=None, outputs=1):
    """A description as a file holds it."""
    text = json.dumps({"format": 1, "result": spec})
    return Result.from_json(text, model if model is not None else Vouching(), outputs)


def rebuild(spec, model=None):
    leaf = torch.ones(1)
    return read(spec, model).build([leaf])


def load_edited(tmp_path, model, old, new):
    """The model's graph with a text in it replaced, loaded as from another process."""
    path = tmp_path / "edited.graph"
    kerf.trace(model, torch.zeros(4, 4)).save(path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return kerf.load_graph(path)


def run_loaded(graph, model):
    plan = kerf.plan(graph, devices=["cpu:0"], n_microbatches=1)
    with kerf.Pipeline(model, plan, graph=graph) as pipe:
        return pipe(torch.zeros(4, 4))


def in_text(spec):
    return "out_spec " + json.dumps(json.dumps({"format": 1, "result": spec}))


PLAIN_RESULT = in_text({"t": 0})


def test_a_result_cannot_run_a_command(tmp_path):
    spec = {
        "node": "collections:namedtuple",
        "children": [f"touch {tmp_path}/pwned"],
        "context": {"global": "os:system"},
    }
    model = Vouching().eval()
    graph = load_edited(tmp_path, model, PLAIN_RESULT, in_text(spec))
    with pytest.raises(ValueError, match=r"\[call\] .*namedtuple', which is not a loaded class"):
        run_loaded(graph, model)
    assert not (tmp_path / "pwned").exists()


def test_an_opaque_block_cannot_run_a_command(tmp_path):
    class Opaque(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Vouching()

        def forward(self, x):
            return self.block(x)

    model = Opaque().eval()
    path = tmp_path / "edited.graph"
    kerf.trace(model, torch.zeros(4, 4), basic_blocks=["block"]).save(path)
    good = {"list": [{"list": [{"t": 0}]}, {"dict": []}]}
    bad = {"list": [{"list": [{"global": "os:system"}]}, {"dict": []}]}
    text, old = path.read_text(), json.dumps(json.dumps(good))
    assert old in text
    for spec in (bad, {"list": []}, {"list": [{"list": [{"t": 1}]}, {"dict": []}]}, {"t": 0}, {}):
        path.write_text(text.replace(old, json.dumps(json.dumps(spec))))
        with pytest.raises(ValueError, match=r"\[call\] .*; expected .*; "):
            run_loaded(kerf.load_graph(path), model)
    path.write_text(text.replace('module="block"', 'module="__class__.mro"'))
    with pytest.raises(ValueError, match=r"\[call\] the graph names a module '__class__.mro'"):
        run_loaded(kerf.load_graph(path), model)


@pytest.mark.parametrize(
    "name",
    [
        "os:system",  # a function
        "os:environ",  # a value
        "subprocess:Popen",  # a class of the standard library
        "tempfile:_TemporaryFileWrapper",
        "torch:load",
        "torch.nn.modules.linear:Linear",  # PyTorch has much that is no container
        "torch._C:Generator",
        "torch.package.package_importer:PackageImporter",
        "torch:Tensor",
        "builtins:eval",
        "builtins:type",
        "builtins:object",
        "builtins:open",
        "kerf._pipeline:Pipeline",
        "transformers:BertModel",  # a name that a lazy module would import
        "no.such:Class",
        "collections:abc.Hashable",  # another name for a class of another module
        "no colon",
        ":",
        "",
        "x" * 100_000,
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda name: {"global": name},
        lambda name: {"object": name, "fields": []},
        lambda name: {"node": name, "children": [], "context": None},
        lambda name: {"namedtuple": name, "items": []},
        lambda name: {"enum": name, "name": "RED"},
    ],
)
def test_names_in_files_are_refused_unless_vouched_for(name, make):
    with pytest.raises(ValueError, match=r"^\[call\] .{1,300}; expected .*; (load|trace)"):
        read(make(name))


def test_nothing_is_imported_for_a_file():
    before = set(sys.modules)
    for name in ("antigravity:geohash", "this:s", "transformers:BertModel", "xmlrpc.server:X"):
        with pytest.raises(ValueError, match="is not a loaded class"):
            read({"global": name})
    assert set(sys.modules) == before


def test_classes_are_taken_from_the_models_packages_only():
    spec = {"namedtuple": f"{__name__}:Pair", "items": [{"t": 0}, None]}
    assert type(rebuild(spec)) is Pair
    with pytest.raises(ValueError, match="nothing here vouches for"):
        read(spec, nn.Sequential(nn.Linear(2, 2)))
    assert rebuild({"enum": f"{__name__}:Colour", "name": "RED"}) is Colour.RED
    assert rebuild({"global": f"{__name__}:Pair"}) is Pair
    with pytest.raises(ValueError, match="vouches"):
        read({"enum": "enum:Enum", "name": "RED"})
    with pytest.raises(ValueError, match="one of its members"):
        read({"enum": f"{__name__}:Colour", "name": "__class__"})


def test_functions_come_from_no_file():
    with pytest.raises(ValueError, match="is not a loaded class"):
        read({"global": f"{__name__}:read"})


def test_users_allow_classes_by_name(monkeypatch):
    outside = types.ModuleType("outside_of_the_model")
    monkeypatch.setitem(sys.modules, outside.__name__, outside)
    outside.Box = type("Box", (), {"__module__": outside.__name__, "__qualname__": "Box"})
    spec = {"object": "outside_of_the_model:Box", "fields": [["value", {"t": 0}]]}
    with pytest.raises(ValueError, match=r"kerf\.allow_output_class"):
        read(spec)
    assert kerf.allow_output_class(outside.Box) is outside.Box
    try:
        assert type(rebuild(spec)) is outside.Box
    finally:
        _classes._allowed.discard(outside.Box)
    with pytest.raises(TypeError, match="expected a class"):
        kerf.allow_output_class(print)
    with pytest.raises(ValueError, match="__del__"):
        kerf.allow_output_class(WithFinalizer)


def test_objects_are_made_without_running_code_of_their_class():
    spec = {"object": f"{__name__}:Box", "fields": [["trap", 1], ["other", 2], ["__class__", 3]]}
    Box.ran.clear()
    made = rebuild(spec)
    assert Box.ran == []
    assert type(made) is Box and vars(made) == {"trap": 1, "other": 2, "__class__": 3}
    slotted = {"object": f"{__name__}:Slotted", "fields": [["value", {"t": 0}]]}
    assert rebuild(slotted).value.shape == (1,)
    slotted["fields"][0][0] = "other"
    with pytest.raises(ValueError, match="no field 'other'"):
        rebuild(slotted)


def test_objects_that_do_something_when_they_are_dropped_are_refused():
    with pytest.raises(ValueError, match="__del__"):
        read({"object": f"{__name__}:WithFinalizer", "fields": []})
    with pytest.raises(_pytree.PytreeError, match="which has __del__; expected an object"):
        _pytree.describe([WithFinalizer()])


def test_objects_without_plain_fields_are_refused(monkeypatch):
    for bases in ((RuntimeError,), (nn.Module,), (torch.Tensor,), (type,)):
        cls = type("Odd", bases, {"__module__": __name__})
        monkeypatch.setattr(sys.modules[__name__], "Odd", cls, raising=False)
        with pytest.raises(ValueError, match="expected a class that holds data"):
            read({"object": f"{__name__}:Odd", "fields": []})


def test_dtypes_come_from_a_table():
    assert rebuild({"dtype": "bfloat16"}) is torch.bfloat16
    assert rebuild({"memory_format": "channels_last"}) is torch.channels_last
    assert rebuild({"layout": "strided"}) is torch.strided
    for spec in ({"dtype": "load"}, {"layout": "float32"}, {"memory_format": "nn"}, {"dtype": 1}):
        with pytest.raises(ValueError, match="of PyTorch; trace the model again"):
            read(spec)


def test_standard_containers_need_nobody_to_vouch():
    alone = nn.Linear(1, 1)
    standard = {
        "node": "collections:OrderedDict",
        "children": [{"t": 0}],
        "context": {"list": ["a"]},
    }
    assert list(rebuild(standard, alone)) == ["a"]
    counts = {
        "node": "collections:defaultdict",
        "children": [1],
        "context": {"list": [{"global": "builtins:list"}, {"list": ["k"]}]},
    }
    assert rebuild(counts, alone).default_factory is list
    counts["context"]["list"][0] = {"global": "os:system"}
    with pytest.raises(ValueError, match="not a loaded class"):
        read(counts, alone)
    limited = {"node": "collections:deque", "children": [1, 2], "context": 1}
    assert list(rebuild(limited, alone)) == [2]
    top = {"node": "torch.return_types:max", "children": [{"t": 0}, {"t": 0}], "context": None}
    assert type(rebuild(top, alone)) is torch.return_types.max


def deep(levels):
    return '{"list": [' * levels + "1" + "]}" * levels


MALFORMED = [
    *("{}", "[]", "[1]", '{"t": "0"}', '{"t": 1}', '{"t": -1}', '{"t": true}', '{"t": 0, "x": 1}'),
    *('{"ref": 5}', '{"ref": 0}', '{"ref": "a"}', '{"what": 1}', '{"list": 5}', '{"list": {}}'),
    *('{"sym": "B//0"}', '{"sym": "B%0"}', '{"sym": "x"}', '{"sym": ""}', '{"sym": 3}'),
    *('{"sym": "B**B**B**99"}', '{"sym": "__import__(1)"}', '{"sym": "max(B)"}'),
    *('{"dict": [[1]]}', '{"dict": [1]}', '{"dict": [[{"list": []}, 1]]}', '{"dict": {}}'),
    *('{"set": [{"list": []}]}', '{"frozenset": [{"dict": []}]}', '{"tuple": null}'),
    *('{"device": "sofa"}', '{"device": 3}', '{"device": "cpu:x"}', '{"float": "1"}'),
    *('{"complex": [1]}', '{"complex": ["a", 1]}', '{"bytes": "0"}', '{"bytes": "zz"}'),
    *('{"size": ["a"]}', '{"size": [{"t": 0}]}', '{"slice": [1]}', '{"slice": 1}'),
    *('{"module": 3}', '{"object": 3, "fields": []}', '{"object": "a:b"}'),
    '{"object": "collections:OrderedDict", "fields": [["a"]]}',
    '{"object": "collections:OrderedDict", "fields": [], "items": {"list": [1]}}',
    '{"object": "collections:OrderedDict", "fields": [], "items": {"dict": 1}}',
    '{"object": "collections:deque", "fields": []}',
    '{"object": "collections:defaultdict", "fields": [], "items": {"dict": []}, "default": 1}',
    '{"node": "collections:OrderedDict", "children": [1], "context": 1}',
    '{"node": "collections:OrderedDict", "children": [1], "context": {"list": []}}',
    '{"node": "collections:OrderedDict", "children": [{"ref": 0}], "context": {"list": [1]}}',
    '{"node": "collections:deque", "children": [1], "context": -1}',
    '{"node": "torch.nn.utils.rnn:PackedSequence", "children": [1], "context": null}',
    '{"namedtuple": "torch.nn.utils.rnn:PackedSequence", "items": [1]}',
    '{"namedtuple": "collections:OrderedDict", "items": [1]}',
    *(deep(200), deep(20_000), "1" * 10_000, '{"tuple":' * 101, "nothing", '"'),
]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:60])
def test_malformed_descriptions_are_one_error_each(text):
    with pytest.raises(ValueError, match=r"^\[call\] [^\n]{1,400}; expected [^\n]*; (trace|load)"):
        Result.from_json(f'{{"format": 1, "result": {text}}}', Vouching(), 1)


SIGNATURE = '{"format": 1, "parameters": [], "defaults": [], "arguments": [], "paths": []}'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"format": 1', '"format": 2'),
        ('"format": 1', '"format": {}'),
        ('"format": 1, ', ""),
        ('"parameters": []', '"parameters": [1]'),
        ('"parameters": []', '"parameters": 1'),
        ('"defaults": []', '"defaults": [["a"]]'),
        ('"defaults": []', '"defaults": [["a", []]]'),
        ('"arguments": []', '"arguments": [[1, 1]]'),
        ('"arguments": []', '"arguments": [["a", {"x": 1}]]'),
        ('"arguments": []', '"arguments": [["a", ' + deep(20_000) + "]]"),
        ('"paths": []', '"paths": {}'),
        (SIGNATURE, "[]"),
        (SIGNATURE, "1"),
        (SIGNATURE, ""),
    ],
    ids=range(14),
)
def test_malformed_signatures_are_one_error_each(old, new):
    Signature.from_json(SIGNATURE)
    with pytest.raises(ValueError, match=r"^\[call\] .*; expected .*; trace the model again"):
        Signature.from_json(SIGNATURE.replace(old, new))


def test_a_call_with_another_number_of_tensors_is_refused():
    text = SIGNATURE.replace('"arguments": []', '"arguments": [["a", {"t": 0}]]')
    Signature.from_json(text, 1)
    for inputs in (0, 2):
        with pytest.raises(ValueError, match=r"^\[call\] .*; expected .*; trace"):
            Signature.from_json(text, inputs)


def test_weights_are_looked_up_as_data(tmp_path):
    """A weight's name from a file must not call a property of the model."""

    class Trapped(Vouching):
        asked = False

        @property
        def trap(self):
            type(self).asked = True
            return torch.zeros(4)

    model = Trapped().eval()
    graph = load_edited(tmp_path, model, 'parameter "linear.bias"', 'parameter "trap"')
    with pytest.raises(ValueError, match="the model has no parameter 'trap'"):
        run_loaded(graph, model)
    assert not Trapped.asked


def test_a_loaded_graph_of_a_package_rebuilds_its_result(tmp_path):
    """In another process nothing is remembered: the given model's package has to vouch."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=8, use_cache=True
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.zeros(2, 4, dtype=torch.long)
    kerf.trace(model, ids).save(tmp_path / "gpt2.graph")
    saved = set(_classes._own), dict(_classes._described)
    _classes._own.clear()
    _classes._described.clear()
    try:
        graph = kerf.load_graph(tmp_path / "gpt2.graph")
        plan = kerf.plan(graph, devices=["cpu:0"], n_microbatches=1)
        with kerf.Pipeline(model, plan, graph=graph) as pipe:
            assert pipe.check(ids) < 1e-5
            assert type(pipe(ids).past_key_values) is transformers.DynamicCache
    finally:
        _classes._own.update(saved[0])
        _classes._described.update(saved[1])
