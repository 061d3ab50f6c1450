# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes of every node, from the metadata that a shape pass has left.

Results may be tensors, tuples, lists and dicts of them (their sum), and numbers or None (nothing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.graph_manipulation import size_bytes
from torch.fx.passes.shape_prop import ShapeProp, TensorMetadata

from kerf.fx._check import check_module, listed
from kerf.fx._errors import PartitionError, runtime_errors
from kerf.fx._modules import Modules

_MISSING = object()


class _UnknownSize(Exception):
    """A symbolic dimension that has no example value."""


def _whole(count: Any) -> int:
    if isinstance(count, torch.SymInt):
        if count.node.hint is None:
            raise _UnknownSize
        return int(count.node.hint)
    return int(count)


def _sum(value: Any) -> tuple[int, int]:
    """Bytes of all tensors in a result, and the element size of the first."""
    if isinstance(value, TensorMetadata):
        element = value.dtype.itemsize
        return _whole(value.shape.numel()) * element, element
    if isinstance(value, torch.Tensor):
        return _whole(value.numel()) * value.dtype.itemsize, value.dtype.itemsize
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return 0, 0
    parts = [_sum(part) for part in value]
    return sum(size for size, _ in parts), next((e for _, e in parts if e), 0)


def _result(node: Node, modules: Modules) -> Any:
    """What is known about a node's result."""
    meta = node.meta
    for key in ("tensor_meta", "val", "example_value"):
        if key in meta:
            return meta[key]
    if node.op == "get_attr":
        return modules.attribute(node.target)
    # A shape pass that saw no tensor leaves the type alone: a number, a None. What nobody reads
    # needs no shape: the guards of an export have none.
    return None if "type" in meta or not node.users else _MISSING


@lru_cache(maxsize=4096)
def _size(output: int, total: int) -> size_bytes:
    """Equal sizes are one object: a graph has few of them, and garbage collectors count."""
    return size_bytes(output, total)


def _measure(node: Node, modules: Modules) -> size_bytes | None:
    result = _result(node, modules)
    if type(result) is TensorMetadata and node.op != "call_module":  # most of them
        elements = result.shape.numel()
        if type(elements) is int:
            output = elements * result.dtype.itemsize
            return _size(output, output)
    if result is _MISSING:
        return None
    try:
        output, element = _sum(result)
    except _UnknownSize:
        return None
    if node.op != "call_module":
        return _size(output, output)
    # The original's formula: parameters take the element size of the output. One that is no tensor
    # has none: then they take their own.
    elements, own_bytes = modules.parameters(node.target)
    return _size(output, output + (elements * element if element else own_bytes))


def tag_sizes(nodes: Sequence[Node], modules: Modules) -> None:
    """Sets size_bytes of every node, like torch.fx's get_size_of_all_nodes, for any result."""
    unknown = []
    for node in nodes:
        size = _measure(node, modules)
        if size is None:
            unknown.append(node)
        else:
            object.__setattr__(node, "size_bytes", size)  # past Node's hooks: ten times as fast
    if unknown:
        raise PartitionError(
            f"[kerf.fx] {len(unknown)} of {len(nodes)} nodes have no shape metadata: "
            f"{listed(unknown)}; expected the shapes of all results; run "
            "torch.fx.passes.shape_prop.ShapeProp(module).propagate(*inputs) or "
            "get_size_of_all_nodes(module, inputs) first"
        )


def get_size_of_all_nodes(fx_module: GraphModule, args: Sequence[Any] | None = None) -> None:
    """Sets size_bytes of every node before the output, after a run with ``args`` if there are any.

    The same values as torch.fx's function of this name, if that accepts the module; results that
    are not tensors are accepted too. Raises PartitionError if shapes are not known.
    """
    check_module(fx_module)
    if args is not None:
        with runtime_errors():
            ShapeProp(fx_module).propagate(*args)
    nodes = list(takewhile(lambda node: node.op != "output", fx_module.graph.nodes))
    tag_sizes(nodes, Modules(fx_module))
