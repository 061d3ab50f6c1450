# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What weight functions are asked, and where their answers go."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from kerf import _core
from kerf._arguments import is_number, shown
from kerf._core import Graph, Profile


@dataclasses.dataclass(frozen=True)
class PipeNode:
    """A node as ``node_weight_function`` and ``edge_weight_function`` see it; times in ms."""

    name: str
    op: str
    scope: str  # the path of its module
    inputs: tuple[str, ...]  # names of values
    outputs: tuple[str, ...]
    forward_ms: float
    backward_ms: float
    weight_bytes: int
    input_bytes: int
    output_bytes: int


NodeWeight = Callable[[PipeNode], float]
EdgeWeight = Callable[[PipeNode, PipeNode], float]


def pipe_nodes(graph: Graph, profile: Profile) -> list[PipeNode]:
    return [
        PipeNode(
            name=node["name"],
            op=node["op"],
            scope=node["scope"],
            inputs=tuple(node["inputs"]),
            outputs=tuple(node["outputs"]),
            forward_ms=cost.forward * 1e3,
            backward_ms=cost.backward * 1e3,
            weight_bytes=cost.weight_bytes,
            input_bytes=cost.input_bytes,
            output_bytes=cost.output_bytes,
        )
        for node, cost in zip(graph.nodes, profile.nodes, strict=True)
    ]


def given_times(nodes: list[PipeNode], weigh: NodeWeight) -> dict[str, float]:
    """Seconds by node."""
    return {node.name: _ms("node_weight_function", weigh(node), node.name) for node in nodes}


def given_transfers(graph: Graph, nodes: list[PipeNode], weigh: EdgeWeight) -> dict[str, float]:
    """Seconds by value. A tensor goes to a device once, whoever reads it there: one cost each."""
    tensors = set(_core.tensor_names(graph))  # numbers go along free: nobody is asked about them
    maker = {name: node for node in nodes for name in node.outputs}
    out: dict[str, float] = {}
    first: dict[str, str] = {}
    for node in nodes:
        for value in dict.fromkeys(node.inputs):
            if value not in maker or value not in tensors:
                continue
            where = f"'{maker[value].name}' to '{node.name}'"
            seconds = _ms("edge_weight_function", weigh(maker[value], node), where)
            if out.setdefault(value, seconds) != seconds:
                raise ValueError(
                    f"[kerf.pipe_model] edge_weight_function gives {out[value] * 1e3:g} ms from "
                    f"{first[value]} and {seconds * 1e3:g} ms from {where}, for one tensor; "
                    "expected one number for all that read it: it is sent to a device once"
                )
            first.setdefault(value, where)
    return out


def _ms(function: str, value: Any, of: str) -> float:
    if not _is_time(value):
        raise ValueError(
            f"[kerf.pipe_model] {function} gives {shown(value)} for {of}; expected milliseconds, a "
            "number from 0 on"
        )
    return float(value) * 1e-3


def _is_time(value: Any) -> bool:
    try:
        return is_number(value) and 0 <= float(value) < 1e15
    except OverflowError:  # a whole number that is no float
        return False
