# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a call, in words. What needs the graph's sizes, the core checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule, Node

from kerf.fx._errors import PartitionError
from kerf.fx._types import Device, NodeLatency, PartitionerConfig, PartitionMode

COST_MODES = ("cost_aware", "kl_based")
_SHOWN = 8
_NO_FIELD = object()
_NUMBERS = frozenset({int, float})


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


def _check_numbers(device: Device) -> None:
    memory, number = device.available_mem_bytes, device.logical_id
    if not _is_number(memory):
        raise PartitionError(
            f"[kerf.fx] device {device.name!r} has available_mem_bytes={memory!r}; expected "
            "bytes as a number; float('inf') means no limit"
        )
    if memory <= 0:
        raise PartitionError(
            f"[kerf.fx] device {device.name!r} has {memory} bytes of memory; expected more than 0"
        )
    if not _is_whole(number):
        raise PartitionError(
            f"[kerf.fx] device {device.name!r} has logical_id={number!r}; expected a whole "
            "number, different for each device"
        )


def _devices(devices: Any) -> list[Device]:
    """Of any kind that has the fields, or is a tuple of them."""
    if not isinstance(devices, Iterable) or isinstance(devices, str):
        raise PartitionError(f"[kerf.fx] the devices are {devices!r}; expected a list of Device")
    out = []
    for given in devices:
        fields: list[Any] = [getattr(given, name, _NO_FIELD) for name in Device._fields]
        if (
            any(f is _NO_FIELD for f in fields)
            and isinstance(given, tuple)
            and len(given) == len(fields)
        ):
            fields = list(given)
        if any(f is _NO_FIELD for f in fields):
            raise PartitionError(
                f"[kerf.fx] a device is {given!r}; expected "
                "Device(name, available_mem_bytes, logical_id)"
            )
        out.append(Device(*fields))
        _check_numbers(out[-1])
    return out


def _check_rate(rate: object) -> None:
    if not _is_number(rate):
        raise PartitionError(
            f"[kerf.fx] a transfer rate of {rate!r}; expected bytes per second, more than 0; "
            "float('inf') if transfers cost nothing"
        )


def _latency(node: Node, latency: Any) -> NodeLatency:
    """Of any kind that has the fields, or is a tuple of them."""
    if type(latency) is NodeLatency:  # nearly all are
        mem, computer = latency
        if {type(mem), type(computer)} <= _NUMBERS and mem == mem and computer == computer:
            return latency
    pair: list[Any] = [getattr(latency, name, None) for name in NodeLatency._fields]
    if None in pair and isinstance(latency, tuple) and len(latency) == 2:
        pair = list(latency)
    if not all(map(_is_number, pair)):
        raise PartitionError(
            f"[kerf.fx] the latency of {node} is {latency!r}; expected "
            "NodeLatency(mem_latency_sec, computer_latency_sec)"
        )
    return NodeLatency(*pair)


def _mapping(config: PartitionerConfig, field: str) -> Mapping[Any, Any]:
    mapping = getattr(config, field)
    if mapping is None:
        return {}
    if not isinstance(mapping, Mapping):
        raise PartitionError(f"[kerf.fx] {field} is {mapping!r}; expected a dict")
    return mapping


def _latencies(config: PartitionerConfig, nodes: Sequence[Node]) -> dict[Node, NodeLatency]:
    given = _mapping(config, "node_to_latency_mapping")
    if not given and not hasattr(given, "__missing__"):
        return {}
    out = {}
    for node in nodes:
        if node.op not in ("placeholder", "get_attr"):
            try:
                out[node] = _latency(node, given[node])  # not get(): it may make what it lacks
            except KeyError:
                continue
    return out


def check_known(field: str, mapping: Iterable[Any], known: set[Node]) -> None:
    unknown = [n for n in mapping if n not in known and getattr(n, "op", None) != "output"]
    if unknown:
        raise PartitionError(
            f"[kerf.fx] {field} has {len(unknown)} nodes that are not in the module's graph: "
            f"{listed(unknown)}; expected nodes of the module that is partitioned, not of a copy "
            "or of another trace; make the map from its graph.nodes"
        )


def _check_given(config: PartitionerConfig) -> None:
    numbers = [*_mapping(config, "node_to_partition_mapping").items()]
    for number, ids in _mapping(config, "partition_to_logical_device_mapping").items():
        if not isinstance(ids, Iterable) or isinstance(ids, str):
            raise PartitionError(
                f"[kerf.fx] the devices of partition {number} are {ids!r}; expected a list of "
                "logical ids"
            )
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


def _costs(
    config: PartitionerConfig, mode: str, nodes: Sequence[Node]
) -> tuple[float, dict[Node, NodeLatency]]:
    rate = config.transfer_rate_bytes_per_sec
    if mode in COST_MODES:
        check_known(
            "node_to_latency_mapping", _mapping(config, "node_to_latency_mapping"), set(nodes)
        )
        _check_rate(rate)
        return rate, _latencies(config, nodes)
    try:  # the others only say what their answers cost, where they can
        _check_rate(rate)
        return rate, _latencies(config, nodes)
    except PartitionError:
        return 0.0, {}


def check_config(config: PartitionerConfig, mode: str, nodes: Sequence[Node]) -> PartitionerConfig:
    """Refuses what the mode would read and could not use; the rest in Kerf's own types."""
    devices = _devices(config.devices)
    rate, latencies = _costs(config, mode, nodes)
    given: tuple[Mapping[Any, Any], Mapping[Any, Any]] = ({}, {})
    if mode == "aot_based":
        _check_given(config)
        given = (
            _mapping(config, "node_to_partition_mapping"),
            _mapping(config, "partition_to_logical_device_mapping"),
        )
        check_known("node_to_partition_mapping", given[0], set(nodes))
    return PartitionerConfig(devices, config.mode, rate, latencies, *given, config.saturate_host)


def check_fields(config: Any) -> None:
    """Is it a configuration at all? torch.fx's is one."""
    missing = [name for name in PartitionerConfig._fields if not hasattr(config, name)]
    if missing:
        raise PartitionError(
            f"[kerf.fx] the configuration is {config!r}, without {listed(missing)}; expected a "
            "PartitionerConfig"
        )
