# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""FX nodes as the core sees them: in order, by position, with sizes and latencies."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch.fx import Node

from kerf import _core
from kerf.fx._errors import PartitionError
from kerf.fx._types import Device, NodeLatency

LEAVES = frozenset({"placeholder", "get_attr"})  # they run nowhere
_NO_SIZE = -1
_NO_LATENCY = float("nan")
_MOST_BYTES = 2**55  # so that sums of devices stay exact; "unlimited" for any real one


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """The order of the graph, whatever the set's: answers do not depend on hashes."""
    return sorted(nodes)


def sizes(nodes: Sequence[Node]) -> tuple[list[int], list[int]]:
    """What a sizing pass has put on the nodes: bytes of outputs, and of these with parameters."""
    tags = [getattr(node, "size_bytes", None) for node in nodes]
    return (
        [tag.output_size if tag else _NO_SIZE for tag in tags],
        [tag.total_size if tag else _NO_SIZE for tag in tags],
    )


def _latency(node: Node, latencies: Mapping[Node, NodeLatency]) -> NodeLatency | None:
    if node.op in LEAVES:
        return None
    try:
        return latencies[node]  # not get(): the map may make what it lacks
    except KeyError:
        return None


def latency_columns(nodes: Sequence[Node], latencies: Mapping[Node, NodeLatency]) -> dict[str, Any]:
    """Seconds of memory and of computing; NaN where there is none."""
    if not latencies and not hasattr(latencies, "__missing__"):
        return {}
    rows = [_latency(node, latencies) for node in nodes]
    return {
        "mem_latencies": [_NO_LATENCY if r is None else r.mem_latency_sec for r in rows],
        "computer_latencies": [_NO_LATENCY if r is None else r.computer_latency_sec for r in rows],
    }


class NodeGraph:
    """Some nodes with all they read: enough for every question about sets of them."""

    def __init__(
        self, nodes: Iterable[Node], latencies: Mapping[Node, NodeLatency] | None = None
    ) -> None:
        read = {node: node.all_input_nodes for node in nodes}
        self.nodes = in_order(set(read).union(*read.values()))
        self.index = {node: i for i, node in enumerate(self.nodes)}
        output_sizes, total_sizes = sizes(self.nodes)
        # Inputs of inputs are outside, and nothing asks for them.
        inputs = [read.get(node, ()) for node in self.nodes]
        self.core = _core.FxGraph(
            inputs=[self.index[i] for own in inputs for i in own],
            num_inputs=[len(own) for own in inputs],
            leaves=[node.op in LEAVES for node in self.nodes],
            output_sizes=output_sizes,
            total_sizes=total_sizes,
            **latency_columns(self.nodes, latencies or {}),
        )

    def positions(self, nodes: Iterable[Node]) -> list[int]:
        return sorted(self.index[node] for node in nodes)


def to_bytes(size: Any, what: str) -> int:
    """Whole bytes, as a float too; what is beyond all devices counts as the most there can be."""
    if size >= _MOST_BYTES:
        return _MOST_BYTES
    if size <= -_MOST_BYTES:
        return -_MOST_BYTES
    if size != size or int(size) != size:
        raise PartitionError(
            f"[kerf.fx] {what} of {size!r} bytes; expected whole bytes; float('inf') means no limit"
        )
    return int(size)


def to_number(number: Any, what: str) -> int:
    """A whole number that the core can hold."""
    whole = operator.index(number)
    if not -(2**63) <= whole < 2**63:
        raise PartitionError(f"[kerf.fx] {what} is {whole}; expected less than 2**63")
    return whole


def core_devices(devices: Sequence[Device]) -> list[_core.FxDevice]:
    return [
        _core.FxDevice(
            str(d.name),
            to_bytes(d.available_mem_bytes, f"device {d.name!r} has available_mem_bytes"),
            to_number(d.logical_id, f"the logical_id of device {d.name!r}"),
        )
        for d in devices
    ]
