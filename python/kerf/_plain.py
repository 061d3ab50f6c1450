# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Attributes as plain data: what can be written into a graph and compared later.

Numbers, texts and nested lists stand for themselves. The rest is a list that begins with its kind:
``["dict", [key, value], ...]``, ``["code", "Mlp.forward", "3.11:5f3a..."]``, ``["object",
"Config"]``. Code is told apart by its instructions, constants, defaults and what it closes over;
PyTorch's own functions by name alone, since they change from one version to the next.
"""

import argparse
import collections
import contextvars
import enum
import functools
import hashlib
import numbers
import sys
import types

import torch

from kerf._arguments import shortened, told_apart

NAMESPACES = (types.SimpleNamespace, argparse.Namespace)  # described by what is in them

_LONGEST = 4096  # characters; longer data is kept as a digest
_DEEPEST = 8
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_SYMBOLS = tuple(torch.types.py_sym_types)
_CODE = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    functools.partial,
    functools.cached_property,
    property,
    staticmethod,
    classmethod,
)

ABSENT = ["absent"]
_weights = contextvars.ContextVar("weights", default=None)


def describe(value, weights=None):
    """``value`` as plain data.

    A tensor inside a container, or one that code closes over, has no name in the model, and a graph
    holds its numbers: they count when the ids of the model's own weights are given, which do not.
    """
    token = _weights.set(weights)
    try:
        found = _describe(value, ())
    finally:
        _weights.reset(token)
    if isinstance(found, (str, list)):
        text = found if isinstance(found, str) else repr(found)
        if len(text) > _LONGEST:
            return ["digest", type(value).__name__, _digest(text)]
    return found


def same(a, b):
    """Equal in type and value; code that was compiled by another Python is told by its name."""
    if _is_code(a) and _is_code(b) and a[2] and b[2] and _python(a) != _python(b):
        return a[1] == b[1]
    if isinstance(a, list) and isinstance(b, list):
        if _is_tensor(a) and _is_tensor(b) and min(len(a), len(b)) == 3:
            return a[:3] == b[:3]  # the numbers of one are not known: on an accelerator, or many
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)  # not ==: 1, 1.0 and True differ, and nan is what it was


def _python(code):
    return code[2].split(":")[0]


def show(found):
    """Plain data as it reads in a message."""
    return shortened(_show(found))


def show_both(now, was):
    """Two that differ: the texts differ too."""
    texts = _show(now), _show(was)
    if texts[0] != texts[1]:
        return told_apart(*texts)
    return shortened(texts[0]), "another of that name" if _is_code(was) else "one of other contents"


def _show(found):
    if not isinstance(found, list):
        return repr(found)
    kind = found[0] if found and isinstance(found[0], str) else ""
    try:
        text = _KINDS[kind](*found[1:]) if kind in _KINDS else ""
    except (ValueError, TypeError, IndexError, AttributeError):
        text = ""  # from a file, and of no kind that Kerf writes
    if text or kind:
        return text or repr(found)
    return f"[{', '.join(map(_show, found))}]"


def _show_partial(function, arguments, keywords):
    named = (f"{name}={_show(value)}" for name, value in keywords[1:])
    return f"partial({', '.join([_show(function), *map(_show, arguments), *named])})"


_KINDS = {
    "code": lambda name, digest: f"the function {name.removeprefix('_VariableFunctionsClass.')}",
    "partial": _show_partial,
    "object": lambda name, *path: f"a {name}",
    "module": lambda name: f"a {name}",
    "class": lambda name: f"the class {name}",
    "enum": lambda *names: ".".join(names),
    "dtype": lambda name: f"torch.{name}",
    "dict": lambda *pairs: "{" + ", ".join(f"{_show(k)}: {_show(v)}" for k, v in pairs) + "}",
    "set": lambda *items: "{" + ", ".join(map(_show, items)) + "}" if items else "set()",
    "digest": lambda name, digest: f"a long {name}",
    "tensor": lambda dtype="", shape=(), *digest: f"a {_typed(dtype, shape)}tensor",
    "ndarray": lambda dtype, shape, digest: f"a {_typed(dtype, shape)}ndarray",
    "symbol": lambda: "a symbol",
    "device": lambda: "a device",
}


def _typed(dtype, shape):
    return f"{dtype.removeprefix('torch.')}[{', '.join(map(str, shape))}] " if dtype else ""


def contents_of(value, path="", depth=0):
    """``(path, value)`` of a value and of all that is in it: see ``items_of``."""
    yield path, value
    for key, item in items_of(value) if depth < _DEEPEST else ():
        yield from contents_of(item, f"{path}.{key}", depth + 1)


def items_of(value):
    """``(key, item)`` of what is inside a value and counts when it is described: the items of
    containers, and what code closes over or has as defaults."""
    if isinstance(value, NAMESPACES):
        value = vars(value)
    if isinstance(value, dict):
        return list(dict.items(value))
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if isinstance(value, functools.partial):
        return [*enumerate((value.func, *value.args)), *value.keywords.items()]
    function = function_of(value)
    if function is None:
        return []
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    cells = zip(code.co_freevars, function.__closure__ or ())
    filled = [(name, c.cell_contents) for name, c in cells if not _is_empty(c)]
    return [*filled, *zip(names, defaults), *(function.__kwdefaults__ or {}).items()]


def function_of(value):
    """The Python function behind a method, a property and the like; None for PyTorch's own."""
    value = _unwrapped(value)
    own = isinstance(value, types.FunctionType)
    return value if own and (value.__module__ or "").split(".")[0] != "torch" else None


