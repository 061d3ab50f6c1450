# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Where tensors stand that a model's code reaches without a name in the model: in its lists,
dictionaries and objects, in modules that were never registered, in what functions close over, in
globals. A graph holds their numbers, so that they have to be found again when it runs.
"""

import collections
import dis
import functools
import sys
import types

import torch
from torch._subclasses.fake_tensor import is_fake

from kerf._plain import NAMESPACES, function_of
from kerf._reads import LEAVE_ALONE, is_watchable, own_attributes
from kerf._state import hooks_of

_DEEPEST = 24
_MOST = 200_000  # objects: larger structures are data
_ATOMS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
_MACHINERY = frozenset(vars(torch.nn.Module())) | {"_compiled_call_impl"}


class Place:
    """A tensor and the links that lead to it; each is ``(kind, holder, key)``:

    entry      ``holder`` is a dictionary
    item       ``holder`` is a list
    fixed      ``holder`` is a tuple, a set or the like
    attribute  ``holder`` has it in a slot, a cell or the like
    class      ``holder`` is a class
    """

    def __init__(self, tensor, links):
        self.tensor = tensor
        self.links = links


def find_places(model):
    """``{place: Place}``: everything that the code of a model can reach, by readable names."""
    return _Walk(model).places


def remove_fakes(model, before, weights):
    """Takes away what a trace has left in a model and around it: tensors without numbers.

    ``before`` is what ``find_places`` gave before the trace, ``weights`` what the modules had.
    """
    known = {id(t) for t in [*weights, *(place.tensor for place in before.values())]}

    def is_new(tensor):
        return is_fake(tensor) and id(tensor) not in known

    for module in model.modules():
        for mapping in (module._parameters, module._buffers):
            for name in [n for n, t in mapping.items() if t is not None and is_new(t)]:
                del mapping[name]
    own = {id(module.__dict__) for module in model.modules()}
    for name, place in find_places(model).items():
        # What modules themselves hold is judged with the attributes that were read.
        if not is_new(place.tensor) or not place.links or id(place.links[0][1]) in own:
            continue
        kind, holder, key = place.links[-1]
        was = before.get(name)
        if kind in ("entry", "attribute", "class") and was is not None:
            put(place.links[-1], was.tensor)
        elif kind == "entry":
            holder.pop(key, None)
        elif kind == "item":
            holder[:] = [item for item in holder if item is not place.tensor]
        elif kind == "class":
            delattr(holder, key)


def found_at(link):
    kind, holder, key = link
    if kind == "entry":
        return holder.get(key)
    if kind == "item":
        return holder[key] if key < len(holder) else None
    return getattr(holder, key, None)


def put(link, tensor):
    """Not into what is fixed: a tuple, a set."""
    kind, holder, key = link
    if kind in ("entry", "item"):
        holder[key] = tensor
    else:
        setattr(holder, key, tensor)


def one_memory(a, b):
    """Are two tensors the same numbers in the same memory?"""
    if a is b:
        return True
    if a.layout is not torch.strided or b.layout is not torch.strided:
        return False
    alike = (a.dtype, a.shape, a.stride(), a.device) == (b.dtype, b.shape, b.stride(), b.device)
    return alike and bool(address_of(a)) and address_of(a) == address_of(b)


def is_real(tensor):
    """Has it numbers that can be copied?"""
    return tensor.layout is torch.strided and bool(address_of(tensor))


def address_of(tensor):
    """Where its numbers are; None for one that has none, or keeps them to itself."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return None


