# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Iterators that a model holds, such as ``itertools.count()`` or a generator.

What a trace took from one would be a constant of the graph, and nothing could put it back.
"""

from collections.abc import Iterator

from kerf.symbolic._patches import active_tracer
from kerf.symbolic._places import refusal


class HeldIterator:
    """Stands for an iterator while a model is traced, and refuses to go on."""

    def __init__(self, iterator):
        self._iterator = iterator

    __class__ = property(lambda self: type(self._iterator))  # what the model's code will find here

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._now())

    def __getattr__(self, name):
        return getattr(self._now(), name)

    def _now(self):
        tracer = active_tracer()
        if tracer is None:  # another thread, or a part that is one node
            return self._iterator
        raise refusal(
            f"the code takes from a {type(self._iterator).__name__} that outlives the call",
            "expected calls that do not depend on earlier ones",
            "pass what it gives as an argument, or count in a buffer of the model",
            tracer.module_path(),
        )


def is_bare(item):
    """Whether an item is an iterator of Python's own, whose state no attribute shows."""
    home = type(item).__module__
    return home in ("builtins", "itertools", "_collections") and isinstance(item, Iterator)
