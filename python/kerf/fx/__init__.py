# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""torch.fx's accelerator partitioner in C++, with its bugs fixed: only the imports change.

    from kerf.fx import Device, Partitioner, PartitionerConfig, PartitionMode, get_size_of_all_nodes

    get_size_of_all_nodes(traced, inputs)  # shapes
    result = Partitioner().partition_graph(traced, model, PartitionerConfig(devices))
    result.dag.nodes; result.module_with_submodules

Every public name of torch.fx.experimental.accelerator_partitioner and of partitioner_utils is here.
``Partitioner(compat=True)`` reproduces the original bit for bit.
"""

# The original's modules have these names too, by importing them.
import operator
from collections import deque
from enum import Enum
from typing import NamedTuple

import torch
from torch.fx.graph_module import GraphModule
from torch.fx.node import Node, map_arg
from torch.fx.passes.split_module import split_module

from kerf.fx._dag import DAG, DAGNode, PartitionResult
from kerf.fx._errors import InfeasibleError, PartitionError
from kerf.fx._latency import (
    get_comm_latency_between,
    get_latency_of_one_partition,
    get_latency_of_partitioned_graph,
    get_node_to_latency_mapping_template,
    get_partition_to_latency_mapping,
)
from kerf.fx._partition import Partition, get_extra_size_of
from kerf.fx._partitioner import Partitioner
from kerf.fx._partitions import (
    check_dependency,
    combine_two_partitions,
    get_bfs_level_partition,
    get_device_partition_stats,
    get_device_to_partitions_mapping,
    get_logical_id_to_device,
    get_node_to_partition_mapping,
    reorganize_partitions,
    reset_partition_device,
    set_parents_and_children,
)
from kerf.fx._sizes import get_size_of_all_nodes
from kerf.fx._types import (
    Device,
    DeviceBytes,
    NodeLatency,
    PartitionerConfig,
    PartitionLatency,
    PartitionMode,
)

__all__ = [
    "DAG",
    "DAGNode",
    "Device",
    "DeviceBytes",
    "Enum",
    "GraphModule",
    "InfeasibleError",
    "NamedTuple",
    "Node",
    "NodeLatency",
    "Partition",
    "PartitionError",
    "PartitionLatency",
    "PartitionMode",
    "PartitionResult",
    "Partitioner",
    "PartitionerConfig",
    "check_dependency",
    "combine_two_partitions",
    "deque",
    "get_bfs_level_partition",
    "get_comm_latency_between",
    "get_device_partition_stats",
    "get_device_to_partitions_mapping",
    "get_extra_size_of",
    "get_latency_of_one_partition",
    "get_latency_of_partitioned_graph",
    "get_logical_id_to_device",
    "get_node_to_latency_mapping_template",
    "get_node_to_partition_mapping",
    "get_partition_to_latency_mapping",
    "get_size_of_all_nodes",
    "map_arg",
    "operator",
    "reorganize_partitions",
    "reset_partition_device",
    "set_parents_and_children",
    "split_module",
    "torch",
]
