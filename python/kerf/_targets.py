# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Targets of a training step, cut as its inputs are, and what micro-batches count."""

from kerf import _pytree
from kerf._arguments import found as shown_kind


def cut_target(target, sizes):
    """``target``, any nesting of tensors, for each micro-batch. Raises ValueError that names the
    tensor which is not as long as the batch."""
    if len(sizes) == 1:
        return [target]
    described = _pytree.describe(target)
    batch = sum(sizes)
    for path, tensor in zip(described.paths, described.tensors, strict=True):
        length = tensor.shape[0] if tensor.ndim else 0
        if length == 0 or length % batch:
            name = ".".join(part for part in ("target", path) if part)
            raise ValueError(
                f"[kerf.train_step] {name} is {tuple(tensor.shape)} and the batch has {batch} "
                "samples; expected its first dimension to hold them, so that it can be cut into "
                "micro-batches; put what is no batch into loss_fn itself"
            )
    parts = []
    done = 0
    for size in sizes:
        rows = [_rows(tensor, done, size, batch) for tensor in described.tensors]
        parts.append(_pytree.build(described.spec, rows))
        done += size
    return parts


def _rows(tensor, done, size, batch):
    factor = tensor.shape[0] // batch
    return tensor.narrow(0, done * factor, size * factor)


def weights_of(weight, targets):
    """What each micro-batch counts: numbers, or a function of its target."""
    if weight is None:
        return []
    numbers = [weight(t) for t in targets] if callable(weight) else list(weight)
    if len(numbers) != len(targets):
        raise ValueError(
            f"[kerf.train_step] weight has {len(numbers)} numbers; expected one for each of the "
            f"{len(targets)} micro-batches, or a function of a micro-batch's target"
        )
    out = []
    for number in numbers:
        try:
            value = float(number)
        except (TypeError, ValueError):
            value = float("nan")
        if not 0 <= value < float("inf"):
            raise ValueError(
                f"[kerf.train_step] weight gives {shown_kind(number)}; expected numbers of at "
                "least 0, such as the number of targets that count"
            )
        out.append(value)
    return out
