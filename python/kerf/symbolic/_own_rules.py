# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Rules for operators of PyTorch whose own kernels for tensors without data refuse what the others
take. The default registry holds them."""

import torch


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


def add_own_rules(registry):
    if hasattr(torch, "_grouped_mm"):
        registry.add("shape_rules", torch._grouped_mm)(grouped_product)
