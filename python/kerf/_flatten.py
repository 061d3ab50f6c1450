# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""An exported program as one flat list of operator calls.

Grad mode and autocast are calls in an exported graph, or sub-graphs around what ran under them;
results of several tensors are split with ``getitem``. Here is one line of calls, each with the
modes it ran under, and every name is followed to the call that made it.
"""

import contextlib
import dataclasses
import operator
from typing import NamedTuple

import torch
import torch.fx
from torch._export.passes import replace_autocast_with_hop_pass, replace_set_grad_with_hop_pass
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from kerf._checkpoint import Regions
from kerf._schema import with_numbers


@dataclasses.dataclass(frozen=True)
class Modes:
    """The thread-local state a call was traced under."""

    grad_enabled: bool
    autocast: tuple  # of (device type, torch.dtype, enabled)

    def with_autocast(self, device_type, dtype, enabled):
        dtype = dtype or torch.get_autocast_dtype(device_type)
        others = tuple(a for a in self.autocast if a[0] != device_type)
        return dataclasses.replace(self, autocast=(*others, (device_type, dtype, enabled)))


def ambient_modes(device_types):
    """The state of the calling thread."""
    autocast = tuple(
        (kind, torch.get_autocast_dtype(kind), True)
        for kind in sorted(device_types)
        if torch.is_autocast_enabled(kind)
    )
    return Modes(torch.is_grad_enabled(), autocast)


@contextlib.contextmanager
def modes_in_line():
    """Keeps export from making sub-graphs of what runs under other modes: where a grad mode begins
    inside of autocast it forgets the grad mode."""
    passes = (replace_set_grad_with_hop_pass, replace_autocast_with_hop_pass)
    names = [module.__name__.rpartition(".")[2] for module in passes]
    saved = [getattr(module, name) for module, name in zip(passes, names, strict=True)]
    for module, name in zip(passes, names, strict=True):
        setattr(module, name, lambda module, signature: (module, signature))
    try:
        yield
    finally:
        for module, name, original in zip(passes, names, saved, strict=True):
            setattr(module, name, original)


@dataclasses.dataclass
class Call:
    """One operator call; ``args`` and ``kwargs`` hold Results, constants and lists of these."""

    node: torch.fx.Node
    modes: Modes
    region: str
    op: torch._ops.OpOverload
    args: list
    kwargs: dict

    @property
    def results(self):
        if not self.op._schema.returns:
            return []
        val = self.node.meta.get("val")
        if isinstance(val, (list, tuple)):
            return [Result(self.node, i) for i in range(len(val))]
        return [Result(self.node)]


class Result(NamedTuple):
    """One result of a call: ``index`` is None when the call has one result only."""

    node: torch.fx.Node
    index: int | None = None

    @property
    def val(self):
        val = self.node.meta.get("val")
        return val if self.index is None else val[self.index]


def results_in(item):
    """All Results in a followed argument."""
    if isinstance(item, Result):
        yield item
    elif isinstance(item, (list, tuple)):
        for i in item:
            yield from results_in(i)


def _numbers_for_tensors(op, args):
    """Places where a number that is computed from tensors is given for a tensor."""
    types = [a.type for a in op._schema.arguments]
    return tuple(
        i
        for i, (arg, kind) in enumerate(zip(args, types, strict=False))
        if isinstance(arg, Result)
        and isinstance(arg.val, torch.types.py_sym_types)
        and free_unbacked_symbols(arg.val)
        and isinstance(kind, torch.TensorType)
    )


class UnsupportedCall(Exception):
    """A call that no graph can hold, such as control flow over sub-graphs."""

    def __init__(self, node, why=""):
        super().__init__(f"{node.target}")
        self.node = node
        self.why = why  # of its arguments; "": it is the call itself


class FlatProgram:
    """``calls`` in order; ``follow`` leads from any node of the program to what it stands for."""

    def __init__(self, program, modes):
        self.calls = []
        self.requires_grad = {}  # Result -> bool, as autograd saw it in the trace
        self._same = {}  # node -> Result, constant, or list of these
        self._regions = Regions()
        self.outputs = self._walk(program.graph_module, modes)

    def follow(self, item):
        """The Result, constant or nested list of these that ``item`` stands for."""
        if isinstance(item, torch.fx.Node):
            return self._same[item]
        if isinstance(item, (list, tuple)):
            return [self.follow(i) for i in item]
        return item

    def _walk(self, module, modes):
        around = {}  # where autocast begins -> the modes before
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target is torch._C._set_grad_enabled:
                modes = dataclasses.replace(modes, grad_enabled=node.args[0])
            elif node.op == "call_function" and node.target is _enter_autocast:
                around[node] = modes
                modes = modes.with_autocast(*node.args[:3])
            elif node.op == "call_function" and node.target is _exit_autocast:
                before = around[node.args[0]].autocast
                modes = dataclasses.replace(modes, autocast=before)
            elif node.op == "call_function":
                self._call(module, node, modes)
            elif node.op == "placeholder":
                if node not in self._same:  # else bound by the wrapper around this sub-graph
                    self._define(node)
            elif node.op == "output":
                return self.follow(node.args[0])
            elif node.op != "get_attr":  # sub-graphs, taken where they are called
                raise UnsupportedCall(node)

    def _call(self, module, node, modes):
        target = node.target
        if target is operator.getitem and self._take_item(node):
            return
        if target is torch.ops.kerf.mark.default:
            self._regions.mark(node.args[0])
        elif target is torch.ops.higher_order.wrap_with_set_grad_enabled:
            enabled, body, *args = node.args
            inner = dataclasses.replace(modes, grad_enabled=enabled)
            self._same[node] = self._inline(module, body, args, inner)
        elif target is torch.ops.higher_order.wrap_with_autocast:
            device_type, dtype, enabled, _cache, body, *args = node.args
            inner = modes.with_autocast(device_type, dtype, enabled)
            self._same[node] = self._inline(module, body, args, inner)
        elif isinstance(target, torch._ops.OpOverload):
            self._define(node)
            kwargs = {name: self.follow(arg) for name, arg in node.kwargs.items()}
            args = self.follow(node.args)
            places = _numbers_for_tensors(target, args)
            if places:
                target = with_numbers(target, places)
                if target is None:
                    raise UnsupportedCall(node)
            self.calls.append(Call(node, modes, self._regions.path, target, args, kwargs))
        elif isinstance(node.meta.get("val"), torch.types.py_sym_types):
            self._define(node)  # Python arithmetic on sizes: `val` has the outcome
        else:
            raise UnsupportedCall(node)

    def _define(self, node):
        result = Result(node)
        self._same[node] = result
        meta = node.meta.get("tensor_meta")
        if hasattr(meta, "requires_grad"):
            self.requires_grad[result] = meta.requires_grad

    def _take_item(self, node):
        source, index = node.args
        found = self.follow(source)
        if isinstance(found, list):
            self._same[node] = found[index]
            return True
        if not isinstance(found, Result) or not isinstance(index, int):
            return False
        taken = Result(found.node, index)
        self._same[node] = taken
        meta = node.meta.get("tensor_meta")
        if hasattr(meta, "requires_grad"):
            self.requires_grad[taken] = meta.requires_grad
        return True

    def _inline(self, module, body, args, modes):
        inner = getattr(module, body.target)
        holes = [n for n in inner.graph.nodes if n.op == "placeholder"]
        for hole, arg in zip(holes, args, strict=True):
            self._same[hole] = self.follow(arg)
        return self._walk(inner, modes)
