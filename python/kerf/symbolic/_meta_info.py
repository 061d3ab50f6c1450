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

    Computed, by ``symbolic_profile`` (flops: a multiply-add is two)

    - ``fwd_flop``, ``bwd_flop``; ``fwd_mac``, ``bwd_mac``: multiply-adds of products alone
    - ``fwd_time``, ``bwd_time``: seconds, estimated for the profile's kind of device

    Bytes in the view of sets, checkpoint regions honoured; a storage counts once

    - ``accumulate_size``: all that backward will need, as soon as this node has run
    - ``output_size``: outputs made here that a later node keeps for backward
    - ``temp_size``: outputs made here that nobody keeps
    - ``param_size``, ``buffer_size``: of weights that it holds or was given
    - ``backward_size``: of its floating inputs, at most what their gradients take

    Bytes of this node by itself, as if nothing were computed again

    - ``fwd_in``: inputs that it keeps; ``fwd_tmp``: tensors made inside that it keeps;
      ``fwd_out``: outputs made here that it or a later node keeps
    - ``bwd_tmp``: gradients inside of it, at most; ``bwd_out``: gradients that leave it

    Facts: ``inputs``, ``outputs`` (tensors without data), ``mod_dir``; ``fwd_comm``, ``bwd_comm``
    are 0: one device communicates with nobody. Annotations that survive edits: ``to_recompute``
    (also ``activation_checkpoint``), ``to_offload``, ``sharding_spec``.
    """

    node: Node
    to_offload: bool
    sharding_spec: str
    fwd_comm: int
    bwd_comm: int

    def __new__(cls, node: Node) -> MetaInfo:
        if not isinstance(node, Node):
            raise TypeError(
                f"[symbolic.meta_info] node is {found(node)}; expected a node of an FX graph; pass "
                "one of gm.graph.nodes"
            )
        info = node.meta.get(_KEY)
        if not isinstance(info, cls) or info.node is not node:
            if _is_profiled(node.graph):
                raise _stale(node, "added")
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

    def _check(self) -> None:
        if self._cost is not None and _form(self.node) != self._profiled:
            raise _stale(self.node, "changed")

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
        given = [MetaInfo(node).outputs for node in self.node.all_input_nodes]
        return tuple(tensor for outputs in given for tensor in outputs)

    @property
    def outputs(self) -> tuple[torch.Tensor, ...]:
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


_FIGURES = (
    *("fwd_flop", "bwd_flop", "fwd_mac", "bwd_mac", "accumulate_size", "output_size", "temp_size"),
    *("param_size", "buffer_size", "backward_size", "fwd_in", "fwd_tmp", "fwd_out", "bwd_tmp"),
    *("bwd_out", "fwd_time", "bwd_time"),
)


def _add_figure(name: str) -> None:
    setattr(MetaInfo, name, property(lambda self: _whole(self._figure(name))))


for _name in _FIGURES:
    _add_figure(_name)


def attach(node: Node, cost: Any, result: Any) -> None:
    """Gives a node its figures; annotations of an older record stay."""
    info = node.meta.get(_KEY)
    if not isinstance(info, MetaInfo) or info.node is not node:
        info = object.__new__(MetaInfo)
        info._set_up(node)
        node.meta[_KEY] = info
    info._cost, info._profiled, info._result = cost, _form(node), result


def check_fresh(module: Any, where: str) -> None:
    """Raises where a node was added or changed after the profile."""
    for node in module.graph.nodes:
        info = node.meta.get(_KEY)
        if not isinstance(info, MetaInfo) or info.node is not node or info._cost is None:
            raise _stale(node, "added", where)
        if _form(node) != info._profiled:
            raise _stale(node, "changed", where)


def _is_profiled(graph: torch.fx.Graph) -> bool:
    first = next(iter(graph.nodes), None)
    info = first.meta.get(_KEY) if first is not None else None
    return isinstance(info, MetaInfo) and info.node is first and info._cost is not None


def _form(node: Node) -> tuple[Any, ...]:
    """What an edit of a node changes: FX never edits arguments in place."""
    regions = tuple(node.meta.get("activation_checkpoint") or ())
    return node.op, node.target, node.args, node.kwargs, regions


def _stale(node: Node, what: str, where: str = "symbolic.meta_info") -> RuntimeError:
    return RuntimeError(
        f"[{where}] node '{node.name}' was {what} after the profile; call symbolic_profile() again"
    )
