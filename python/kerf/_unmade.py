# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Weights that are not there yet: of lazy modules, and on the meta device."""

from torch.nn.parameter import is_lazy


def refuse_lazy(caller, model):
    for name, tensor in _named(model):
        if is_lazy(tensor):
            raise ValueError(
                f"[{caller}] '{name}' has no shape before the first call of its lazy module; "
                "expected weights that are there; call the model once with an example first"
            )


def refuse_meta(caller, model):
    for name, tensor in _named(model):
        if tensor.is_meta:
            raise ValueError(
                f"[{caller}] '{name}' is on the meta device and has no numbers; expected weights "
                "in memory; load them first: load_state_dict(..., assign=True)"
            )


def _named(model):
    yield from model.named_parameters()
    yield from model.named_buffers()
