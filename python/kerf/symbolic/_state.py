# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The attributes of a model before a trace, which are put back after it."""

import torch

from kerf._errors import ExportError
from kerf.symbolic._numbers import plain_value
from kerf.symbolic._trees import map_tree

_TABLES = ("_parameters", "_buffers", "_modules")


class State:
    """What all modules of a model hold, by identity."""

    def __init__(self, root):
        self._saved = []
        modules = root.modules() if isinstance(root, torch.nn.Module) else ()
        for module in modules:
            tables = {name: dict(getattr(module, name)) for name in _TABLES}
            self._saved.append((module, dict(module.__dict__), tables))
        self._names = {}
        if self._saved:
            self._names = {id(m): path for path, m in root.named_modules()}

    def changed(self):
        """``(path of the module, attribute)`` of what the model's code has set; None if nothing."""
        for module, attributes, tables in self._saved:
            path = self._names.get(id(module), "")
            name = _difference(attributes, module.__dict__)
            for table in _TABLES:
                name = name or _difference(tables[table], getattr(module, table))
            if name:
                return path, name
        return None

    def settle(self):
        """Sizes that the model's code has kept are plain numbers from now on."""
        for module, _, _ in self._saved:
            for name, item in module.__dict__.items():
                if not name.startswith("_"):
                    module.__dict__[name] = map_tree(plain_value, item)

    def refused(self):
        path, name = self.changed() or ("", "?")
        where = f"{path}.{name}" if path else name
        return ExportError(
            f"[symbolic.trace] forward sets the attribute '{where}' and does something else when "
            "called again; expected calls that do not depend on earlier ones; register a buffer "
            "and write into it in place, or pass the state as an argument",
            location="",
            module=path,
        )

    def restore(self):
        for module, attributes, tables in self._saved:
            for name, table in tables.items():
                current = getattr(module, name)
                if _difference(table, current):
                    current.clear()
                    current.update(table)
            if _difference(attributes, module.__dict__):
                module.__dict__.clear()
                module.__dict__.update(attributes)


def _difference(before, after):
    for name in (*after, *before):
        if name not in before or name not in after or before[name] is not after[name]:
            return name
    return None
