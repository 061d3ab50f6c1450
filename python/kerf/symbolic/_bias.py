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


def _convolution(function, spatial=None):
    def rule(input, weight, bias=None, *args, **kwargs):
        if bias is None:
            return NotImplemented
        product = function(input, weight, None, *args, **kwargs)
        return product + bias.reshape(-1, *[1] * (spatial or weight.dim() - 2))

    return rule


def _sum(product, input, beta, alpha):
    """Zero times the input is left out and not computed: NaN would stay NaN."""
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (input if beta == 1 else input * beta)


def _sum_of_products(product, first, second):
    """For ``addmm`` and its like, as written today: with other arguments they stay as they are."""

    def rule(*args, beta=1, alpha=1, **named):
        for names in (("input", "self"), (first,), (second,))[len(args) :]:
            args += tuple(named.pop(name) for name in names if name in named)
        if named or len(args) != 3 or not all(isinstance(item, torch.Tensor) for item in args):
            return NotImplemented
        return _sum(product(*args[1:]), args[0], beta, alpha)

    return rule


_PRODUCTS = {
    "addmm": _sum_of_products(lambda a, b: a @ b, "mat1", "mat2"),
    "addbmm": _sum_of_products(lambda a, b: torch.bmm(a, b).sum(0), "batch1", "batch2"),
    "baddbmm": _sum_of_products(torch.bmm, "batch1", "batch2"),
}


def _rules():
    aten = torch.ops.aten
    rules = {form: _linear for form in (F.linear, aten.linear, aten.linear.default)}
    for spatial in (1, 2, 3):
        for name in (f"conv{spatial}d", f"conv_transpose{spatial}d"):
            for form in {getattr(F, name), getattr(torch, name), *_forms(name)}:
                rules[form] = _convolution(form, spatial)
    for form in (torch.convolution, *_forms("convolution")):
        rules[form] = _convolution(form)
    for name, rule in _PRODUCTS.items():
        forms = getattr(torch, name), getattr(torch.Tensor, name), getattr(aten, name)
        rules.update(dict.fromkeys((*forms, forms[-1].default), rule))
    return rules


def _forms(name):
    """An operator of ATen and its overloads that write no result of the caller's."""
    packet = getattr(torch.ops.aten, name)
    overloads = [o for o in packet.overloads() if o != "out"]
    return packet, *(getattr(packet, overload) for overload in overloads)


RULES = _rules()
