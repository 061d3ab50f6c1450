# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The types of kerf.fx: devices, latencies, modes, configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from enum import Enum
from inspect import Parameter, signature
from typing import Any, NamedTuple, TypeVar

from torch.fx import Node

Key = TypeVar("Key")
Value = TypeVar("Value")


class Device(NamedTuple):
    """Where partitions go. Two devices with equal fields are one."""

    name: str
    available_mem_bytes: int
    logical_id: int


class NodeLatency(NamedTuple):
    """What a node costs: seconds of moving bytes, and of computing; the larger one counts."""

    mem_latency_sec: float
    computer_latency_sec: float


class PartitionLatency(NamedTuple):
    """What a partition costs. All three belong to its critical path."""

    mem_latency_sec: float
    computer_latency_sec: float
    overall_latency_sec: float


class PartitionMode(Enum):
    size_based = 0
    sparse_nn = 1
    cost_aware = 2
    kl_based = 3
    aot_based = 4


class DeviceBytes(NamedTuple):
    """What lies on one device, counted in three ways.

    - ``fx``: as torch.fx counts: every output forever, an outside tensor once per reader.
    - ``exact``: weights and buffers once, tensors once, real element sizes.
    - ``peak``: the same, with tensors released after their last use.
    """

    fx: int
    exact: int
    peak: int


class _Config(NamedTuple):
    devices: Sequence[Device]
    mode: PartitionMode
    transfer_rate_bytes_per_sec: float
    node_to_latency_mapping: Mapping[Node, NodeLatency]
    node_to_partition_mapping: Mapping[Node, int]
    partition_to_logical_device_mapping: Mapping[int, list[int]]
    saturate_host: bool


_NOT_GIVEN: dict[Any, Any] = {}  # shown as the original's default, and never handed out


def _given(mapping: Mapping[Key, Value]) -> Mapping[Key, Value]:
    return {} if mapping is _NOT_GIVEN or mapping is None else mapping


class PartitionerConfig(_Config):
    """How to partition a module. Maps that are not given are new ones, never shared.

    The rate has no default that the cost modes accept; ``float("inf")``: transfers are free.
    """

    __slots__ = ()

    def __new__(
        cls,
        devices: Sequence[Device],
        mode: PartitionMode = PartitionMode.size_based,
        transfer_rate_bytes_per_sec: float = 0.0,
        node_to_latency_mapping: Mapping[Node, NodeLatency] = _NOT_GIVEN,
        node_to_partition_mapping: Mapping[Node, int] = _NOT_GIVEN,
        partition_to_logical_device_mapping: Mapping[int, list[int]] = _NOT_GIVEN,
        saturate_host: bool = False,
    ) -> PartitionerConfig:
        return super().__new__(
            cls,
            devices,
            mode,
            transfer_rate_bytes_per_sec,
            _given(node_to_latency_mapping),
            _given(node_to_partition_mapping),
            _given(partition_to_logical_device_mapping),
            saturate_host,
        )


PartitionerConfig._field_defaults = {
    name: copy(parameter.default)
    for name, parameter in signature(PartitionerConfig).parameters.items()
    if parameter.default is not Parameter.empty
}
