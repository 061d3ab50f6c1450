# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The state of a model and of its code before a trace, which is put back after it."""

import array
import collections
import functools
import logging
import pickle
import random
import sys
import types

import torch

from kerf._errors import ExportError
from kerf._places import is_foreign
from kerf.symbolic._iterators import HeldIterator, is_bare
from kerf.symbolic._numbers import plain_value
from kerf.symbolic._places import line_of
from kerf.symbolic._reached import Reached
from kerf.symbolic._trees import map_tree

TABLES = ("_parameters", "_buffers", "_modules")
_CONTAINERS = (dict, list, set, collections.deque)
_NO_STATE = (str, bytes, int, float, complex, type(None), torch.Tensor, type)
_NO_STATE += (types.BuiltinFunctionType, types.ModuleType, torch.jit.ScriptModule, logging.Logger)
_MOST = 100_000  # containers and objects within an attribute: larger structures are data
_MOST_NUMBERS = 1 << 26  # bytes of an array
_PYTORCHS = frozenset(vars(torch.nn.Module()))  # attributes that every module has


class Held:
    """What containers, functions and plain objects hold, by identity, to be compared and put back.

    ``is_known`` tells the modules that somebody else looks after.
    """

    def __init__(self, is_known=lambda module: True):
        self._held = {}  # id -> (container, its contents, the place it was found at)
        self._is_known = is_known

    def hold(self, item, place):
        """An item and all within, what is near before what is deep."""
        waiting, most = collections.deque([item]), len(self._held) + _MOST
        while waiting and len(self._held) < most:
            item = waiting.popleft()
            if id(item) in self._held or isinstance(item, _NO_STATE):
                continue
            if isinstance(item, torch.nn.Module) and self._is_known(item):
                continue
            contents = _contents(item)
            if contents is None:
                continue
            self._held[id(item)] = (item, contents, place)
            if not isinstance(contents, bytes):
                waiting.extend(contents.values() if isinstance(contents, dict) else contents)

    def items(self):
        return [item for item, _, _ in self._held.values()]

    def stop_iterators(self):
        """Exchanges iterators for ones that refuse to go on; gives what ``_stop`` does."""
        return [
            stopped
            for item, contents, _ in self._held.values()
            if not isinstance(contents, bytes)
            for stopped in _stop(item, contents)
        ]

    def __contains__(self, item):
        return id(item) in self._held

    def changes(self):
        """The places of containers that hold something else by now."""
        for item, contents, place in self._held.values():
            if not _is_same(contents, _contents(item)):
                yield place

    def changed(self):
        """The first of them; None if there is none."""
        return next(self.changes(), None)

    def generators(self):
        """Pairs of a generator of random numbers and its place."""
        found = ((item, place) for item, _, place in self._held.values())
        return [pair for pair in found if type(pair[0]) in _generators()]

    def counters(self):
        """Places where a number stood, and another one does by now."""
        for item, contents, _ in self._held.values():
            if not isinstance(contents, bytes):
                yield from _counted(item, contents)

    def restore(self):
        for item, contents, _ in self._held.values():
            if not _is_same(contents, _contents(item)):
                _put_back(item, contents)


