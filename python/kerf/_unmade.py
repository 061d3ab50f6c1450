# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Weights that are not there yet: of lazy modules, and on the meta device."""

from torch.nn.parameter import is_lazy


def refuse_lazy(caller, model):
    name = _first(model, is_lazy)
    if name is not None:
        raise ValueError(
            f"[{caller}] '{name}' has no shape before the first call of its lazy module; "
            "expected weights that are there; call the model once with an example first"
        )


def refuse_meta(caller, model):
    name = _first(model, lambda tensor: tensor.is_meta)
    if name is not None:
        raise ValueError(
            f"[{caller}] '{name}' is on the meta device and has no numbers; expected weights "
            "in memory; load them first: load_state_dict(..., assign=True)"
        )


def tensors_of(model):
    """Its parameters and buffers, where names would take most of the time."""
    for module in model.modules():
        for own in (module._parameters, module._buffers):
            if own:
                yield from (tensor for tensor in own.values() if tensor is not None)


def _first(model, is_so):
    """The name of the first parameter or buffer that is so, or None."""
    if not any(map(is_so, tensors_of(model))):
        return None
    named = (*model.named_parameters(), *model.named_buffers())
    return next(name for name, tensor in named if is_so(tensor))
