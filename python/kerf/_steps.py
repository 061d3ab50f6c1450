# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps that share weights follow each other, whatever pipelines they belong to: what one
puts aside or puts back must not be what another adds."""

import contextlib
import threading

from torch.utils.weak import WeakIdKeyDictionary

from kerf import _torch

_TURNS = WeakIdKeyDictionary()  # by weight
_LOCK = threading.Lock()


class Steps:
    """The turns at a set of weights."""

    def __init__(self, weights):
        with _LOCK:
            known = {id(t): t for t in map(_TURNS.get, weights) if t is not None}
            self._turns = list(known.values()) or [_torch.Turns()]
            for weight in weights:
                _TURNS.setdefault(weight, self._turns[0])

    @contextlib.contextmanager
    def turn(self):
        """Waits, or refuses to wait for ever."""
        with contextlib.ExitStack() as held:
            # All ask in the same order, so that none waits for one who waits for it.
            for turns in sorted(self._turns, key=id):
                held.enter_context(_torch.Turn(turns))
            yield
