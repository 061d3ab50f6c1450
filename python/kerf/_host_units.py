# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Which units the host may compute while a device waits for the weights of others."""

import dis
import functools
import inspect

import torch
from torch import nn

from kerf import _core, _torch
from kerf._limits import CPU
from kerf._speeds import kept

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 4096)  # calls that are planned for
MEASURED = "measured"
HOOK_SECONDS = 15e-6  # what coming and going costs a unit by itself
_FEW = 16  # rows that going through weights takes as long for as for one
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_SPEEDS = {}  # by device and type of weight


def host_work(unit):
    """(may the host compute it, is it a table, bytes of arguments and results for each row).

    The host computes modules that take one tensor and remember nothing: perceptrons, linear layers,
    embeddings. Attention does not qualify: its cache stays on the device.
    """
    products = [p for p in unit.parameters if p.dim() > 1]
    if not products or unit.stays:
        return False, False, 0
    brought, own = {id(p) for p in unit.parameters}, set()
    for module in unit.module.modules():
        if not _remembers_nothing(module):
            return False, False, 0
        there = {id(p) for p in module._parameters.values() if p is not None}
        if not there <= brought:
            return False, False, 0  # tied ones, or those that a map has there, are on the device
        if there and (_is_product(module) or _is_table(module)):
            own |= there
    if any(id(p) not in own for p in products):
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
    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
        return False
    own = vars(module)
    if any(b is not None for b in module._buffers.values()):
        return False
    if any(getattr(module, name) for name in _HOOKS):
        return False  # of the user's own, who expects the device
    if getattr(module, "_compiled_call_impl", None) is not None:
        return False
    if any(issubclass(kind, torch.Tensor) for kind in set(map(type, own.values()))):
        return False
    return isinstance(module, nn.ModuleList | nn.ModuleDict) or _takes_one(module)


def _takes_one(module):
    """Is ``forward`` that of the class, with one argument, and sets no attributes?"""
    forward = type(module).forward
    return hasattr(forward, "__code__") and "forward" not in vars(module) and _is_simple(forward)


@functools.lru_cache(maxsize=4096)  # models have far more modules than classes
def _is_simple(forward):
    steps = dis.get_instructions(inspect.unwrap(forward).__code__)  # below a decorator
    if any(step.opname in ("STORE_ATTR", "STORE_GLOBAL") for step in steps):
        return False
    _, *parameters = inspect.signature(forward).parameters.values()
    return len(parameters) == 1 and parameters[0].kind is parameters[0].POSITIONAL_OR_KEYWORD


class HostShare:
    """What the host computes in calls of few rows, decided by the planner from measured speeds.

    ``speed``: bytes per second at which the host goes through weights; or MEASURED, and corrected
    by what calls take.
    """

    def __init__(self, device, link, speed):
        self._device, self._link, self._given = device, link, speed
        self._each = HOOK_SECONDS  # what a unit costs beside computing: Python, launches
        self._slower = 1.0  # the host is, beside the link and the rest of a call
        self._work = self._speeds = ()
        self._known = {}  # id of a unit -> (the unit, what host_work says of it)

    def share(self, placement, units, far=()):
        """Fills in the placement. ``far``: ids of units from a file, which are no host's."""
        self._work = [self._work_of(u) if id(u) not in far else (False, False, 0) for u in units]
        self._speeds = self._weight_speeds(units)
        self._decide(placement)

    def planned(self):
        """No more units will be looked at."""
        self._known.clear()

    def _work_of(self, unit):
        """Plans of one model have many units in common."""
        known = self._known.get(id(unit))
        if known is None:
            known = self._known[id(unit)] = unit, host_work(unit)
        return known[1]

    def _decide(self, placement):
        speeds = [(rows, device, host * self._slower) for rows, device, host in self._speeds]
        if speeds:
            placement.give_to_host(speeds, self._work, self._each)

    def learns(self):
        return self._given is MEASURED and bool(self._speeds)

    def learn(self, placement, issuing, computing, bytes_computed, rows):
        """From a call: seconds of the calling thread beside the host's units, those of the host's
        units, and the bytes of weights that these have."""
        self._each = max(issuing / len(placement.units), HOOK_SECONDS)
        enough = [host for n, _, host in self._speeds if n >= rows] or [self._speeds[-1][2]]
        expected = enough[0] * bytes_computed
        if expected > 0:
            self._slower = min(max(computing / expected, 0.5), 8.0)
        self._decide(placement)

    def _weight_speeds(self, units):
        """[(rows, seconds per byte on the device, on the host)] for the type of the largest weight
        that the host may compute with; measured once per machine. None where all copies are over
        before the host has its arguments."""
        least = 2 * _core.host_wait() * self._link
        products = [
            p
            for unit, (may, _, _) in zip(units, self._work, strict=True)
            if may and unit.bytes > least
            for p in unit.parameters
            if p.dim() == 2
        ]
        if not products:
            return []
        like = max(products, key=lambda p: p.nbytes)
        on_device = _speed(like, self._device)
        if self._given is not MEASURED:
            few = zip(ROWS, on_device, strict=True)
            return [(n, seconds, 1 / self._given) for n, seconds in few if n <= _FEW]
        return list(zip(ROWS, on_device, _speed(like, CPU), strict=True))


def _speed(like, device):
    key = (device, like.dtype)
    if key not in _SPEEDS:
        _SPEEDS[key] = kept(
            f"seconds per byte of products with {like.dtype}, by rows: {list(ROWS)}",
            device,
            len(ROWS),
            lambda: _torch.linear_seconds_per_byte(like.data, device, list(ROWS)),
        )
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