class State:
    """What all modules of a model, their classes and the globals of their code hold, by identity:
    attributes, and what containers, arrays, functions and plain objects among them hold.

    ``unsteady``, ``names``: as in ``Reached``.
    """

    def __init__(self, root):
        self.saved = []
        self._modules = {}  # id -> (module, its attributes, its tables)
        self._held = Held(lambda module: id(module) in self._modules)  # places: (path, attribute)
        self.classes = {}  # class -> (path of a module of it, its attributes)
        modules = root.named_modules() if isinstance(root, torch.nn.Module) else ()
        for path, module in modules:
            if isinstance(module, torch.jit.ScriptModule):  # its tables are views of C++ ones
                continue
            tables = {name: dict(getattr(module, name)) for name in TABLES}
            self.saved.append((path, module, dict(module.__dict__), tables))
            self._modules[id(module)] = self.saved[-1][1:]
        if not isinstance(root, torch.nn.Module):
            self._held.hold(root, ("", getattr(root, "__name__", "root")))
        for path, _, attributes, _ in self.saved:
            for name, item in attributes.items():
                if name not in _PYTORCHS:
                    self._held.hold(item, (path, name))
        held = self._held.items()
        for path, module, _, _ in self.saved:
            for cls in type(module).__mro__:
                if cls is not object and not cls.__module__.startswith("torch."):
                    self._hold_class(cls, path)
        self.globals = []  # (scope, name -> what it stood for)
        self._hold_globals(held)
        caches = (i for i in self._held.items() if isinstance(i, functools._lru_cache_wrapper))
        self._caches = [(cache, cache.cache_info().misses) for cache in caches]
        self._stopped = self._held.stop_iterators()
        for _, module, attributes, _ in self.saved:
            self._stopped += _stop(module, attributes)
        for scope, names in self.globals:
            self._stopped += _stop(scope, names)

    def _hold_globals(self, held):
        """Those of the code that a call may reach, from the functions that are ``held``."""
        classes = dict.fromkeys([*self.classes, *map(type, held)])
        hooks = [hook for m in self._modules.values() for hook in _hooks(m[0])]
        reached = Reached([*held, *hooks], [c for c in classes if c is not type])
        self.unsteady, self.names = reached.unsteady, reached.names
        scopes = {}
        for _, value, scope, key in reached.globals:
            scopes.setdefault(id(scope), (scope, {}))[1][key] = value
            self._held.hold(value, (scope.get("__name__"), key))
        self.globals = list(scopes.values())

    def _hold_class(self, cls, path):
        if cls in self.classes:
            return
        self.classes[cls] = path, dict(vars(cls))
        for name, item in vars(cls).items():
            if not name.startswith("__"):
                self._held.hold(item, (path, name))

    def __contains__(self, module):
        return id(module) in self._modules or module in self._held

    def generators(self):
        """Pairs of a generator of random numbers and its place: (path of a module, attribute)."""
        return self._held.generators()

    def counters(self):
        """Places of the numbers that the model's code has changed."""
        found = list(self._held.counters())
        for _, module, attributes, _ in self.saved:
            found += _counted(module, attributes)
        for scope, names in self.globals:
            found += _counted(scope, names)
        return found

    def set_on(self, module):
        """The name of an attribute, a weight or a part of a module that the model's code has set
        since the trace began; None if there is none, or where nothing is known of the module."""
        for part in module.modules():
            if id(part) not in self._modules:
                continue
            _, attributes, tables = self._modules[id(part)]
            for table, before in tables.items():
                name = _difference(before, getattr(part, table))
                if name:
                    return name
            now = part.__dict__
            for name in {*attributes, *now}:
                if name not in TABLES and not is_equal(attributes.get(name), now.get(name)):
                    return name
        return None

    def changes(self):
        """``(path of the module, attribute)`` of all that the model's code has set."""
        for path, module, attributes, tables in self.saved:
            for before, now in (
                (attributes, module.__dict__),
                *((tables[table], getattr(module, table)) for table in TABLES),
            ):
                yield from ((path, name) for name in _differences(before, now))
        for cls, (path, attributes) in self.classes.items():
            yield from ((path, name) for name in _differences(attributes, vars(cls)))
        for scope, names in self.globals:
            now = {n: scope[n] for n in names if n in scope}
            yield from ((scope.get("__name__"), name) for name in _differences(names, now))
        yield from self._held.changes()

    def changed(self):
        """The first of them; None if there is none."""
        return next(self.changes(), None)

    def replaced(self):
        """The same of a weight or a buffer in whose place is another: what a call leaves there is
        the model's state, which a traced module would not have."""
        for path, module, _, tables in self.saved:
            for table in ("_parameters", "_buffers"):
                name = _difference(tables[table], getattr(module, table))
                if name:
                    return path, name
        return None

    def empty_caches(self):
        """What a run has put into caches of functions has no data."""
        for number, (cache, misses) in enumerate(self._caches):
            if cache.cache_info().misses != misses:
                cache.cache_clear()
                self._caches[number] = cache, 0

    def settle(self):
        """Sizes that the model's code has kept are plain numbers from now on."""
        for _, module, attributes, _ in self.saved:
            for name, item in module.__dict__.items():
                is_new = attributes.get(name) is not item and item not in self._held
                if name not in _PYTORCHS and is_new:
                    module.__dict__[name] = map_tree(plain_value, item)

    def refused(self, place):
        """Of code that does something else in the next call; ``place`` is what it has changed."""
        if place is None:
            return self._refused_unsteady()
        return self._refused(
            place,
            "forward sets the attribute '{}' and does something else when called again; expected "
            "calls that do not depend on earlier ones; register a buffer and write into it in "
            "place, pass the state as an argument, or, where it is a cache, call the model once "
            "before the trace",
        )

    def _refused_unsteady(self):
        name, line = self.unsteady[0]
        others = "".join(f", '{n}' ({at})" for n, at in self.unsteady[1:3])
        return ExportError(
            "[symbolic.trace] forward does something else when called again, and has changed "
            f"nothing; its code names '{name}' ({line}){others}; expected calls that depend on "
            "arguments, weights and attributes alone; pass what changes as an argument, or draw "
            "it with torch.rand()",
            location=line,
            module="",
        )

    def refused_replaced(self):
        return self._refused(
            self.replaced(),
            "forward puts another tensor in the place of '{}', which calls to come will see; "
            "expected weights and buffers to stay; write into it in place, as with copy_()",
        )

    def _refused(self, place, text):
        path, name = place
        where = f"{path}.{name}" if path else name
        modules = {p: m for p, m, _, _ in self.saved}
        module = modules.get(path) or modules.get("")  # of a global: the model
        line = line_of(type(module).forward) if module is not None else ""
        said, *advice = text.format(where).split("; ")
        said = "; ".join([f"{said} (forward: {line})" if line else said, *advice])
        return ExportError(f"[symbolic.trace] {said}", location=line, module=path)

    def restore(self):
        self.changed_by_code = set(self.changes())
        self.empty_caches()
        for _, module, attributes, tables in self.saved:
            for name, table in tables.items():
                current = getattr(module, name)
                if _difference(table, current):
                    current.clear()
                    current.update(table)
            if _difference(attributes, module.__dict__):
                module.__dict__.clear()
                module.__dict__.update(attributes)
        for cls, (_, attributes) in self.classes.items():
            while name := _difference(attributes, vars(cls)):
                if name in attributes:
                    setattr(cls, name, attributes[name])
                else:
                    delattr(cls, name)
        for scope, names in self.globals:
            scope.update((n, item) for n, item in names.items() if scope.get(n) is not item)
        self._held.restore()
        for item, key, _, iterator in self._stopped:
            _put(item, key, iterator)


