# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Which attributes of its modules a model's code reads while it is traced.

A graph holds what they led to (the branch that was taken, the number that was multiplied with), so
it is right only while they stay as they are. ``nn.Module.__getattribute__`` is exchanged for the
length of a call, and that of the classes of objects that modules hold, such as configurations.
"""

import collections.abc
import contextlib
import dataclasses
import sys
import threading
import types

import torch
from torch._subclasses.fake_tensor import is_fake

from kerf._plain import ABSENT, NAMESPACES, contents_of, describe, is_code, same

# What nn.Module keeps for itself. Modules, weights and hooks are looked at in their own ways.
_MACHINERY = frozenset(vars(torch.nn.Module())) - {"training"} | {"_compiled_call_impl"}
LEAVE_ALONE = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "kerf"}
_MUTABLE_CLASS = 1 << 9  # Py_TPFLAGS_HEAPTYPE: classes that were made by a class statement


@dataclasses.dataclass
class Read:
    """One attribute that was read; ``owner`` is the class when a class gave it, else None."""

    holder: object
    path: str
    name: str
    owner: type | None
    value: object  # as plain data, when it was first read
    written: bool = False  # before that, in the same call; the value is what it was before
    tensors: tuple = ()  # in it that have no name in the model: (path, tensor, version)


class Reads:
    """The attributes that the model's code reads, in the call that was recorded last."""

    def __init__(self, model):
        self._model = model
        self._weights = weight_ids(model)
        self._thread = threading.get_ident()
        self._noting = True  # no call is being recorded
        self.counters = set()  # (path, name) of what changes at every call, tensors or not
        self._start()

    def _start(self):
        self.reads = {}  # (identity of the holder, name) -> Read
        self._known = set()  # classes whose attribute was read: (class, name)
        self._held = {}  # identity -> the module or object
        self._paths = {}
        self._before = {}
        self._symbolic = {}
        self._changed = []
        self._written = []
        self.kept = []  # (path, name) of attributes in which the model's code stored tensors
        for path, module in self._model.named_modules():
            self._keep(module, path)

    def _keep(self, holder, path):
        key = _identity(holder)
        self._held[key] = holder
        self._paths[key] = path
        self._before[key] = dict(own_attributes(holder))
        self._symbolic[key] = _symbolic_attributes(holder)

    @contextlib.contextmanager
    def recording(self):
        """Notes what is read inside, by this thread."""
        self._start()
        self._thread = threading.get_ident()
        self._patched = []
        try:
            for cls in _attribute_classes(self._held.values()):
                self._patch(cls)
            self._noting = False
            yield
        finally:
            self._noting = True
            self._look_after()
            for cls, original in reversed(self._patched):
                if original is None:
                    del cls.__getattribute__
                else:
                    cls.__getattribute__ = original

    def _look_after(self):
        """What the call has left behind; export puts most of it back by itself."""
        self._changed = [(r, _now(r)) for r in self._counting() if not _is_same(r)]
        self._written = [
            dataclasses.replace(read, name=place)
            for read in self._counting()
            for place, tensor, version in read.tensors
            if version_of(tensor) != version
        ]
        weights = weight_ids(self._model)  # a list of them, as LSTMs keep, holds nothing new
        for key, holder in self._held.items():
            for name, found in _symbolic_attributes(holder).items():
                if found != self._symbolic[key].get(name) and not weights.issuperset(found):
                    self.kept.append((self._paths[key], name))

    def _patch(self, cls):
        if any(cls is patched for patched, _ in self._patched):
            return
        own = cls.__dict__.get("__getattribute__")
        original = cls.__getattribute__

        def noting(holder, name):
            if not self._noting:
                self._note(_identity(holder), name)
            return original(holder, name)

        cls.__getattribute__ = noting
        self._patched.append((cls, own))

    def _note(self, identity, name):
        if identity not in self._held or (identity, name) in self.reads:
            return
        if name in _MACHINERY or name.startswith("__") or threading.get_ident() != self._thread:
            return
        self._noting = True  # looking at things reads them
        try:
            self._add(identity, name)
        finally:
            self._noting = False

    def _add(self, identity, name):
        holder, path = self._held[identity], self._paths[identity]
        aliases = getattr(type(holder), "attribute_map", None)  # transformers' second names
        if isinstance(aliases, dict):
            name = aliases.get(name, name)
        if (identity, name) in self.reads:
            return
        value, owner = look_up(holder, name)
        if owner is torch.nn.Module or owner is object:
            return
        before = self._before[identity].get(name, ABSENT)
        if owner is None and before is not value and name in own_attributes(holder):
            found = Read(holder, path, name, None, describe_found(before), written=True)
            self.reads[identity, name] = found
            return
        if owner is not None:
            if (type(holder), name) in self._known:
                return
            self._known.add((type(holder), name))
        loose = loose_tensors(holder, value, name, self._weights)
        tensors = tuple((place, tensor, version_of(tensor)) for place, tensor in loose)
        plain = describe_found(value)
        self.reads[identity, name] = Read(holder, path, name, owner, plain, tensors=tensors)
        if owner is None:
            self._hold(value, f"{path}.{name}".lstrip("."), 0)

    def _hold(self, value, path, depth):
        """Objects that a module holds have attributes too, and so have those in its lists."""
        if _identity(value) in self._held or depth > 3:
            return
        if type(value) in (list, tuple, dict):
            items = value.items() if type(value) is dict else enumerate(value)
            for key, item in items:
                if type(key) in (int, str):
                    self._hold(item, f"{path}.{key}", depth + 1)
            return
        module = isinstance(value, torch.nn.Module)
        if not (module or is_watchable(value)) or find(self._model, path) is not value:
            return
        self._keep(value, path)
        if not module:
            self._patch(type(value))

    def changed(self):
        """What was read and was something else at the end: the model's own code has written it.

        Not where it stores tensors beside it: those a trace does not keep, so all of it goes back.
        But for ``counters``, which no tensor goes with.
        """
        beside = self.beside_tensors()
        places = ((read, (read.path, read.name)) for read, _ in self._changed)
        return [r for r, place in places if place not in beside or place in self.counters]

    def beside_tensors(self):
        """``(path, name)`` of what the call has changed where it has stored a tensor, too."""
        keeping = {path for path, _ in self.kept}
        return {(read.path, read.name) for read, _ in self._changed if read.path in keeping}

    def changing(self):
        """``(path, name)`` of what the call has changed and a next one may change again."""
        return {(read.path, read.name) for read, _ in self._changed} - set(self.kept)

    def replaced(self):
        """Tensors that were read and then replaced, or written where the graph has a copy: what a
        call leaves for the next one."""
        kept = set(self.kept)
        found = [r for r in self._counting() if (r.path, r.name) in kept and _has_tensor(r.value)]
        return [*found, *self._written]

    def unsteady(self):
        """``(path, name)`` of what was read and does not stay the same."""
        return {(read.path, read.name) for read, _ in self._changed} | set(self.kept)

    def advance(self):
        """Leaves attributes as the call has left them; what they were can be put back."""
        changed = self.changed()
        before = self.before(changed)
        for read, value in self._changed:
            if read in changed:
                _set(read.holder, read.name, value)
        return before

    def before(self, reads):
        """What these were before the call, for ``put_back``."""
        return [(read.holder, read.name, self._was(read)) for read in reads]

    def _was(self, read):
        value = self._before[_identity(read.holder)].get(read.name, ABSENT)
        # A list may have been changed in place; export leaves a copy of what it was.
        return _now(read) if value is not ABSENT and type(value) in (list, dict, set) else value

    def records(self):
        """``(path, name, value)`` of what was read."""
        weights = weight_ids(self._model)
        for read in self._counting():
            name = read.name if read.owner is None else f"{type(read.holder).__name__}.{read.name}"
            now = _now(read)
            value = describe_found(now, weights)
            if _is_elsewhere(read, value):
                continue
            first = self._paths.get(_identity(now), "")
            if is_object(value) and first not in ("", f"{read.path}.{name}".lstrip(".")):
                value.append(first)  # the same object, which was met there before
            yield read.path, name, value

    def _counting(self):
        return [r for r in self.reads.values() if not r.written]

    def written(self):
        """What the model's code wrote before it read it."""
        return [r for r in self.reads.values() if r.written]


