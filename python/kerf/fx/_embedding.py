# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Which nodes look rows up in a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.fx import Node

from kerf.fx._modules import Modules

_TABLES = {"Embedding", "EmbeddingBag"}  # quantised ones are called the same
_LOOKUP = re.compile("_?embedding(?!.*backward)")


def _is_table(module: Any) -> bool:
    return isinstance(module, nn.Embedding | nn.EmbeddingBag) or (
        isinstance(module, nn.Module) and any(c.__name__ in _TABLES for c in type(module).__mro__)
    )


def _is_lookup(target: Any) -> bool:
    """torch.nn.functional.embedding, torch.embedding, torch.ops.aten.embedding.default, ..."""
    module = getattr(target, "__module__", None) or ""
    name = getattr(target, "__name__", "")
    return module.split(".")[0] == "torch" and bool(_LOOKUP.match(name))


def _remembering(question: Callable[[Any], bool]) -> Callable[[Any], bool]:
    known: dict[Any, bool] = {}

    def ask(subject: Any) -> bool:
        if subject not in known:
            known[subject] = question(subject)
        return known[subject]

    return ask


def embeddings(nodes: Sequence[Node], modules: Modules) -> list[bool]:
    """By the type of the module, or by the operator."""
    table = _remembering(lambda path: _is_table(modules.attribute(path)))
    lookup = _remembering(_is_lookup)
    ask = {"call_module": table, "call_function": lookup}
    return [ask[node.op](node.target) if node.op in ask else False for node in nodes]


def embeddings_by_text(nodes: Sequence[Node], modules: Modules) -> list[bool]:
    """By torch.fx's rule: the word stands in what the module, or one around it, prints."""
    word = _remembering(lambda path: "Embedding" in str(modules.attribute(path)))

    def around(path: str) -> bool:
        atoms = path.split(".")
        return any(word(".".join(atoms[: i + 1])) for i in range(len(atoms)))

    return [node.op == "call_module" and around(node.target) for node in nodes]