def _hooks(module):
    for name in ("_forward_pre_hooks", "_forward_hooks"):
        yield from module.__dict__[name].values()


def _contents(item):
    """What a container or a plain object holds: a dictionary or a list, or bytes of numbers; None
    of anything else."""
    if isinstance(item, dict):  # whose class may make what it gives: its own code stays out of it
        ordered = isinstance(item, collections.OrderedDict)
        return dict((collections.OrderedDict if ordered else dict).items(item))
    if isinstance(item, (*_CONTAINERS, tuple, frozenset)):
        return list(item)
    if isinstance(item, types.FunctionType):
        return [] if is_foreign(item.__module__) else [*(item.__closure__ or ()), item.__defaults__]
    if isinstance(item, types.MethodType):
        return [item.__self__, item.__func__]
    if isinstance(item, functools.partial):
        return [item.func, item.args, item.keywords]
    if type(item) in (bytearray, array.array, *_generators(), *_arrays()):
        return _numbers(item)
    try:
        slots, inside = _slots(item), _vars(item)
        found = {**{n: getattr(item, n) for n in slots if hasattr(item, n)}, **inside}
    except Exception:  # an object that does not let itself be looked at
        return None
    return found if found or hasattr(item, "__dict__") else None


def _numbers(item):
    """What an array or a generator holds, as bytes; None of arrays of objects and very large ones,
    such as data."""
    if isinstance(item, _arrays()) and (item.dtype.hasobject or item.nbytes > _MOST_NUMBERS):
        return None
    return pickle.dumps(item)


