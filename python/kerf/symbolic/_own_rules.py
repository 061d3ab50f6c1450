# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Rules for operators of PyTorch whose own kernels for tensors without data refuse what the others
take. The default registry holds them."""

import math

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


def alignment_loss(function):
    """``ctc_loss``, whose kernels without data want lengths as numbers: the longest ones."""

    def rule(log_probs, targets, input_lengths, target_lengths, *args, **kwargs):
        if isinstance(input_lengths, torch.Tensor):
            rows = input_lengths.numel()
            longest = targets.shape[-1] if targets.dim() == 2 else targets.numel() // rows
            rest = targets.numel() - longest * rows if targets.dim() == 1 else 0
            target_lengths = [longest] * (rows - 1) + [longest + rest]
            input_lengths = [log_probs.shape[0]] * rows
        return function(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)

    return rule


def gaussian_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """``gaussian_nll_loss`` but for a look at the signs of the variances."""
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    elif var.shape == input.shape[:-1] and var.dim() != input.dim():
        var = var.unsqueeze(-1)
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss += 0.5 * math.log(2 * math.pi)
    return {"mean": torch.mean, "sum": torch.sum}.get(reduction, lambda loss: loss)(loss)


# Rules that call the operators which their functions call: a profile counts those.
FOLLOWED = {f: alignment_loss(f) for f in (F.ctc_loss, torch.ctc_loss)}
FOLLOWED[F.gaussian_nll_loss] = gaussian_loss


def add_own_rules(registry):
    for function, rule in FOLLOWED.items():
        registry.add("shape_rules", function)(rule)
    if hasattr(torch, "_grouped_mm"):
        registry.add("shape_rules", torch._grouped_mm)(grouped_product)
