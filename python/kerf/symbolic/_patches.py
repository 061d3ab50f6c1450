# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Names of PyTorch that stand for something else while a trace runs.

Most of a trace needs none: PyTorch's function modes belong to a thread. The few names below have no
mode. Each is exchanged when the first trace of the process begins and put back, the very same
object, when the last one ends; in between, threads that do not trace get the original.
"""

import threading

_lock = threading.RLock()
_local = threading.local()
_ABSENT = object()


def active_tracer():
    """The innermost trace of this thread; None outside, and while no node is to be made."""
    stack = getattr(_local, "tracers", None)
    return stack[-1] if stack else None


class tracing:
    """Within the block, calls in this thread are seen by ``tracer``; None hides the outer one."""

    def __init__(self, tracer):
        self._tracer = tracer

    def __enter__(self):
        if not hasattr(_local, "tracers"):
            _local.tracers = []
        _local.tracers.append(self._tracer)

    def __exit__(self, *error):
        _local.tracers.pop()


class Patch:
    """``holder.name`` is ``make(original)`` as long as any thread is within the block."""

    _held = {}  # (id(holder), name) -> [number of users, original, stand-in]

    def __init__(self, holder, name, make):
        self._holder, self._name, self._make = holder, name, make
        self._key = (id(holder), name)

    def __enter__(self):
        with _lock:
            held = self._held.get(self._key)
            if held is None:
                original = self._get()
                held = self._held[self._key] = [0, original, self._make(original)]
                self._set(held[2])
            held[0] += 1

    def __exit__(self, *error):
        with _lock:
            held = self._held[self._key]
            held[0] -= 1
            if held[0] == 0:
                del self._held[self._key]
                if self._get() is held[2]:  # or somebody else's by now
                    self._set(held[1])

    def _get(self):
        if self._name == "__code__":
            return self._holder.__code__
        return vars(self._holder).get(self._name, _ABSENT)

    def _set(self, value):
        if value is _ABSENT:
            delattr(self._holder, self._name)
        else:
            setattr(self._holder, self._name, value)
