# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Does a model treat its samples separately? Proved in C++; tried where the proof cannot follow.

``_core.check_samples_are_separate`` follows the batch through the operators of the graph. Where an
operator has no rule, a few samples of the first calls are run on the pipeline itself: beside other
samples, where nothing may change, and cut into two micro-batches; at several scales, since what
depends on the size of the numbers (a clipped norm) shows at some and not at others.
"""

import itertools

import torch

from kerf import _core, _torch
from kerf._errors import is_of_run, warn
from kerf._restore import numbers_restored

_MOST_SAMPLES = 8
_OTHER_SCALES = (100.0, 0.01)  # of floating inputs
# Largest difference, relative to the largest number of the output: between batches of one size,
# and between sizes, at which kernels round differently. The last pair is for half precision.
_FINE = {torch.float64: (1e-9, 1e-6), torch.float32: (1e-4, 5e-3)}
_COARSE = (1e-2, 5e-2)
# What differences come from, and what else may help against the first.
_MIXES = ": the model mixes samples"
_EACH_WRITES = ": every micro-batch writes"
_ELSEWHERE = ", or, if the batch is not where it was taken to be, trace with batch_dims="


def separate_samples(graph, reduce, n_microbatches, batch_independent):
    """What has to be tried before a batch is cut, or None. Raises when samples are mixed."""
    if n_microbatches == 1 or graph.is_static:
        return None
    found = _core.check_samples_are_separate(graph, reduce, batch_independent)
    if found.batch_norms:
        others = f" and {len(found.batch_norms) - 1} more" if len(found.batch_norms) > 1 else ""
        warn(
            f"kerf.Pipeline: batch norm '{found.batch_norms[0]}'{others} in train mode takes the "
            f"statistics of each micro-batch and updates its own {n_microbatches} times per call: "
            "its numbers differ from the model's; run with n_microbatches=1 to avoid that",
        )
    if found.verdict != "unknown" or batch_independent:
        return None
    others = f" ({found.others} more like it)" if found.others else ""
    tried = (
        "in train mode that cannot be tried out"
        if graph.training
        else "the first call tries it on some of its samples, at several scales"
    )
    warn(
        "kerf.Pipeline could not prove that the samples of a batch are treated separately: "
        f"{found.reason}{others}; {tried}; pass batch_independent=True if you know that they are",
    )
    return SeparateSamples(graph, frozenset(reduce))


def refuse_ignored(graph, targets, inputs, where, remedy):
    """Raises ValueError where a mean over targets would not be one over samples. ``targets`` are
    pairs (number of the input, the target in it that is ignored)."""
    for i, ignored in targets:
        if bool((inputs[i] == ignored).any()):
            path = graph.inputs[i]["path"]
            raise ValueError(
                f"{where} input '{path}' holds targets that are ignored ({ignored}), so that "
                f"micro-batches count by their other targets; {remedy}"
            )


class SeparateSamples:
    """Evidence, for one pipeline, that a batch may be cut into micro-batches.

    Outputs in ``reduced`` are put together as the user said and not compared.
    """

    def __init__(self, graph, reduced):
        self._reduced = reduced
        self._outputs = [(o["path"], _batch_dim(o)) for o in graph.outputs]
        self._written = [(i, w["names"][0]) for i, w in enumerate(graph.weights) if w["written"]]
        # In training, statistics of normalisation are those of a micro-batch, as everywhere.
        self._shown = graph.is_static or graph.training
        self._dims = [] if self._shown else _core.input_dims(graph)
        text = "" if self._shown else graph.text()
        self._rounds_coarsely = ": bf16[" in text or ": f16[" in text
        self._turns = _torch.Turns()  # blocks and signal handlers may call the pipeline meanwhile

    def check(self, runner, inputs, n_microbatches, weights):
        """Raises NotImplementedError, naming the output, when samples are mixed.

        ``weights`` are the tensors behind those of the graph; the trial leaves them as they are.
        """
        if self._shown:
            return
        runner.check_inputs(inputs)
        with _torch.Turn(self._turns):
            if not self._shown:
                # What is drawn here does not change what the call draws.
                with torch.no_grad(), torch.random.fork_rng(_accelerators(inputs)):
                    written = {name: weights[i] for i, name in self._written}
                    self._try(runner, inputs, n_microbatches, written)

    def _try(self, runner, inputs, n_microbatches, written):
        batch = batch_of(inputs, self._dims)
        sizes = _core.micro_batch_sizes(batch, n_microbatches) if batch else []
        if len(sizes) < 2:
            return  # nothing is cut
        different = self._first_different(inputs, batch)
        trial = _Trial(runner, inputs, self._dims, written)
        found = self._compare_some(trial, batch, sizes, different)
        floating = any(map(torch.is_floating_point, inputs))
        for scale in _OTHER_SCALES if floating and found == "" else ():
            scaled = _Trial(runner, _scaled(inputs, scale), self._dims, written)
            found = found or self._compare_some(scaled, batch, sizes, different) or ""
        if found:
            raise NotImplementedError(
                f"[pipeline] {found}; expected results that are separate for each sample; run with "
                f"n_microbatches=1{'' if _EACH_WRITES in found else _ELSEWHERE}"
            )
        if found is None and trial.guarded(_Trial.outputs, range(batch)) is not None:
            raise NotImplementedError(
                "[pipeline] the samples of this batch could not be tried on their own, though the "
                "batch runs as a whole; expected results that are separate for each sample; run "
                "with n_microbatches=1, or pass batch_independent=True if you know that they are"
            )
        # Samples that are all the same would hide what they do to each other, and a call that is
        # wrong shows nothing.
        self._shown = different is not None and found is not None

    def _compare_some(self, trial, batch, sizes, different):
        """What differs, in words, or ""; None when no number of samples could be run."""
        # A model may not take every batch size; two micro-batches of this call it has to take.
        for count in (min(batch, max(2, sizes[0]), _MOST_SAMPLES), min(batch, 2 * sizes[0])):
            found = trial.guarded(self._compare, batch, count, different)
            if found is not None:
                return found
        return None

    def _compare(self, trial, batch, count, different):
        samples = _spread(batch, count, different)
        half = count // 2
        first, second = samples[:half], samples[half:]
        mixed = trial.outputs(samples)
        beside_themselves = trial.outputs([*first, *_repeat(first, len(second))])
        found = self._differences(mixed, beside_themselves, 0, half / count)
        beside_themselves = trial.outputs([*_repeat(second, half), *second])
        found = found or self._differences(mixed, beside_themselves, half / count, 1)
        if found:
            found = f"{found} with the other samples of the batch{_MIXES}"
        else:
            # Both must differ: a choice between experts may hang on the last digit.
            found = self._compare_cut(trial, samples)
            found = found and self._compare_cut(trial, _spread(batch, count, None, shift=1))
        if found and self._differences(mixed, trial.outputs(samples), 0, 1):
            return ""  # random numbers: there is nothing to compare
        return found

    def _compare_cut(self, trial, samples):
        whole, whole_buffers = trial.outputs_and_buffers(samples, 1)
        cut, cut_buffers = trial.outputs_and_buffers(samples, 2)
        # Samples were found to be separate: what a run leaves in a buffer is what another sees.
        written = trial.first_written(cut_buffers)
        why = f"{_EACH_WRITES} buffer '{written}'" if written else _MIXES
        found = self._differences(whole, cut, 0, 1, sizes_differ=True)
        if found:
            return f"{found} when the batch is cut{why}"
        for (name, a), b in zip(whole_buffers.items(), cut_buffers.values(), strict=True):
            if self._differ(a, b, True):
                return f"buffer '{name}' is left with other values when the batch is cut{why}"
        return ""

    def _differences(self, found, expected, begin, end, sizes_differ=False):
        """The first output that differs within a part of the batch, in words; or ""."""
        for (path, dim), a, b in zip(self._outputs, found, expected, strict=True):
            if path in self._reduced or (dim is None and not sizes_differ):
                continue
            if dim is not None:
                a, b = _part(a, dim, begin, end), _part(b, dim, begin, end)
            if self._differ(a, b, sizes_differ):
                return f"output '{path}' changes{_amount(a, b)}"
        return ""

    def _differ(self, a, b, sizes_differ):
        if not isinstance(a, torch.Tensor):
            return a != b
        if a.shape != b.shape:
            return True
        if not a.is_floating_point() and not a.is_complex():
            return not torch.equal(a, b)
        coarse = self._rounds_coarsely or any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
        tolerance = (_COARSE if coarse else _FINE.get(a.dtype, _COARSE))[sizes_differ]
        a, b = _wide(a), _wide(b)
        scale = a.abs().nan_to_num(0, 0, 0).max().item() if a.numel() else 0.0
        return not torch.allclose(a, b, rtol=0.0, atol=tolerance * scale, equal_nan=True)

    def _first_different(self, inputs, batch):
        """The first sample that is not like sample 0."""
        found = None
        for tensor, (dim, factor) in zip(inputs, self._dims, strict=True):
            if not 0 <= dim < tensor.ndim or tensor.shape[dim] != batch * factor:
                continue
            rows = tensor.unflatten(dim, (batch, factor)).movedim(dim, 0)
            unlike = (i for i in range(1, batch) if not torch.equal(rows[i], rows[0]))
            first = next(unlike, None)
            found = first if found is None else min(found, first or found)
        return found


class _Trial:
    """Runs of some of a call's samples that leave nothing behind."""

    def __init__(self, runner, inputs, dims, written):
        self._runner = runner
        self._inputs = inputs
        self._dims = dims
        self._written = written  # all that the graph writes: name -> tensor
        self._before = {name: t.detach().clone() for name, t in written.items()}

    def guarded(self, function, *arguments):
        """``function(self, ...)``, or None when these samples cannot be run: the call will tell."""
        try:
            return function(self, *arguments)
        except Exception as error:
            if is_of_run(error):
                return None
            raise  # of a signal handler

    def outputs(self, samples):
        return self.outputs_and_buffers(samples, 1)[0]

    def first_written(self, buffers):
        """The name of a buffer that a run has left as something else, or ""."""
        before = self._before
        return next((n for n, b in buffers.items() if not torch.equal(b, before[n])), "")

    def outputs_and_buffers(self, samples, n_microbatches):
        copies = {}  # a tensor that is passed twice stays one
        chosen = [
            copies.setdefault(id(tensor), _take(tensor, dim, factor, samples))
            for tensor, (dim, factor) in zip(self._inputs, self._dims, strict=True)
        ]
        with numbers_restored(self._written.values()):
            outputs, _, _ = self._runner.run(chosen, n_microbatches, False)
            # A result may be a buffer itself, which the next run writes.
            outputs = [o.clone() if isinstance(o, torch.Tensor) else o for o in outputs]
            return outputs, {name: t.detach().clone() for name, t in self._written.items()}


