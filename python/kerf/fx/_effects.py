# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What nodes do to memory: whose they may share, and whose they change in place.

Of operators it is known from their schemas (``kerf._schema``) and from the core's table of what
those leave out, as in ``kerf.trace``. Functions and methods have names: PyTorch's end in one
underscore when they change their first argument. What is not PyTorch's has no effects.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from kerf import _core, _schema
from kerf.fx._modules import Modules

# Functions and methods that are no operators, and may return their first argument or a view of it.
_VIEWS = frozenset(
    "T mT H mH __getitem__ getitem as_tensor asarray bfloat16 bool byte cdouble cfloat chalf char "
    "copy cpu cuda data double dropout1d dropout2d dropout3d float get half int items keys long "
    "numpy pop short type values xpu".split()
)
# May return views of any argument.
_HOLDERS = frozenset("dict iter list next reversed tuple zip".split())
# Attributes that say something about a tensor and share nothing with it.
_FACTS = frozenset(
    "device dtype grad_fn is_cpu is_cuda is_leaf itemsize layout name names nbytes ndim output_nr "
    "requires_grad shape".split()
)
_CHANGES = frozenset("append clear delitem extend insert remove setitem update".split())
_IN_PLACE = frozenset(
    "iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv "
    "ixor".split()
)
_DUNDERS = frozenset(f"__{name}__" for name in (*_IN_PLACE, "setitem", "delitem"))
_SAME = (nn.Flatten, nn.Identity, nn.Unflatten)
_STUBS = {"QuantStub", "DeQuantStub"}
_CALLS = frozenset({"call_function", "call_method", "call_module"})
_ROOTS = {"", "_operator", "builtins", "operator", "torch"}
_NAMESPACES = ("aten", "_c10d_functional")  # of PyTorch's own operators


class Rule(NamedTuple):
    """Which arguments of one target are changed or shared, by position or name."""

    names: tuple[str, ...] = ()  # of the parameters, where they are known
    changed: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    all_changed: bool = False
    all_shared: bool = False
    known: bool = True  # a target of PyTorch's
    hidden: tuple[str, ...] = ()  # parameters that are changed, unsaid, ...
    flag: str = ""  # ... when this one is True
    flag_preset: bool = False  # what it is when a call does not give it

    def changes_nothing(self) -> bool:
        """Whatever it is called with, but for ``out``."""
        speaks = "inplace" in self.names or self.hidden
        return not (self.changed or self.all_changed or self.all_shared or speaks)


_NOTHING = Rule(known=False)


def _nodes(argument: Any) -> list[Node]:
    found: dict[Node, None] = {}
    map_arg(argument, lambda node: found.setdefault(node))
    return list(found)


def _at(node: Node, rule: Rule, position: int) -> Any:
    """The argument of a call; the first one whatever its name."""
    if position < len(node.args):
        return node.args[position]
    if position < len(rule.names) and rule.names[position] in node.kwargs:
        return node.kwargs[rule.names[position]]
    names = ("input", "self", *node.kwargs) if position == 0 and not node.args else ()
    return next((node.kwargs[name] for name in names if name in node.kwargs), None)


def _named(node: Node, rule: Rule, name: str) -> Any:
    if name in node.kwargs:
        return node.kwargs[name]
    position = rule.names.index(name) if name in rule.names else len(node.args)
    return node.args[position] if position < len(node.args) else None


def _is_set(node: Node, rule: Rule) -> bool:
    """Does a call change what its target hides?"""
    given = _named(node, rule, rule.flag)
    return given is True or (given is None and rule.flag_preset)


def _ends_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _of_overloads(overloads: Iterable[OpOverload]) -> Rule:
    """What any of them does."""
    names: tuple[str, ...] = ()
    changed: set[int] = set()
    shared: set[int] = set()
    for overload in overloads:
        operator = _schema.operator_of(overload)
        own = tuple(operator.parameters)
        names = max(names, own, key=len)
        changed.update(map(own.index, operator.written))
        shared.update(map(own.index, _schema.shared_parameters(overload)))
    return Rule(names, tuple(sorted(changed)), tuple(sorted(shared)))


