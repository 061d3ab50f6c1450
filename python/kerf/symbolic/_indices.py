# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Indices of tensors without data."""

import torch

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)
_MASKS = (torch.bool, torch.uint8)


def mask_counts(index, known):
    """How many elements each mask of an index takes; None where that is not ``known``."""
    masks = [part for part in _parts(index) if _is_mask(part)]
    numbers = [known(mask) for mask in masks]
    return [None if n is None else int(torch.count_nonzero(n)) for n in numbers]


def index_without_data(index, counts=()):
    """An index whose result has the same shape, and which no number is read for: masks become as
    many indices as they take elements, and a tensor that is a single number becomes 0."""
    if not any(isinstance(part, torch.Tensor | list) for part in _parts(index)):
        return index
    made, counts = [], list(counts)
    for part in _parts(index):
        if _is_mask(part):
            count = counts.pop(0) if counts else None
            if count is None:
                raise RuntimeError("the shape of x[mask] is data-dependent")
            made += [torch.empty(count, dtype=torch.int64, device="meta")] * part.dim()
        elif isinstance(part, list) and part and all(isinstance(i, bool) for i in part):
            made.append(torch.empty(sum(part), dtype=torch.int64, device="meta"))
        elif _is_number(part):
            made.append(0)
        else:
            made.append(part)
    return tuple(made)


def place_without_data(index):
    """The index of what is written: masks stay, a tensor that is a single number becomes 0."""
    parts = tuple(0 if _is_number(part) else part for part in _parts(index))
    return parts if isinstance(index, tuple) else parts[0]


def _is_number(part):
    return isinstance(part, torch.Tensor) and part.dim() == 0 and part.dtype in _INTEGERS


def _parts(index):
    return index if isinstance(index, tuple) else (index,)


def _is_mask(part):
    return isinstance(part, torch.Tensor) and part.dtype in _MASKS
