# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Reads descriptions of values (see ``_pytree``) from text that may come from a file.

A description is checked as a whole before anything is made of it: the form of every part, the
numbers of tensors and objects, how deep it nests, and that every class it names may be used. What
passes here can be built without surprises.
"""

import enum
import json
import re

import torch

from kerf import _classes, _pytree
from kerf._symbols import evaluate

MAX_DEPTH = 100
_SOME_BATCH = 1009  # an expression that has no value here hardly has one anywhere


class SpecError(ValueError):
    """A description that is none; one line that says what was found and what was expected."""


def parse(text, what):
    """The JSON data in ``text``. ``what`` names it in messages. Raises SpecError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise error(f"{what} nests too deeply", f"at most {MAX_DEPTH} levels") from None
    except (ValueError, TypeError) as found:
        raise error(f"{what} is not JSON text ({found})", "what kerf.trace wrote") from None


def error(found, expected):
    return SpecError(f"[call] {found}; expected {expected}; trace the model again")


def check(spec, what, *, tensors=None, classes=None):
    """Raises SpecError unless ``spec`` describes a value.

    tensors  how many there are to build from: larger numbers are refused
    classes  finds those that the description names; without it names are not looked up, and the
             description may be compared but not built
    """
    checker = Checker(what, tensors, classes)
    checker.check(spec, 0)


