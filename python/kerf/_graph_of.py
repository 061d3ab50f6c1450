# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Modules that were profiled symbolically, wherever a graph is asked for."""

from __future__ import annotations

import sys
from typing import Any


def as_graph(given: Any) -> Any:
    """The graph of a profiled module; anything else is left to whoever checks graphs."""
    fx = sys.modules.get("torch.fx")  # nobody has such a module who has not imported it
    if fx is None or not isinstance(given, fx.GraphModule):
        return given
    from kerf.symbolic import graph_of

    return graph_of(given)
