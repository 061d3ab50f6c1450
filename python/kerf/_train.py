# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a training step is asked for: its loss, what micro-batches count, targets cut as inputs."""

import torch

from kerf import _core, _pytree
from kerf._arguments import found as shown_kind
from kerf._arguments import shown
from kerf._backward import global_backward_hooks, hook_name
from kerf._call import module_finder
from kerf._errors import warn
from kerf._opaque import covers
from kerf._restore import attributes_restored, buffers_restored
from kerf._separate import batch_of

_REDUCTIONS = ("mean", "sum")


class Loss:
    """How the loss of a micro-batch is made, checked once for a pipeline.

    ``loss_fn(result, target)``, or, without one, the model's own output ``loss``.
    """

    def __init__(self, graph, loss_fn, loss, reduction, weighted, n_microbatches, independent):
        self._output = None if loss_fn is not None else _output_number(graph, loss)
        if loss_fn is None:
            _check_real(_dtype_of(graph.outputs[self._output]), f"output '{loss}'")
        self._targets, self._ignored = [], 0
        if n_microbatches > 1 and not graph.is_static:
            path = "" if loss_fn is not None else loss
            verdict, self._targets, self._ignored = _core.check_trained_batch(
                graph, path, reduction, weighted, independent
            )
            _say(verdict, n_microbatches, independent)

    def check_targets(self, graph, inputs):
        """Raises ValueError where a mean over targets would not be one over samples."""
        for i in self._targets:
            if bool((inputs[i] == self._ignored).any()):
                path = graph.inputs[i]["path"]
                raise ValueError(
                    f"[kerf.train_step] input '{path}' holds targets that are ignored "
                    f"({self._ignored}), so that micro-batches count by their other targets; "
                    "expected weight=, a function that gives a micro-batch's number of them: "
                    "train_step(..., weight=[...]) or weight=lambda target: ..."
                )

    def call(self, loss_fn, result, model, given, targets):
        """What C++ calls with the results of a micro-batch; or the number of an output."""
        if loss_fn is None:
            return self._output

        def loss(leaves, microbatch, batch):
            value = result.build(leaves, batch=batch, model=model, given=given)
            made = loss_fn(value, targets[microbatch])
            if isinstance(made, torch.Tensor):
                _check_real(str(made.dtype), "what loss_fn gave")
            return made

        return loss


def _output_number(graph, loss):
    for number, output in enumerate(graph.outputs):
        if output["path"] == loss:
            return number
    names = ", ".join(repr(o["path"]) for o in graph.outputs)
    raise ValueError(
        f"[kerf.train_step] the model has no output {loss!r}; expected the one that is its loss, "
        f"of {names}; name it with loss=, or give loss_fn= and target="
    )


def _dtype_of(output):
    return output["value"]["dtype"] if output["kind"] == "value" else ""


def _check_real(dtype, what):
    if "complex" in dtype:
        raise ValueError(
            f"[kerf.train_step] {what} is {dtype.removeprefix('torch.')}; expected a real loss; "
            "take its absolute value or its real part"
        )


def _say(verdict, n_microbatches, independent):
    if verdict.batch_norms:
        others = f" and {len(verdict.batch_norms) - 1} more" if len(verdict.batch_norms) > 1 else ""
        warn(
            f"kerf.Pipeline: batch norm '{verdict.batch_norms[0]}'{others} takes the statistics of "
            f"each of the {n_microbatches} micro-batches, and updates its own as often; train with "
            "n_microbatches=1 for those of the batch"
        )
    if verdict.verdict == "unknown" and not independent:
        warn(
            "kerf.Pipeline could not prove that the samples of a batch are treated separately: "
            f"{verdict.reason}; in training that cannot be tried out; pass batch_independent=True "
            "if you know that they are"
        )


def check_reduction(reduction, weight):
    if reduction not in _REDUCTIONS:
        raise ValueError(
            f"[kerf.train_step] reduction is {shown(reduction)}; expected 'mean', where "
            "micro-batches count by their samples or by weight=, or 'sum'"
        )
    if reduction == "sum" and weight is not None:
        raise ValueError(
            "[kerf.train_step] weight is given, and reduction is 'sum', which adds micro-batches "
            "up as they are; expected weight= with 'mean'; leave it out, or multiply in loss_fn"
        )


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


def refuse_hooks(graph, weights, model):
    """Gradients are added to a parameter at once, when the step is over, and modules do not run as
    such outside of blocks: hooks would miss them. Those there at the trace made blocks."""
    for hook, how in global_backward_hooks():
        raise ValueError(
            f"[kerf.train_step] all modules have the backward hook {hook_name(hook)} ({how}), "
            "which a pipeline would not call; expected none; remove it, or register it on the "
            "modules that need it and trace the model again"
        )
    for number, tensor in enumerate(weights):
        hooked = tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None)
        if tensor.requires_grad and hooked:
            name = graph.weights[number]["names"][0]  # asked for only now: it lists all of them
            raise ValueError(
                f"[kerf.train_step] parameter '{name}' has a hook on its gradient, "
                "which a pipeline would not call; expected none; remove it, and do its work after "
                "train_step"
            )
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            if not covers(_block_paths(graph), path):
                raise ValueError(
                    f"[kerf.train_step] module '{path}' has a backward hook that it did not have "
                    "when it was traced; expected none, since a pipeline would not call it; remove "
                    "it, or trace the model again"
                )


def _block_paths(graph):
    return {n["kwargs"]["module"] for n in graph.nodes if n["op"] == "opaque"}


def micro_batches(plan, inputs, dims):
    """The sizes of the micro-batches of a call; one where the batch is fixed."""
    batch, count = batch_of(inputs, dims), plan.n_microbatches
    return _core.micro_batch_sizes(batch, count) if batch and count > 1 else [batch]


def pass_on(inputs, gradients):
    """Gradients of inputs, to where these come from."""
    pairs = [(t, g) for t, g in zip(inputs, gradients, strict=True) if g is not None]
    if pairs:
        torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])


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
    targets = cut_target(target if loss_fn is not None else None, sizes)
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
    number = _output_number(graph, loss)
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
