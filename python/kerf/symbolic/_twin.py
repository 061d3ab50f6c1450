# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A model's twin without data, on which it runs in no time and no memory.

The model itself is not touched: its parameters stay where they are, and what a run writes (running
statistics) goes into the twin.
"""

import torch


class Twins:
    """Tensors and modules without data, each made once: weights that are shared stay shared."""

    def __init__(self):
        self._tensors = {}  # id -> (tensor, twin)
        self._modules = {}  # id -> (module, twin)
        self._memories = {}  # a storage -> (itself, its twin)

    def tensor(self, tensor):
        found = self._tensors.get(id(tensor))
        if found is None:
            found = self._tensors[id(tensor)] = (tensor, self._make_tensor(tensor))
        return found[1]

    def module(self, module):
        """The twin of a module: the same code and the same plain attributes."""
        found = self._modules.get(id(module))
        if found is None:
            twin = module.__class__.__new__(module.__class__)
            found = self._modules[id(module)] = (module, twin)  # first: modules may hold parents
            self._fill(twin, module)
        return found[1]

    def value(self, item):
        """Of a plain attribute: tensors, also in lists, have twins; the rest is as it is."""
        if isinstance(item, torch.Tensor):
            return self.tensor(item)
        if isinstance(item, torch.nn.Module):
            return self.module(item)
        if type(item) in (list, tuple) and any(isinstance(i, torch.Tensor) for i in item):
            return type(item)(map(self.value, item))
        return item

    def _fill(self, twin, module):
        # Past __setattr__ and __setstate__: this copies what is there and decides nothing.
        state = {key: self.value(item) for key, item in module.__dict__.items()}
        for name, make in (("_parameters", self.tensor), ("_buffers", self.tensor)):
            own = module.__dict__.get(name, {})
            state[name] = {key: item if item is None else make(item) for key, item in own.items()}
        children = module.__dict__.get("_modules", {})
        state["_modules"] = {
            key: item if item is None else self.module(item) for key, item in children.items()
        }
        if isinstance(module, _NORMS) and module.momentum is None:
            state["momentum"] = 0.0  # or else it reads how many batches it has seen
        twin.__dict__.update(state)

    def _make_tensor(self, tensor):
        twin = self._without_data(tensor)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(twin, requires_grad=tensor.requires_grad)
        return twin.requires_grad_(tensor.requires_grad)

    def _without_data(self, tensor):
        if tensor.layout is not torch.strided or torch._is_functional_tensor(tensor):
            return tensor.detach().to("meta")
        sizes, strides = tensor.size(), tensor.stride()
        if type(tensor) not in _PLAIN:
            return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="meta")
        memory = tensor.untyped_storage()
        known = self._memories.get(memory._cdata)
        if known is None:
            if memory.nbytes() == tensor.numel() * tensor.element_size():
                made = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="meta")
            else:
                made = torch.empty(memory.nbytes(), dtype=torch.uint8, device="meta")
            known = self._memories[memory._cdata] = (memory, made.untyped_storage())
            if made.dtype == tensor.dtype and made.shape == sizes:
                return made
        empty = torch.empty(0, dtype=tensor.dtype, device="meta")
        return empty.set_(known[1], tensor.storage_offset(), sizes, strides)


_PLAIN = (torch.Tensor, torch.nn.Parameter)
_NORMS = torch.nn.modules.batchnorm._NormBase
