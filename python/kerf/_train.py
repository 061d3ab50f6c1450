# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a training step is asked for: its loss, and a model without hooks; where gradients go."""

import torch

from kerf import _core, _torch
from kerf._arguments import shown
from kerf._backward import global_backward_hooks, hook_name
from kerf._errors import warn
from kerf._opaque import covers, paths_of
from kerf._separate import batch_of, refuse_ignored
from kerf._targets import weights_of
from kerf._undo import learning_leaves, nodes_of

_REDUCTIONS = ("mean", "sum")


class Loss:
    """How the loss of a micro-batch is made, checked once for a pipeline.

    ``loss_fn(result, target)``, or, without one, the model's own output ``loss``.
    """

    def __init__(self, graph, loss_fn, loss, reduction, weighted, n_microbatches, independent):
        self._output = None if loss_fn is not None else output_number(graph, loss)
        if loss_fn is None:
            _check_real(_dtype_of(graph.outputs[self._output]), f"output '{loss}'")
        self._targets = []
        self._graph = graph
        if n_microbatches > 1 and not graph.is_static:
            path = "" if loss_fn is not None else loss
            verdict, self._targets = _core.check_trained_batch(
                graph, path, reduction, weighted, independent
            )
            _say(verdict, n_microbatches, independent)

    def check_targets(self, graph, inputs):
        """Raises ValueError where a mean over targets would not be one over samples."""
        refuse_ignored(
            graph,
            self._targets,
            inputs,
            "[kerf.train_step]",
            "expected weight=, the number of them for each micro-batch: a list, or a function of "
            "its targets, weight=lambda y: (y != -100).sum()",
        )

    def weights(self, weight, inputs, sizes, targets):
        """What each micro-batch counts: ``weight`` for its target, which is an input where the
        model makes its own loss."""
        if self._output is not None and callable(weight):
            targets = self._cut_labels(inputs, sizes) if len(sizes) > 1 else [None]
            weight = weight if len(sizes) > 1 else None  # one counts as it is
        return weights_of(weight, targets)

    def _cut_labels(self, inputs, sizes):
        graph, found = self._graph, self._label_inputs()
        if len(found) != 1:
            names = ", ".join(repr(graph.inputs[i]["path"]) for i in found) or "none"
            raise ValueError(
                "[kerf.train_step] weight is a function of a micro-batch's target, and the model "
                "makes its own loss; expected one input that is known to hold the targets, found "
                f"{names}; give a list of one number for each micro-batch"
            )
        dim, factor = _core.input_dims(graph)[found[0]]
        return inputs[found[0]].split([size * factor for size in sizes], dim)

    def _label_inputs(self):
        """The inputs whose targets the model's own loss is a mean over; [] if that is not known."""
        try:
            path = self._graph.outputs[self._output]["path"]
            found = _core.check_trained_batch(self._graph, path, "mean", False, False)[1]
        except (ValueError, NotImplementedError):
            return []
        dims = _core.input_dims(self._graph)
        return sorted({i for i, _ in found if dims[i][0] >= 0})

    def call(self, loss_fn, result, model, given, targets, undo):
        """What C++ calls with the results of a micro-batch; or the number of an output.

        Gradients that the loss itself adds to (penalties, a head of its own) are kept in ``undo``.
        """
        if loss_fn is None:
            return self._output

        def loss(leaves, microbatch, batch):
            known = nodes_of(leaves)
            value = result.build(leaves, batch=batch, model=model, given=given)
            made = loss_fn(value, targets[microbatch])
            if isinstance(made, torch.Tensor):
                _check_real(str(made.dtype), "what loss_fn gave")
                undo.keep_gradients(learning_leaves([made], known))
            return made

        return loss


def output_number(graph, loss):
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
    number = _torch.gradient_hook(weights)
    if number is not None:
        name = graph.weights[number]["names"][0]
        raise ValueError(
            f"[kerf.train_step] parameter '{name}' has a hook on the node that adds to its "
            "gradient, as DistributedDataParallel sets them, which a pipeline would not call; "
            "expected none; give Kerf the model without it, and do its work after train_step"
        )
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            if not covers(paths_of(graph), path):
                raise ValueError(
                    f"[kerf.train_step] module '{path}' has a backward hook that it did not have "
                    "when it was traced; expected none, since a pipeline would not call it; remove "
                    "it, or trace the model again"
                )


def micro_batches(plan, inputs, dims):
    """The sizes of the micro-batches of a call; one where the batch is fixed."""
    batch, count = batch_of(inputs, dims), plan.n_microbatches
    return _core.micro_batch_sizes(batch, count) if batch and count > 1 else [batch]


def keep_for_inputs(undo, inputs, weights, graph):
    """What made the inputs runs backward when the step is over, and may fail."""
    learning = [tensor for tensor in inputs if tensor.requires_grad]
    if learning:
        undo.keep_gradients(t for t in weights if t.requires_grad)
        undo.keep_gradients(learning_leaves(learning))
        records = zip(weights, graph.weights, strict=True)
        undo.keep_numbers(tensor for tensor, record in records if record["written"])


def pass_on(inputs, gradients):
    """Gradients of inputs, to where these come from."""
    pairs = [(t, g) for t, g in zip(inputs, gradients, strict=True) if g is not None]
    if pairs:
        torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
