# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a trace in train mode looks out for, beyond any trace: code with gradients of its own
(``_backward``) and random numbers that choose a path (``_chance``)."""

import contextlib

from torch.overrides import TorchFunctionMode

from kerf._backward import OwnBackwards
from kerf._chance import Chance, PlainDraws


class Learning:
    """Watches the calls of one model in train mode."""

    def __init__(self, model):
        self.backwards = OwnBackwards(model)
        self.chance = Chance(model)
        self.draws = PlainDraws(model)
        self._handlers = {**self.backwards.handlers(), **self.chance.handlers()}

    @contextlib.contextmanager
    def watched(self):
        """Around one call, by the thread that traces."""
        with self.backwards.watched(), self.draws.watched(), _Calls(self._handlers):
            yield


class _Calls(TorchFunctionMode):
    """Gives calls of torch's functions to handlers ``(function, args, kwargs) -> result``."""

    def __init__(self, handlers):
        super().__init__()
        self._handlers = handlers

    def __torch_function__(self, func, types, args=(), kwargs=None):
        handler = self._handlers.get(func)
        if handler is None:
            return func(*args, **(kwargs or {}))
        return handler(func, args, kwargs or {})
