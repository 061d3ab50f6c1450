# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A plan that runs: the Python face of the C++ executor."""

import ctypes
import os
import weakref

import torch

from kerf import (
    _check_train,
    _classes,
    _core,
    _opaque,
    _pytree,
    _stream,
    _targets,
    _torch,
    _train,
)
from kerf._arguments import checked
from kerf._call import Result, Signature, module_finder
from kerf._errors import warn
from kerf._restore import attributes_restored, buffers_restored, numbers_restored
from kerf._separate import batch_of, refuse_ignored, separate_samples
from kerf._steps import Steps
from kerf._surroundings import Surroundings
from kerf._undo import Undo
from kerf._watch import ModelWatch
from kerf._weights import Weights, device_types, move_weights


class Pipeline:
    """Runs ``model`` according to ``plan``; called like the model, with the same results.

    model           the module that was traced; its weights are used, not copied
    plan            from ``kerf.plan`` or ``kerf.load_plan``; verified before anything runs
    graph           needed if the plan was loaded from a file
    n_microbatches  overrides the plan's number: simulated and checked for memory again
    reduce          how results without a batch dimension are combined over micro-batches,
                    ``{"loss": "mean"}``: a mean over samples, so micro-batches are weighted by
                    their sizes; also "sum" and "first"
    batch_independent  True promises that the model treats every sample of a batch separately, for
                    opaque blocks and operators that Kerf cannot follow
    frozen          promises that the model's modules will not change: they are compared with the
                    trace now, and not again at every call
    cuda_graphs     "auto": stages on a CUDA device that waits for its host are recorded as CUDA
                    graphs after two calls of the same form and replayed from then on; ``False``:
                    always operator by operator. ``recorded()`` says which stages are recorded

    Results carry no gradients; a plan made with ``training=True`` trains with ``train_step``.
    Weights may be changed in place or replaced
    (``load_state_dict``, an optimizer step) between calls; after ``model.to(...)`` make a new
    pipeline. Calls from several threads are served one after the other; a call from inside a call
    of the same pipeline, by an opaque block or a signal handler, is refused. Exceptions in an
    opaque block or a signal handler are raised by the call, once running kernels have finished; the
    pipeline can then be called again. With ``record`` set, ``timeline`` holds the measured
    timeline of the last call. A batch is cut into micro-batches only if the graph shows that
    samples are treated separately (``graph.batch_independence()``): a model that mixes them is
    refused with the operator and its line. Where the graph does not show it, a warning says so and
    samples of the first call are tried; opaque blocks are refused unless ``batch_independent`` is
    set.
    """

    _samples_looked_at = False

    @checked("kerf.Pipeline")
    def __init__(
        self,
        model,
        plan,
        *,
        graph=None,
        n_microbatches=None,
        reduce=None,
        batch_independent=False,
        cuda_graphs="auto",
        frozen=False,
    ):
        reduce = dict(reduce or {})
        graph = graph if graph is not None else getattr(plan, "graph", None)
        if graph is None:
            raise ValueError(
                "[pipeline] the plan was loaded from a file and carries no graph; expected graph=; "
                "give the graph it was made for, kerf.load_graph(...)"
            )
        _core.check_plan_matches(plan, graph)
        _core.check_plan(graph, plan)  # it may come from a file: nothing runs that is not sound
        if n_microbatches is not None and n_microbatches != plan.n_microbatches:
            plan = replan(plan, graph, n_microbatches)
        self._batch_independent = batch_independent
        self._reduce = reduce
        self._separate = None
        if not plan.training:  # what a training step asks of samples depends on its loss
            self._look_at_samples(graph, plan)
        self.plan = plan
        self.graph = graph
        self.record = False
        self.timeline = None
        self._model = model
        self._surroundings = Surroundings(graph, device_types(plan))
        self._watch = ModelWatch(model, graph)
        self._frozen = frozen
        self._signature = Signature.from_json(graph.in_spec, len(graph.inputs))
        self._result = Result.from_json(graph.out_spec, model, len(graph.outputs))
        self._weights = Weights(model, self._signature, graph)
        self._pure = graph.is_pure and self._separate is None
        self._losses = {}  # by how a loss was asked for
        self._find, self._blocks = module_finder(model), _opaque.paths_of(graph)
        self._steps = Steps(self._weights.tensors())
        self._factors = _targets.rows_per_sample(graph) if plan.training else set()
        _torch.check_devices(plan.cluster)  # before anything is moved
        self.notes = move_weights(model, graph, plan, self._weights)
        for note in self.notes:
            warn(f"kerf.Pipeline {note}")
        self._runner = _torch.Pipeline(
            graph,
            plan,
            self._weights.tensors(),
            block_calls(model, graph),
            reduce,
            cuda_graphs == "auto",
        )
        self._forked = False
        self._learns = graph.training and any(w["requires_grad"] for w in graph.weights)
        self._silent = False  # about gradients
        _alive.add(self)

    def _look_at_samples(self, graph, plan):
        self._separate = separate_samples(
            graph, self._reduce, plan.n_microbatches, self._batch_independent
        )
        cut = plan.n_microbatches > 1 and not graph.is_static
        self._targets = _core.reduced_targets(graph, self._reduce) if cut else []
        self._samples_looked_at = True

    def _open_runner(self):
        runner = self._runner  # another thread may close the pipeline meanwhile
        if runner is None:
            if self._forked:
                raise RuntimeError(
                    "[pipeline] this pipeline was made before the process was forked, and its "
                    "worker threads stayed behind; make a new one in this process, or start "
                    'processes with the method "spawn"'
                )
            raise RuntimeError("[pipeline] this pipeline is closed; make a new one")
        return runner

    def __call__(self, *args, **kwargs):
        runner = self._open_runner()
        inputs, given = self._prepare(runner, args, kwargs)
        try:
            leaves, batch, timeline = runner.run(
                inputs, self.plan.n_microbatches, bool(self.record)
            )
        finally:
            if self._pure:
                self._check_model()
        if timeline is not None:
            self.timeline = timeline
        return self._build(leaves, batch, given)

    def _prepare(self, runner, args, kwargs):
        """The inputs of a call and what they were given as, checked with the model."""
        inputs, given = self._signature.inputs(args, kwargs)
        self._result.check_given(given)
        if not self._silent and torch.is_grad_enabled():
            self._warn_of_gradients(inputs)
        if not self._samples_looked_at:
            self._look_at_samples(self.graph, self.plan)
        if not self._pure:
            self._check_model()
        if not self._weights.unchanged():
            self._check_model()  # says more about a weight that is gone
            self._replace_weights(runner)
        if self._targets and batch_of(inputs, _core.input_dims(self.graph)) > 1:
            refuse_ignored(
                self.graph,
                self._targets,
                inputs,
                "[pipeline]",
                "expected none, since the result is called a mean over samples; run with "
                "n_microbatches=1, or let the model return the sum and the count and divide after "
                "the call",
            )
        if self._separate is not None:
            self._separate.check(runner, inputs, self.plan.n_microbatches, self._weights.tensors())
        return inputs, given

    def _build(self, leaves, batch, given):
        with torch.no_grad():
            return self._result.build(leaves, batch=batch, model=self._model, given=given)

    @checked("kerf.Pipeline.stream")
    def stream(self, batches, *, window=None):
        """The results of many batches, one after the other: the next batch enters the pipeline
        before the one in front of it has left, so that no stage waits between batches.

        batches  any iterable, a ``DataLoader`` for one. Each batch is what the model is called
                 with: a tuple or list of arguments, a dictionary of named ones, or the only one
        window   how many batches are under way at most; the default is one more than there are
                 stages, or fewer where the plan has limits of memory that more would exceed

        Results are in the order of the batches, and what ``pipe(batch)`` gives for one after the
        other. A batch is asked for when there is room for it. An error, of the model, of a batch's
        shape or of ``batches`` itself, is raised when the results in front of it have been given;
        the pipeline can be used again. Leaving the loop ends what is under way.

        The model must stay as it is meanwhile: a weight that is changed while batches are under way
        is refused. Other calls of the pipeline wait until nothing is under way. Batches do not
        overlap where a model writes its inputs or buffers, where it has blocks that run as Python
        (unless ``batch_independent`` is set), and on a single device.
        """
        runner = self._open_runner()
        why_not = _core.why_not_overlapped(self.plan, self.graph, self._batch_independent)
        if window is None:
            window = 1 if why_not else _core.stream_window(self.plan, self.graph)
        elif window > 1 and not _core.fits_stream(self.plan, self.graph, window):
            fitting = _core.stream_window(self.plan, self.graph)
            raise ValueError(
                f"[kerf.Pipeline.stream] window is {window}, and so many batches under way may "
                f"exceed the plan's limits of memory; expected at most {fitting}; make it smaller, "
                "or plan with more memory or smaller micro-batches"
            )
        return _stream.results(self, runner, batches, 1 if why_not else window)

    def train_step(
        self,
        *args,
        target=None,
        loss_fn=None,
        loss="loss",
        reduction="mean",
        weight=None,
        **kwargs,
    ):
        """Forward and backward of one batch, called as the model is; returns the loss, detached.

        Gradients are added to those of ``model.parameters()``, as ``loss.backward()`` would add
        them; ``optimizer.step()`` and ``zero_grad()`` are yours. The plan must have been made with
        ``training=True``.

        loss_fn    ``loss_fn(result, target)`` for each micro-batch, where ``result`` is what the
                   model returns for it; without one the model's own output ``loss`` is taken
        target     any nesting of tensors, cut along their first dimensions as the batch is
        loss       the name of the model's output that is its loss
        reduction  "mean": micro-batches count by their samples, or by ``weight``; "sum": added up
        weight     what micro-batches count in a "mean": a list of numbers, or a function of a
                   micro-batch's target (``weight=lambda y: (y != -100).sum()`` for means over
                   tokens); for a model's own loss, of its input that holds the targets

        When anything fails, gradients and buffers are as they were. Where an input requires a
        gradient that takes copies of the gradients that are there before the step, since what made
        the input may fail in its backward.
        """
        runner = self._open_runner()
        if not self.plan.training:
            raise ValueError(
                "[kerf.train_step] the plan is one of inference; expected one of training; make it "
                "with kerf.plan(graph, ..., training=True), from a trace of model.train()"
            )
        _train.check_reduction(reduction, weight)
        if loss_fn is None and target is not None:
            kwargs["target"] = target  # the model's own argument
        inputs, given = self._signature.inputs(args, kwargs)
        self._result.check_given(given)
        self._check_model()
        if not self._weights.unchanged():
            self._replace_weights(runner)
        _train.refuse_hooks(self.graph, self._weights.tensors(), self._model)
        count = self.plan.n_microbatches
        asked = self._loss(loss_fn, loss, reduction, weight is not None, count)
        sizes = _train.micro_batches(self.plan, inputs, _core.input_dims(self.graph))
        targets = _targets.cut_target(target if loss_fn is not None else None, sizes, self._factors)
        if weight is None and len(sizes) > 1:
            asked.check_targets(self.graph, inputs)
        weights = asked.weights(weight, inputs, sizes, targets)
        undo = Undo()
        call = asked.call(loss_fn, self._result, self._model, given, targets, undo)
        # What is put back is not what another step has added, here or through another pipeline.
        with self._steps.turn():
            try:
                undo.keep_modules(self._find(path) for path in self._blocks)
                _train.keep_for_inputs(undo, inputs, self._weights.tensors(), self.graph)
                value, gradients, timeline = runner.train(
                    inputs, count, call, reduction, weights, bool(self.record)
                )
                _train.pass_on(inputs, gradients)
            except BaseException as error:
                for failure in undo.restore():
                    error.add_note(f"[kerf.train_step] something was not put back: {failure}")
                raise
        if timeline is not None:
            self.timeline = timeline
        return value

    def _loss(self, loss_fn, loss, reduction, weighted, count):
        key = (loss_fn is None, loss, reduction, weighted)
        known = self._losses.get(key)
        if known is None:
            known = self._losses[key] = _train.Loss(
                self.graph, loss_fn, loss, reduction, weighted, count, self._batch_independent
            )
        return known

    def check_train(self, *args, tolerance=1e-3, **kwargs):
        """Runs ``train_step`` with these arguments, and the same step on the model itself; returns
        the largest difference of loss and gradients, those of inputs too. A gradient's is relative
        to the largest gradient of its module, or to a thousandth of the largest of all if that is
        more: what is zero but for rounding, as that of a bias before a batch norm, is no measure.

        Raises RuntimeError that names the worst if it is above ``tolerance``. Dropout draws other
        numbers than the model's own: check a model without it, or with ``p=0``. Micro-batches are
        those of the plan for both. Gradients (of parameters, inputs, and what the loss uses),
        buffers, attributes and random numbers are restored.
        """
        return _check_train.check(self, self._model, tolerance, args, kwargs)

    @checked("kerf.Pipeline.check")
    def check(self, *args, tolerance=1e-3, **kwargs):
        """Runs the model itself on the same inputs; returns the largest difference of the results.

        Raises RuntimeError if classes or structure differ, or a number by more than
        ``tolerance`` (relative to the largest number of its tensor, or absolute below 1). All the
        model's weights must be on one device. Both runs start from the model's present buffers and
        attributes, which are restored afterwards.
        """
        weights = zip(self._weights.tensors(), self.graph.weights, strict=True)
        written = [tensor for tensor, record in weights if record["written"]]
        found = _on_trial(self, self._model, written, args, kwargs)
        with torch.no_grad():
            expected = _on_trial(self._model, self._model, written, args, kwargs)
        if found.spec != expected.spec:
            path, was, now = _pytree.difference(expected.spec, found.spec, "result")
            raise RuntimeError(
                f"[pipeline] {path} is {now}; the model gives {was}; trace again with these inputs"
            )
        worst = 0.0
        for path, a, b in zip(found.paths, found.tensors, expected.tensors, strict=True):
            difference, scale = _difference(a, b)
            worst = max(worst, difference)
            if not difference <= tolerance * max(1.0, scale):
                raise RuntimeError(
                    f"[pipeline] {path} differs from the model's by {difference:.3g}; expected at "
                    f"most {tolerance:.3g}; trace again with inputs like these, or report the model"
                )
        return worst

    def recorded(self):
        """Which stages are recorded as CUDA graphs, and why others are not: one dictionary each.

        ``recordings`` counts those held now, one per form of call (batch, shapes, settings);
        ``why_not`` says why there are none; ``device_bytes`` is what the recordings of all stages
        hold on the stage's device.
        """
        return [] if self._runner is None else self._runner.recorded()

    def _warn_of_gradients(self, inputs):
        if self._learns or any(t.requires_grad for t in inputs):
            self._silent = True
            warn(
                "kerf.Pipeline gives results without gradients, and the model itself would give "
                "gradients: train with train_step, or call it under torch.no_grad()"
            )

    def _check_model(self):
        """Raises ValueError when the model or what surrounds the call is not as it was traced.

        Where a run leaves nothing behind that is asked while an accelerator still works on it.
        """
        self._surroundings.check()
        if not self._frozen:
            self._watch.check()

    def _replace_weights(self, runner):
        tensors = self._weights.look()
        for weight, record in zip(tensors, self.graph.weights, strict=True):
            if weight is None or weight.is_meta:
                state = "gone" if weight is None else "on the meta device, without data"
                raise ValueError(
                    f"[pipeline] weight '{record['names'][0]}' is {state}; expected those the "
                    "pipeline was made with; restore the model's weights, then make a new "
                    "kerf.Pipeline"
                )
        runner.replace_weights(tensors)
        self._weights.keep(tensors)  # only now: a refusal is repeated until the cause is gone
        self._steps = Steps(tensors)

    def close(self):
        """Ends the worker threads. The model is unchanged."""
        self._runner = None

    def __reduce_ex__(self, protocol):
        """Copies and pickles would share threads, device memory and the model's own tensors."""
        raise TypeError(
            f"[pipeline] {self!r} cannot be copied or pickled: it owns threads and refers to its "
            "model; expected its parts; copy or save pipe.graph, pipe.plan and the model, and make "
            "a new one there: kerf.Pipeline(model, plan, graph=graph)"
        )

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        state = "closed" if self._runner is None else f"{len(self.plan.stages)} stages"
        return f"kerf.Pipeline({self.graph.name!r}, {state})"