def _is_elsewhere(read, value):
    """Weights and modules' own tensors have names in the graph, modules are its scopes, devices are
    the plan's. What other objects have of tensors is here alone."""
    kind = read.value[:1] if isinstance(read.value, list) else []
    if kind == ["tensor"]:
        return isinstance(read.holder, torch.nn.Module) or value == ["tensor"]
    return kind in (["symbol"], ["device"], ["module"])


_SYMBOLS = tuple(torch.types.py_sym_types)


def symbolic_in(value):
    """Ids of the fake tensors and symbolic numbers in a value: they belong to a trace."""
    if isinstance(value, torch.Tensor):
        return (id(value),) if is_fake(value) else ()
    if isinstance(value, _SYMBOLS):
        return (id(value),)
    if isinstance(value, (list, tuple, dict, set)):
        items = value.values() if isinstance(value, dict) else value
        return tuple(i for item in items for i in symbolic_in(item))
    return ()


def _symbolic_attributes(holder):
    own = {n: v for n, v in own_attributes(holder).items() if n not in _MACHINERY}
    found = {name: symbolic_in(value) for name, value in own.items()}
    return {name: ids for name, ids in found.items() if ids}


def _has_tensor(value):
    """Is a tensor in this plain data?"""
    return isinstance(value, list) and (value[:1] == ["tensor"] or any(map(_has_tensor, value)))


def _now(read):
    return look_up(read.holder, read.name)[0]


def _is_same(read):
    return same(describe_found(_now(read)), read.value)


def put_back(before):
    """``before`` is what ``Reads.before`` gave."""
    for holder, name, value in before:
        _set(holder, name, value)


