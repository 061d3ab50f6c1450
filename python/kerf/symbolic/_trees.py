# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments and results as trees of the containers that calls use: lists, tuples, dictionaries,
slices. Much faster than PyTorch's general trees, and a trace walks one at every call.
"""

import torch


def map_tree(function, tree):
    """The tree with ``function`` applied to what is no container; containers keep their class."""
    kind = type(tree)
    if kind is tuple:
        return tuple(map_tree(function, item) for item in tree)
    if kind is list:
        return [map_tree(function, item) for item in tree]
    if kind is dict:
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
    found = []

    def note(item):
        if isinstance(item, torch.Tensor):
            found.append(item)
        return item

    map_tree(note, tree)
    return found