def _unwrapped(value):
    if isinstance(value, functools.cached_property):
        value = value.func
    if isinstance(value, property):
        value = value.fget
    return getattr(value, "__func__", value) if isinstance(value, _CODE) else value


def is_code(value):
    return isinstance(value, (*_CODE, type))


def _is_code(found):
    texts = isinstance(found, list) and all(isinstance(part, str) for part in found)
    return texts and len(found) == 3 and found[0] == "code"


def _is_tensor(found):
    return found[:1] == ["tensor"] and len(found) > 2 and isinstance(found[2], list)


def _describe(value, above):
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else ["int", str(value)]
    if isinstance(value, torch.Tensor):
        own = _weights.get()
        return ["tensor"] if not above or own is None or id(value) in own else _tensor(value)
    if isinstance(value, _SYMBOLS):
        return ["symbol"]
    if isinstance(value, enum.Enum):
        return ["enum", kind.__name__, value.name]
    if isinstance(value, torch.dtype):
        return ["dtype", str(value).removeprefix("torch.")]
    if isinstance(value, torch.device):
        return ["device"]  # a plan says where things run
    if isinstance(value, torch.nn.Module):
        return ["module", kind.__name__]
    if isinstance(value, (list, tuple, dict, set, frozenset, collections.deque)):
        return _describe_container(value, above)
    if is_code(value):
        return _describe_code(value, above)
    if isinstance(value, (bytes, range, slice, torch.layout, torch.memory_format)):
        return [kind.__name__, repr(value)]
    if isinstance(value, (numbers.Number, str)):
        return [kind.__name__, str(value)]
    if kind.__module__ == "numpy":
        return _describe_numpy(value)
    return ["object", kind.__name__]


def _describe_container(value, above):
    if id(value) in above:
        return ["cycle"]
    above = (*above, id(value))
    if isinstance(value, dict):
        items = dict.items(value)
        return ["dict", *([_describe(k, above), _describe(v, above)] for k, v in items)]
    if isinstance(value, (set, frozenset)):
        return ["set", *sorted((_describe(v, above) for v in value), key=repr)]
    return [_describe(v, above) for v in value]


def _describe_numpy(value):
    if not hasattr(value, "tobytes"):
        return ["object", type(value).__name__]
    digest = hashlib.sha256(value.tobytes()).hexdigest()[:16]
    return [type(value).__name__, str(value.dtype), list(value.shape), digest]


def _describe_code(value, above):
    if isinstance(value, type):
        return ["class", value.__qualname__]
    if isinstance(value, functools.partial):
        parts = [value.func, value.args, value.keywords]
        return ["partial", *(_describe(p, above) for p in parts)]
    value = _unwrapped(value)
    name = getattr(value, "__qualname__", type(value).__name__)
    function = function_of(value)
    digest = f"{_PYTHON}:{_digest(repr(_function(function, above)))}" if function else ""
    return ["code", name, digest]


def _function(function, above):
    """Instructions, constants, defaults, and what it closes over."""
    if id(function) in above or len(above) > _DEEPEST:
        return "..."
    above = (*above, id(function))
    return [
        _code(function.__code__),
        _describe(function.__defaults__, above),
        _describe(function.__kwdefaults__, above),
        [_cell(c, above) for c in function.__closure__ or ()],
    ]


def _cell(cell, above):
    return "empty" if _is_empty(cell) else _describe(cell.cell_contents, above)


def _is_empty(cell):
    return cell == types.CellType()


def _tensor(tensor):
    found = ["tensor", str(tensor.dtype), list(map(str, tensor.shape))]
    if type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.numel() <= 1 << 20:
        found.append(_digest(repr(tensor.detach().reshape(-1).tolist())))
    return found


def _code(code):
    constants = [
        _code(c)
        if isinstance(c, types.CodeType)
        else sorted(map(repr, c))
        if isinstance(c, frozenset)
        else repr(c)
        for c in code.co_consts
    ]
    return [code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars]


def _digest(text):
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
