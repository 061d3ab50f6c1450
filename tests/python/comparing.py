# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Comparing results of any class, and cutting graphs at places where they may be cut."""

import contextlib
import copy
import random

import torch
from models import batch_of

from kerf import _core, _pytree

# Stages run with their own number of threads, and matrix products sum in another order then.
RTOL, ATOL = 1e-4, 1e-5


@contextlib.contextmanager
def kept_state(model):
    """Puts buffers back as they were: a model that keeps state starts every run from the same."""
    saved = [(b, b.clone()) for b in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in saved:
                buffer.copy_(value)


def eager(model, args, kwargs):
    """The model's own answer; its buffers are left as they were."""
    with torch.no_grad(), kept_state(model):
        return model(*args, **kwargs)


@contextlib.contextmanager
def one_thread():
    """Sums over several threads may be taken in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def assert_as_eager(model, run, args, kwargs, *, batches, exact=True):
    """``run(args, kwargs)`` gives what the model gives, and leaves its buffers like it, at each of
    these batches."""
    with torch.no_grad(), one_thread():
        for batch in batches:
            call = batch_of(batch, args, kwargs)
            with kept_state(model):
                call_args, call_kwargs = copy.deepcopy(call)
                expected = model(*call_args, **call_kwargs)
                after = {name: b.clone() for name, b in model.named_buffers()}
            assert_same(run(*copy.deepcopy(call)), expected, exact)
            for name, buffer in model.named_buffers():
                assert torch.equal(buffer, after[name]), name


def _without_devices(spec):
    if isinstance(spec, dict):
        return {k: None if k == "device" else _without_devices(v) for k, v in spec.items()}
    return [_without_devices(v) for v in spec] if isinstance(spec, list | tuple) else spec


def assert_same(found, expected, exact=False, wherever=False):
    """Same classes, same structure, same numbers; on the same devices, or ``wherever``."""
    a, b = _pytree.describe(found), _pytree.describe(expected)
    assert (_without_devices(a.spec) == _without_devices(b.spec)) if wherever else a.spec == b.spec
    for path, x, y in zip(a.paths, a.tensors, b.tensors, strict=True):
        if wherever:
            x, y = x.cpu(), y.cpu()
        assert x.dtype == y.dtype and x.shape == y.shape, path
        if exact:
            assert torch.equal(x, y), f"{path} differs by {(x - y).abs().max()}"
        else:
            torch.testing.assert_close(
                x, y, rtol=RTOL, atol=ATOL, msg=lambda m, p=path: f"{p}: {m}"
            )


def largest_difference(found, expected):
    a, b = _pytree.describe(found), _pytree.describe(expected)
    if a.spec != b.spec:
        return float("inf")
    worst = 0.0
    for x, y in zip(a.tensors, b.tensors, strict=True):
        if x.numel():
            worst = max(
                worst, (x.double() - y.double()).abs().nan_to_num(float("inf")).max().item()
            )
    return worst


def legal_cuts(graph):
    """Positions i such that nodes [0, i) and [i, n) may be different stages."""
    position = {node["name"]: i for i, node in enumerate(graph.nodes)}
    forbidden = set()
    for group in graph.glued:
        places = [position[name] for name in group]
        forbidden.update(range(min(places) + 1, max(places) + 1))
    return [i for i in range(1, graph.num_nodes) if i not in forbidden]


def random_stages(graph, count, seed):
    """Node indices of up to ``count`` stages, cut at random legal places."""
    cuts = legal_cuts(graph)
    chosen = sorted(random.Random(seed).sample(cuts, min(count - 1, len(cuts))))
    bounds = [0, *chosen, graph.num_nodes]
    return [list(range(a, b)) for a, b in zip(bounds, bounds[1:], strict=False)]


def hand_plan(graph, stages, devices, n_microbatches=1, batch=None):
    """A plan with the given stages, stage i on devices[i % len(devices)]."""
    names = sorted(set(devices))
    placed = [devices[i % len(devices)] for i in range(len(stages))]
    return _core.make_plan(
        graph,
        _core.estimate(graph),
        _core.make_cluster(names),
        stages,
        placed,
        n_microbatches=n_microbatches,
        batch=batch or 0,
    )
