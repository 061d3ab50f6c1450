# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What partitions cost."""

from __future__ import annotations

from collections.abc import Mapping

from torch.fx import GraphModule, Node

from kerf import _core
from kerf.fx._errors import original_errors, runtime_error
from kerf.fx._node_graph import LEAVES, NodeGraph
from kerf.fx._partition import Partition
from kerf.fx._partitions import core_partitions, graph_of, with_descendants
from kerf.fx._types import NodeLatency, PartitionLatency


def get_node_to_latency_mapping_template(fx_module: GraphModule) -> dict[Node, NodeLatency]:
    """Every node that needs a latency, with an empty one to be filled in."""
    return {
        node: NodeLatency(0.0, 0.0)
        for node in fx_module.graph.nodes
        if node.op not in LEAVES and node.op != "output"
    }


def get_latency_of_one_partition(
    partition: Partition, node_to_latency_mapping: Mapping[Node, NodeLatency]
) -> PartitionLatency:
    """The critical path through a partition: the one with the largest sum of node times."""
    graph = NodeGraph(partition.nodes, node_to_latency_mapping)
    with original_errors(graph.nodes):
        return PartitionLatency(
            *_core.fx_partition_latency(graph.core, graph.positions(partition.nodes))
        )


def get_partition_to_latency_mapping(
    partitions: list[Partition], node_to_latency_mapping: Mapping[Node, NodeLatency]
) -> dict[Partition, PartitionLatency]:
    """The latency of each partition on its own."""
    return {p: get_latency_of_one_partition(p, node_to_latency_mapping) for p in partitions}


def get_comm_latency_between(
    parent_partition: Partition, child_partition: Partition, transfer_rate_bytes_per_sec: float
) -> float:
    """Seconds that the parent's tensors take to the child; 0 on the same devices."""
    pair = [parent_partition, child_partition]
    graph = graph_of(pair)
    parent, child = core_partitions(pair, graph)
    with original_errors(graph.nodes, transfer_rate_bytes_per_sec):
        return _core.fx_comm_latency(graph.core, parent, child, transfer_rate_bytes_per_sec)


def get_latency_of_partitioned_graph(
    partitions: list[Partition],
    partition_to_latency_mapping: Mapping[Partition, PartitionLatency],
    transfer_rate_bytes_per_sec: float,
) -> float:
    """The critical path over partitions: their latencies and the transfers between them."""
    reached = with_descendants(p for p in partitions if not p.parents)
    for partition in reached:
        if partition not in partition_to_latency_mapping:
            raise runtime_error(KeyError(partition))
    overall = [partition_to_latency_mapping[p].overall_latency_sec for p in reached]
    graph = graph_of(reached)
    with original_errors(graph.nodes, transfer_rate_bytes_per_sec):
        return _core.fx_graph_latency(
            graph.core, core_partitions(reached, graph), overall, transfer_rate_bytes_per_sec
        )
