# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Modules in place of operators. Needs no PyTorch: modules are told by the names in the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kerf import _core
from kerf._arguments import Kind, checked, shown, whole
from kerf._core import Graph

BLOCKS = Kind(
    lambda value: isinstance(value, (list, tuple, set, frozenset)),
    "a list of modules: classes, class names, paths, instances (with model=), or functions of path "
    "and class name",
)
_DEPTH = whole(0, 2**20)


@checked("kerf.coarsen", basic_blocks=BLOCKS, depth=_DEPTH)
def coarsen(
    graph: Graph,
    *,
    depth: int | None = None,
    basic_blocks: Sequence[str | type | Any | Callable[[str, str], bool]] = (),
    model: Any = None,
) -> Graph:
    """The same graph, with modules that no plan cuts, whatever the method: ``graph.glued``.

    - ``depth``: how far modules are opened. 0: the whole model is one block; 1: its own modules
      are, and so on; the default: all modules, so that blocks are those without modules in them.
      ``ModuleList`` and ``ModuleDict`` use up no depth.
    - ``basic_blocks``: modules that stay whole at any depth: class names, paths, classes,
      instances (with ``model``), or functions that are given path and class name of each module.
    - ``model``: with it, a class stands for its subclasses too.

    Blocks that write each other's memory become one. The graph's hash is the same, and its files do
    not hold the blocks: coarsen it again after loading.
    """
    names = [name for want in basic_blocks for name in _names(graph, want, model)]
    return _core.coarsen(graph, -1 if depth is None else depth, list(dict.fromkeys(names)))


def _names(graph: Graph, want: Any, model: Any) -> list[str]:
    """Class names and paths of what one entry of ``basic_blocks`` stands for."""
    if isinstance(want, str):
        return [want]
    if isinstance(want, type):
        return _found(want, _of_class(want, model))
    if model is not None and any(module is want for module in model.modules()):
        named = model.named_modules(remove_duplicate=False)
        return [path or type(model).__name__ for path, module in named if module is want]
    if hasattr(want, "named_modules") or not callable(want):
        raise ValueError(
            f"[kerf.coarsen] basic_blocks holds {shown(want)}; expected a class, a class name, a "
            "path, a function of path and class name, or a module of the model that is given; give "
            "model="
        )
    return _found(want, [path for path, name in graph.scopes if path and want(path, name)])


def _of_class(cls: type, model: Any) -> list[str]:
    if model is None:
        return [cls.__name__]
    names = [path for path, module in model.named_modules() if path and isinstance(module, cls)]
    # Itself by its own class alone: a base of it is given to say something of its modules.
    return [*names, cls.__name__] if type(model) is cls else names


def _found(want: Any, names: list[str]) -> list[str]:
    if not names:
        raise ValueError(
            f"[kerf.coarsen] basic_blocks holds {shown(want)}, which no module of the model is; "
            "expected one that the model has; see graph.scopes"
        )
    return names
