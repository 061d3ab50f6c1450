# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Functions with a backward of their own: what they keep for it, and what it computes."""

import torch
from torch.autograd.function import BackwardCFunction

from kerf import _core, _torch
from kerf.symbolic._trees import tensors_in


def function_record(outputs):
    """(name, tensors kept, flops of its backward) of the function that made these tensors.

    None where PyTorch's own operators made them. A backward that needs data has no flops (None).
    """
    function = outputs[0].grad_fn
    if not isinstance(function, BackwardCFunction):
        return None
    kept = [t for t in function.saved_tensors if t is not None]
    kept += tensors_in(getattr(function, "__dict__", {}))  # what it holds without saying so
    name = type(function).__name__.removesuffix("Backward")
    return name, kept, _backward_flops(function)


def _backward_flops(function):
    """Runs its backward on gradients without data, and adds up what that calls."""
    recorder = _torch.Recorder("backward", False)
    try:
        with torch.no_grad():
            gradients = [
                torch.empty(tuple(made.shape), dtype=made.dtype, device="meta")
                for made in function._input_metadata
            ]
            recorder.start("backward", "self", "", ("", ""), "", "", [], [])
            function.apply(*gradients)
            recorder.end([])
    except Exception:  # it may look at data: then nobody knows, and the function is listed
        return None
    finally:
        recorder.abandon()
    graph, spans, flops = recorder.finish([])
    profile = _core.profile_spans(graph, spans, given_nodes=flops)
    return None if profile.unknown_ops else profile.totals["fwd_flop"]
