# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a call, in words. What needs the graph's sizes, the core checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.fx import GraphModule, Node

from kerf.fx._errors import PartitionError
from kerf.fx._types import PartitionerConfig, PartitionMode

COST_MODES = ("cost_aware", "kl_based")
_SHOWN = 8


def listed(names: Iterable[object]) -> str:
    """The first few, and how many more."""
    texts = list(map(str, names))
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def check_word(name: str, word: object, words: tuple[str, ...]) -> None:
    if word not in words:
        known = ", ".join(map(repr, words))
        raise PartitionError(f"[kerf.fx] {name} is {word!r}; expected one of {known}")


def check_module(module: Any) -> None:
    if not isinstance(module, GraphModule):
        raise PartitionError(
            f"[kerf.fx] the module is a {type(module).__name__}; expected a GraphModule; make one "
            "with torch.fx.symbolic_trace(model)"
        )


def mode_name(mode: Any) -> str:
    """Modes of torch.fx and ours are equal by name."""
    name = getattr(mode, "name", mode)
    if name not in PartitionMode.__members__:
        modes = ", ".join(PartitionMode.__members__)
        raise PartitionError(f"[kerf.fx] mode is {mode!r}; expected a PartitionMode: {modes}")
    return str(name)


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and value == value


def _is_whole(value: object) -> bool:
    return hasattr(value, "__index__")


def _check_devices(devices: Iterable[Any]) -> None:
    for device in devices:
        memory, number = device.available_mem_bytes, device.logical_id
        if not _is_number(memory):
            raise PartitionError(
                f"[kerf.fx] device {device.name!r} has available_mem_bytes={memory!r}; expected "
                "bytes as a number; float('inf') has no limit"
            )
        if not _is_whole(number):
            raise PartitionError(
                f"[kerf.fx] device {device.name!r} has logical_id={number!r}; expected a whole "
                "number, another one for each device"
            )


def _check_costs(config: PartitionerConfig) -> None:
    rate = config.transfer_rate_bytes_per_sec
    if not _is_number(rate):
        raise PartitionError(
            f"[kerf.fx] a transfer rate of {rate!r}; expected bytes a second, more than 0; "
            "float('inf') when transfers cost nothing"
        )
    for node, latency in config.node_to_latency_mapping.items():
        pair = [getattr(latency, f"{kind}_latency_sec", None) for kind in ("mem", "computer")]
        if not all(map(_is_number, pair)):
            raise PartitionError(
                f"[kerf.fx] the latency of {node} is {latency!r}; expected "
                "NodeLatency(mem_latency_sec, computer_latency_sec)"
            )


def check_known(field: str, mapping: Iterable[Any], known: set[Node]) -> None:
    unknown = [n for n in mapping if n not in known and getattr(n, "op", None) != "output"]
    if unknown:
        raise PartitionError(
            f"[kerf.fx] {field} has {len(unknown)} nodes that are not in the module's graph: "
            f"{listed(unknown)}; expected nodes of the module that is partitioned, not of a copy "
            "or of another trace; make the map from its graph.nodes"
        )


def _check_given(config: PartitionerConfig) -> None:
    numbers = [*config.node_to_partition_mapping.items()]
    for number, ids in config.partition_to_logical_device_mapping.items():
        numbers += [("a partition", number), *(("a device", i) for i in ids)]
    for what, number in numbers:
        if not _is_whole(number):
            raise PartitionError(
                f"[kerf.fx] the number of {what} is {number!r}; expected a whole number"
            )


def check_method(given_bytes: object, device_id: object) -> None:
    """What the methods of single modes take beside the fields of a configuration."""
    if not _is_number(given_bytes):
        raise PartitionError(f"[kerf.fx] a size of {given_bytes!r}; expected bytes as a number")
    if not _is_whole(device_id):
        raise PartitionError(f"[kerf.fx] the device {device_id!r}; expected its logical_id")


def check_config(config: PartitionerConfig, mode: str, known: set[Node]) -> None:
    """Refuses what the mode would read and could not use."""
    _check_devices(config.devices)
    if mode in COST_MODES:
        check_known("node_to_latency_mapping", config.node_to_latency_mapping, known)
        _check_costs(config)
    if mode == "aot_based":
        check_known("node_to_partition_mapping", config.node_to_partition_mapping, known)
        _check_given(config)
