# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The memory that a model is placed in: a device's, the host's, a folder's."""

import dataclasses
import numbers
import os
import pathlib

import torch

from kerf import _core
from kerf._arguments import shown

CPU = torch.device("cpu")
_MANY = 128  # devices; PyTorch's numbers of them are small
_EXPECTED = "expected the memory for weights, {'cpu': '4GiB', 'disk': 'folder'} or {0: '2GiB'}"


@dataclasses.dataclass(frozen=True)
class Limits:
    device: torch.device  # that computes
    bytes: int | None  # of it, for weights; None: what a device map takes
    host_bytes: int | None  # for weights that an accelerator does not hold; None: no limit
    folder: str | os.PathLike | None  # for those that the host does not hold


def limits_of(max_memory, offload_folder=None):
    """What ``max_memory`` says: one device that computes, and what feeds it."""
    if not isinstance(max_memory, dict) or not set(max_memory) - {"disk"}:
        raise ValueError(f"[kerf.place] max_memory is {shown(max_memory)}; {_EXPECTED}")
    return _limits(max_memory, offload_folder, set())


def limits_beside(places, max_memory, offload_folder):
    """The same where a device map says which devices there are; without limits, what it takes."""
    devices = {place for place in places if isinstance(place, torch.device) and place != CPU}
    return _limits(max_memory or {}, offload_folder, devices)


def _limits(max_memory, offload_folder, others):
    sizes = {}
    for key, size in max_memory.items():
        if key == "disk":
            continue
        device = device_of(key)
        if device in sizes:
            raise ValueError(
                f"[kerf.place] max_memory names {device} twice, as {sizes[device][0]!r} and "
                f"{key!r}; expected one limit for each device; leave one of them out"
            )
        sizes[device] = key, size
    accelerators = {*sizes, *others} - {CPU}
    if len(accelerators) > 1:
        named = "max_memory and device_map name" if others else "max_memory names"
        raise NotImplementedError(
            f"[kerf.place] {named} {len(accelerators)} accelerators; expected one, which "
            "weights are streamed to; kerf.plan cuts a model over several, and kerf.DataFlow puts "
            "each layer where you say"
        )
    host = _bytes(*sizes[CPU]) if CPU in sizes else None
    folder = _folder(max_memory.get("disk"), offload_folder)
    if not accelerators:
        return Limits(CPU, host, None, folder)
    (device,) = accelerators
    limit = _bytes(*sizes[device]) if device in sizes else None
    return Limits(device, limit, host, folder)


def device_of(key, argument="max_memory"):
    kind = torch.accelerator.current_accelerator(check_available=True)
    is_number = isinstance(key, int) and not isinstance(key, bool)
    try:
        if is_number and 0 <= key < _MANY:
            device = torch.device("cuda" if kind is None else kind.type, key)
        elif isinstance(key, str | torch.device):
            device = torch.device(key)
        else:
            raise RuntimeError
    except RuntimeError:
        raise ValueError(
            f"[kerf.place] {argument} names {shown(key)}; expected devices and 'disk': 0, "
            "'cuda:0', 'cpu'"
        ) from None
    if device.type == "cpu":
        return CPU
    number = device.index or 0
    if kind is None or kind.type != device.type or number >= torch.accelerator.device_count():
        there = "none" if kind is None else f"{torch.accelerator.device_count()} of {kind.type}"
        way_out = "; let the CPU compute: {'cpu': '4GiB', 'disk': 'folder'}" if kind is None else ""
        raise ValueError(
            f"[kerf.place] {argument} names {shown(key)}; expected an accelerator that this "
            f"machine has ({there}), 'cpu' or 'disk'{way_out}"
        )
    return torch.device(device.type, number)


def _bytes(key, size):
    if isinstance(size, str):
        size = _core.parse_bytes(size)
    if not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 0:
        raise ValueError(
            f"[kerf.place] max_memory[{key!r}] is {shown(size)}; expected bytes, or a text such as "
            "'4GiB'"
        )
    return int(size)


def _folder(of_memory, offload_folder):
    given = {"max_memory['disk']": of_memory, "offload_folder": offload_folder}
    given = {name: folder for name, folder in given.items() if folder is not None}
    for name, folder in given.items():
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            raise ValueError(
                f"[kerf.place] {name} is {shown(folder)}; expected the path of a folder"
            )
        if not pathlib.Path(folder).is_dir():
            raise ValueError(
                f"[kerf.place] {name} is {shown(os.fspath(folder))}; expected a folder that "
                "exists; make it first"
            )
    if len({os.path.realpath(folder) for folder in given.values()}) > 1:
        raise ValueError(
            f"[kerf.place] max_memory['disk'] is {shown(os.fspath(of_memory))} and offload_folder "
            f"{shown(os.fspath(offload_folder))}; expected one folder; leave one of them out"
        )
    return next(iter(given.values()), None)
