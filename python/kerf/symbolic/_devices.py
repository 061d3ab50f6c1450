# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""On which device a result would be, and when PyTorch would refuse: tensors without data are all on
the meta device, so that somebody has to remember where they stand for.
"""

import functools

import torch
from torch.utils._device import _device_constructors

from kerf._arguments import found
from kerf.symbolic._trees import tensors_in

CPU = torch.device("cpu")
# Operators that move data, or that read indices from anywhere.
_MOVES = {"to", "cpu", "cuda", "type_as", "copy_", "_to_copy"}
_INDEXES = {"__getitem__", "__setitem__", "getitem", "setitem", "index_put", "index_put_"}


def device_from(where, given):
    """What a user gave for a device, which need not be present; None stays None."""
    if given is None:
        return None
    try:
        return numbered(torch.device(given))
    except (RuntimeError, TypeError, ValueError):
        raise TypeError(
            f"[symbolic.{where}] device is {found(given)}; expected a device of PyTorch; write "
            "'cuda:1' or 'cpu'"
        ) from None


def numbered(device):
    """``cuda`` alone is the current device, as which tensors there say they are."""
    if device.index is not None or device.type in ("cpu", "meta"):
        return device
    current = torch.cuda.current_device() if _is_in_use(device) else 0
    return torch.device(device.type, current)


def _is_in_use(device):
    return device.type == "cuda" and torch.cuda.is_initialized()


@functools.cache
def factories():
    """Functions that make tensors out of nothing."""
    return frozenset(_device_constructors())


def named_device(name, args, kwargs):
    """The device that a call asks for, or None."""
    asked = kwargs.get("device")
    if asked is None and name == "to" and len(args) > 1:
        asked = args[1] if isinstance(args[1], str | torch.device | int) else None
    if asked is not None and not isinstance(asked, torch.Tensor):
        return numbered(torch.device(asked))
    if name == "cpu":
        return CPU
    if name == "cuda":
        which = args[1] if len(args) > 1 and args[1] is not None else "cuda"
        return numbered(torch.device("cuda", which) if type(which) is int else torch.device(which))
    return None


def result_device(name, args, kwargs, device_of):
    """Where the results of a call are. Raises RuntimeError for devices that do not go together."""
    asked = named_device(name, args, kwargs)
    if asked is not None:
        return asked
    tensors = tensors_in((args, kwargs))
    if not tensors:
        return torch.get_default_device()
    if name in ("to", "type_as") and len(tensors) > 1:
        return device_of(tensors[1])
    if name.startswith("new_") or name in _MOVES or name in _INDEXES:
        return device_of(tensors[0])
    return _common(name, tensors, device_of)


def _common(name, tensors, device_of):
    """A number on the host goes with tensors of any device."""
    large = [t for t in tensors if t.dim()] or tensors
    devices = list(dict.fromkeys(map(device_of, large)))
    accelerators = [d for d in devices if d != CPU]
    scalars_on_host = all(device_of(t) == CPU for t in tensors if not t.dim())
    if len(devices) > 1 and not (large is tensors and scalars_on_host and len(accelerators) == 1):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {name} found at least two "
            f"devices, {devices[0]} and {devices[1]}"
        )
    return accelerators[0] if accelerators else devices[0]
