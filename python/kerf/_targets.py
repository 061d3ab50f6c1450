# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Targets of a training step, cut as its inputs are, and what micro-batches count."""

from kerf import _core, _pytree
from kerf._arguments import found as shown_kind
from kerf._symbols import evaluate


def rows_per_sample(graph):
    """How many rows a sample may have in a target: one, or as many as in an input or an output."""
    found = {1, *(factor for dim, factor in _core.input_dims(graph) if dim >= 0)}
    for output in graph.outputs:
        shape = output["value"]["shape"] if output["kind"] == "value" else ()
        if shape and isinstance(shape[0], str):
            one, two = (evaluate(shape[0], batch) for batch in (1, 2))
            found |= {one} if two == 2 * one else set()
    return found


def cut_target(target, sizes, factors):
    """``target``, any nesting of tensors, for each micro-batch; a sample may have as many rows as
    ``factors`` says. Raises ValueError that names the tensor which does not hold the batch."""
    if len(sizes) == 1:
        return [target]
    batch = sum(sizes)
    described = _described(target)
    _refuse_samples_in_lists(described.spec, "target", batch)
    for path, tensor in zip(described.paths, described.tensors, strict=True):
        length = tensor.shape[0] if tensor.ndim else 0
        if length == 0 or length % batch or length // batch not in factors:
            fix = "put what is no batch into loss_fn itself"
            if length and length % batch == 0:
                fix = f"give it a row for each sample (unflatten(0, ({batch}, -1))), or {fix}"
            raise ValueError(
                f"[kerf.train_step] {path} is {tuple(tensor.shape)} and the batch has {batch} "
                "samples; expected its first dimension to hold them, so that it can be cut into "
                f"micro-batches; {fix}"
            )
    parts = []
    done = 0
    for size in sizes:
        rows = [_rows(tensor, done, size, batch) for tensor in described.tensors]
        parts.append(_pytree.build(described.spec, rows))
        done += size
    return parts


def _described(target):
    try:
        return _pytree.describe(target, root="target")
    except _pytree.PytreeError as error:
        what = str(error).partition("] ")[2].partition(";")[0]
        raise ValueError(
            f"[kerf.train_step] {what}; expected tensors, in any nesting of lists, dictionaries "
            "and objects with fields, so that they can be cut into micro-batches; give arrays as "
            "tensors (torch.as_tensor), and what is no batch in loss_fn itself"
        ) from None


def _refuse_samples_in_lists(spec, path, batch):
    """A list without tensors is given whole to every micro-batch, which is wrong for one of
    samples: the target itself, and one of the batch's length."""
    kind = next(iter(spec)) if isinstance(spec, dict) else ""
    if kind == "dict":
        for key, value in spec[kind]:
            _refuse_samples_in_lists(value, f"{path}.{key}", batch)
    if kind not in ("list", "tuple"):
        return
    items = spec[kind]
    if items and not _holds_tensors(items) and (path == "target" or len(items) == batch):
        raise ValueError(
            f"[kerf.train_step] {path} is a {kind} of {len(items)} values that are no tensors, and "
            "every micro-batch would be given all of them; expected a tensor; make it one "
            "(torch.tensor), or put what is no batch into loss_fn itself"
        )
    for i, item in enumerate(items):
        _refuse_samples_in_lists(item, f"{path}.{i}", batch)


def _holds_tensors(spec):
    if isinstance(spec, dict):
        return "t" in spec or any(map(_holds_tensors, spec.values()))
    return isinstance(spec, list) and any(map(_holds_tensors, spec))


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
