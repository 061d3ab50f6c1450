# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments of compiled functions, said the way all others are.

pybind11 answers a call that it cannot match with its own signature, the types of C++ and the texts
of all arguments. ``guard`` wraps what a compiled module offers, so that the answer names the
argument, what it is and what was expected. Importing this module guards ``kerf._core``.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from types import FunctionType, ModuleType, WrapperDescriptorType
from typing import Any

from kerf import _core
from kerf._arguments import KINDS, bind, check, found, is_whole, shown
from kerf._graph_of import as_graph

_MISMATCH = ("incompatible function arguments", "incompatible constructor arguments")
# What the package offers as it is: checked before the call, for bounds too.
_PUBLIC = {
    *("simulate", "estimate", "compare_timelines", "load_graph", "load_plan", "load_profile"),
    *("load_cluster", "load_timeline", "memory"),
}
# Take a module that was profiled symbolically where they take a graph.
_TAKES_MODULES = {"kerf.estimate", "kerf.memory"}
_NO_CONSTRUCTOR = "cannot be made directly; expected one from {}; call that"
_MADE_BY = {
    "Graph": "kerf.trace or kerf.load_graph",
    "Plan": "kerf.plan or kerf.load_plan",
    "Profile": "kerf.profile, kerf.estimate, kerf.load_profile or kerf.Profile.from_times",
    "Timeline": "kerf.simulate, kerf.load_timeline or a recorded call of a kerf.Pipeline",
    "Infeasible": "kerf.InfeasibleError.infeasible",
    "Comparison": "kerf.compare",
}


def guard(module: ModuleType) -> None:
    """Wraps the functions of a compiled module and the methods of its classes."""
    for name, value in list(vars(module).items()):
        if name.startswith("_"):
            continue
        if isinstance(value, type):
            if not issubclass(value, BaseException):
                _guard_class(value)
        elif callable(value):
            setattr(module, name, _guarded(value, f"kerf.{name}", name, name in _PUBLIC))


def _guard_class(cls: type) -> None:
    name = f"kerf.{cls.__name__}"
    public = cls.__name__ in {*_MADE_BY, "Cluster"}
    for attribute, value in list(vars(cls).items()):
        if isinstance(value, staticmethod):
            wrapped = _guarded(value.__func__, f"{name}.{attribute}", attribute, public)
            setattr(cls, attribute, staticmethod(wrapped))
        elif isinstance(value, property) and value.fset is not None:
            setter = _guarded(value.fset, f"{name}.{attribute}", attribute, public)
            setattr(cls, attribute, property(value.fget, setter, None, value.__doc__))
        elif attribute == "__init__" and not isinstance(value, WrapperDescriptorType):
            cls.__init__ = _guarded(value, name, attribute, public)  # type: ignore[misc]
        elif not attribute.startswith("_") and inspect.isroutine(value):
            setattr(cls, attribute, _guarded(value, f"{name}.{attribute}", attribute, public))
    if not isinstance(inspect.getattr_static(cls, "__init__"), FunctionType):  # none was bound
        cls.__init__ = _refused(cls.__name__)  # type: ignore[misc]


def _refused(name: str) -> Callable[..., None]:
    def refuse(self: object, *args: Any, **kwargs: Any) -> None:
        made_by = _MADE_BY.get(name, "the object that holds it")
        raise TypeError(f"[kerf.{name}] {_NO_CONSTRUCTOR.format(made_by)}")

    return refuse


def _guarded(
    function: Callable[..., Any], where: str, name: str, public: bool
) -> Callable[..., Any]:
    signature = _signature(function)
    bounded = public and any(n in KINDS for n in signature.parameters)
    takes_modules = where in _TAKES_MODULES

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if takes_modules:
            args = tuple(map(as_graph, args))
            kwargs = {key: as_graph(value) for key, value in kwargs.items()}
        if bounded:
            _check(where, signature, bind(where, signature, args, kwargs))
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if not any(text in str(error) for text in _MISMATCH):
                raise
        _explain(where, signature, bind(where, signature, args, kwargs))

    call.__name__ = name
    call.__qualname__ = where.removeprefix("kerf.")
    return call


def _check(where: str, signature: inspect.Signature, given: dict[str, Any]) -> None:
    for name, value in given.items():
        parameter = signature.parameters[name]
        if name not in KINDS or shown(value) == parameter.default:
            continue
        check(where, name, value, KINDS[name])


def _explain(where: str, signature: inspect.Signature, given: dict[str, Any]) -> None:
    """Raises the TypeError or ValueError that says what is wrong with a call that was refused."""
    _check(where, signature, given)
    given.pop("self", None)  # in a constructor it is not there yet, and must not be touched
    for name, value in given.items():
        if is_whole(value) and not -(2**31) <= value.__index__() < 2**31:
            raise ValueError(f"[{where}] {name} is {shown(value)}; expected a number that fits")
    wanted = [p for p in signature.parameters.values() if p.name != "self"]
    takes = ", ".join(f"{p.name}: {p.annotation}" for p in wanted)
    texts = ", ".join(f"{name} = {found(value)}" for name, value in given.items())
    raise TypeError(f"[{where}] the arguments are {texts}; expected {takes}")


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Names, types and defaults as pybind11 writes them into the docstring's first line."""
    first = (function.__doc__ or "").partition("\n")[0]
    inside = first.partition("(")[2].rpartition(" -> ")[0].rpartition(")")[0]
    parameters = []
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for text in _split(inside):
        if text == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        head, has_default, default = text.partition(" = ")
        name, _, annotation = head.partition(": ")
        if name.startswith("*") or not name.isidentifier():
            continue
        parameters.append(
            inspect.Parameter(
                name,
                kind,
                annotation=_plain(annotation),
                default=default if has_default else inspect.Parameter.empty,
            )
        )
    return inspect.Signature(parameters)


def _split(text: str) -> list[str]:
    """At commas that stand in no bracket or string."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"'[^']*'|\"[^\"]*\"|[\[({]|[\])}]|, ", text):
        token = match.group()
        if token in "[({":
            depth += 1
        elif token in "])}":
            depth -= 1
        elif token == ", " and depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]] if text else []


def _plain(annotation: str) -> str:
    """The type as a user knows it: no module names, int and float for what converts to them."""
    text = annotation.replace("typing.SupportsInt | typing.SupportsIndex", "int")
    text = text.replace("typing.SupportsFloat | typing.SupportsIndex", "float")
    text = text.replace("typing.SupportsInt", "int").replace("typing.SupportsFloat", "float")
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text)


guard(_core)
