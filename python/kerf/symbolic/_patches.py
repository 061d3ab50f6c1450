# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Names of PyTorch that stand for something else while a trace runs.

Most of a trace needs none: PyTorch's function modes belong to a thread. The few names below have no
mode. Each is exchanged when the first trace of the process begins and put back, the very same
object, when the last one ends; in between, threads that do not trace get the original.
"""

import contextlib
import functools
import sys
import threading
import types

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


@contextlib.contextmanager
def ruled_functions(registry):
    """Python functions with a rule, which no mode sees: their code is exchanged, so that it does
    not matter where the model has them from. Those with variables of a function around them are
    exchanged wherever a module has them by name."""
    wanted = {id(f): f for f in registry.functions() if isinstance(f, types.FunctionType)}
    wanted = {k: f for k, f in wanted.items() if not (f.__module__ or "").startswith("torch.")}
    closures = {k: f for k, f in wanted.items() if f.__closure__}
    with contextlib.ExitStack() as stack:
        for key, function in wanted.items():
            if key not in closures:
                make = functools.partial(_seen_code, function)
                stack.enter_context(Patch(function, "__code__", make))
        for module in list(sys.modules.values()) if closures else ():
            for name, item in list(getattr(module, "__dict__", {}).items()):
                if id(item) in closures:
                    stack.enter_context(Patch(module, name, _seen))
        yield


_ruled = {}  # id of a function whose code was exchanged -> (itself, one with its own code)


def _seen_code(function, code):
    original = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    _ruled[id(function)] = function, original
    consts = (id(function) if c == "the function" else c for c in _stand_in.__code__.co_consts)
    return _stand_in.__code__.replace(co_consts=tuple(consts), co_name=code.co_name)


def _stand_in(*args, **kwargs):
    from kerf.symbolic._patches import call_ruled

    return call_ruled("the function", args, kwargs)


def call_ruled(key, args, kwargs):
    function, original = _ruled[key]
    tracer = active_tracer()
    if tracer is None or not tracer.registry.knows(function):
        return original(*args, **kwargs)
    return tracer.call_function(function, original, args, kwargs)


def _seen(function):
    @functools.wraps(function)
    def stand_in(*args, **kwargs):
        tracer = active_tracer()
        if tracer is None or not tracer.registry.knows(function):
            return function(*args, **kwargs)
        return tracer.call_function(function, function, args, kwargs)

    return stand_in