class Checker:
    """Walks one or several descriptions that share a numbering of objects."""

    def __init__(self, what, tensors=None, classes=None):
        self.what = what
        self.tensors = tensors
        self.classes = classes
        self.objects = 0
        self.used = set()  # numbers of tensors
        self.unfinished = set()  # numbers of registered nodes: made after their children

    def fail(self, found, expected):
        raise error(f"{self.what} has {found}", expected)

    def check(self, spec, depth):
        if spec is None or type(spec) in (bool, int, float, str):
            return
        if depth > MAX_DEPTH:
            self.fail(f"more than {MAX_DEPTH} levels", "a few levels of containers")
        if type(spec) is not dict or not spec:
            self.fail(f"the part {_short(spec)}", "plain data or an object with one of the keys")
        kind = next(iter(spec))
        if kind not in _KINDS:
            self.fail(f"a part with the key '{_short(kind)}'", "one of the keys of a description")
        required, optional, check_one = _KINDS[kind]
        if not required <= spec.keys() <= required | optional:
            self.fail(f"the part {_short(spec)}", f"the keys {', '.join(sorted(required))}")
        if "given" in spec:
            self.number(spec, "given", None)
        check_one(self, spec, depth + 1)

    def list_of(self, items):
        if type(items) is not list:
            self.fail(f"{_short(items)} instead of a list", "a list")
        return items

    def items(self, items, depth):
        for item in self.list_of(items):
            self.check(item, depth)

    def keys(self, items, depth):
        for item in self.list_of(items):
            self.key(item, depth)

    def key(self, item, depth):
        """A part that a dictionary or a set looks up. From a file: without code of its class."""
        self.check(item, depth)
        if self.classes is not None and not self.classes.own and not _is_key(item):
            self.fail(f"{_short(item)} as a key", "plain data")

    def pairs(self, pairs, depth):
        for pair in self.list_of(pairs):
            if type(pair) is not list or len(pair) != 2:
                self.fail(f"{_short(pair)} in a dictionary", "a pair of key and value")
            self.key(pair[0], depth)
            self.check(pair[1], depth)

    def text(self, spec, key, wanted=None, expected="a text"):
        value = spec[key]
        if type(value) is not str or (wanted is not None and not wanted(value)):
            self.fail(f"{_short(value)} as {key}", expected)
        return value

    def number(self, spec, key, limit):
        value = spec[key]
        if type(value) is not int or value < 0 or (limit is not None and value >= limit):
            most = "a number" if limit is None else f"a number below {limit}"
            self.fail(f"{_short(value)} as {key}", most)
        return value

    def named(self, spec, key, base=object):
        """The class that is named, or None where names are not looked up."""
        name = self.text(spec, key)
        if self.classes is None:
            return None
        try:
            found = self.classes.find(name)
        except _classes.ClassError as reason:
            raise SpecError(
                f"[call] {self.what} names {reason}; expected a class of the model's own packages; "
                "load what the model needs, or allow it with kerf.allow_output_class"
            ) from None
        if isinstance(found, type) and not issubclass(found, base):
            self.fail(f"'{name}' as {key}", f"a class of {base.__name__}")
        return found

    def namedtuple(self, spec, depth):
        cls = self.named(spec, "namedtuple", tuple)
        self.items(spec["items"], depth)
        if cls is None:
            return
        fields = getattr(cls, "_fields", None)
        if not isinstance(fields, tuple) or len(fields) != len(spec["items"]):
            self.fail(f"{len(spec['items'])} items for {cls.__qualname__}", "one for each field")

    def node(self, spec, depth):
        cls = self.named(spec, "node")
        number = self.objects
        self.objects += 1
        self.unfinished.add(number)
        self.items(spec["children"], depth)
        self.check(spec["context"], depth)
        self.unfinished.discard(number)
        if cls in _STANDARD_CONTEXTS:
            self.standard_context(cls, spec)
        elif cls is not None and cls not in torch.utils._pytree.SUPPORTED_NODES:
            raise error(
                f"{spec['node']} is not a registered pytree node here",
                "the registration that was there when the model was traced",
            )

    def standard_context(self, cls, spec):
        keys = _STANDARD_CONTEXTS[cls](spec["context"])
        if keys is False:
            self.fail(f"the context {_short(spec['context'])}", f"one of a {cls.__name__}")
        if keys is not None:
            self.keys(keys, 0)  # plain data, so that no object is numbered twice
            if len(keys) != len(spec["children"]):
                self.fail(f"{len(keys)} keys of {len(spec['children'])} values", "one for each")

    def object(self, spec, depth):
        cls = self.named(spec, "object")
        self.objects += 1
        for pair in self.list_of(spec["fields"]):
            if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str:
                self.fail(f"{_short(pair)} as a field", "a pair of name and value")
            self.check(pair[1], depth)
        if "default" in spec:
            self.default(cls, spec["default"], depth)
        if "items" in spec:
            self.check(spec["items"], depth)
        if cls is not None:
            self.contents(cls, spec)

    def default(self, cls, spec, depth):
        self.check(spec, depth)
        is_class = type(spec) is dict and "global" in spec
        if not (spec is None or is_class) or not (cls is None or issubclass(cls, dict)):
            self.fail(f"the default {_short(spec)}", "a class, in a defaultdict")

    def contents(self, cls, spec):
        """Can an object of the class be made, and can it hold such items?"""
        wanted = None
        if issubclass(cls, dict):
            wanted = "dict"
        elif issubclass(cls, (list, tuple, set, frozenset, _pytree.deque)):
            wanted = "list"
        items = spec.get("items")
        if (next(iter(items)) if type(items) is dict else items) != wanted:
            self.fail(f"the items {_short(items)} in {cls.__qualname__}", f"{wanted or 'none'}")
        if issubclass(cls, (set, frozenset)):
            self.keys(items["list"], 0)
        if issubclass(cls, (torch.Tensor, torch.nn.Module, enum.Enum, type, BaseException)):
            self.fail(f"an object of {cls.__qualname__}", "a class that holds data")
        try:
            _pytree.bare(cls)
        except _pytree.PytreeError as reason:
            raise error(str(reason), "a class that holds data") from None

    def enum(self, spec, depth):
        cls = self.named(spec, "enum", enum.Enum)
        name = self.text(spec, "name")
        if cls is not None and name not in cls.__members__:
            self.fail(f"'{_short(name)}' of {cls.__qualname__}", "one of its members")

    def ref(self, spec, depth):
        number = self.number(spec, "ref", self.objects)
        if number in self.unfinished:
            self.fail(f"a reference to object {number} inside itself", "one described before")

    def symbol(self, spec, depth):
        text = self.text(spec, "sym")
        try:
            evaluate(text, _SOME_BATCH)
        except ValueError:
            self.fail(f"the size {_short(text)}", "an expression in B")

    def device(self, spec, depth):
        text = self.text(spec, "device", lambda t: _DEVICE.fullmatch(t), "a device such as cuda:0")
        try:
            torch.device(text or "cpu")
        except RuntimeError:
            self.fail(f"the device {_short(text)}", "one that PyTorch knows, such as cuda:0")

    def bytes(self, spec, depth):
        self.text(spec, "bytes", lambda t: _HEX.fullmatch(t), "hexadecimal digits")

    def size(self, spec, depth):
        for item in self.list_of(spec["size"]):
            if type(item) is not int and not (type(item) is dict and "sym" in item):
                self.fail(f"{_short(item)} in a size", "whole numbers")
            self.check(item, depth)

    def slice(self, spec, depth):
        self.items(spec["slice"], depth)
        if len(spec["slice"]) != 3:
            self.fail(f"a slice of {len(spec['slice'])} parts", "start, stop and step")

    def complex(self, spec, depth):
        parts = self.list_of(spec["complex"])
        if len(parts) != 2 or any(type(part) not in (int, float) for part in parts):
            self.fail(f"the complex number {_short(parts)}", "two numbers")


