# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The models that are placed now, and what others have in common with them."""

import weakref

PLACED = weakref.WeakSet()  # handles


def shared_parts(model):
    """``(handle, path in model)`` for each placed model with a module or weight of this one."""
    handles = [handle for handle in list(PLACED) if handle._calls is not None]
    if not handles:
        return
    names = {id(module): name for name, module in model.named_modules()}
    names |= {id(parameter): name for name, parameter in model.named_parameters()}
    for handle in handles:
        parts = (*handle._model.modules(), *handle._model.parameters())
        name = next((names[id(part)] for part in parts if id(part) in names), None)
        if name is not None:
            yield handle, name
