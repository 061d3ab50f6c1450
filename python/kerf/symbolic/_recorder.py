# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the graph of a trace: nodes for calls, sizes and guards, and arguments in FX's form."""

import dataclasses
import json
import operator
from collections.abc import AsyncIterator, Coroutine, Iterator
from enum import Enum
from types import CellType, MethodType

import torch
from torch.fx import Graph
from torch.fx.node import base_types
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.utils import _pytree as pytree

from kerf._arguments import found, shortened
from kerf._classes import OWN
from kerf._pytree import PytreeError, build, describe
from kerf.symbolic._guards import (
    RELATIONS,
    check_dtype,
    check_setting,
    check_size,
    check_value,
)
from kerf.symbolic._numbers import is_number, make_number, plain_value
from kerf.symbolic._places import location, refusal, stack_line
from kerf.symbolic._trees import leaves
from kerf.symbolic._values import Value, Values


class Recorder:
    """A graph in the making. ``attributes`` holds, by name, what its nodes refer to."""

    def __init__(self, home):
        self.graph = Graph()
        self.values = Values(home)
        self.attributes = {}
        self.path = ""  # of the module that runs
        self.stack = {}  # paths of the modules around it and their classes
        self.regions = []  # checkpoint regions around the node to come, outermost first
        self.returns = False  # whether what comes now are the results, whose classes stay
        self.finished = False
        self._names = {}  # id(tensor or module) -> name
        self._constants = []  # keeps the identities of what was named alive
        self._after = {}  # node -> the last node that was put behind it
        self._get_attr = {}
        self._guards = set()
        self._head = None  # the last of the nodes that come before any call

    # Nodes

    def node(self, op, target, args=(), kwargs=None, name=None):
        """A node at the end of the graph, for what the model's code does now."""
        node = self.graph.create_node(op, target, args, kwargs or {}, name)
        node.meta["mod_dir"] = self.path or "self"
        if self.stack:
            node.meta["nn_module_stack"] = dict(self.stack)
        line = stack_line()
        if line:
            node.meta["stack_trace"] = line
        if self.regions:
            node.meta["activation_checkpoint"] = list(self.regions)
        return node

    def behind(self, source, op, target, args, kwargs=None):
        """A node right behind another: what it reads need not live until it is used."""
        place = self._head if source.op == "placeholder" and self._head is not None else source
        with self.graph.inserting_after(self._after.get(place, place)):
            node = self.graph.create_node(op, target, args, kwargs or {})
        self._after[place] = node
        for key in ("mod_dir", "nn_module_stack", "stack_trace", "activation_checkpoint"):
            if key in source.meta:
                node.meta[key] = source.meta[key]
        return node

    def end_of_head(self):
        """Placeholders and the checks of the arguments are written; the calls follow."""
        self._head = next(iter(reversed(self.graph.nodes)), None)

    def call(self, op, target, args, kwargs, result, device):
        """A node for a call that has given ``result``, which is returned for the model's code."""
        return self.results(
            self.node(op, target, self.argument(args), self.argument(kwargs)), result, device
        )

    def results(self, node, result, device):
        """Makes the tensors of a result known as those of a node."""
        if isinstance(result, torch.Tensor):
            self.values.add(result, Value(result, device, node))
        else:
            for path, item in leaves(result):
                if isinstance(item, torch.Tensor):
                    self.values.add(item, Value(item, device, source=(node, path)))
        self.describe(node, result, device)
        return result

    def describe(self, node, result, device):
        """What PyTorch's tools look for on a node."""
        with torch._C.DisableTorchFunction():
            if isinstance(result, torch.Tensor):
                node.meta["val"] = result.detach()
                node.meta["tensor_meta"] = _extract_tensor_metadata(result)
            elif isinstance(result, tuple | list | dict):
                node.meta["val"] = _detached(result)
                node.meta["tensor_meta"] = _described(result)
            else:
                node.meta["val"] = plain_value(result)
        node.meta["device"] = device

    def node_of(self, value):
        """The node of a value; an element of a tuple gets one when it is first used."""
        if value.held is not None:
            return self._state_node(value.held)
        if value.node is None:
            node, path = value.source
            for key in path:
                node = self.behind(node, "call_function", operator.getitem, (node, key))
            value.node = node
            self.describe(node, value.tensor, value.device)
        return value.node

    def name(self, thing, name):
        """Gives a weight, a buffer or a module of the model its name in the graph."""
        self._names.setdefault(id(thing), name)
        self._constants.append(thing)

    def name_of(self, thing):
        return self._names.get(id(thing))

    def _state_node(self, tensor):
        name = self._names.get(id(tensor))
        if name is None:
            name = self._constant(tensor)
        self.attributes[name] = tensor
        key = (name, tuple(self.regions))
        if key not in self._get_attr:
            node = self.node("get_attr", name)
            value = self.values.of(tensor)
            self.describe(node, value.tensor, value.device)
            self._get_attr[key] = node
        return self._get_attr[key]

    def _constant(self, tensor):
        """A tensor from outside the model: a global, a closure's."""
        if tensor.is_meta:
            raise refusal(
                "a tensor without data came from code that the trace cannot see",
                "expected results of PyTorch's functions",
                "register a rule for that function with kerf.register_shape_impl, or make its "
                "module one node with kerf.register_leaf_module",
                self.path,
            )
        kind = "_param_constant" if isinstance(tensor, torch.nn.Parameter) else "_tensor_constant"
        return self.fresh(tensor, kind)

    def fresh(self, thing, prefix):
        number = sum(1 for name in self.attributes if name.startswith(prefix))
        name = f"{prefix}{number}"
        self.name(thing, name)
        self.attributes[name] = thing
        return name

    # Arguments

    def argument(self, item):
        """What the model's code passes, in terms of nodes."""
        if isinstance(item, torch.Tensor):
            return self.node_of(self.values.of(item))
        if is_number(item):
            return self.number_node(item)
        kind = type(item)
        if kind is torch.Size and self.returns:
            return self.node("call_function", torch.Size, (tuple(map(self.argument, item)),))
        if kind in (tuple, torch.Size):
            return tuple(map(self.argument, item))
        if kind is list:
            return list(map(self.argument, item))
        if kind is dict and all(isinstance(key, str | int | float | bool) for key in item):
            return {key: self.argument(value) for key, value in item.items()}
        if kind is slice:
            return slice(*map(self.argument, (item.start, item.stop, item.step)))
        if isinstance(item, base_types) or item is None or item is ...:
            return _as_written(item)
        return self._object(item)

    def _object(self, item):
        """An object: built anew where it holds tensors, referred to where it does not."""
        kind = type(item)
        if isinstance(item, tuple) and hasattr(kind, "_fields"):
            return self.node("call_function", kind, tuple(map(self.argument, item)))
        if dataclasses.is_dataclass(item):
            return self._dataclass(item)
        if isinstance(item, torch.nn.Module):
            return self._module(item)
        if kind in pytree.SUPPORTED_NODES:
            parts, spec = pytree.tree_flatten(item)
            spec_node = self.node("get_attr", self.fresh(spec, "_tree_spec"))
            args = (list(map(self.argument, parts)), spec_node)
            return self.node("call_function", pytree.tree_unflatten, args)
        made = self._described_object(item)
        if made is not None:
            return made
        self._check_finished(item)
        if isinstance(item, type) or (callable(item) and hasattr(item, "__qualname__")):
            return self.node("get_attr", self.fresh(item, "_function"))
        return self.node("get_attr", self.fresh(item, "_constant"))

    def _dataclass(self, item):
        fields = [f for f in dataclasses.fields(item) if f.init]
        given = {
            f.name: getattr(item, f.name)
            for f in fields
            if getattr(item, f.name) is not None or f.default is not None
        }
        kwargs = {key: self.argument(value) for key, value in given.items()}
        return self.node("call_function", type(item), (), kwargs)

    def _module(self, module):
        name = self._names.get(id(module)) or self.fresh(module, "_module")
        self.attributes[name] = module
        return self.node("get_attr", name)

    def _described_object(self, item):
        """Any object that holds traced tensors, such as a cache: its fields are put together anew.
        None for one that holds none."""
        try:
            told = describe(item, symbol=lambda number: number.plain())
        except PytreeError as error:
            if not _holds_traced(item, self.values):
                return None
            raise refusal(
                f"{found(item)} holds traced tensors and cannot be taken apart ({error})",
                "expected tensors in lists, tuples, dictionaries, dataclasses or plain objects",
                "return the tensors instead of it",
                self.path,
            ) from error
        if not any(self.values.find(tensor) is not None for tensor in told.tensors):
            return None
        args = (json.dumps(told.spec), [self.argument(tensor) for tensor in told.tensors])
        return self.node("call_function", build_object, args)

    def _check_finished(self, item):
        """Code that is still to run would run on tensors without data."""
        captured = leaves(_captured(item))
        if isinstance(item, Iterator | Coroutine | AsyncIterator) or any(
            is_number(part) or self.values.find(part) is not None for _, part in captured
        ):
            raise refusal(
                f"the code passes on {found(item)}, which runs the model's code later",
                "expected results: tensors, or lists, dictionaries and objects of them",
                "compute them in forward, as list(...) does",
                self.path,
            )

    # Numbers and guards

    def size(self, value, dim, text):
        node = self.node_of(value)
        return make_number(
            self,
            value.tensor.size(dim),
            text,
            value,
            lambda: self._number(node, "call_method", "size", (node, dim)),
        )

    def measure(self, value, op, target, args, result, text):
        """A number that a function of one tensor gives, such as ``x.numel()``."""
        node = self.node_of(value)
        return make_number(
            self, result, text, value, lambda: self._number(node, op, target, (node, *args))
        )

    def _number(self, source, op, target, args):
        key = (op, target, args)
        cache = source.meta.setdefault("_numbers", {})
        if key not in cache:
            cache[key] = self.behind(source, op, target, args)
        return cache[key]

    def number_node(self, number):
        node = number.__dict__.get("made")
        if node is None:
            node = number.__dict__["made"] = number.make()
            node.meta["val"] = number.value
        return node

    def arithmetic(self, function, args, home):
        args = tuple(self.number_node(a) if is_number(a) else a for a in args)
        if home is None:
            return self.node("call_function", function, args)
        return self.behind(self.node_of(home), "call_function", function, args)

    def relation(self, left, relation, right):
        """Whether a comparison of sizes holds; the traced module will check that it still does."""
        held = RELATIONS[relation](plain_value(left), plain_value(right))
        self.guard(left, relation, right, held)
        return held

    def guard(self, left, relation, right, held):
        if self.finished:  # a number that outlived its trace
            return
        right_text = right.text if is_number(right) else repr(right)
        text = shortened(f"{left.text} {relation} {right_text}", 200)
        homes = [n.home for n in (left, right) if is_number(n)]
        home = homes[0] if all(h is homes[0] for h in homes) else None
        nodes = [self.number_node(n) if is_number(n) else n for n in (left, right)]
        if nodes[0] is nodes[1]:
            return  # a size against itself
        key = (nodes[0], relation, nodes[1])
        if key in self._guards:
            return
        self._guards.add(key)
        where = location()
        if home is None:
            args = (nodes[0], relation, nodes[1], held, None, text, where)
            self.node("call_function", check_size, args)
        else:
            source = self.node_of(home)
            args = (nodes[0], relation, nodes[1], held, source, text, where)
            self.behind(source, "call_function", check_size, args)

    def guard_dtype(self, value, text):
        """The model's code has read the dtype of a tensor that a call of PyTorch has made."""
        node = self.node_of(value)
        if ("dtype", node) not in self._guards:
            self._guards.add(("dtype", node))
            args = (node, value.tensor.dtype, text, location())
            self.behind(node, "call_function", check_dtype, args)

    def guard_setting(self, name, args, answer):
        self.node("call_function", check_setting, (name, args, answer, location()))

    def guard_value(self, node, expected, text):
        """The traced module will check that what the code has read is still the same."""
        self.node("call_function", check_value, (node, expected, text, location()))


