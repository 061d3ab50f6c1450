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
from kerf._chance import generators
from kerf._machine import accelerator_name, processor_name
from kerf._opaque import paths_of
from kerf._pipeline import block_calls
from kerf._plan import make_cluster
from kerf._progress import clock_bar, progress_bar
from kerf._restore import attributes_restored, buffers_restored, numbers_restored
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
    tensors, batch = resize(graph, tensors, _torch.check_inputs(graph, tensors), batch)
    weights = Weights(model, signature, graph).tensors()
    calls = block_calls(model, graph)
    given = (graph, cluster, 0, weights, tensors, batch, calls, budget_seconds, training)
    with _left_alone(model, paths_of(graph)):
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
    """What times depend on beside the work: Kerf's way of measuring, the framework, the device, and
    switches of both."""
    on_host = device.host
    kind = "cpu" if on_host else device.name.split(":")[0]
    attention = {
        name: getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
        for name in ("flash", "mem_efficient", "math", "cudnn")
    }
    return {
        "kerf": _core.__version__,
        "torch": torch.__version__,
        "device": processor_name() if on_host else accelerator_name(device.name),
        "threads": str(torch.get_num_threads() if on_host else 0),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "anomaly detection": str(torch.is_anomaly_enabled()),
        "cudnn.benchmark": str(torch.backends.cudnn.benchmark),
        "mkldnn": str(torch.backends.mkldnn.enabled),
        "attention kernels": " ".join(name for name, enabled in attention.items() if enabled),
        "autocast": str(
            torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        ),
    }


@contextlib.contextmanager
def _left_alone(model, blocks):
    """Blocks that run as Python change what the graph does not know of: it is put back."""
    if not blocks:
        yield
        return
    parameters = [p for path in blocks for p in model.get_submodule(path).parameters()]
    before = [(put_back, get()) for get, put_back in generators().values()]
    try:
        with (
            torch.random.fork_rng(devices=[]),
            attributes_restored(model),
            buffers_restored(model),
            numbers_restored(parameters),
        ):
            yield
    finally:
        for put_back, state in before:
            put_back(state)


def resize(graph, tensors, current, batch):
    """The inputs at another batch size than the ``current`` one, and that size; 0 when the graph is
    static."""
    if graph.is_static or batch in (None, current):
        return tensors, current
    out = []
    for tensor, (dim, factor) in zip(tensors, _core.input_dims(graph), strict=True):
        if dim >= 0:
            tensor = _rows(tensor, dim, batch * factor)
        out.append(tensor)
    return out, batch


def _rows(tensor, dim, count):
    """The first ``count`` along a dimension, again from the start where there are too few; laid out
    in the same order of dimensions."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    rows = torch.arange(count, device=tensor.device) % tensor.shape[dim]
    taken = tensor.permute(order).index_select(order.index(dim), rows).contiguous()
    return taken.permute([order.index(d) for d in range(tensor.dim())])
