# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Copies and pickles of a placed model: all their weights are on the host."""

import copy
import weakref

import torch

_on_host = weakref.WeakValueDictionary()  # id of a tensor -> its copy, while a pickler has it


class PlacedCopies:
    """Watches the dictionaries of a model's parameters and buffers, where some are on a device."""

    def __init__(self, model, device, untouched):
        self._replaced = []  # (attributes of a module, name, its own dictionary, ours)
        if device.type == "cpu":
            return
        for module in model.modules():
            for name in ("_parameters", "_buffers"):
                own = vars(module).get(name)
                if type(own) is not dict or id(module) in untouched:
                    continue
                ours = HomeDict(own)
                vars(module)[name] = ours
                self._replaced.append((vars(module), name, own, ours))

    def remove(self):
        for attributes, name, own, ours in self._replaced:
            if attributes.get(name) is ours:
                own.clear()
                own.update(ours)
                attributes[name] = own
        self._replaced.clear()


class HomeDict(dict):
    """A dictionary of tensors. Copied or pickled it is an ordinary one, of tensors on the host."""

    def __deepcopy__(self, memo):
        return {name: _copied(tensor, memo) for name, tensor in dict.items(self)}

    def __reduce__(self):
        return dict, ({name: _at_home(tensor) for name, tensor in dict.items(self)},)


def _copied(tensor, memo):
    if tensor is None or tensor.is_cpu or tensor.is_meta:
        return copy.deepcopy(tensor, memo)
    if id(tensor) not in memo:
        memo[id(tensor)] = _host_copy(tensor)
    return memo[id(tensor)]


def _at_home(tensor):
    if tensor is None or tensor.is_cpu or tensor.is_meta:
        return tensor
    made = _on_host.get(id(tensor))  # a tied one stays one
    if made is None:
        made = _on_host[id(tensor)] = _host_copy(tensor)
    return made


def _host_copy(tensor):
    with torch.inference_mode(False), torch.no_grad():
        data = tensor.detach().cpu()
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(data, requires_grad=tensor.requires_grad)
        return data
