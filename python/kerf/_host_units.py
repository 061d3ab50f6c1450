# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Which units the host may compute while a device waits for the weights of others."""

import dis
import inspect

import torch
from torch import nn

from kerf import _core, _torch
from kerf._limits import CPU

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096)  # calls that are planned for
_FEW = 16  # rows that going through weights takes as long for as for one
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_SPEEDS = {}  # by device and type of weight


def host_work(unit):
    """(may the host compute it, is it a table, bytes of arguments and results for each row).

    The host computes modules that take one tensor and remember nothing: perceptrons, linear layers,
    embeddings. Attention does not qualify: its cache stays on the device.
    """
    products = [p for p in unit.parameters if p.dim() > 1]
    modules = list(unit.module.modules())
    may = bool(products) and not unit.stays and all(map(_remembers_nothing, modules))
    known = [m for m in modules if _is_product(m) or _is_table(m)]
    own = {id(p) for m in known for p in m.parameters(recurse=False)}
    if not may or any(id(p) not in own for p in products):
        return False, False, 0
    widest = max(sum(p.shape) * p.element_size() for p in products)
    is_table = _is_table(unit.module)
    return True, is_table, products[0][0].nbytes if is_table else widest


def _is_product(module):
    if isinstance(module, nn.Linear):
        return True
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")  # GPT-2's linear layer


def _is_table(module):
    return isinstance(module, nn.Embedding) and module.max_norm is None and not module.sparse


def _remembers_nothing(module):
    if any(True for _ in module.buffers(recurse=False)):
        return False
    if any(len(getattr(module, name)) > 0 for name in _HOOKS):
        return False  # of the user's own, who expects the device
    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
        return False
    if getattr(module, "_compiled_call_impl", None) is not None:
        return False
    if any(isinstance(value, torch.Tensor) for value in vars(module).values()):
        return False
    return isinstance(module, nn.ModuleList | nn.ModuleDict) or _takes_one(module)


def _takes_one(module):
    """Is ``forward`` that of the class, with one argument, and sets no attributes?"""
    forward = type(module).forward
    code = getattr(forward, "__code__", None)
    if code is None or "forward" in vars(module):
        return False
    if any(step.opname in ("STORE_ATTR", "STORE_GLOBAL") for step in dis.get_instructions(code)):
        return False
    _, *parameters = inspect.signature(forward).parameters.values()
    return len(parameters) == 1 and parameters[0].kind is parameters[0].POSITIONAL_OR_KEYWORD


def weight_speeds(units, work, device, link, host_bytes_per_second):
    """[(rows, seconds per byte on the device, on the host)] for the kind of weight that most of
    the units have which the host may compute; measured once. None where copies over the link, of
    so many bytes per second, are over before the host has its arguments."""
    products = [
        p
        for unit, (may, _, _) in zip(units, work, strict=True)
        for p in unit.parameters
        if may and p.dim() == 2 and unit.bytes / link > 2 * _core.host_wait
    ]
    if not products:
        return []
    like = max(products, key=lambda p: p.nbytes)
    on_device = _speed(like, device)
    if host_bytes_per_second is not None:
        few = zip(ROWS, on_device, strict=True)
        return [(n, seconds, 1 / host_bytes_per_second) for n, seconds in few if n <= _FEW]
    return list(zip(ROWS, on_device, _speed(like, CPU), strict=True))


def _speed(like, device):
    key = (device, like.dtype)
    if key not in _SPEEDS:
        _SPEEDS[key] = _torch.linear_seconds_per_byte(like.data, device, list(ROWS))
    return _SPEEDS[key]


def rows_of(args, kwargs):
    """Rows of the one tensor of a call; None where it is another call."""
    if len(args) + len(kwargs) != 1:
        return None
    (given,) = (*args, *kwargs.values())
    if type(given) is not torch.Tensor or given.layout is not torch.strided:
        return None
    if given.is_floating_point() and given.dim() > 0:
        return given.numel() // max(given.shape[-1], 1)
    return given.numel()
