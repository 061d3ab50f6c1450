# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Weights that a model's code reads from its own lists and dictionaries, and not from a module."""

import torch

from kerf._layers import MODULE_ATTRIBUTES
from kerf._restore import walk_containers
from kerf._units import is_plain

_CONTAINERS = (list, tuple, dict, set, frozenset)


class ListedWeights:
    """Such reads are not seen: the weights are where the model computes, as long as they fit.

    registered  ids of those that modules have, too
    others      parameters that no module has: they come on top
    """

    def __init__(self, model):
        own = {id(p) for module in model.modules() for p in module._parameters.values()}
        listed = {}
        for module in model.modules():
            attributes = vars(module)
            for name in attributes.keys() - MODULE_ATTRIBUTES:
                if isinstance(attributes[name], _CONTAINERS):
                    found = filter(_is_weight, walk_containers(attributes[name]))
                    listed.update((id(p), p) for p in found)
        self.registered = own.intersection(listed)
        self.others = [p for i, p in listed.items() if i not in own and p.is_cpu]

    def __bool__(self):
        return bool(self.registered or self.others)

    @property
    def bytes(self):
        """Of what no module has."""
        return sum(p.nbytes for p in self.others)


def _is_weight(value):
    return isinstance(value, torch.nn.Parameter) and is_plain(value)
