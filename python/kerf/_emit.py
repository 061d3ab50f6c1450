# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Stages as Python code. Needs no PyTorch: the code does."""

from __future__ import annotations

import os

from kerf import _core
from kerf._arguments import checked
from kerf._core import Graph, Plan


@checked("kerf.emit")
def emit(
    plan: Plan,
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    eval_graph: Graph | None = None,
    overwrite: bool = False,
    explicit_del: bool = True,
    relay: bool = False,
) -> None:
    """Writes the stages of ``plan`` as one Python file that needs PyTorch and nothing else.

    The file has a class per stage with the model's own names and weights, ``make_stages(model)``,
    ``run(stages, *args, **kwargs)``, which gives what the model gives, and ``config(B)``, which
    says what goes where. ``python FILE --check package.module:make_case`` compares it with the
    model.

    - ``eval_graph``: the same call traced in eval mode, where ``graph`` was traced in train mode:
      the stages have both modes. With one graph they have its mode and refuse the other.
    - ``overwrite``: replace a file of that name.
    - ``explicit_del``: write ``del`` where a tensor is used for the last time.
    - ``relay``: a tensor that several later stages use goes from each of them to the next, and not
      from its maker to all; ``config`` says so. A stage that writes its memory hands nothing on.

    Raises ValueError if the plan is not sound for the graph, NotImplementedError for what a file
    cannot hold, such as a model that changes its caller's objects, and OSError if the file exists.
    """
    _core.emit_file(
        graph, plan, eval_graph, os.fspath(path), bool(overwrite), bool(explicit_del), bool(relay)
    )