def _spread(batch, count, wanted, shift=0):
    """``count`` samples from all over the batch, the last of them ``wanted``."""
    samples = [(i * batch // count + shift) % batch for i in range(count)]
    if wanted is not None and wanted not in samples:
        samples[-1] = wanted
    return samples


def _repeat(samples, count):
    return itertools.islice(itertools.cycle(samples), count)


def batch_of(inputs, dims):
    """Samples of a call, ``dims`` being ``_core.input_dims``; 0 where the batch is fixed."""
    for tensor, (dim, factor) in zip(inputs, dims, strict=True):
        if 0 <= dim < tensor.ndim:
            return tensor.shape[dim] // factor
    return 0


def _batch_dim(output):
    """The dimension of an output that holds the samples one after the other, or None."""
    if output["kind"] != "value" or output["value"]["scalar"]:
        return None
    dims = [d for d, size in enumerate(output["value"]["shape"]) if isinstance(size, str)]
    return dims[0] if dims else None


def _part(tensor, dim, begin, end):
    size = tensor.shape[dim]
    first, last = round(begin * size), round(end * size)
    return tensor.narrow(dim, first, last - first)


def _amount(a, b):
    if not isinstance(a, torch.Tensor) or a.shape != b.shape or not a.numel():
        return ""
    return f" by {(_wide(a) - _wide(b)).abs().nan_to_num(0, 0, 0).max().item():.3g}"


def _wide(tensor):
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _take(tensor, dim, factor, samples):
    if not 0 <= dim < tensor.ndim:
        return _laid_out_like(tensor, 0, tensor.clone())
    rows = [sample * factor + i for sample in samples for i in range(factor)]
    taken = tensor.index_select(dim, torch.tensor(rows, device=tensor.device))
    return _laid_out_like(tensor, dim, taken)


def _laid_out_like(tensor, dim, made):
    """``made`` with the strides that ``tensor`` would have with as many rows along ``dim``: what a
    model does to memory may depend on them. Rows that overlap stay as they are."""
    if made.stride() == tensor.stride():
        return made
    strides = list(tensor.stride())
    rows = strides[dim] * tensor.shape[dim]
    for d, stride in enumerate(strides):
        if d != dim and 0 < rows <= stride and stride % rows == 0:
            strides[d] = stride // rows * strides[dim] * made.shape[dim]
    reach = 1
    for stride, size in sorted(zip(strides, made.shape, strict=True)):
        if size > 1 and stride < reach:
            return made
        reach += stride * (size - 1)
    like = {"dtype": made.dtype, "device": made.device}
    return torch.empty_strided(made.shape, strides, **like).copy_(made)


def _scaled(tensors, scale):
    """Floating tensors times ``scale``; one that is passed twice stays one."""
    made = {
        id(t): _laid_out_like(t, 0, t.detach() * scale) if t.is_floating_point() else t
        for t in tensors
    }
    return [made[id(t)] for t in tensors]


def _accelerators(tensors):
    return sorted({t.device.index for t in tensors if t.device.type == "cuda"})