class _Walk:
    def __init__(self, model):
        self.places = {}
        self._seen = {}  # id -> object, which is kept so that the id stays its own
        modules = dict(model.named_modules())
        self._seen.update({id(m): m for m in modules.values()})
        for path, module in modules.items():
            self._holder(path, module, ())
        for path, name, hooks in hooks_of(model):
            for i, (key, hook) in enumerate(list(hooks.items())):
                self._value(f"{path}.{name}.{i}".lstrip("."), hook, (("entry", hooks, key),))

    def _holder(self, path, holder, links):
        """The attributes of a module or another object, and those of its classes."""
        own = own_attributes(holder)
        for name, value in list(own.items()):
            if isinstance(holder, torch.nn.Module) and name in _MACHINERY:
                continue
            link = ("entry", own, name) if type(own) is dict else ("attribute", holder, name)
            self._value(f"{path}.{name}".lstrip("."), value, (*links, link))
        for cls in type(holder).__mro__:
            self._class(cls)

    def _class(self, cls, names=None):
        if is_foreign(cls.__module__) or (names is None and not self._visit(cls)):
            return
        for name, value in list(vars(cls).items()):
            if names is None or name in names:
                link = ("class", cls, name)
                self._value(f"{cls.__qualname__}.{name}", value, (link,))

    def _visit(self, value):
        """False when it was visited before."""
        if id(value) in self._seen or len(self._seen) > _MOST:
            return False
        self._seen[id(value)] = value
        return True

    def _value(self, place, value, links):
        if isinstance(value, torch.Tensor):
            self.places.setdefault(place, Place(value, links))
            return
        if isinstance(value, _ATOMS) or len(links) > _DEEPEST or not self._visit(value):
            return
        if isinstance(value, torch.nn.Module):
            self._module(place, value, links)
        elif isinstance(value, dict):
            self._entries(place, value, links)
        elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            kind = "item" if isinstance(value, list) else "fixed"
            for i, item in enumerate(list(value)):
                self._value(f"{place}.{i}", item, (*links, (kind, value, i)))
        elif isinstance(value, NAMESPACES):
            self._entries(place, vars(value), links)
        elif isinstance(value, functools.partial):
            for name in ("func", "args", "keywords"):
                self._value(f"{place}.{name}", getattr(value, name), links)
        elif function_of(value) is not None:
            if isinstance(value, types.MethodType):
                self._value(place, value.__self__, links)
            self._function(place, function_of(value), links)
        elif isinstance(value, type):
            self._class(value)
        elif is_watchable(value):
            self._holder(place, value, links)

    def _module(self, path, module, links):
        """One that the model has not registered."""
        for mapping in ("_parameters", "_buffers", "_modules"):
            self._entries(path, module.__dict__.get(mapping) or {}, links)
        self._holder(path, module, links)

    def _entries(self, path, mapping, links):
        for key, value in list(dict.items(mapping)) if isinstance(mapping, dict) else ():
            name = key if isinstance(key, (str, int)) else type(key).__name__
            self._value(f"{path}.{name}", value, (*links, ("entry", mapping, key)))

    def _function(self, place, function, links):
        if is_foreign(function.__module__):
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if cell != types.CellType():
                link = ("attribute", cell, "cell_contents")
                self._value(f"{place}.{name}", cell.cell_contents, (*links, link))
        for name in ("__defaults__", "__kwdefaults__"):
            link = ("attribute", function, name)
            self._value(f"{place}.{name}", getattr(function, name), (*links, link))
        for name, value, link in globals_of(function):
            self._value(name, value, (link,))


def globals_of(function):
    """``(name, value, link)`` of the globals that a function names, and of what it names in modules
    and classes among them: ``config.scale``, ``Base.forward(self, x)``, ``super().forward(x)``."""
    named, attributes = names_in(function.__code__)
    scope = function.__globals__
    for name in named:
        if name not in scope:
            continue
        value = scope[name]
        if isinstance(value, types.ModuleType):
            if not is_foreign(value.__name__):
                for attribute in attributes & vars(value).keys():
                    found = vars(value)[attribute]
                    yield f"{value.__name__}.{attribute}", found, ("entry", vars(value), attribute)
        else:
            yield f"{function.__module__}.{name}", value, ("entry", scope, name)


_LOAD_GLOBAL, _EXTENDED_ARG = dis.opmap["LOAD_GLOBAL"], dis.opmap["EXTENDED_ARG"]
_SHIFT = 1 if sys.version_info >= (3, 11) else 0  # the lowest bit says something else there


def _loaded_globals(code):
    """``dis`` would take a hundred times as long, and some models have thousands of functions."""
    operators, arguments = code.co_code[::2], code.co_code[1::2]
    at = operators.find(_LOAD_GLOBAL)
    while at >= 0:
        argument, before = arguments[at], at - 1
        while before >= 0 and operators[before] == _EXTENDED_ARG:
            argument |= arguments[before] << 8 * (at - before)
            before -= 1
        yield code.co_names[argument >> _SHIFT]
        at = operators.find(_LOAD_GLOBAL, at + 1)


@functools.lru_cache(maxsize=4096)
def names_in(code):
    """Names of globals in code, in order, and of attributes."""
    named = dict.fromkeys(_loaded_globals(code))
    attributes = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, others = names_in(constant)
            named.update(dict.fromkeys(inner))
            attributes |= others
    return tuple(named), frozenset(attributes)


def is_foreign(module):
    """Code of Python, of PyTorch and the like keeps nothing of a model's."""
    return (module or "").split(".")[0] in LEAVE_ALONE
