# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Which dimension of which input is the batch, and the example tensors a trace is made with."""

import collections
import dataclasses

import torch


@dataclasses.dataclass
class Batch:
    """The batch of one call. ``dims[i]`` is its dimension in tensor input i, or None."""

    dims: list
    size: int  # in the user's example; 0 when no input has a batch
    asked: bool  # by batch_dims=, not guessed

    @property
    def traced_size(self):
        # Export takes a size of one for a fact about the model, so one is traced as two.
        return self.size if self.size > 1 else 2

    def without(self, numbers):
        """The same, with the inputs in ``numbers`` no longer batched."""
        dims = [None if i in numbers else d for i, d in enumerate(self.dims)]
        batched = any(d is not None for d in dims)
        return Batch(dims, self.size if batched else 0, self.asked)


def find_batch(tensors, paths, batch_dims):
    """Guesses the batch, or reads ``batch_dims``: a dimension for all inputs, or one by name."""
    if batch_dims is None:
        return _guess(tensors)
    if isinstance(batch_dims, int):
        batch_dims = dict.fromkeys(paths, batch_dims)
    dims = [None] * len(tensors)
    for name, dim in batch_dims.items():
        number = _number_of(str(name), paths)
        if dim is None:
            continue
        rank = tensors[number].ndim
        if not -rank <= dim < rank:
            raise ValueError(
                f"[trace] batch_dims gives dimension {dim} for {name}, which has {rank}; "
                "expected one of its dimensions"
            )
        dims[number] = dim % rank
    sizes = {paths[i]: tensors[i].shape[d] for i, d in enumerate(dims) if d is not None}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"[trace] batch_dims names sizes that differ: {sizes}; expected one batch size; "
            "name the batch dimension of each input, and only inputs that have one"
        )
    return Batch(dims, next(iter(sizes.values()), 0), True)


def _number_of(name, paths):
    for number, path in enumerate(paths):
        if path == name or path.partition(".")[2] == name:
            return number
    raise ValueError(
        f"[trace] batch_dims names '{name}'; expected one of the tensor inputs: {', '.join(paths)}"
    )


def _guess(tensors):
    # The size most inputs begin with, the first input's where two are as frequent: a mask or a
    # table of positions beside the samples does not decide.
    firsts = [t.shape[0] if t.ndim else None for t in tensors]
    counts = collections.Counter(f for f in firsts if f is not None)
    if not counts:
        return Batch([None] * len(tensors), 0, False)
    size = max(counts, key=lambda f: (counts[f], -firsts.index(f)))
    return Batch([0 if f == size else None for f in firsts], size, False)


def example_tensors(tensors, batch, device):
    """Tensors to trace with: the user's own, or empty ones where those would not do.

    They would not where the batch has to be another, where they are on the meta device, or where
    they are part of a larger tensor: gaps between their rows say nothing about other calls. No
    tensor occurs twice, so that two inputs stay two even when one tensor was passed for both.
    """
    return [_example(t, d, batch, device) for t, d in zip(tensors, batch.dims, strict=True)]


def _example(tensor, dim, batch, device):
    resized = dim is not None and tensor.shape[dim] != batch.traced_size
    if resized or tensor.is_meta or not _is_dense(tensor):
        return _empty(tensor, dim, batch, device if tensor.is_meta else tensor.device)
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _is_dense(tensor):
    if tensor.layout is not torch.strided:
        return True
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _empty(tensor, dim, batch, device):
    shape = list(tensor.shape)
    if dim is not None:
        shape[dim] = batch.traced_size
    # Same order of dimensions in memory; a batch of one leaves its own place open: outermost.
    free = dim if dim is not None and tensor.shape[dim] == 1 else None
    order = sorted(range(len(shape)), key=lambda d: (d != free, -tensor.stride(d), d))
    strides = [0] * len(shape)
    step = 1
    for d in reversed(order):
        strides[d] = step
        step *= max(shape[d], 1)
    made = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=device)
    return made.requires_grad_(tensor.requires_grad)
