# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Siu's passes over profiles, for code that calls them by these names."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule

from kerf.symbolic._profile import profile_table, symbolic_profile


def graph_profile_pass(gm: GraphModule, *args: Any, verbose: bool = False) -> GraphModule:
    """``symbolic_profile``: there is one pass, which needs no other before it."""
    return symbolic_profile(gm, *args, verbose=verbose)


class FlopProfiler:
    """``propagate(*args)`` profiles a traced module, ``summary()`` is its table as text."""

    def __init__(self, gm: GraphModule) -> None:
        self._module = gm

    def propagate(self, *args: Any) -> GraphModule:
        """Profiles the module for a call with these arguments, and returns it."""
        return symbolic_profile(self._module, *args)

    def summary(self) -> str:
        """The table. Raises RuntimeError where the module was not profiled, or edited since."""
        return str(profile_table(self._module))
