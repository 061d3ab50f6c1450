# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Autocast and the default dtype: states of the caller that a trace depends on."""

import torch

from kerf._pytree import DTYPES
from kerf._state import AUTOCAST, DEFAULT_DTYPE, GRADIENTS, autocast_state, surroundings


class Surroundings:
    """The states of the calling thread that a trace depends on: autocast, the default dtype, and
    gradient mode where the model's code asks for it."""

    def __init__(self, graph, device_types):
        """``device_types`` are those of the plan's stages, as PyTorch names them."""
        traced = surroundings(graph)
        self._dtype = traced.get(DEFAULT_DTYPE)
        self._dtype_itself = DTYPES.get(self._dtype)
        self._gradients = traced.get(GRADIENTS)
        self._types = device_types
        self._traced = traced.get(AUTOCAST)
        self._autocast = self._traced and self._on_devices(dict(self._traced))

    def _on_devices(self, traced):
        """What was traced for the CPU counts for the device a stage is on."""
        for kind in sorted(self._types):
            if kind not in traced and "cpu" not in traced:
                raise ValueError(
                    f"[pipeline] the model was traced {_inside(self._traced)}, and the plan has "
                    f"stages on {kind}, where that has no effect; expected stages on "
                    f"{' and '.join(traced)}; trace the model on the device it will run on"
                )
        return [[kind, traced.get(kind) or traced["cpu"]] for kind in sorted(self._types)]

    def check(self):
        """Raises ValueError when they are others than when the model was traced."""
        if self._gradients is not None and torch.is_grad_enabled() != self._gradients:
            now, was = ("on", "off") if torch.is_grad_enabled() else ("off", "on")
            raise ValueError(
                f"[pipeline] gradient mode is {now}; it was {was} when the model was traced, and "
                "the model's code depends on it; call it as it was traced, or trace it as it is "
                "called"
            )
        if self._autocast is None:
            return
        if not self._autocast and torch.get_default_dtype() is self._dtype_itself:
            if not any(map(torch.is_autocast_enabled, self._types)):
                return  # as nearly always
        now = autocast_state(self._types)
        if now != self._autocast:
            devices = (
                ""
                if self._autocast == self._traced
                else (f", which on this plan's devices is {_inside(self._autocast)}")
            )
            raise ValueError(
                f"[pipeline] the call is made {_inside(now)}; the model was traced "
                f"{_inside(self._traced)}{devices}; call it as it was traced, or trace it as it is "
                "called"
            )
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        if dtype != self._dtype:
            raise ValueError(
                f"[pipeline] the default dtype is {dtype}; it was {self._dtype} when the model was "
                "traced; set it back (torch.set_default_dtype) or trace again"
            )


def _inside(state):
    texts = [f'torch.autocast("{kind}", torch.{dtype})' for kind, dtype in state]
    return "inside " + " and ".join(texts) if texts else "outside torch.autocast"
