# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``with torch.no_grad()`` and ``with torch.autocast(..., enabled=False)`` in a traced module.

FX forgets them. Here entering and leaving such a block are nodes, in the places where the model's
code does so; leaving restores what was in force when the block was entered.
"""

import sys

import torch
from torch.fx.node import has_side_effect


def enter_grad(enabled):
    """Switches the recording of gradients on or off; gives what was in force."""
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(enabled)
    return before


def exit_grad(before):
    torch._C._set_grad_enabled(before)


def enter_no_autocast(device_type):
    """Switches autocast off for a kind of device; gives what was in force."""
    before = torch.is_autocast_enabled(device_type)
    torch.set_autocast_enabled(device_type, False)
    return before


def exit_no_autocast(device_type, before):
    torch.set_autocast_enabled(device_type, before)


SWITCHES = (enter_grad, exit_grad, enter_no_autocast, exit_no_autocast)
for _switch in SWITCHES:
    has_side_effect(_switch)


class GradBlocks:
    """Writes down where the model's code switches gradients. ``write(function, args)`` makes a node
    and returns it."""

    def __init__(self, write):
        self._write = write
        self._entered = []  # (block, node), innermost last

    def switch(self, func, enabled):
        """What ``torch.no_grad()`` and the like call when they are entered and left."""
        func(enabled)
        block, method = _block_that_switches()
        is_within = block is not None and any(entered is block for entered, _ in self._entered)
        if is_within and method in ("__exit__", "__call__"):
            self._leave(block)
        elif not (is_within and method == "__enter__"):  # set_grad_enabled switches when it is made
            self._enter(block, enabled)

    def enter_inference(self, block):
        """``torch.inference_mode()`` records no gradients; the trace has no use for the rest."""
        block._kerf_before = torch.is_grad_enabled()
        _set_unseen(not block.mode)
        self._enter(block, not block.mode)

    def exit_inference(self, block):
        _set_unseen(block._kerf_before)
        self._leave(block)

    def _enter(self, block, enabled):
        self._entered.append((block, self._write(enter_grad, (enabled,))))

    def _leave(self, block):
        place = next(i for i, (entered, _) in enumerate(self._entered) if entered is block)
        self._write(exit_grad, (self._entered[place][1],))
        del self._entered[place:]


def _set_unseen(enabled):
    with torch._C.DisableTorchFunction():  # not by the mode that calls switch()
        torch._C._set_grad_enabled(enabled)


def _block_that_switches():
    """The block of PyTorch that switches gradients now, and its method that does; (None, "") where
    the model's code does so itself."""
    frame, found = sys._getframe(2), (None, "")
    for _ in range(8):
        if frame is None:
            break
        is_switch = frame.f_code.co_filename.endswith("grad_mode.py")
        if is_switch and frame.f_code.co_name.startswith("__"):  # no clone(), which makes another
            found = frame.f_locals.get("self"), frame.f_code.co_name
        elif found[0] is not None:
            break
        frame = frame.f_back
    return found


class unchanged_modes:
    """Leaves gradients and autocast as they were, also when the code inside fails half-way."""

    _DEVICES = ("cpu", "cuda")

    def __enter__(self):
        self._grad = torch.is_grad_enabled()
        self._autocast = [torch.is_autocast_enabled(device) for device in self._DEVICES]

    def __exit__(self, *error):
        torch._C._set_grad_enabled(self._grad)
        for device, enabled in zip(self._DEVICES, self._autocast):
            torch.set_autocast_enabled(device, enabled)