def _put_back(item, contents):
    if isinstance(contents, bytes):
        _put_numbers_back(item, pickle.loads(contents))
    elif isinstance(item, _CONTAINERS):
        item.clear()
        (item.extend if isinstance(item, list | collections.deque) else item.update)(contents)
    elif isinstance(contents, dict):
        slots = _slots(item)
        for name in slots:
            if name in contents:
                object.__setattr__(item, name, contents[name])
            elif hasattr(item, name):
                object.__delattr__(item, name)
        inside = _vars(item)
        inside.clear()
        inside.update((k, v) for k, v in contents.items() if k not in slots)


def _stop(item, contents):
    """``(item, key, stand-in, iterator)`` of the iterators in an item. It has stand-ins from here
    on, and so have its contents."""
    if isinstance(contents, list) and not isinstance(item, list | collections.deque):
        return []  # no place can be set there
    pairs = contents.items() if isinstance(contents, dict) else enumerate(contents)
    stopped = [(item, key, HeldIterator(part), part) for key, part in pairs if is_bare(part)]
    for _, key, stand_in, _ in stopped:
        _put(item, key, stand_in)
        contents[key] = stand_in
    return stopped


def _put(item, key, value):
    if isinstance(item, _CONTAINERS):
        item[key] = value
    elif key in _slots(item):
        object.__setattr__(item, key, value)
    else:
        _vars(item)[key] = value


def _put_numbers_back(item, before):
    if isinstance(item, random.Random):
        item.setstate(before.getstate())
    elif not isinstance(item, _generators()):
        item[... if isinstance(item, _arrays()) else slice(None)] = before
    elif hasattr(item, "bit_generator"):
        item.bit_generator.state = before.bit_generator.state
    else:
        item.set_state(before.get_state())


def _generators():
    numpy_random = sys.modules.get("numpy.random")
    numpys = (numpy_random.Generator, numpy_random.RandomState) if numpy_random else ()
    return (random.Random, *numpys)


def _arrays():
    numpy = sys.modules.get("numpy")
    return (numpy.ndarray,) if numpy else ()


def _vars(item):
    return getattr(item, "__dict__", {})


def _slots(item):
    """Names of what an object holds in slots of its classes."""
    names = ["cell_contents"] if isinstance(item, types.CellType) else []
    for cls in type(item).__mro__:
        slots = vars(cls).get("__slots__", ())
        names += (slots,) if isinstance(slots, str) else slots
    return [n for n in names if n not in ("__dict__", "__weakref__")]


def _counted(item, before):
    """Places in an item where a number stood, and another one does by now."""
    for key, was in before.items() if isinstance(before, dict) else enumerate(before):
        if type(was) in (int, float):
            place = Place(item, key)
            now = place.value()
            if type(now) is type(was) and now != was:
                yield place


class Place:
    """Where a number stands: under a name or a key of a container, an object or a cell."""

    def __init__(self, item, key):
        self._item, self._key = item, key

    def value(self):
        contents = _contents(self._item)
        if isinstance(contents, dict):
            return contents.get(self._key)
        return contents[self._key] if self._key < len(contents) else None

    def put(self, value):
        _put(self._item, self._key, value)


def _is_same(before, after):
    if isinstance(before, bytes):
        return before == after
    if isinstance(before, dict):
        return _difference(before, after) is None
    return len(before) == len(after) and all(map(is_equal, before, after))


def is_equal(before, after):
    return before is after or (
        type(before) is type(after)
        and isinstance(before, bool | int | float | str)
        and before == after
    )


def _difference(before, after):
    return next(_differences(before, after), None)


def _differences(before, after):
    for name in dict.fromkeys((*after, *before)):
        if name not in before or name not in after:
            yield name
        elif before[name] is not after[name] and not is_equal(before[name], after[name]):
            yield name