def _overloads(packet: OpOverloadPacket) -> list[OpOverload]:
    return [getattr(packet, name) for name in packet.overloads()]


@cache
def _hidden_sharing(name: str) -> str:
    """Of the operator that goes by a name: "first", "any" or "none"."""
    found = {_core.hidden_sharing(f"{namespace}.{name}") for namespace in _NAMESPACES}
    return next((sharing for sharing in ("any", "first") if sharing in found), "none")


@cache
def _shares_first(name: str) -> bool:
    """By its own list, or by what PyTorch's operator of the name does."""
    if name in _VIEWS or _hidden_sharing(name) == "first":
        return True
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    return isinstance(packet, OpOverloadPacket) and 0 in _of_overloads(_overloads(packet)).shared


def _of_name(name: str, names: tuple[str, ...] = ()) -> Rule:
    if name in _HOLDERS or _hidden_sharing(name) == "any":
        return Rule(names, all_shared=True)
    if name in _CHANGES or name in ("__setitem__", "__delitem__"):
        return Rule(names, changed=(0,))
    if _ends_in_place(name) or name in _IN_PLACE or name in _DUNDERS:
        return Rule(names, changed=(0,), shared=(0,))
    return Rule(names, shared=(0,)) if _shares_first(name) else Rule(names)


def _with_hidden_writes(rule: Rule, name: str, target: Any = None) -> Rule:
    found = _core.hidden_writes(f"aten.{name}")
    if found is None:
        return rule
    flag, hidden = found
    return rule._replace(hidden=tuple(hidden), flag=flag, flag_preset=_preset(target, flag) is True)


def _of_operator(overloads: Iterable[OpOverload], name: str) -> Rule:
    """What schemas say, and what they keep to themselves."""
    rule = _with_hidden_writes(_of_overloads(overloads), name)
    silent = name in _VIEWS or _hidden_sharing(name) == "first"
    return rule._replace(
        all_shared=name in _HOLDERS or _hidden_sharing(name) == "any",
        shared=tuple(sorted({*rule.shared, *([0] if silent else [])})),
    )


@cache
def _parameters(target: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(target).parameters)
    except (TypeError, ValueError):  # built-in ones have none
        return ()


def _preset(target: Any, name: str) -> Any:
    try:
        return inspect.signature(target).parameters[name].default
    except (KeyError, TypeError, ValueError):
        return None


def _is_known(target: Any) -> bool:
    owner = getattr(target, "__objclass__", None)  # torch.Tensor.add_
    module = getattr(owner or target, "__module__", None) or ""
    return module.split(".")[0] in _ROOTS


@cache
def _of_function(target: Any) -> Rule:
    if isinstance(target, OpOverload):
        return _of_operator([target], target._schema.name.split("::")[-1])
    if isinstance(target, OpOverloadPacket):
        return _of_operator(_overloads(target), target.__name__)
    if isinstance(target, HigherOrderOperator):
        return Rule(all_shared=True, all_changed="mutation" in target.name())
    if not _is_known(target):
        return _NOTHING
    name = getattr(target, "__name__", "")
    return _with_hidden_writes(_of_name(name, _parameters(target)), name, target)


def _of_module(module: Any) -> Rule:
    if getattr(module, "inplace", False) is True:
        return Rule(changed=(0,), shared=(0,))
    idle = isinstance(module, nn.modules.dropout._DropoutNd) and not (module.training and module.p)
    if idle or isinstance(module, _SAME) or type(module).__name__ in _STUBS:
        return Rule(shared=(0,))
    return _NOTHING


