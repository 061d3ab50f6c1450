# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What nodes do to memory: whose they may share, and whose they change in place.

Where an operator has a schema, that says it. Else names do: PyTorch's end in one underscore when
they change their first argument. Functions and modules that are not PyTorch's have no effects.
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

from kerf.fx._modules import Modules

# May return their first argument, or a view of it, though no schema says so.
_VIEWS = frozenset(
    "T mT H mH __getitem__ getitem _unsafe_view alpha_dropout as_tensor asarray bfloat16 bool byte "
    "cdouble cfloat chalf char copy cpu cuda data double dropout dropout1d dropout2d dropout3d "
    "feature_alpha_dropout feature_dropout float get half int items keys long numpy pop short "
    "sum_to_size to_dense type type_as values wait_tensor xpu".split()
)
# May return views of any argument.
_HOLDERS = frozenset(
    "atleast_1d atleast_2d atleast_3d broadcast_tensors cartesian_prod combinations dict einsum "
    "iter list meshgrid next reversed tuple zip".split()
)
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
_STATISTICS = ("running_mean", "running_var")  # batch_norm changes them, and its schema is silent
_TRAINING = ("training", "train", "use_input_stats")
_SAME = (nn.Flatten, nn.Identity, nn.Unflatten)
_STUBS = {"QuantStub", "DeQuantStub"}
_CALLS = frozenset({"call_function", "call_method", "call_module"})
_ROOTS = {"", "_operator", "builtins", "operator", "torch"}


class Rule(NamedTuple):
    """Which arguments of one target are changed or shared, by position or name."""

    names: tuple[str, ...] = ()  # of the parameters, where they are known
    changed: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    all_changed: bool = False
    all_shared: bool = False
    known: bool = True  # a target of PyTorch's

    def changes_nothing(self) -> bool:
        """Whatever it is called with, but for ``out``."""
        speaks = "inplace" in self.names or _STATISTICS[0] in self.names
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


def _sets(info: Any) -> set[str]:
    """The memories of an argument or result; "*" is any: lists do not say which."""
    return (info.before_set | info.after_set or {"*"}) if info is not None else set()


def _ends_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _of_schemas(schemas: Iterable[Any]) -> Rule:
    """What any of the overloads does."""
    names: tuple[str, ...] = ()
    changed, shared = set(), set()
    for schema in schemas:
        in_place = _ends_in_place(schema.name)
        names = max(names, tuple(a.name for a in schema.arguments), key=len)
        returned: set[str] = set().union(*(_sets(r.alias_info) for r in schema.returns))
        for position, argument in enumerate(schema.arguments):
            own = _sets(argument.alias_info)
            if own & returned or (own and returned and "*" in own | returned):
                shared.add(position)
            if own and (argument.alias_info.is_write or (position == 0 and in_place)):
                changed.add(position)
    return Rule(names, tuple(sorted(changed)), tuple(sorted(shared)))


def _schemas(packet: OpOverloadPacket) -> list[Any]:
    return [getattr(packet, name)._schema for name in packet.overloads()]


@cache
def _shares_first(name: str) -> bool:
    """By its own list, or by what PyTorch's operator of the name says."""
    if name in _VIEWS:
        return True
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    return isinstance(packet, OpOverloadPacket) and 0 in _of_schemas(_schemas(packet)).shared


def _of_name(name: str, names: tuple[str, ...] = ()) -> Rule:
    if name in _HOLDERS:
        return Rule(names, all_shared=True)
    if name in _CHANGES or name in ("__setitem__", "__delitem__"):
        return Rule(names, changed=(0,))
    if _ends_in_place(name) or name in _IN_PLACE or name in _DUNDERS:
        return Rule(names, changed=(0,), shared=(0,))
    return Rule(names, shared=(0,)) if _shares_first(name) else Rule(names)


def _with_name(rule: Rule, name: str) -> Rule:
    """What a schema says, and what it keeps to itself."""
    hidden = _of_name(name)
    return rule._replace(
        all_shared=hidden.all_shared,
        shared=tuple(sorted({*rule.shared, *([0] if name in _VIEWS else [])})),
    )


@cache
def _parameters(target: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(target).parameters)
    except (TypeError, ValueError):  # built-in ones have none
        return ()


def _is_known(target: Any) -> bool:
    owner = getattr(target, "__objclass__", None)  # torch.Tensor.add_
    module = getattr(owner or target, "__module__", None) or ""
    return module.split(".")[0] in _ROOTS


@cache
def _of_function(target: Any) -> Rule:
    if isinstance(target, OpOverload):
        return _with_name(_of_schemas([target._schema]), target._schema.name.split("::")[-1])
    if isinstance(target, OpOverloadPacket):
        return _with_name(_of_schemas(_schemas(target)), target.__name__)
    if isinstance(target, HigherOrderOperator):
        return Rule(all_shared=True, all_changed="mutation" in target.name())
    if not _is_known(target):
        return _NOTHING
    return _of_name(getattr(target, "__name__", ""), _parameters(target))


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
        if _STATISTICS[0] in rule.names and any(_named(node, rule, w) is True for w in _TRAINING):
            found += [_named(node, rule, name) for name in _STATISTICS]
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
