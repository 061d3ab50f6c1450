# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What comes out: the submodules in the order of their calls, and the module that calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch.fx import GraphModule, Node


class DAGNode:
    """One submodule: its call, its inputs and outputs, its devices.

    ``output_nodes`` are the values it produces, ``consumer_nodes`` the nodes that read them (with
    ``compat=True`` both are as in torch.fx: one list, and an empty one).
    """

    def __init__(
        self,
        submodule_node: Node,
        input_nodes: list[Node],
        output_nodes: list[Node],
        logical_device_ids: list[int],
        size_bytes: int,
        consumer_nodes: Sequence[Node] = (),
    ) -> None:
        self.submodule_node = submodule_node
        self.input_nodes = input_nodes
        self.output_nodes = output_nodes
        self.logical_device_ids = logical_device_ids
        self.size_bytes = size_bytes
        self.consumer_nodes = list(consumer_nodes)

    def __str__(self) -> str:
        return str(self.submodule_node)


class DAG:
    """The submodules of a partitioned module, in the order of their calls."""

    def __init__(self) -> None:
        self.nodes: list[DAGNode] = []

    def create_node(
        self,
        submodule_node: Node,
        input_nodes: list[Node],
        output_nodes: list[Node],
        logical_devices: list[int],
        size_bytes: int,
        consumer_nodes: Sequence[Node] = (),
    ) -> None:
        self.nodes.append(
            DAGNode(
                submodule_node,
                input_nodes,
                output_nodes,
                logical_devices,
                size_bytes,
                consumer_nodes,
            )
        )


class PartitionResult(NamedTuple):
    """The submodules, and the module that calls them."""

    dag: DAG
    module_with_submodules: GraphModule
