# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A training step of a pipeline beside the same step of the model itself."""

import torch

from kerf import _classes, _core, _pytree
from kerf._call import module_finder
from kerf._errors import warn
from kerf._restore import attributes_restored, buffers_restored
from kerf._targets import cut_target
from kerf._train import micro_batches, output_number
from kerf._undo import Undo, learning_leaves

# A difference counts in proportion to the largest gradient of the parameter's module, and to at
# least this share of the largest of all: a bias in front of a batch norm has a gradient of zero, of
# which only rounding is left.
_LEAST_SHARE = 1e-3


def check(pipe, model, tolerance, args, kwargs):
    """See ``Pipeline.check_train``."""
    options = {k: kwargs.pop(k) for k in _OPTIONS if k in kwargs}
    if options.get("loss_fn") is None and options.get("target") is not None:
        kwargs["target"] = options.pop("target")  # the model's own argument
    found = _on_trial(model, args, kwargs, options, pipe.train_step)
    expected = _on_trial(
        model, args, kwargs, options, lambda *a, **k: _model_step(pipe, model, a, k)
    )
    worst, where = _largest_difference(_pairs(found, expected))
    if not worst <= tolerance:
        raise RuntimeError(
            f"[kerf.check_train] {where} differs from the model's by {worst:.3g}, relative to the "
            f"largest gradient of its module; expected at most {tolerance:.3g}; set dropout to 0 "
            "for this check, or report the model"
        )
    return worst


_OPTIONS = ("target", "loss_fn", "loss", "reduction", "weight")


def _model_step(pipe, model, args, kwargs):
    """The same micro-batches, one after the other, on the model itself."""
    options = {k: kwargs.pop(k) for k in _OPTIONS if k in kwargs}
    loss_fn, loss = options.get("loss_fn"), options.get("loss", "loss")
    target, reduction = options.get("target"), options.get("reduction", "mean")
    if loss_fn is None and target is not None:
        kwargs["target"] = target
    graph, signature = pipe.graph, pipe._signature
    inputs, _ = signature.inputs(args, kwargs)
    dims = _core.input_dims(graph)
    sizes = micro_batches(pipe.plan, inputs, dims)
    targets = cut_target(target if loss_fn is not None else None, sizes, pipe._factors)
    weight, count = options.get("weight"), pipe.plan.n_microbatches
    asked = pipe._loss(loss_fn, loss, reduction, weight is not None, count)
    shares = asked.weights(weight, inputs, sizes, targets) or [float(size) for size in sizes]
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
        if share:
            (made * share).backward()
            value = value + made.detach() * share
        done += size
    return value


def _named(graph, result, loss):
    number = output_number(graph, loss)
    return _pytree.describe(result).tensors[number]


def _on_trial(model, args, kwargs, options, step):
    """Loss and gradients of a step, by name; the model, random numbers, and the gradients of all
    tensors that take part stay as they are."""
    parameters = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    kept = [p.grad for _, p in parameters]
    args, kwargs, leaves = _own_inputs(args, kwargs)
    undo = Undo()
    with (
        attributes_restored(model),
        buffers_restored(model),
        torch.random.fork_rng(),
        torch.enable_grad(),
    ):
        try:
            for _, p in parameters:
                p.grad = None
            out = {"loss": step(*args, **kwargs, **_watched(options, undo)).detach().clone()}
            for name, p in [*parameters, *leaves.items()]:
                if p.grad is not None:
                    out[name] = (p.grad.to_dense() if p.grad.is_sparse else p.grad).detach()
        finally:
            for failure in undo.restore():
                warn(f"kerf.Pipeline.check_train: something was not put back: {failure}")
            for (_, p), gradient in zip(parameters, kept, strict=True):
                p.grad = gradient
    return out


def _own_inputs(args, kwargs):
    """The arguments with tensors of their own, and those among them that get a gradient, by name:
    nothing is added to the caller's, and what made them does not run backward."""
    given = _pytree.describe([list(args), kwargs])
    leaves, tensors = {}, []
    for path, tensor in zip(given.paths, given.tensors, strict=True):
        own = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        if tensor.requires_grad:
            leaves[f"input {path}"] = own
        # A model may write what is no leaf.
        tensors.append(own if tensor.is_leaf else own.clone())
    args, kwargs = _pytree.build(given.spec, tensors, classes=_classes.OWN)
    return args, kwargs, leaves


def _watched(options, undo):
    """The options, with a loss that keeps the gradients which its own backward adds to."""
    loss_fn = options.get("loss_fn")
    if loss_fn is None:
        return options

    def watched(result, target):
        made = loss_fn(result, target)
        undo.keep_gradients(learning_leaves([made]))
        return made

    return {**options, "loss_fn": watched}


def _pairs(found, expected):
    """By name; zeros stand for a gradient that one of the two has not."""
    names = {**expected, **found}
    return {
        n: (found.get(n, torch.zeros_like(v)).cpu(), expected.get(n, torch.zeros_like(v)).cpu())
        for n, v in names.items()
    }


def _largest_difference(pairs):
    """``(difference, name)``: the largest in proportion."""
    own = {name: max(map(_largest, pair)) for name, pair in pairs.items()}
    modules = {}
    for name, size in own.items():
        modules[_module_of(name)] = max(size, modules.get(_module_of(name), 0.0))
    overall = max((size for name, size in own.items() if name != "loss"), default=0.0)
    worst, where = 0.0, ""
    for name, (a, b) in pairs.items():
        scale = own[name]
        if name != "loss":
            scale = max(modules[_module_of(name)], _LEAST_SHARE * overall)
        difference = _largest(a - b) / max(scale, 1e-12)
        difference = difference if difference == difference else float("inf")
        if difference > worst:
            worst, where = difference, name
    return worst, where


def _module_of(name):
    return name.rpartition(".")[0] or name


def _largest(tensor):
    return tensor.abs().max().item() if tensor.numel() else 0.0
