# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``bias_addition_split``: products and the biases added to them as nodes of their own.

Where a product is spread over devices, its bias is added after the sum over the devices. Each rule
computes what the fused function does, in two steps; it returns NotImplemented for calls without a
bias, which stay as they are.
"""

import torch
import torch.nn.functional as F
from torch import nn

MODULES = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)


def is_split(module):
    """Whether a module is traced into for its bias: one of the seven, or one that inherits what it
    computes from one of them."""
    return any(
        isinstance(module, cls) and type(module).forward is cls.forward for cls in MODULES
    ) and (getattr(module, "bias", None) is not None)


def _linear(input, weight, bias=None):
    if bias is None:
        return NotImplemented
    return F.linear(input, weight) + bias


def _convolution(function, spatial):
    def rule(input, weight, bias=None, *args, **kwargs):
        if bias is None:
            return NotImplemented
        return function(input, weight, None, *args, **kwargs) + bias.reshape(-1, *[1] * spatial)

    return rule


def _sum(product, input, beta, alpha):
    """Zero times the input is left out and not computed: NaN would stay NaN."""
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (input if beta == 1 else input * beta)


def _addmm(input, mat1, mat2, *, beta=1, alpha=1, **other):
    if other:
        return NotImplemented
    return _sum(mat1 @ mat2, input, beta, alpha)


def _addbmm(input, batch1, batch2, *, beta=1, alpha=1, **other):
    if other:
        return NotImplemented
    return _sum(torch.bmm(batch1, batch2).sum(0), input, beta, alpha)


def _baddbmm(input, batch1, batch2, *, beta=1, alpha=1, **other):
    if other:
        return NotImplemented
    return _sum(torch.bmm(batch1, batch2), input, beta, alpha)


def _rules():
    rules = {F.linear: _linear, torch.ops.aten.linear: _linear}
    rules[torch.ops.aten.linear.default] = _linear
    for spatial in (1, 2, 3):
        for name in (f"conv{spatial}d", f"conv_transpose{spatial}d"):
            for function in {getattr(F, name), getattr(torch, name)}:
                rules[function] = _convolution(function, spatial)
    for name, rule in (("addmm", _addmm), ("addbmm", _addbmm), ("baddbmm", _baddbmm)):
        packet = getattr(torch.ops.aten, name)
        for form in (getattr(torch, name), getattr(torch.Tensor, name), packet, packet.default):
            rules[form] = rule
    return rules


RULES = _rules()
