# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Measured profiles: the Python face of the C++ measuring."""

import torch

from kerf import _core, _torch
from kerf._arguments import checked
from kerf._call import Signature
from kerf._pipeline import opaque_calls
from kerf._plan import make_cluster
from kerf._traced import TracedModel
from kerf._weights import Weights


@checked("kerf.profile")
def profile(
    model, graph, args=(), kwargs=None, *, batch=None, devices=("cpu:0",), budget_seconds=2.0
):
    """Measures the forward time of every node on the first of ``devices``.

    args, kwargs    inputs like the traced ones
    batch           the batch size to measure at, usually the micro-batch; the inputs are cut or
                    repeated to it. Default: the inputs' own
    devices         device names or a Cluster; a CPU device is measured with the cores it would own
                    among them, so give the list that will be planned for
    budget_seconds  measuring ends when the times have settled, or after this long

    Inputs and buffers that the model writes are restored.
    """
    cluster = make_cluster(devices)
    args = args if isinstance(args, tuple) else (args,)
    TracedModel(graph).check(model)
    signature = Signature.from_json(graph.in_spec, len(graph.inputs))
    tensors = signature.tensors(args, kwargs or {})
    tensors, batch = resize(graph, tensors, batch)
    weights = Weights(model, signature, graph).tensors()
    calls = opaque_calls(model, graph)
    return _torch.measure(graph, cluster, 0, weights, tensors, batch, calls, budget_seconds)


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
