# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Is the model behind a traced module still the one that was traced?

Asked at every call, in C++, which compares identities: a microsecond or so. Modules that are one
node are the model's own, and their changes reach the traced module; what forward itself changes is
left out.
"""

import weakref

import torch

from kerf import _core
from kerf.symbolic._guards import GuardError
from kerf.symbolic._places import line_of
from kerf.symbolic._state import TABLES, Held, is_equal

_ABSENT = object()


class Source:
    """A model as ``state`` found it. ``shared``: modules that the traced module calls itself."""

    def __init__(self, root, state, shared):
        self._root = weakref.ref(root)
        self._parts = []  # (path, dictionary or class, its entries that count)
        self._whole = []  # (path, dictionary, its keys) where nothing may come or go
        self._held = Held()
        shared = {id(part) for module in shared for part in module.modules()}
        changed = state.changed_by_code
        for path, module, _, _ in state.saved:
            if id(module) in shared:
                continue
            own = vars(module)
            self._add(path, own, own.keys() & state.names, changed)
            for name in TABLES:
                self._add(path, own[name], own[name], changed)
            if type(module).__module__.startswith("torch."):  # a container, which runs what it has
                self._whole.append((path, own["_modules"], list(own["_modules"])))
        for cls, (path, _) in state.classes.items():
            self._add(path, cls, vars(cls).keys() & state.names, changed)
        for scope, names in state.globals:
            self._add(scope.get("__name__"), scope, names, changed)
        self._build()

    def _add(self, path, table, names, changed):
        inside = vars(table) if isinstance(table, type) else table
        entries = {n: inside[n] for n in names if n not in _NEVER and (path, n) not in changed}
        if not entries:
            return
        self._parts.append((path, table, entries))
        for name, item in entries.items():
            self._held.hold(item, (path, name))

    def _build(self):
        self._watch = _core.ObjectWatch()
        for _, table, entries in self._parts:
            add = self._watch.add_class if isinstance(table, type) else self._watch.add_names
            add(table, sorted(entries))
        for _, table, _ in self._whole:
            self._watch.add_dict(table)
        for item in self._held.items():
            if isinstance(item, list):
                self._watch.add_list(item)
            elif isinstance(item, dict):
                self._watch.add_dict(item)
            elif isinstance(getattr(item, "__dict__", None), dict):
                self._watch.add_dict(vars(item))

    def check(self):
        root = self._root()
        if root is None or self._watch.unchanged():
            return
        place = self._replaced() or self._held.changed()
        if place is not None:
            where = ".".join(filter(None, place)) or type(root).__name__
            line = line_of(type(root).forward)
            raise GuardError(
                f"[symbolic.call] '{where}' of the model is another than when it was traced "
                f"(forward: {line}); expected the model as it was; trace it again, or call "
                "copy.deepcopy() of the traced module, which is on its own"
            )
        self._build()  # other objects that say the same

    def _replaced(self):
        for path, table, entries in self._parts:
            inside = vars(table) if isinstance(table, type) else table
            for name, was in entries.items():
                if not is_equal(was, inside.get(name, _ABSENT)):
                    return path, name
        return next(((path, "") for path, now, was in self._whole if list(now) != was), None)

    def __reduce__(self):
        """A copy of the traced module has weights of its own, and no model behind it."""
        return _nothing, ()


_NEVER = frozenset(vars(torch.nn.Module()))


def _nothing():
    return None
