# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors without data, and models made of them.

``with MetaTensorMode(): model = Model()`` builds a model of any size in no memory. A ``MetaTensor``
is a tensor of the meta device that says it is on another: devices are followed through operators,
and those that do not go together are refused as PyTorch does.
"""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

from kerf._arguments import found
from kerf.symbolic._calls import is_setter, name_of
from kerf.symbolic._devices import device_from, factories, named_device, result_device
from kerf.symbolic._trees import map_tree, tensors_in
from kerf.symbolic._values import MOVES, _on_meta, empty_like

# What makes weights. Tables of numbers, such as arange, keep their data: code reads them.
_WEIGHTS = ("empty", "eye", "full", "ones", "rand", "randn", "zeros", "empty_strided", "normal")
_COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
)
_PLAIN = torch._C.DisableTorchFunctionSubclass


class MetaTensor(torch.Tensor):
    """``MetaTensor(tensor, device)``: its shape, strides, dtype and gradient flag, without data.

    ``advertised`` is the device it stands for: the given one, or else the tensor's, or the host for
    a tensor of the meta device. Storage is shared where PyTorch would share it.
    """

    @staticmethod
    def __new__(cls, elem: torch.Tensor, device: torch.device | str | None = None) -> MetaTensor:
        if not isinstance(elem, torch.Tensor):
            raise TypeError(
                f"[symbolic.MetaTensor] elem is {found(elem)}; expected a tensor; pass one"
            )
        if isinstance(elem, MetaTensor) and device is None:
            return elem
        device = device_from("MetaTensor", device) or _device_of(elem)
        with _PLAIN():
            plain = elem if elem.is_meta else empty_like(elem)
            made = plain.as_subclass(cls) if plain.grad_fn is not None else _leaf(cls, plain, elem)
        made.advertised = device
        if isinstance(elem, torch.nn.Parameter):
            made._is_param = True
        return made

    def __init__(self, elem: torch.Tensor, device: torch.device | str | None = None) -> None:
        pass

    def __repr__(self):
        with _PLAIN():
            shape, dtype = tuple(self.shape), self.dtype
        return f"MetaTensor({shape}, dtype={dtype}, device='{self.advertised}')"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = name_of(func)
        first = args[0] if args and isinstance(args[0], MetaTensor) else None
        if first is not None and name in ("device", "is_cuda", "is_cpu", "is_meta"):
            return first.advertised if name == "device" else first.advertised.type == name[3:]
        if first is not None and name == "get_device":
            return -1 if first.advertised.index is None else first.advertised.index
        if first is not None and name == "__deepcopy__":
            return cls(torch.empty_like(_plain(first)), first.advertised)
        with _PLAIN():
            if is_setter(func):
                return func(*args, **kwargs)
            return _called(func, name, args, kwargs)


def _called(func, name, args, kwargs):
    tensors = tensors_in((args, kwargs))
    device = result_device(name, args, kwargs, _device_of) if tensors else None
    before = {id(t): t for t in tensors}
    plain_args, plain_kwargs = map_tree(_plain, (args, kwargs))
    same = {id(_plain(t)): t for t in tensors}
    if named_device(name, args, kwargs) is not None:
        plain_args, plain_kwargs = _on_meta(func, name, plain_args, plain_kwargs, device)
    if name in MOVES:
        return args[0] if device == args[0].advertised else _wrapped(plain_args[0].clone(), device)
    result = func(*plain_args, **plain_kwargs)

    def wrapped(item):
        if not isinstance(item, torch.Tensor):
            return item
        if id(item) in before:
            moved = name == "to" and _device_of(item) != device
            return _wrapped(item.clone(), device) if moved else item
        return same.get(id(item)) if id(item) in same else _wrapped(item, device)

    return map_tree(wrapped, result)


def _wrapped(tensor, device):
    made = tensor.as_subclass(MetaTensor)
    made.advertised = device
    return made


def _plain(item):
    if isinstance(item, torch.Tensor) and not item.is_meta:
        return empty_like(item)
    return item


def _leaf(cls, plain, elem):
    made = torch.Tensor._make_subclass(cls, plain.detach(), elem.requires_grad)
    return made


def _device_of(tensor):
    if isinstance(tensor, MetaTensor):
        return tensor.advertised
    with _PLAIN():
        return torch.device("cpu") if tensor.is_meta else tensor.device


class MetaTensorMode(TorchFunctionMode):
    """Within the block, in this thread: tensors are made without data.

    Those that torch.empty, eye, full, ones, rand, randn and zeros make are on the meta device, or
    are a MetaTensor where another device than the host is asked for, here with ``device`` or at the
    call. Tables such as ``torch.arange`` keep their numbers; where one meets a tensor without data,
    it is taken without. Collectives do nothing. Nothing is patched; blocks may be nested.
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.device = device_from("MetaTensorMode", device)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = name_of(func)
        if func in factories() and name in _WEIGHTS:
            return self._made(func, args, kwargs)
        if name in _COLLECTIVES and "distributed" in (getattr(func, "__module__", "") or ""):
            return None
        tensors = tensors_in((args, kwargs))
        if any(t.is_meta for t in tensors) and not all(t.is_meta for t in tensors):
            args, kwargs = map_tree(_plain, (args, kwargs))
        return func(*args, **kwargs)

    def _made(self, func, args, kwargs):
        asked = kwargs.get("device")
        device = device_from("MetaTensorMode", asked) or self.device
        made = func(*args, **{**kwargs, "device": "meta"})
        if device is None or device.type in ("cpu", "meta"):
            return made
        return MetaTensor(made, device)
