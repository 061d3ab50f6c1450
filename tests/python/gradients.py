# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients of a traced graph, by its operators and autograd alone, against those of the model."""

import copy

import reference
import torch


def of_call(model, call, args, kwargs):
    """Gradients by parameter name after ``call(*args, **kwargs)``, where the sum of all results is
    the loss; None where there is none."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    leaves = torch.utils._pytree.tree_leaves(call(*args, **kwargs))
    results = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.stack([(t * t).mean() for t in results]).sum().backward()
    found = {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return found


def by_graph(recording, args, kwargs=None):
    run = recording.run
    return of_call(recording.model, lambda *a, **k: run(a, k), args, kwargs or {})


def by_model(model, args, kwargs=None):
    model = copy.deepcopy(model)
    return of_call(model, model, args, kwargs or {})


def assert_equal(expected, got, relative=0.0):
    """``relative``: to the largest number of a gradient; 0: bit by bit."""
    assert expected.keys() == got.keys()
    for name, gradient in expected.items():
        assert (gradient is None) == (got[name] is None), f"{name}: {gradient}, {got[name]}"
        if gradient is not None:
            gradient, other = gradient.to_dense(), got[name].to_dense()
            apart = (gradient - other).abs().max().item()
            assert apart <= relative * gradient.abs().max().item(), f"{name} differs by {apart}"


def check(model, args, kwargs=None, relative=0.0, **options):
    """Traces the model; the graph has its gradients. Returns the recording."""
    args = args if isinstance(args, tuple) else (args,)
    expected = by_model(model, args, kwargs)
    recording = reference.record(model, args, kwargs, **options)
    assert_equal(expected, by_graph(recording, args, kwargs), relative)
    return recording
