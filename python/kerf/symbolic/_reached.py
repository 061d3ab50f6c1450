# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The Python functions that a call of a model may run, and the globals that they name.

Found by names, without running anything: a function reaches the functions among its globals, and
every method of the model's classes that has a name in its code. That is rather too much than too
little. Installed packages are left out: what is global there are their own settings and caches.
"""

import types

from kerf._places import globals_of, is_foreign, names_in
from kerf._plain import function_of, is_code
from kerf._reads import is_watchable
from kerf.symbolic._places import line_of

_CALLED_UNNAMED = frozenset(["forward", "__call__", "__getitem__", "__iter__"])
_UNSTEADY = frozenset(
    """default_rng RandomState SeedSequence PCG64 Random SystemRandom urandom uuid1 uuid4
    token_bytes token_hex randbelow randbits Generator seed time time_ns perf_counter
    perf_counter_ns monotonic monotonic_ns process_time now today utcnow id""".split()
)


class Reached:
    """``globals``: ``(name, value, dictionary, key)`` of what is neither a class nor a module.

    ``names``: those of attributes that the code uses. ``unsteady``: where it names something that
    may answer differently at every call: clocks, sources of chance, addresses.
    """

    def __init__(self, functions, classes):
        self.globals, self.unsteady = [], []
        self._seen, self.names = {}, set(_CALLED_UNNAMED)
        self._classes, self._waiting = {}, list(functions)
        for cls in classes:
            self._add_class(cls)
        while self._waiting:
            item = self._waiting.pop()
            if hasattr(item, "__wrapped__"):
                self._waiting.append(item.__wrapped__)
            function = function_of(item)
            if function is not None and function not in self._seen:
                self._seen[function] = True
                if "-packages/" not in function.__code__.co_filename:
                    self._follow(function)

    def _follow(self, function):
        names = names_in(function.__code__)[1]
        for cls in self._classes:
            self._add_methods(cls, names - self.names)
        self.names |= names
        found = sorted(names & _UNSTEADY)
        if found:
            self.unsteady.append((found[0], line_of(function)))
        self._waiting += (c.cell_contents for c in function.__closure__ or () if c != _EMPTY)
        for name, value, (_, holder, key) in globals_of(function):
            if isinstance(value, type):
                self._add_class(value)
                self._waiting.append(value.__init__)
            elif is_code(value) or hasattr(value, "cache_info"):
                self._waiting.append(value)
                self.globals.append((name, value, holder, key))
            elif not isinstance(value, types.ModuleType):
                self.globals.append((name, value, holder, key))
                if is_watchable(value):
                    self._add_class(type(value))

    def _add_class(self, cls):
        for base in cls.__mro__:
            if base not in self._classes and not is_foreign(base.__module__):
                self._classes[base] = True
                self._add_methods(base, self.names)

    def _add_methods(self, cls, names):
        own = vars(cls)
        self._waiting += (own[name] for name in names & own.keys())


_EMPTY = types.CellType()
