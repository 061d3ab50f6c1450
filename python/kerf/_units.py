# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Which modules of a model come and go as one, and what each takes."""

import dataclasses

import torch

from kerf import _torch

# Modules that only hold others: their own forward is never called.
_HOLDERS = (torch.nn.ModuleList, torch.nn.ModuleDict)


@dataclasses.dataclass
class Unit:
    """A module, or the parameters that an opened module has itself."""

    path: str
    module: torch.nn.Module
    parameters: list
    stays: bool = False  # its parameters are used while others' modules run

    @property
    def bytes(self):
        return unit_bytes(self.parameters)


def is_plain(parameter):
    """Can its numbers lie in a slot? Sparse and quantised tensors, those of classes of their own,
    and those made in inference mode stay where they are."""
    data = parameter.data
    return (
        data.layout is torch.strided
        and not data.is_quantized
        and type(data) is torch.Tensor
        and not parameter.is_inference()
    )


def unit_bytes(parameters):
    odd = [p for p in parameters if not is_plain(p)]
    return _torch.unit_bytes([p for p in parameters if is_plain(p)]) + sum(
        p.numel() * p.element_size() for p in odd
    )


def find_units(model, largest, no_split=()):
    """The largest modules of no more than ``largest`` bytes, in the order the model has them.

    Larger ones are opened, elements of lists first. Leaves, and modules of the classes in
    ``no_split``, stay whole whatever they take.
    """
    units = []
    _add_units("", model, largest, frozenset(no_split), units)
    return [unit for unit in units if unit.parameters]


def _add_units(path, module, largest, no_split, units):
    parameters = list(module.parameters())
    whole = not isinstance(module, _HOLDERS) and path != ""
    is_leaf = not any(True for _ in module.children())
    fits = unit_bytes(parameters) <= largest
    if whole and (is_leaf or fits or type(module).__name__ in no_split):
        stays = not all(map(is_plain, parameters)) or isinstance(module, torch.jit.ScriptModule)
        units.append(Unit(path, module, parameters, stays))
        return
    own = list(module.parameters(recurse=False))
    if own:
        # Used at any time while the modules inside run.
        units.append(Unit(path, module, own, stays=True))
    for name, child in module.named_children():
        _add_units(f"{path}.{name}" if path else name, child, largest, no_split, units)
