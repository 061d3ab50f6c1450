# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``with torch.no_grad()`` and ``with torch.autocast(..., enabled=False)`` in a traced module.

FX forgets them. Here entering and leaving such a block are nodes, in the places where the model's
code does so; leaving restores what was in force when the block was entered.
"""

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
