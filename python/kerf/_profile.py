# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Measured profiles: the Python face of the C++ measuring."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import torch

from kerf import _core, _torch
from kerf._arguments import Kind, checked
from kerf._call import Signature
from kerf._machine import accelerator_name, processor_name
from kerf._pipeline import block_calls
from kerf._plan import make_cluster
from kerf._progress import clock_bar, progress_bar
from kerf._traced import TracedModel
from kerf._weights import Weights

_FLAG = Kind(lambda value: isinstance(value, bool), "True or False")
_CACHE = Kind(
    lambda value: value is None or value is False or isinstance(value, (str, os.PathLike)),
    "a folder, such as '.kerf', None for the user's cache folder, or False for no cache",
)


@checked("kerf.profile", recompute=_FLAG, isolate=_FLAG, cache=_CACHE)
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
    recompute=False,
    isolate=False,
    cache=None,
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
    isolate         a block at a time instead of the whole model: the blocks of ``kerf.coarsen``, or
                    modules without modules in them. Blocks that do the same work are measured
                    once; only the weights and inputs of one block are on the device while it is
                    measured, and values between blocks stay on the host, so that the model may be
                    larger than the device. ``profile.blocks`` and ``profile.table()`` have times
                    and memory of blocks
    recompute       with isolate and training: figures of blocks that are computed again in
                    backward, which runs forward first. Times of nodes are without that: give
                    ``recompute`` to ``kerf.plan``, which adds it
    cache           with isolate: the folder in which measured blocks are looked up and kept, by
                    what they do and what they were measured on; default: $KERF_CACHE, else the
                    user's cache folder; False: none. ``profile.cache`` says what was found

    On an accelerator the host's time to issue an operator and the device's own are measured apart.
    What operators take from PyTorch's allocator only while they run is measured, too. Inputs,
    buffers, parameters, their gradients and the state of random generators are as before
    afterwards.
    """
    _check_isolate(isolate, training, recompute, cache)
    return measure(
        model,
        graph,
        args,
        kwargs,
        batch=batch,
        devices=devices,
        budget_seconds=budget_seconds,
        training=training,
        blocks=_Blocks(recompute, _cache_folder(cache)) if isolate else None,
    )


class _Blocks(NamedTuple):
    """How blocks are measured by themselves."""

    recompute: bool
    cache_folder: str  # "": none
    every_block: bool = False  # twins too: for comparison


def measure(model, graph, args, kwargs, *, batch, devices, budget_seconds, training, blocks):
    """``profile``, with checked arguments. ``blocks``: None, or how they are measured."""
    cluster = make_cluster(devices)
    _torch.check_devices(cluster)
    args = args if isinstance(args, tuple) else (args,)
    TracedModel(graph).check(model)
    signature = Signature.from_json(graph.in_spec, len(graph.inputs))
    tensors = signature.tensors(args, kwargs or {})
    tensors, batch = resize(graph, tensors, batch)
    weights = Weights(model, signature, graph).tensors()
    calls = block_calls(model, graph)
    given = (graph, cluster, 0, weights, tensors, batch, calls, budget_seconds, training)
    with _kept_buffers(model if calls else None):
        if blocks is None:
            with clock_bar("profile", budget_seconds):
                return _torch.measure(*given)
        with progress_bar("profile") as progress:
            return _torch.measure_blocks(
                *given,
                blocks.recompute,
                blocks.every_block,
                blocks.cache_folder,
                list(conditions(cluster.devices[0]).items()),
                progress,
            )


def _check_isolate(isolate, training, recompute, cache):
    given = {"recompute=True": recompute, "a cache": cache is not None}
    for name in (name for name, is_given in given.items() if is_given and not isolate):
        raise ValueError(
            f"[kerf.profile] {name} without isolate=True; expected them together: only blocks that "
            "are measured by themselves have such figures; add isolate=True"
        )
    if recompute and not training:
        raise ValueError(
            "[kerf.profile] recompute=True without training=True; expected them together: what is "
            "computed again is a part of backward; add training=True"
        )


def _cache_folder(cache):
    """Where measured blocks are kept; "": nowhere."""
    if cache is False:
        return ""
    if cache is not None:
        return os.fspath(cache)
    if folder := os.environ.get("KERF_CACHE"):
        return folder
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(base) / "kerf" / "blocks")


def conditions(device):
    """What times depend on beside the work: the framework, the device, and switches of both."""
    on_host = device.host
    switches = {
        "matmul": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "mkldnn": torch.backends.mkldnn.enabled,
        "autocast": torch.is_autocast_enabled("cpu" if on_host else device.name.split(":")[0]),
        "threads": torch.get_num_threads() if on_host else 0,
    }
    return {
        "torch": torch.__version__,
        "device": processor_name() if on_host else accelerator_name(device.name),
        "settings": ", ".join(f"{key} {value}" for key, value in switches.items()),
    }


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