_alive = weakref.WeakSet()  # all pipelines of this process


def _leave_workers_behind():
    """In a forked child: threads are not copied, and waiting for them would never end.

    What owned them is kept for ever, since its destructor would wait too.
    """
    for pipe in list(_alive):
        runner, pipe._runner = pipe._runner, None
        pipe._forked = True
        if runner is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(runner))


os.register_at_fork(after_in_child=_leave_workers_behind)


def _on_trial(call, model, written, args, kwargs):
    """What ``call(*args, **kwargs)`` gives, described; arguments and model stay as they are, and so
    do the tensors that the graph is known to write."""
    given = _described_copy([list(args), kwargs])
    args, kwargs = _pytree.build(given.spec, given.tensors, classes=_classes.OWN)
    with attributes_restored(model), buffers_restored(model), numbers_restored(written):
        return _described_copy(call(*args, **kwargs))


def _described_copy(value):
    """With tensors of its own: those of a result may be buffers themselves."""
    found = _pytree.describe(value)
    found.tensors = [t.detach().clone() for t in found.tensors]
    return found


def _difference(a, b):
    """Largest difference of two tensors, and the largest number of the second."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf"), 0.0
    if not a.numel():
        return 0.0, 0.0
    a, b = (t.detach().cpu() for t in (a, b))
    if not (a.is_floating_point() or a.is_complex()):
        return (0.0 if torch.equal(a, b) else float("inf")), 0.0
    same = (a == b) | (a.isnan() & b.isnan())  # infinities, in masks, are equal to themselves
    difference = torch.where(same, torch.zeros_like(a), a - b).abs()
    return difference.max().item(), b.abs().nan_to_num(0, 0, 0).max().item()


def replan(plan, graph, n_microbatches):
    """The same stages with another number of micro-batches, or the reason why they do not fit."""
    from kerf._plan import InfeasibleError

    outcome = _core.replan(plan, graph, n_microbatches=n_microbatches)
    if isinstance(outcome, _core.Infeasible):
        raise InfeasibleError(outcome)
    return outcome


def block_calls(model, graph):
    """By opaque node: a function of its tensors and the batch size, in the thread's grad mode."""
    return {
        node["name"]: _opaque.Block(model, node["kwargs"], node["n_tensors"]).run
        for node in graph.nodes
        if node["op"] == "opaque"
    }
