# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a model's code takes from outside of its modules: global numbers, and functions that it
calls by a global name, through a class or through ``super()``.

Found without running anything, from functions that the model's modules gave when they were traced.
"""

import types

from kerf._places import globals_of, is_foreign, names_in
from kerf._plain import contents_of, describe, function_of, is_code
from kerf._reads import find, is_watchable, look_up, own_attributes
from kerf._state import hooks_of

_MOST = 4000  # functions
_NUMBERS = (bool, int, float, complex, str, type(None))


def names_used(model, names):
    """All names of attributes in the code that begins with these functions."""
    return {name for f, _ in _reached(model, names) for name in names_in(f.__code__)[1]}


def outside_of(model, names):
    """``{name: (value, link)}`` of the numbers and functions that code takes from outside. It
    begins with the functions of ``names``: ``(path, attribute)``."""
    found = {}
    for function, used in _reached(model, names):
        for name, value, link, _ in used:
            if function_of(value) is not None or (is_plain(value) and not _is_library(function)):
                found.setdefault(name, (value, link))
    return found


def reached_functions(model, names):
    """The functions of code that begins with these, those of PyTorch left out."""
    return (function for function, _ in _reached(model, names))


def _reached(model, names):
    """``(function, what it uses)``, one after the other."""
    seen = set()
    waiting = [(function, type(holder)) for holder, function in _roots(model, names)]
    while waiting and len(seen) < _MOST:
        function, cls = waiting.pop()
        if id(function) in seen or is_foreign(function.__module__):
            continue
        seen.add(id(function))
        used = list(_used_by(function, cls))
        waiting += [(function_of(v), of) for _, v, _, of in used if function_of(v) is not None]
        yield function, used


def _roots(model, names):
    for path, name in names:
        holder = find(model, path)
        for _, value in contents_of(look_up(holder, name)[0]):
            if function_of(value) is not None:
                yield holder, function_of(value)
    for _, _, hooks in hooks_of(model):
        for hook in hooks.values():
            for _, value in contents_of(hook):
                if function_of(value) is not None:
                    yield model, function_of(value)


def _used_by(function, cls):
    """``(name, value, link, class)`` of globals, of what is named in classes and objects among
    them, and of what the classes above that of the function have by the names it uses."""
    named, attributes = names_in(function.__code__)
    for name, value, link in globals_of(function):
        yield name, value, link, cls
        if isinstance(value, type) and not is_foreign(value.__module__):
            yield from _of_class(value, attributes)
        elif is_watchable(value) and not is_code(value):
            own = own_attributes(value)
            for attribute in sorted(attributes & own.keys()) if type(own) is dict else ():
                link = ("entry", own, attribute)
                yield f"{name}.{attribute}", own[attribute], link, cls
    if "super" in named:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        at = cells.get("__class__")
        own = at.cell_contents if at is not None and at != types.CellType() else cls
        above = cls.__mro__[cls.__mro__.index(own) + 1 :] if own in cls.__mro__ else ()
        for base in above:
            if not is_foreign(base.__module__):
                yield from ((*found[:3], cls) for found in _of_class(base, attributes))


def _of_class(cls, attributes):
    for attribute in sorted(attributes & vars(cls).keys()):
        link = ("class", cls, attribute)
        yield f"{cls.__module__}.{cls.__qualname__}.{attribute}", vars(cls)[attribute], link, cls


def all_code(model):
    """``(path, attribute)`` of all functions that the modules of a model could give."""
    for path, module in model.named_modules():
        for cls in type(module).__mro__:
            if not is_foreign(cls.__module__):
                yield from ((path, name) for name in vars(cls))
        yield from ((path, name) for name, v in module.__dict__.items() if callable(v))


def numbers_in(found):
    """The part of what ``outside_of`` found that is no function, described."""
    return {n: describe(v) for n, (v, _) in found.items() if function_of(v) is None}


def _is_library(function):
    """What is global in a library are its own settings, which its models do not depend on."""
    return "site-packages" in function.__code__.co_filename


def is_plain(value, depth=0):
    if isinstance(value, (list, tuple, dict)):
        items = value.values() if isinstance(value, dict) else value
        return depth < 3 and len(items) < 100 and all(is_plain(v, depth + 1) for v in items)
    return isinstance(value, _NUMBERS)


def put_back_plain(link, was):
    """Puts a number of a global back; what is in a container is left as a call leaves it."""
    kind, holder, key = link
    if kind == "entry" and isinstance(was, _NUMBERS):
        holder[key] = was
