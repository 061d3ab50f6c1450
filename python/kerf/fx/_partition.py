# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""One partition: a set of nodes, and what is known about it."""

from __future__ import annotations

from torch.fx import Node

from kerf import _core
from kerf.fx._errors import original_errors, runtime_error
from kerf.fx._node_graph import LEAVES, NodeGraph


class Partition:
    """Nodes that run together, with the placeholders and constants they read."""

    def __init__(self, partition_id: int) -> None:
        self.nodes: set[Node] = set()
        self.partition_id = partition_id
        self.parents: set[Partition] = set()
        self.children: set[Partition] = set()
        self.bfs_level: int = -1
        self.used_mem_bytes: int = 0
        self.logical_device_ids: list[int] = []

    def __str__(self) -> str:
        return str(self.partition_id)

    def recalculate_mem_size(self) -> None:
        """Sets used_mem_bytes: outputs and parameters of its nodes, and what these read."""
        graph = NodeGraph(self.nodes)
        self._count(graph, graph.positions(self.nodes))

    def add_node(self, node: Node) -> None:
        """Adds a node with the placeholders and constants it reads."""
        graph = NodeGraph([*self.nodes, node])
        nodes = _core.fx_add_node(graph.core, graph.positions(self.nodes), graph.index[node])
        self.nodes.update(graph.nodes[i] for i in nodes)
        self._count(graph, nodes)

    def remove_node(self, node: Node) -> None:
        """Removes a node, if it is there, with the placeholders and constants only it reads."""
        if node not in self.nodes:
            return
        rest = self.nodes - {node}
        for leaf in node.all_input_nodes:
            if leaf.op in LEAVES and leaf not in rest and rest.isdisjoint(leaf.users):
                raise runtime_error(KeyError(leaf))
        graph = NodeGraph(self.nodes)
        nodes = _core.fx_remove_node(graph.core, graph.positions(self.nodes), graph.index[node])
        self.nodes.intersection_update([graph.nodes[i] for i in nodes])
        self._count(graph, nodes)

    def _count(self, graph: NodeGraph, nodes: list[int]) -> None:
        with original_errors(graph.nodes):
            self.used_mem_bytes = _core.fx_used_bytes(graph.core, nodes)


def get_extra_size_of(node: Node, nodes: set[Node]) -> int:
    """Bytes that a node adds to a set: its own, and those of its inputs that are not in it."""
    graph = NodeGraph([node])
    inside = [i for i, n in enumerate(graph.nodes) if n in nodes]
    with original_errors(graph.nodes):
        return _core.fx_extra_bytes(graph.core, graph.index[node], inside)
