# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What nodes hold: parameters, buffers and constants. Each is read once."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule


def _held(module: nn.Module, kind: str) -> list[torch.Tensor]:
    """Its "parameters" or "buffers", each once; a leaf's own table is faster than asking."""
    if module._modules:
        return list(getattr(module, kind)())
    own = getattr(module, f"_{kind}").values()
    return [tensor for tensor in dict.fromkeys(own) if tensor is not None]


class Modules:
    """The attributes of one GraphModule by dotted name; answers about them are remembered."""

    def __init__(self, root: GraphModule) -> None:
        self.root = root
        self._modules = dict(root.named_modules(remove_duplicate=False))
        self._parameters: dict[str, tuple[int, int]] = {}
        self._weights: dict[str, list[tuple[int, int]]] = {}
        self._storages: dict[object, int] = {}

    def attribute(self, path: str) -> Any:
        """A module, tensor or anything else; None where there is none."""
        if path in self._modules:
            return self._modules[path]
        owner: Any = self.root
        for atom in path.split("."):
            owner = getattr(owner, atom, None)
        return owner

    def parameters(self, path: str) -> tuple[int, int]:
        """How many elements the parameters under a module have, and their bytes."""
        if path not in self._parameters:
            module = self.attribute(path)
            elements = own_bytes = 0
            for tensor in _held(module, "parameters") if isinstance(module, nn.Module) else ():
                count = tensor.numel()
                elements += count
                own_bytes += count * tensor.dtype.itemsize
            self._parameters[path] = elements, own_bytes
        return self._parameters[path]

    def weights(self, path: str) -> list[tuple[int, int]]:
        """Number and bytes of every storage that a module, or a constant, needs."""
        if path not in self._weights:
            value = self.attribute(path)
            tensors = [value] if isinstance(value, torch.Tensor) else []
            if isinstance(value, nn.Module):
                tensors = [*_held(value, "parameters"), *_held(value, "buffers")]
            self._weights[path] = list(dict(self._storage(t) for t in tensors).items())
        return self._weights[path]

    def _storage(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Tensors that share their memory share its number."""
        try:
            storage = tensor.untyped_storage()
            key: object = storage._cdata
            size = storage.nbytes()
        except (NotImplementedError, RuntimeError):  # sparse and wrapped ones have none
            key, size = id(tensor), tensor.numel() * tensor.dtype.itemsize
        return self._storages.setdefault(key, len(self._storages)), size
