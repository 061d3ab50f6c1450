# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of partitions: relations, levels, devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from torch.fx import Node

from kerf import _core
from kerf.fx._errors import PartitionError, original_errors
from kerf.fx._node_graph import NodeGraph, core_devices, to_bytes
from kerf.fx._partition import Partition
from kerf.fx._types import Device


def graph_of(partitions: Iterable[Partition]) -> NodeGraph:
    return NodeGraph(set().union(*(p.nodes for p in partitions)))


class Positions(Protocol):
    """What knows the core's numbers of nodes."""

    def positions(self, nodes: Iterable[Node]) -> list[int]: ...


def core_partitions(
    partitions: Sequence[Partition], graph: Positions | None = None
) -> list[_core.FxPartition]:
    """Partitions by position, with their relations; without nodes where there is no graph."""
    at = {id(p): i for i, p in enumerate(partitions)}
    return [
        _core.FxPartition(
            p.partition_id,
            graph.positions(p.nodes) if graph else [],
            p.used_mem_bytes,
            p.logical_device_ids,
            # A parent outside the list: all that matters is that there is one.
            sorted(at.get(id(parent), i) for parent in p.parents),
            sorted(at[id(child)] for child in p.children if id(child) in at),
            p.bfs_level,
        )
        for i, p in enumerate(partitions)
    ]


def with_descendants(partitions: Iterable[Partition]) -> list[Partition]:
    """The partitions and all that their children lead to."""
    found = {id(p): p for p in partitions}
    waiting = list(found.values())
    while waiting:
        for child in waiting.pop().children:
            if id(child) not in found:
                found[id(child)] = child
                waiting.append(child)
    return list(found.values())


def reset_partition_device(partitions: list[Partition]) -> None:
    """Removes the devices of all partitions."""
    for partition in partitions:
        partition.logical_device_ids = []


def combine_two_partitions(
    partition_0: Partition, partition_1: Partition, partitions: list[Partition]
) -> None:
    """Replaces two partitions by one with the nodes of both, at the end of the list."""
    for partition in (partition_0, partition_1):
        if partition not in partitions or partition_0 is partition_1:
            raise PartitionError(
                f"[kerf.fx] partitions {partition_0} and {partition_1} of {len(partitions)}; "
                "expected two different ones from the list"
            )
    both = Partition(len(partitions))
    both.nodes = set(partition_0.nodes) | set(partition_1.nodes)
    both.recalculate_mem_size()
    partitions.append(both)
    partitions.remove(partition_0)
    partitions.remove(partition_1)
    reorganize_partitions(partitions)


def set_parents_and_children(partitions: list[Partition]) -> None:
    """Sets the parents and children. Copies of placeholders and constants make no dependency."""
    graph = graph_of(partitions)
    related = _core.fx_set_relations(graph.core, core_partitions(partitions, graph))
    for partition, core in zip(partitions, related):
        partition.parents = {partitions[i] for i in core.parents}
        partition.children = {partitions[i] for i in core.children}


def reorganize_partitions(partitions: list[Partition]) -> None:
    """Numbers the partitions by position, and sets their relations again."""
    for i, partition in enumerate(partitions):
        partition.partition_id = i
    set_parents_and_children(partitions)


def get_bfs_level_partition(partitions: list[Partition]) -> None:
    """Sets the level of each: its longest distance from a partition without parents."""
    reached = with_descendants(p for p in partitions if not p.parents)
    with original_errors():
        levels = _core.fx_set_levels(core_partitions(reached))
    for partition, core in zip(reached, levels):
        partition.bfs_level = core.level


def check_dependency(partition: Partition) -> bool:
    """Does the partition depend on itself?"""
    return _core.fx_depends_on_itself(core_partitions(with_descendants([partition])), 0)


def get_node_to_partition_mapping(partitions: list[Partition]) -> dict[Node, int]:
    """The number of each node's partition; of several, the last one's."""
    return {node: p.partition_id for p in partitions for node in p.nodes}


def get_logical_id_to_device(devices: list[Device]) -> dict[int, Device]:
    """Devices by number."""
    return {device.logical_id: device for device in devices}


def _beyond(device: Device) -> Any:
    """Bytes that the core does not count; of the type that was given."""
    memory = device.available_mem_bytes
    return memory - to_bytes(memory, "a memory")


def get_device_partition_stats(
    partitions: list[Partition], devices: list[Device]
) -> tuple[dict[Device, list[Partition]], dict[Device, int], list[Partition]]:
    """What lies on each device, what is left of its memory, and the partitions without device."""
    with original_errors():
        distinct, on, left, without = _core.fx_device_stats(
            core_partitions(partitions), core_devices(devices)
        )
    return (
        {devices[d]: [partitions[p] for p in on[i]] for i, d in enumerate(distinct)},
        {devices[d]: left[i] + _beyond(devices[d]) for i, d in enumerate(distinct)},
        [partitions[p] for p in without],
    )


def get_device_to_partitions_mapping(
    partitions: list[Partition], devices: list[Device], *, strict: bool = False
) -> bool:
    """Gives each partition without a device the fullest one that still has room for it.

    Returns False at the first that fits nowhere. ``strict`` is torch.fx's rule: a partition must
    leave a byte free.
    """
    graph = graph_of(partitions)
    with original_errors(graph.nodes):
        mapped, cores = _core.fx_map_to_devices(
            graph.core, core_partitions(partitions, graph), core_devices(devices), strict
        )
    for partition, core in zip(partitions, cores):
        if not partition.logical_device_ids:
            partition.logical_device_ids.extend(core.device_ids)
    return mapped
