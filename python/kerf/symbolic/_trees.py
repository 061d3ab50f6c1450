# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments and results as trees of the containers that calls use: lists, tuples, dictionaries,
slices. Much faster than PyTorch's general trees, and a trace walks one at every call.
"""

import dataclasses
import types

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list


def map_tree(function, tree):
    """The tree with ``function`` applied to what is no container; containers keep their class,
    FX's immutable ones become plain."""
    kind = type(tree)
    if kind is tuple:
        return tuple(map_tree(function, item) for item in tree)
    if kind is list or kind is immutable_list:
        return [map_tree(function, item) for item in tree]
    if kind is dict or kind is immutable_dict:
        return {key: map_tree(function, item) for key, item in tree.items()}
    if kind is torch.Size:
        return tuple(map_tree(function, item) for item in tree)
    if kind is slice:
        return slice(*(map_tree(function, part) for part in (tree.start, tree.stop, tree.step)))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*(map_tree(function, item) for item in tree))
    if issubclass(kind, tuple) and kind.__module__ == "torch.return_types":
        return kind(map_tree(function, item) for item in tree)
    return function(tree)


def leaves(tree, path=()):
    """Pairs of a path and what stands there; a path holds the keys that lead to it."""
    if isinstance(tree, dict):
        for key, item in tree.items():
            yield from leaves(item, (*path, key))
    elif isinstance(tree, tuple | list):
        for key, item in enumerate(tree):
            yield from leaves(item, (*path, key))
    else:
        yield path, tree


def tensors_in(tree):
    """All tensors, also in containers of classes of others (outputs of models)."""
    found = []
    _collect(tree, found)
    return found


def with_gradients(tree, inputs):
    """What a rule returned, which knows shapes alone, with gradients where the call has them."""
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in inputs):
        return tree

    def made(item):
        if not isinstance(item, torch.Tensor) or item.requires_grad:
            return item
        if any(item is given for given in inputs):
            return item
        differentiable = item.is_floating_point() or item.is_complex()
        return item.detach().requires_grad_().clone() if differentiable else item

    return map_tree(made, tree)


def tensors_within(tree):
    """The same, and those in the fields of objects, such as dataclasses: what a call gives back."""
    found = []
    _collect_fields(tree, found, set())
    return found


def _collect_fields(tree, found, seen):
    if isinstance(tree, torch.Tensor):
        found.append(tree)
    elif isinstance(tree, tuple | list):
        for item in tree:
            _collect_fields(item, found, seen)
    elif isinstance(tree, dict):
        for item in tree.values():
            _collect_fields(item, found, seen)
    elif id(tree) not in seen and not isinstance(tree, _NO_OBJECTS):
        seen.add(id(tree))
        if dataclasses.is_dataclass(tree):
            names = [field.name for field in dataclasses.fields(tree)]
            _collect_fields([getattr(tree, name, None) for name in names], found, seen)
        elif hasattr(tree, "__dict__"):
            _collect_fields(vars(tree), found, seen)


_NO_OBJECTS = (torch.nn.Module, type, types.FunctionType, types.ModuleType)


def _collect(tree, found):
    if isinstance(tree, torch.Tensor):
        found.append(tree)
    elif isinstance(tree, tuple | list):
        for item in tree:
            _collect(item, found)
    elif isinstance(tree, dict):
        for item in tree.values():
            _collect(item, found)
    elif isinstance(tree, slice):
        for part in (tree.start, tree.stop, tree.step):
            _collect(part, found)
