# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``MetaInfo``: what a profile knows about one node of an FX graph."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from kerf._arguments import found
from kerf.symbolic._trees import tensors_in

_KEY = "info"  # in node.meta


class MetaInfo:
    """The record of a node: created on first request, the same object afterwards.

    Sizes are bytes of storages: views of one tensor count once, and so do shared weights. Of the
    sizes, the first six see what is kept together, checkpoint regions honoured: the view that a
    sharding solver takes. From ``fwd_in`` on they see one node by itself, as if nothing were
    computed again: what a checkpoint solver takes. A multiply-add is two flops.

    ``node``, ``sharding_spec`` and ``to_offload`` are as in Siu: the last two, and
    ``to_recompute``, are a user's annotations, and survive edits. ``fwd_comm`` and ``bwd_comm`` are
    0: one device communicates with nobody.
    """

    node: Node
    to_offload: bool
    sharding_spec: str
    fwd_comm: int
    bwd_comm: int
    # From the profile; their texts are in _FIGURES.
    fwd_flop: float
    bwd_flop: float
    fwd_mac: float
    bwd_mac: float
    fwd_time: float
    bwd_time: float
    accumulate_size: int
    output_size: int
    temp_size: int
    param_size: int
    buffer_size: int
    backward_size: int
    fwd_in: int
    fwd_tmp: int
    fwd_out: int
    bwd_tmp: int
    bwd_out: int

    def __new__(cls, node: Node) -> MetaInfo:
        if not isinstance(node, Node):
            raise TypeError(
                f"[symbolic.meta_info] node is {found(node)}; expected a node of an FX graph; pass "
                "one of gm.graph.nodes"
            )
        info = node.meta.get(_KEY)
        if not isinstance(info, cls) or info.node is not node:
            if _is_profiled(node.graph):
                raise _stale(node, "was added")
            info = super().__new__(cls)
            info._set_up(node)
            node.meta[_KEY] = info
        info._check()
        return info

    def _set_up(self, node: Node) -> None:
        self.node = node
        self.to_offload, self.sharding_spec = False, "RR"
        self.fwd_comm = self.bwd_comm = 0
        self._cost: Any = None
        self._result: Any = None
        self._profiled: tuple[Any, ...] = ()
        self._profiled_around: tuple[Any, ...] = ()

    def _check(self) -> None:
        if self._cost is not None and _form(self.node) != self._profiled:
            raise _stale(self.node, "was changed")
        if self._cost is not None and _around(self.node) != self._profiled_around:
            raise _stale(self.node, "is in a graph that was changed")

    def _figure(self, name: str) -> Any:
        if self._cost is None:
            raise RuntimeError(
                f"[symbolic.meta_info] node '{self.node.name}' was not profiled; expected figures "
                "by symbolic_profile(); call it first"
            )
        self._check()
        return getattr(self._cost, name)

    @property
    def mod_dir(self) -> str:
        """Path of the module whose code called it; ``self`` for the model itself."""
        return str(self.node.meta.get("mod_dir", "self"))

    @property
    def to_recompute(self) -> tuple[int, ...]:
        """Checkpoint regions of the node, the outermost first."""
        return tuple(self.node.meta.get("activation_checkpoint") or ())

    @to_recompute.setter
    def to_recompute(self, regions: Any) -> None:
        self.node.meta["activation_checkpoint"] = list(regions)

    activation_checkpoint = to_recompute

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """What it is given, without data: tensors in lists and by keyword too."""
        given = [MetaInfo(node).outputs for node in self.node.all_input_nodes]
        return tuple(tensor for outputs in given for tensor in outputs)

    @property
    def outputs(self) -> tuple[torch.Tensor, ...]:
        """What it gives, without data."""
        self._figure("known")
        return tuple(tensor.detach() for tensor in tensors_in(self._result))

    def __repr__(self) -> str:
        if self._cost is None:
            return f"MetaInfo({self.node.name}, not profiled)"
        parts = [f"{name}={getattr(self._cost, name)!r}" for name in _FIGURES]
        return f"MetaInfo({self.node.name}, {', '.join(parts)})"


# The doubles are whole numbers in practice, and print better as such.
def _whole(number: Any) -> Any:
    return int(number) if isinstance(number, float) and number.is_integer() else number


_FIGURES = {
    "fwd_flop": "Flops of its forward.",
    "bwd_flop": "Flops of the gradients that autograd makes, those of weights included.",
    "fwd_mac": "Multiply-adds of its products (matrix products, convolutions, attention).",
    "bwd_mac": "The same of its backward.",
    "accumulate_size": "All that backward will need, as soon as this node has run.",
    "output_size": "Outputs made here that a later node keeps for backward.",
    "temp_size": "Outputs made here that nobody keeps.",
    "param_size": "Parameters that it holds or is given.",
    "buffer_size": "Buffers that it holds or is given.",
    "backward_size": "Its floating inputs: at most what their gradients take.",
    "fwd_in": "Inputs that it keeps for its backward.",
    "fwd_tmp": "Tensors made inside of it that it keeps, and that are no outputs.",
    "fwd_out": "Outputs made here that it or a later node keeps.",
    "bwd_tmp": "Gradients inside of its backward, at most, less what it kept and has given up.",
    "bwd_out": "Gradients that leave it, those of weights included.",
    "fwd_time": "Seconds of its forward, estimated for the profile's kind of device.",
    "bwd_time": "Seconds of its backward, estimated in the same way.",
}


def _add_figure(name: str, what: str) -> None:
    setattr(MetaInfo, name, property(lambda self: _whole(self._figure(name)), doc=what))


for _name, _what in _FIGURES.items():
    _add_figure(_name, _what)


def attach(node: Node, cost: Any, result: Any) -> None:
    """Gives a node its figures; annotations of an older record stay."""
    info = node.meta.get(_KEY)
    if not isinstance(info, MetaInfo) or info.node is not node:
        info = object.__new__(MetaInfo)
        info._set_up(node)
        node.meta[_KEY] = info
    info._cost, info._profiled, info._result = cost, _form(node), result
    info._profiled_around = _around(node)


def check_fresh(module: Any, where: str) -> None:
    """Raises where a node was added or changed after the profile."""
    for node in module.graph.nodes:
        info = node.meta.get(_KEY)
        if not isinstance(info, MetaInfo) or info.node is not node or info._cost is None:
            raise _stale(node, "was added", where)
        if _form(node) != info._profiled:
            raise _stale(node, "was changed", where)
    for node in module.graph.nodes:
        if _around(node) != node.meta[_KEY]._profiled_around:
            raise _stale(node, "is in a graph that was changed", where)


def _is_profiled(graph: torch.fx.Graph) -> bool:
    first = next(iter(graph.nodes), None)
    info = first.meta.get(_KEY) if first is not None else None
    return isinstance(info, MetaInfo) and info.node is first and info._cost is not None


def _form(node: Node) -> tuple[Any, ...]:
    """What an edit of a node changes: FX never edits arguments in place."""
    regions = tuple(node.meta.get("activation_checkpoint") or ())
    return node.op, node.target, node.args, node.kwargs, regions


def _around(node: Node) -> tuple[Any, ...]:
    """The same of the graph around it: figures depend on what other nodes keep."""
    return len(node.graph.nodes), tuple(node.users)


def _stale(node: Node, said: str, where: str = "symbolic.meta_info") -> RuntimeError:
    return RuntimeError(
        f"[{where}] node '{node.name}' {said} after the profile; call symbolic_profile() again"
    )
