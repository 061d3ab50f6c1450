# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Batches that follow each other through a pipeline, see ``Pipeline.stream``."""

import collections
from collections.abc import Iterable, Mapping

import torch

from kerf import _torch
from kerf._arguments import found

_END = object()


def results(pipe, runner, batches, window):
    """A generator of results. ``batches`` is looked at now, so that a wrong one is refused here."""
    single = isinstance(batches, (torch.Tensor, Mapping, str))
    if single or not isinstance(batches, Iterable) and not hasattr(batches, "__getitem__"):
        raise ValueError(
            f"[kerf.Pipeline.stream] batches is {found(batches)}; expected batches to go through "
            "one after the other: a list of them, a DataLoader or another iterable"
        )
    return _results(pipe, runner, iter(batches), window)


def _results(pipe, runner, batches, window):
    stream = _torch.Stream(runner, bool(pipe.record))
    given = collections.deque()  # what the batches under way were given as
    failure = None
    try:
        while True:
            try:
                batch = next(batches, _END)
                if batch is _END:
                    break
                _check_open(pipe, runner)
                args, kwargs = arguments_of(batch)
                inputs, how = pipe._prepare(runner, args, kwargs)
                stream.push(inputs, pipe.plan.n_microbatches)
            except Exception as error:  # raised at its turn
                failure = error
                break
            given.append(how)
            if len(stream) == window:
                yield _next(pipe, runner, stream, given)
        while given:
            yield _next(pipe, runner, stream, given)
        if failure is not None:
            raise failure
    finally:
        _end(pipe, runner, stream)


def _next(pipe, runner, stream, given):
    _check_open(pipe, runner)
    leaves, batch = stream.pop()[:2]
    if pipe._pure:
        pipe._check_model()
    return pipe._build(leaves, batch, given.popleft())


def _end(pipe, runner, stream):
    if pipe._forked:
        return  # its threads stayed behind
    stream.stop()
    if stream.timeline is not None:
        pipe.timeline = stream.timeline


def _check_open(pipe, runner):
    if pipe._runner is not runner:
        pipe._open_runner()


def arguments_of(batch):
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch), {}) if isinstance(batch, (tuple, list)) else ((batch,), {})
