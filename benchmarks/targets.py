# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Figures beside their targets, as every table with targets prints them."""


class Verdicts:
    """Has `table`, the name of the table being made, and `missed`, a list."""

    def verdict(self, row, *failures):
        """'met', or what was missed; misses are listed again at the end."""
        failures = [failure for failure in failures if failure]
        if not failures:
            return "met"
        self.missed.append(f"{self.table}, {row}: {', '.join(failures)}")
        return f"MISSED: {', '.join(failures)}"


def unless(met, what):
    return "" if met else what


def seconds(value):
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
