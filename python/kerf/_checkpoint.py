# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoint regions in a trace.

An exported graph does not tell which nodes stood inside ``torch.utils.checkpoint``. While a trace
runs, checkpointed functions are called in line between two marker operators, which land in the
graph in their places and say where a region begins and ends.
"""

import contextlib

import torch
import torch.utils.checkpoint as torch_checkpoint

_library = torch.library.Library("kerf", "FRAGMENT")
_library.define("mark(str kind) -> ()")
_library.impl("mark", lambda kind: None, "CompositeExplicitAutograd")


def _mark(kind):
    torch.ops.kerf.mark(kind)


class _Inline:
    """Stands in for CheckpointFunction, the reentrant kind."""

    @staticmethod
    def apply(function, preserve_rng_state, *args):
        _mark("enter")
        result = function(*args)
        _mark("exit")
        return result


def _around(function, *args, **kwargs):
    """Stands in for the generator that runs before and after the function in the other kind."""
    _mark("enter")
    yield
    _mark("exit")


@contextlib.contextmanager
def marked_regions():
    # These two are looked up at each call, so it does not matter under which name the user's code
    # has imported checkpoint().
    names = {"CheckpointFunction": _Inline, "_checkpoint_without_reentrant_generator": _around}
    saved = {name: getattr(torch_checkpoint, name) for name in names}
    for name, stand_in in names.items():
        setattr(torch_checkpoint, name, stand_in)
    try:
        yield
    finally:
        for name, original in saved.items():
            setattr(torch_checkpoint, name, original)


class Regions:
    """Follows the markers: ``path`` is the region of the node at hand, "0/1" for a nested one."""

    def __init__(self):
        self._stack = []
        self._counts = [0]

    def mark(self, kind):
        if kind == "enter":
            self._stack.append(self._counts[-1])
            self._counts[-1] += 1
            self._counts.append(0)
        else:
            self._stack.pop()
            self._counts.pop()

    @property
    def path(self):
        return "/".join(map(str, self._stack))
