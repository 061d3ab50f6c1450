# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A profile for people and for tools; C++ writes all three forms."""

from __future__ import annotations

import json
from typing import Any


class ProfileTable:
    """A row a node, totals, shares; operators that no formula knows are listed below.

    ``print`` shows text, a notebook shows HTML, ``json()`` holds every figure in bytes and flops.
    ``unknown_ops``: (operator, calls, share of all calls).
    """

    def __init__(self, profile: Any, sort: str = "", limit: int = 0) -> None:
        profile.text(sort or "", 1)  # refuses a column that is none
        self._profile, self._sort, self._limit = profile, sort or "", limit
        self.totals: dict[str, float] = profile.totals
        self.unknown_ops: list[tuple[str, int, float]] = profile.unknown_ops
        self.ops_without_rule: list[str] = profile.ops_without_rule

    def __str__(self) -> str:
        return str(self._profile.text(self._sort, self._limit))

    def __repr__(self) -> str:
        return f"ProfileTable({len(self._profile)} nodes, {self._profile.device_kind})"

    def _repr_html_(self) -> str:
        return str(self._profile.html(self._sort, self._limit))

    def json(self) -> Any:
        """As plain data; the rows as the model runs, all of them."""
        return json.loads(self._profile.json())
