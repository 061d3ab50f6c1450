# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Measured profiles: the Python face of the C++ measuring."""

import contextlib

import torch

from kerf import _core, _torch
from kerf._arguments import checked
from kerf._call import Signature
from kerf._pipeline import block_calls
from kerf._plan import make_cluster
from kerf._traced import TracedModel
from kerf._weights import Weights


@checked("kerf.profile")
def profile(
    model,
    graph,
    args=(),
    kwargs=None,
    *,
    batch=None,
    devices=("cpu:0",),
    budget_seconds=2.0,
    training=False,
):
    """Measures the time of every node on the first of ``devices``.

    args, kwargs    inputs like the traced ones
    batch           the batch size to measure at, usually the micro-batch; the inputs are cut or
                    repeated to it. Default: the inputs' own
    devices         device names or a Cluster; a CPU device is measured with the cores it would own
                    among them, alone and while the others run the same model on theirs: give the
                    list that will be planned for
    budget_seconds  measuring ends when the times have settled, or after this long
    training        forward with autograd, and backward: the graph must be traced in train mode

    On an accelerator the host's time to issue an operator and the device's own are measured apart.
    What operators take from PyTorch's allocator only while they run is measured, too. Inputs,
    buffers, parameters, their gradients and the state of random generators are as before
    afterwards.
    """
    cluster = make_cluster(devices)
    args = args if isinstance(args, tuple) else (args,)
    TracedModel(graph).check(model)
    signature = Signature.from_json(graph.in_spec, len(graph.inputs))
    tensors = signature.tensors(args, kwargs or {})
    tensors, batch = resize(graph, tensors, batch)
    weights = Weights(model, signature, graph).tensors()
    calls = block_calls(model, graph)
    with _kept_buffers(model if calls else None):
        return _torch.measure(
            graph, cluster, 0, weights, tensors, batch, calls, budget_seconds, training
        )


@contextlib.contextmanager
def _kept_buffers(model):
    """Blocks write buffers that the graph does not know: they are put back."""
    kept = [] if model is None else [(b, b.detach().clone()) for b in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in kept:
                buffer.copy_(before)


def resize(graph, tensors, batch):
    """The inputs at another batch size, and that size; 0 when the graph is static."""
    if graph.is_static:
        return tensors, 0
    dims = _core.input_dims(graph)
    current = next(t.shape[d] // f for t, (d, f) in zip(tensors, dims, strict=True) if d >= 0)
    batch = batch or current
    out = []
    for tensor, (dim, factor) in zip(tensors, dims, strict=True):
        if dim >= 0 and batch != current:
            repeats = -(-batch // current)
            tensor = torch.cat([tensor] * repeats, dim).narrow(dim, 0, batch * factor)
        out.append(tensor)
    return out, batch
