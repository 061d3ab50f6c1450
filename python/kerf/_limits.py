# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The memory that a model is placed in: a device's, the host's, a folder's."""

import dataclasses
import os
import pathlib

import torch

from kerf import _core
from kerf._arguments import shown

CPU = torch.device("cpu")
_EXPECTED = "expected the memory for weights, {'cpu': '4GiB', 'disk': 'folder'} or {0: '2GiB'}"


@dataclasses.dataclass(frozen=True)
class Limits:
    device: torch.device  # that computes
    bytes: int  # of it, for weights
    host_bytes: int | None  # for weights that an accelerator does not hold; None: no limit
    folder: str | os.PathLike | None  # for those that the host does not hold


def limits_of(max_memory):
    """What ``max_memory`` says: one device that computes, and what feeds it."""
    if not isinstance(max_memory, dict) or not set(max_memory) - {"disk"}:
        raise ValueError(f"[kerf.place] max_memory is {shown(max_memory)}; {_EXPECTED}")
    sizes = {_device(key): (key, size) for key, size in max_memory.items() if key != "disk"}
    accelerators = [device for device in sizes if device != CPU]
    if len(accelerators) > 1:
        raise NotImplementedError(
            f"[kerf.place] max_memory names {len(accelerators)} accelerators; expected one, which "
            "weights are streamed to; kerf.plan cuts a model over several, and kerf.DataFlow puts "
            "each layer where you say"
        )
    host = _bytes(*sizes[CPU]) if CPU in sizes else None
    folder = _folder(max_memory.get("disk"))
    if not accelerators:
        return Limits(CPU, host, None, folder)
    return Limits(accelerators[0], _bytes(*sizes[accelerators[0]]), host, folder)


def _device(key):
    try:
        if isinstance(key, bool) or not isinstance(key, int | str | torch.device):
            raise RuntimeError
        device = torch.device(key)
    except RuntimeError:
        raise ValueError(
            f"[kerf.place] max_memory names {shown(key)}; expected devices and 'disk': 0, "
            "'cuda:0', 'cpu'"
        ) from None
    if device.type == "cpu":
        return CPU
    kind = torch.accelerator.current_accelerator(check_available=True)
    number = device.index or 0
    if kind is None or kind.type != device.type or number >= torch.accelerator.device_count():
        there = "none" if kind is None else f"{torch.accelerator.device_count()} of {kind.type}"
        raise ValueError(
            f"[kerf.place] max_memory names {shown(key)}; expected an accelerator that this "
            f"machine has ({there}), 'cpu' or 'disk'"
        )
    return torch.device(device.type, number)


def _bytes(key, size):
    if isinstance(size, str):
        size = _core.parse_bytes(size)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(
            f"[kerf.place] max_memory[{key!r}] is {shown(size)}; expected bytes, or a text such as "
            "'4GiB'"
        )
    return size


def _folder(folder):
    if folder is None:
        return None
    if not isinstance(folder, str | os.PathLike):
        raise ValueError(
            f"[kerf.place] max_memory['disk'] is {shown(folder)}; expected the path of a folder"
        )
    if not pathlib.Path(folder).is_dir():
        raise ValueError(
            f"[kerf.place] max_memory['disk'] is {shown(os.fspath(folder))}; expected a folder "
            "that exists; make it first"
        )
    return folder
