# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Weights that come into a placed model: by ``load_state_dict(assign=True)``, with a new module."""

import warnings

import torch

from kerf import _core
from kerf._units import is_plain


class LateWeights:
    """Parameters and buffers that were put into a model on an accelerator after it was placed go to
    the device. Asked before each call: one comparison for each dictionary of a module."""

    def __init__(self, model, device, streamed):
        """``streamed``: ids of parameters that are at home on the host."""
        self._model = model
        self._device = device
        self._streamed = streamed
        self._watch = None
        self._one_that_stays = None

    def look(self):
        self._refuse_moved()
        if self._watch is not None and self._watch.unchanged():
            return
        if self._watch is not None:
            self._move()
        self._remember()

    def _refuse_moved(self):
        """A model that is moved as a whole is no longer where it is placed."""
        one = self._one_that_stays
        if one is None or one.device == self._device:
            return
        name = next((name for name, p in self._model.named_parameters() if p is one), None)
        if name is not None:
            raise ValueError(
                f"[kerf.place] '{name}' was moved to {one.device} while the model is placed; "
                f"expected it on {self._device}, which computes; move it back, or call remove() "
                "before the model is moved"
            )

    def _remember(self):
        there = (p for p in self._model.parameters() if p.device == self._device)
        self._one_that_stays = next(there, None)
        self._watch = _core.ObjectWatch()
        for module in self._model.modules():
            for name in ("_parameters", "_buffers", "_modules"):
                own = vars(module).get(name)
                if isinstance(own, dict):  # TorchScript has its own
                    self._watch.add_dict(own)

    @torch.inference_mode(False)
    def _move(self):
        late = {
            name: tensor
            for named in (self._model.named_parameters, self._model.named_buffers)
            for name, tensor in named()
            if tensor.is_cpu and is_plain(tensor) and id(tensor) not in self._streamed
        }
        for tensor in late.values():
            tensor.data = tensor.data.to(self._device)
        if late:
            more = f" and {len(late) - 1} more" if len(late) > 1 else ""
            warnings.warn(
                f"[kerf.place] '{next(iter(late))}'{more} came into the model after it was placed; "
                f"expected weights that are written in place: these stay on {self._device}, beside "
                "the memory that was allowed; place the model again to stream them",
                stacklevel=5,
            )