def _set(holder, name, value):
    """Without running code of the holder's class; weights are left alone."""
    own = own_attributes(holder)
    if value is ABSENT:
        own.pop(name, None)
    elif look_up(holder, name)[1] is None:
        own[name] = value


def describe_found(value, weights=None):
    """What ``look_up`` found, as plain data; with ``weights`` other tensors by their numbers."""
    if value is ABSENT:
        return ABSENT
    if isinstance(value, torch.Tensor) and weights is not None:
        return describe([value], weights)[0]
    if isinstance(value, NAMESPACES):
        return describe(vars(value), weights)
    return describe(value, weights)


def weight_ids(model):
    return {id(t) for t in [*model.parameters(), *model.buffers()]}


def loose_tensors(holder, value, path, weights):
    """``(path, tensor)`` of tensors in a value that was read: in objects, in containers, and what
    code closes over. Those have no name in the model, and a graph holds their numbers."""
    if isinstance(value, torch.Tensor) and isinstance(holder, torch.nn.Module):
        return
    for place, item in contents_of(value, path):
        if isinstance(item, torch.Tensor) and id(item) not in weights and not is_fake(item):
            yield place, item


def version_of(tensor):
    return None if tensor.is_inference() else tensor._version


def is_object(value):
    """Is this the plain data of an object, whose attributes are looked at one by one?"""
    texts = isinstance(value, list) and all(isinstance(part, str) for part in value)
    return texts and value[:1] == ["object"]


def look_up(holder, name):
    """What stands behind a name, without running any code: ``(value, the class that has it)``.

    ABSENT when nothing does; the class is None when the holder has it itself.
    """
    own = own_attributes(holder)
    if name in own:
        return own[name], None
    for cls in type(holder).__mro__:
        if name in cls.__dict__:
            value = cls.__dict__[name]
            if isinstance(value, types.MemberDescriptorType):  # a slot of the holder
                return _slot(holder, value), None
            return value, cls
    if isinstance(holder, torch.nn.Module):
        for mapping in ("_parameters", "_buffers", "_modules"):
            if name in own.get(mapping, ()):
                return own[mapping][name], None
    return ABSENT, None


def has_slot(holder, name):
    classes = [cls for cls in type(holder).__mro__ if name in cls.__dict__]
    return bool(classes) and isinstance(classes[0].__dict__[name], types.MemberDescriptorType)


def _slot(holder, descriptor):
    try:
        return descriptor.__get__(holder)
    except AttributeError:
        return ABSENT


def find(model, path):
    """The module or object that a path of a record leads to, or ABSENT."""
    found = model
    for part in path.split(".") if path else ():
        if isinstance(found, (list, tuple)):
            found = found[int(part)] if part.isdigit() and int(part) < len(found) else ABSENT
        elif isinstance(found, dict):
            found = found.get(part, ABSENT)
        else:
            found, _ = look_up(found, part)
        if found is ABSENT:
            break
    return found


def _identity(holder):
    """Torch traces some modules through stand-ins, which share the module's dictionary."""
    try:
        return id(object.__getattribute__(holder, "__dict__"))
    except (AttributeError, TypeError):
        return id(holder)


def own_attributes(holder):
    """What a holder has itself, past the code of its class: a mapping that can be written."""
    try:
        own = object.__getattribute__(holder, "__dict__")
    except (AttributeError, TypeError):
        return _Slots(holder) if type(holder).__flags__ & _MUTABLE_CLASS else {}
    return own if isinstance(own, dict) else {}


class _Slots(collections.abc.MutableMapping):
    """The attributes of an object that keeps them in slots, as if they were in a dictionary."""

    def __init__(self, holder):
        self._holder = holder
        self._slots = {
            name: slot
            for cls in reversed(type(holder).__mro__)
            for name, slot in vars(cls).items()
            if isinstance(slot, types.MemberDescriptorType)
        }

    def __getitem__(self, name):
        value = _slot(self._holder, self._slots[name])
        if value is ABSENT:
            raise KeyError(name)
        return value

    def __setitem__(self, name, value):
        self._slots[name].__set__(self._holder, value)

    def __delitem__(self, name):
        self._slots[name].__delete__(self._holder)

    def __iter__(self):
        return (n for n, slot in self._slots.items() if _slot(self._holder, slot) is not ABSENT)

    def __len__(self):
        return sum(1 for _ in self)


def _attribute_classes(modules):
    """nn.Module, and the classes below it that have a ``__getattribute__`` of their own."""
    found = dict.fromkeys([torch.nn.Module])
    for module in modules:
        for cls in type(module).__mro__:
            if cls is not object and "__getattribute__" in cls.__dict__:
                found[cls] = None
    return found


def is_watchable(value):
    """Objects of the user's classes, and of libraries such as transformers."""
    cls = type(value)
    if isinstance(value, torch.Tensor) or is_code(value) or not cls.__flags__ & _MUTABLE_CLASS:
        return False
    return (cls.__module__ or "").split(".")[0] not in LEAVE_ALONE