def _as_written(item):
    """Numbers of NumPy and members of enumerations are written as what they derive from."""
    if isinstance(item, bool):
        return item
    for cls in (int, float, complex, str):
        if isinstance(item, cls) and type(item) is not cls:
            return cls(item.value if isinstance(item, Enum) else item)
    return item


def build_object(spec, tensors):
    """An object of the model's code, made of tensors; its classes are those this process has
    described itself."""
    return build(json.loads(spec), tensors, classes=OWN)


def _captured(item):
    """What a function has from around it, or was given before its call."""
    parts = [getattr(item, "args", ()), getattr(item, "keywords", {})]
    if isinstance(item, MethodType):
        item = item.__func__
    cells = getattr(item, "__closure__", None) or ()
    return parts + [cell.cell_contents for cell in cells if cell != CellType()]


def _holds_traced(item, values):
    inside = vars(item) if hasattr(item, "__dict__") else {}
    parts = [part for _, part in leaves(dict(inside)) if isinstance(part, torch.Tensor)]
    return any(values.find(part) is not None for part in parts)


def _detached(result):
    if isinstance(result, torch.Tensor):
        return result.detach()
    if isinstance(result, dict):
        return {key: _detached(item) for key, item in result.items()}
    if isinstance(result, tuple | list):
        return tuple(map(_detached, result))
    return plain_value(result)


def _described(result):
    if isinstance(result, torch.Tensor):
        return _extract_tensor_metadata(result)
    if isinstance(result, dict):
        return {key: _described(item) for key, item in result.items()}
    if isinstance(result, tuple | list):
        return tuple(map(_described, result))
    return None
