# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What users have told Kerf about functions and modules it does not know.

A registry is a value: make one, add rules, pass it to ``symbolic_trace(..., registry=...)`` or make
it the current one for a ``with`` block. What is registered without naming a registry goes into the
default one, which lasts as long as the process.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from kerf._arguments import TEXT, Kind, checked, found, shown
from kerf.symbolic._own_rules import add_own_rules

Rule = TypeVar("Rule", bound=Callable[..., Any])
Rules = dict[Any, Callable[..., Any]]


class Registry:
    """Rules by what they are for.

    shape_rules       function -> what returns its results, without data, from its arguments
    flop_rules        function -> what returns (forward, backward) from its arguments
    tracer_rules      function -> what is traced in its place
    bias_rules        the same, in force under ``bias_addition_split`` alone
    leaf_modules      classes that are one node, subclasses excluded
    non_leaf_modules  classes that are traced into, subclasses excluded
    leaf_rules        class -> what returns the results of a leaf, without data

    A registry falls back on its ``parent``: a new one starts from the default one's rules and keeps
    its own to itself. ``Registry(parent=None)`` starts empty.
    """

    _TABLES = ("shape_rules", "flop_rules", "tracer_rules", "bias_rules", "leaf_rules")

    def __init__(self, parent: Registry | str | None = "default") -> None:
        if parent == "default":
            parent = DEFAULT
        if not isinstance(parent, Registry | None):
            raise TypeError(
                f"[symbolic.Registry] parent is {found(parent)}; expected a registry, None or "
                "'default'"
            )
        self.parent: Registry | None = parent
        self.shape_rules: Rules = {}
        self.flop_rules: Rules = {}
        self.tracer_rules: Rules = {}
        self.bias_rules: Rules = {}
        self.leaf_rules: Rules = {}
        self.leaf_modules: set[type] = set()
        self.non_leaf_modules: set[type] = set()

    def find(self, table: str, key: Any) -> Callable[..., Any] | None:
        """The rule for a function or a class in ``table``, the nearest registry's first."""
        registry: Registry | None = self
        while registry is not None:
            rule = getattr(registry, table).get(key)
            if rule is not None:
                return rule  # type: ignore[no-any-return]
            registry = registry.parent
        return None

    def is_leaf(self, cls: type) -> bool | None:
        """Whether a class was declared to be one node; None where nobody has said anything."""
        registry: Registry | None = self
        while registry is not None:
            if cls in registry.non_leaf_modules:
                return False
            if cls in registry.leaf_modules or cls in registry.leaf_rules:
                return True
            registry = registry.parent
        return None

    def functions(self) -> list[Any]:
        """All functions that have a rule of any kind, in the order in which they were given one."""
        registry: Registry | None = self
        named: dict[Any, None] = {}
        while registry is not None:
            for table in ("shape_rules", "flop_rules", "tracer_rules"):
                named.update(dict.fromkeys(getattr(registry, table)))
            registry = registry.parent
        return list(named)

    def knows(self, function: Any) -> bool:
        """Whether a function has a rule here: another thread's trace may know others."""
        return any(self.find(t, function) for t in ("shape_rules", "flop_rules", "tracer_rules"))

    def add(self, table: str, key: Any) -> Callable[[Rule], Rule]:
        """A decorator that makes a function the rule for ``key``; a later rule replaces it."""

        def decorate(rule: Rule) -> Rule:
            if not callable(rule):
                raise TypeError(
                    f"[symbolic.register] the rule for {_name(key)} is {found(rule)}; expected a "
                    "function; decorate one"
                )
            getattr(self, table)[key] = rule
            return rule

        return decorate

    @contextlib.contextmanager
    def active(self) -> Iterator[Registry]:
        """Within the block, in this thread: traces, profiles and decorators use this registry."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    def __repr__(self) -> str:
        counts = [f"{len(getattr(self, t))} {t}" for t in self._TABLES if getattr(self, t)]
        return f"Registry({', '.join(counts) or 'empty'})"


DEFAULT = Registry(parent=None)
add_own_rules(DEFAULT)
_current: contextvars.ContextVar[Registry] = contextvars.ContextVar("kerf_registry")


REGISTRY = Kind(
    lambda value: isinstance(value, Registry), "a registry; make one with kerf.symbolic.Registry()"
)


def current_registry() -> Registry:
    """The registry of the innermost ``with registry.active()``, or else the default one."""
    return _current.get(DEFAULT)


@checked("symbolic.register_shape_impl", registry=REGISTRY)
def register_shape_impl(func: Any, registry: Registry | None = None) -> Callable[[Rule], Rule]:
    """Decorates what stands for ``func`` wherever only shapes matter.

    It is called with the arguments of ``func``, whose tensors have no data, and returns tensors of
    the right shape, dtype and device. A Python function with a rule is one node of a trace.
    """
    _check_function("register_shape_impl", func)
    return (registry or current_registry()).add("shape_rules", func)


@checked("symbolic.register_tracer_impl", name=TEXT, registry=REGISTRY)
def register_tracer_impl(
    func: Any, name: str = "_custom_impl", registry: Registry | None = None
) -> Callable[[Rule], Rule]:
    """Decorates what is traced in the place of ``func``.

    Inside the replacement ``func`` is the original. ``name="_bias_addition_impl"`` is for rules
    that are in force under ``bias_addition_split`` only.
    """
    # The names that Siu gives to its two tables of replacements.
    tables = {"_custom_impl": "tracer_rules", "_bias_addition_impl": "bias_rules"}
    if name not in tables:
        raise ValueError(
            f"[symbolic.register_tracer_impl] name is {shown(name)}; expected one of "
            f"{', '.join(map(repr, tables))}; leave it out for a rule that is always in force"
        )
    _check_function("register_tracer_impl", func)
    return (registry or current_registry()).add(tables[name], func)


@checked("symbolic.register_leaf_module", registry=REGISTRY)
def register_leaf_module(cls: type, registry: Registry | None = None) -> None:
    """Modules of exactly this class are one ``call_module`` node of a trace."""
    registry = registry or current_registry()
    _check_class("register_leaf_module", cls)
    registry.non_leaf_modules.discard(cls)
    registry.leaf_modules.add(cls)


@checked("symbolic.register_non_leaf_module", registry=REGISTRY)
def register_non_leaf_module(cls: type, registry: Registry | None = None) -> None:
    """Modules of exactly this class are traced into, whatever they are."""
    registry = registry or current_registry()
    _check_class("register_non_leaf_module", cls)
    registry.leaf_modules.discard(cls)
    registry.non_leaf_modules.add(cls)


@checked("symbolic.register_leaf_module_impl", registry=REGISTRY)
def register_leaf_module_impl(
    cls: type, registry: Registry | None = None
) -> Callable[[Rule], Rule]:
    """Decorates what gives the results of a leaf module, without data, while it is traced.

    It is called with the arguments of the call, without the module. Its class becomes a leaf; the
    traced module calls the real one.
    """
    _check_class("register_leaf_module_impl", cls)
    return (registry or current_registry()).add("leaf_rules", cls)


def _check_function(where: str, func: Any) -> None:
    if not callable(func) or isinstance(func, type):
        raise TypeError(
            f"[symbolic.{where}] func is {found(func)}; expected a function, such as "
            "torch.nn.functional.linear; modules are registered with register_leaf_module_impl"
        )


def _check_class(where: str, cls: Any) -> None:
    if not isinstance(cls, type):
        raise TypeError(
            f"[symbolic.{where}] cls is {found(cls)}; expected a class of modules; pass the class, "
            "not a module"
        )


def _name(key: Any) -> str:
    return getattr(key, "__qualname__", None) or str(key)
