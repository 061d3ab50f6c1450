# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Rules for operators of PyTorch whose own kernels for tensors without data refuse what the others
take. The default registry holds them."""

import torch
import torch.nn.functional as F


def grouped_product(input, mat2, offs=None, bias=None, out_dtype=None):
    """``torch._grouped_mm``, which layers of experts call: groups of rows, of columns, or both."""
    dtype = out_dtype or input.dtype
    rows, columns = input.shape[-2], mat2.shape[-1]
    if input.dim() == 3 and mat2.dim() == 3:
        shape = input.shape[0], rows, columns
    elif input.dim() == 2 and mat2.dim() == 2:
        shape = offs.shape[0], rows, columns
    else:
        shape = rows, columns
    return torch.empty(shape, dtype=dtype, device="meta")


def alignment_loss(log_probs, *args, reduction="mean", **others):
    """``ctc_loss``, which reads the lengths."""
    reduction = args[4] if len(args) > 4 else reduction  # behind targets, two lengths and blank
    rows = log_probs.shape[1:2] if log_probs.dim() == 3 else ()
    return log_probs.new_empty(rows if reduction in ("none", 0) else ())


def gaussian_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """``gaussian_nll_loss``, which reads whether variances are negative."""
    shape = torch.broadcast_shapes(input.shape, target.shape)
    dtype = torch.result_type(input, target)
    return torch.empty(shape if reduction == "none" else (), dtype=dtype, device="meta")


def add_own_rules(registry):
    for function in (F.ctc_loss, torch.ctc_loss):
        registry.add("shape_rules", function)(alignment_loss)
    registry.add("shape_rules", F.gaussian_nll_loss)(gaussian_loss)
    if hasattr(torch, "_grouped_mm"):
        registry.add("shape_rules", torch._grouped_mm)(grouped_product)