def _by_words(node: Node, rule: Rule) -> list[Any]:
    """What a call asks to be changed."""
    if node.op != "call_function" or not rule.known:
        return []
    found = [node.kwargs["out"]] if node.kwargs.get("out") is not None else []
    return [*found, _at(node, rule, 0)] if _named(node, rule, "inplace") is True else found


class _Reader:
    """Answers about the nodes of one module."""

    def __init__(self, modules: Modules) -> None:
        self.attribute: Callable[[str], Any] = modules.attribute
        self._modules: dict[str, Rule] = {}
        self._quiet: defaultdict[str, dict[Any, bool]] = defaultdict(dict)  # by op

    def rule(self, node: Node) -> Rule:
        match node.op:
            case "call_function":
                return _of_function(node.target)
            case "call_method":
                return _of_name(node.target)
            case "call_module":
                path = node.target
                if path not in self._modules:
                    self._modules[path] = _of_module(self.attribute(path))
                return self._modules[path]
        return _NOTHING

    def may_change(self, node: Node) -> bool:
        """Quickly, by the target: most nodes change nothing."""
        quiet = self._quiet[node.op]
        target = node.target
        if target not in quiet:
            quiet[target] = self.rule(node).changes_nothing()
        words = node.kwargs
        return not quiet[target] or bool(words and ("out" in words or "inplace" in words))

    def changed(self, node: Node) -> list[Node]:
        """The inputs that a node changes in place."""
        rule = self.rule(node)
        if rule.all_changed or (rule.all_shared and self._changes_inside(node)):
            return list(node.all_input_nodes)
        found = [_at(node, rule, position) for position in rule.changed]
        found += _by_words(node, rule)
        if rule.hidden and _is_set(node, rule):
            found += [_named(node, rule, name) for name in rule.hidden]
        return _nodes(found) if found else []

    def _changes_inside(self, node: Node) -> bool:
        """Does a body that an operator is given change anything?"""
        if not isinstance(node.target, HigherOrderOperator):
            return False
        bodies = [self.attribute(n.target) for n in node.all_input_nodes if n.op == "get_attr"]
        return any(_changes_anything(b) for b in bodies if isinstance(b, GraphModule))

    def shared(self, node: Node) -> list[Node]:
        """The inputs whose memory the result of a node may share."""
        rule = self.rule(node)
        if rule.all_shared:
            return list(node.all_input_nodes)
        if node.op == "call_function" and node.target is getattr:
            fact = node.args[1] in _FACTS
            return [] if fact else _nodes(node.args[0])
        found = [_at(node, rule, position) for position in rule.shared]
        found += _by_words(node, rule)
        return _nodes(found) if found else []


def _changes_anything(module: GraphModule) -> bool:
    reader = _Reader(Modules(module))
    return any(reader.changed(node) for node in module.graph.nodes)


def _same_memory(nodes: Sequence[Node], modules: Modules) -> Iterator[tuple[int, int]]:
    """Constants that are read twice, or are views of one another: each with the first."""
    first: dict[int, int] = {}
    for i, node in enumerate(nodes):
        if node.op == "get_attr":
            for storage, _ in modules.weights(node.target):
                if first.setdefault(storage, i) != i:
                    yield i, first[storage]


def effects(nodes: Sequence[Node], modules: Modules) -> dict[str, list[tuple[int, int]]]:
    """Pairs of a node and an input, by position. Where nothing changes, it matters to none."""
    reader = _Reader(modules)
    calls = [node for node in nodes if node.op in _CALLS]
    mutates = [(n, i) for n in calls if reader.may_change(n) for i in reader.changed(n)]
    if not mutates:
        return {}
    aliases = [(node, i) for node in calls for i in reader.shared(node)]
    index = {node: i for i, node in enumerate(nodes)}
    return {
        "aliases": [(index[n], index[i]) for n, i in aliases] + [*_same_memory(nodes, modules)],
        "mutates": [(index[n], index[i]) for n, i in mutates],
    }