_DEVICE = re.compile(r"([a-z]{1,20}(:[0-9]{1,3})?)?")
_HEX = re.compile(r"([0-9a-f]{2})*")
_KEYS = frozenset(
    {"t", "sym", "dtype", "device", "layout", "memory_format", "float", "complex"}
    | {"bytes", "enum", "global", "size"}
)


def _is_key(item):
    if type(item) is not dict:
        return True
    kind = next(iter(item))
    inner = item[kind] if kind in ("tuple", "frozenset") else None
    return kind in _KEYS or (inner is not None and all(map(_is_key, inner)))


def _list_keys(context):
    return context.get("list", False) if type(context) is dict else False


def _defaultdict_keys(context):
    parts = _list_keys(context)
    if type(parts) is not list or len(parts) != 2:
        return False
    is_class = parts[0] is None or (type(parts[0]) is dict and "global" in parts[0])
    return _list_keys(parts[1]) if is_class else False


def _deque_keys(context):
    return None if context is None or (type(context) is int and context >= 0) else False


# The keys that a context gives, None where there are none to give, False for another form.
_STANDARD_CONTEXTS = {
    _pytree.OrderedDict: _list_keys,
    _pytree.defaultdict: _defaultdict_keys,
    _pytree.deque: _deque_keys,
}


def _constant(key, table):
    return lambda c, s, d: c.text(s, key, lambda t: t in table, f"a {key} of PyTorch")


def _kind(required, check_one, optional=()):
    return frozenset(required), frozenset(optional), check_one


# key -> keys that must be there, keys that may, and the check of the rest
_KINDS = {
    "t": _kind({"t"}, lambda c, s, d: c.used.add(c.number(s, "t", c.tensors))),
    "list": _kind({"list"}, lambda c, s, d: c.items(s["list"], d), {"given"}),
    "tuple": _kind({"tuple"}, lambda c, s, d: c.items(s["tuple"], d)),
    "set": _kind({"set"}, lambda c, s, d: c.keys(s["set"], d), {"given"}),
    "frozenset": _kind({"frozenset"}, lambda c, s, d: c.keys(s["frozenset"], d)),
    "dict": _kind({"dict"}, lambda c, s, d: c.pairs(s["dict"], d), {"given"}),
    "size": _kind({"size"}, Checker.size),
    "slice": _kind({"slice"}, Checker.slice),
    "namedtuple": _kind({"namedtuple", "items"}, Checker.namedtuple),
    "node": _kind({"node", "children", "context"}, Checker.node, {"given"}),
    "object": _kind({"object", "fields"}, Checker.object, {"items", "default", "given"}),
    "ref": _kind({"ref"}, Checker.ref),
    "dtype": _kind({"dtype"}, _constant("dtype", _pytree.DTYPES)),
    "layout": _kind({"layout"}, _constant("layout", _pytree.LAYOUTS)),
    "memory_format": _kind({"memory_format"}, _constant("memory_format", _pytree.MEMORY_FORMATS)),
    "device": _kind({"device"}, Checker.device),
    "float": _kind({"float"}, lambda c, s, d: c.text(s, "float", _NOT_FINITE, "inf, -inf or nan")),
    "complex": _kind({"complex"}, Checker.complex),
    "bytes": _kind({"bytes"}, Checker.bytes),
    "enum": _kind({"enum", "name"}, Checker.enum),
    "global": _kind({"global"}, lambda c, s, d: c.named(s, "global")),
    "module": _kind({"module"}, lambda c, s, d: c.text(s, "module")),
    "sym": _kind({"sym"}, Checker.symbol),
    "given": _kind({"given"}, lambda c, s, d: None),
}
_NOT_FINITE = frozenset({"inf", "-inf", "nan"}).__contains__


def _short(part):
    text = repr(part)
    return text if len(text) < 60 else text[:57] + "..."
