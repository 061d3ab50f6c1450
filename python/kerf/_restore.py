# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A model's modules as they were, after code of theirs has run that was no call of the user's."""

import contextlib

_CONTAINERS = (list, dict, set)
_MODULE_STATE = frozenset({"_parameters", "_buffers", "_modules"})  # these have ways of their own


class Attributes:
    """What a module had, and what was in its lists, dictionaries and sets."""

    def __init__(self, module):
        self._own = module.__dict__
        self.before = dict(self._own)
        self._contents = {
            name: value.copy()
            for name, value in self.before.items()
            if type(value) in _CONTAINERS and name not in _MODULE_STATE
        }

    def now(self):
        """What it has, but for weights and modules."""
        return {n: v for n, v in self._own.items() if n not in _MODULE_STATE}

    def names(self):
        """All that it has or had."""
        return [*self.before, *(name for name in self._own if name not in self.before)]

    def put_back(self, name):
        if name not in self.before:
            self._own.pop(name, None)
            return
        value = self.before[name]
        if self._own.get(name, self) is not value:
            self._own[name] = value
        if name in self._contents:
            value.clear()
            (value.extend if type(value) is list else value.update)(self._contents[name])


@contextlib.contextmanager
def attributes_restored(model, which=Attributes.names):
    """Puts attributes of the modules back at the end: those that ``which(attributes)`` names."""
    before = [Attributes(module) for module in model.modules()]
    try:
        yield
    finally:
        for attributes in before:
            for name in which(attributes):
                attributes.put_back(name)
