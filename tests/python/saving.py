# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What backward keeps of a call, as PyTorch's hooks see it."""

import gc
import weakref

import torch


class _Kept:
    """A tensor that a node of the autograd graph keeps; dies with the node."""

    def __init__(self, tensor):
        self.tensor = tensor.detach()


def kept_bytes(model, args, kwargs):
    """Bytes of the distinct storages that backward needs, parameters and buffers left out."""
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    kept = []

    def pack(tensor):
        entry = _Kept(tensor)
        kept.append(weakref.ref(entry))
        return entry

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda entry: entry.tensor):
        result = model(*args, **kwargs)
    gc.collect()  # of calls whose results nobody needs
    storages = {}
    for entry in kept:
        if entry() is not None:
            storage = entry().tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    del result
    return sum(size for place, size in storages.items() if place not in own)
