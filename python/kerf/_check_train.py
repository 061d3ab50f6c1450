# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A training step of a pipeline beside the same step of the model itself."""

import torch

from kerf import _core, _pytree
from kerf._call import module_finder
from kerf._restore import attributes_restored, buffers_restored
from kerf._targets import cut_target, weights_of
from kerf._train import micro_batches, output_number


def check(pipe, model, tolerance, args, kwargs):
    """See ``Pipeline.check_train``."""
    options = {k: kwargs.pop(k) for k in _OPTIONS if k in kwargs}
    found = _on_trial(model, lambda: pipe.train_step(*args, **options, **kwargs))
    expected = _on_trial(model, lambda: _model_step(pipe, model, args, kwargs, **options))
    worst, where = 0.0, ""
    for name, (a, b) in _pairs(found, expected).items():
        difference = _relative(a, b)
        if not difference <= worst:
            worst, where = difference, name
    if not worst <= tolerance:
        raise RuntimeError(
            f"[kerf.check_train] {where} differs from the model's by {worst:.3g}, relative to its "
            f"largest number; expected at most {tolerance:.3g}; set dropout to 0 for this check, "
            "or report the model"
        )
    return worst


_OPTIONS = ("target", "loss_fn", "loss", "reduction", "weight")


def _model_step(
    pipe, model, args, kwargs, target=None, loss_fn=None, loss="loss", reduction="mean", weight=None
):
    """The same micro-batches, one after the other, on the model itself."""
    if loss_fn is None and target is not None:
        kwargs = {**kwargs, "target": target}
    graph, signature = pipe.graph, pipe._signature
    inputs, _ = signature.inputs(args, kwargs)
    dims = _core.input_dims(graph)
    sizes = micro_batches(pipe.plan, inputs, dims)
    targets = cut_target(target if loss_fn is not None else None, sizes, pipe._factors)
    shares = weights_of(weight, targets) or [float(size) for size in sizes]
    total = sum(shares)
    value, done = 0.0, 0
    for part, (size, one) in enumerate(zip(sizes, targets, strict=True)):
        rows = [
            t if d < 0 or len(sizes) == 1 else t.narrow(d, done * f, size * f)
            for t, (d, f) in zip(inputs, dims, strict=True)
        ]
        own_args, own_kwargs = signature.arguments_of(rows, module=module_finder(model))
        result = model(*own_args, **own_kwargs)
        made = loss_fn(result, one) if loss_fn is not None else _named(graph, result, loss)
        share = 1.0 if reduction == "sum" or len(sizes) == 1 else shares[part] / total
        (made * share).backward()
        value = value + made.detach() * share
        done += size
    return value


def _named(graph, result, loss):
    number = output_number(graph, loss)
    return _pytree.describe(result).tensors[number]


def _on_trial(model, step):
    """Loss and gradients of a step; the model and random numbers stay as they are."""
    parameters = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    kept = [p.grad for _, p in parameters]
    with (
        attributes_restored(model),
        buffers_restored(model),
        torch.random.fork_rng(),
        torch.enable_grad(),
    ):
        try:
            for _, p in parameters:
                p.grad = None
            out = {"loss": step().detach().clone()}
            for name, p in parameters:
                if p.grad is not None:
                    out[name] = (p.grad.to_dense() if p.grad.is_sparse else p.grad).detach()
        finally:
            for (_, p), gradient in zip(parameters, kept, strict=True):
                p.grad = gradient
    return out


def _pairs(found, expected):
    """By name; zeros stand for a gradient that one of the two has not."""
    names = {**expected, **found}
    return {
        n: (found.get(n, torch.zeros_like(v)), expected.get(n, torch.zeros_like(v)))
        for n, v in names.items()
    }


def _relative(a, b):
    if not a.numel():
        return 0.0
    scale = max(b.abs().max().item(), a.abs().max().item(), 1e-12)
    return (a.cpu() - b.cpu()).abs().max().item() / scale
