# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A model's modules as they were, after code of theirs has run that was no call of the user's."""

import collections
import contextlib

import torch
from torch._subclasses.fake_tensor import is_fake

_CONTAINERS = (list, dict, set, collections.OrderedDict)  # the last are hooks
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
        if name in self._contents and not _holds_same(value, self._contents[name]):
            value.clear()
            (value.extend if type(value) is list else value.update)(self._contents[name])


def _holds_same(a, b):
    """Two containers of one type. Without asking what they hold: that runs code of its class."""
    items = [[*v, *v.values()] if isinstance(v, dict) else list(v) for v in (a, b)]
    return [id(item) for item in items[0]] == [id(item) for item in items[1]]


@contextlib.contextmanager
def attributes_restored(model, which=Attributes.names):
    """Puts attributes of the modules back at the end: those that ``which(attributes)`` names, and
    the numbers in all that are tensors."""
    before = [Attributes(module) for module in model.modules()]
    tensors = [v for a in before for v in a.before.values() if isinstance(v, torch.Tensor)]
    try:
        with _numbers_restored(tensors):
            yield
    finally:
        for attributes in before:
            for name in which(attributes):
                attributes.put_back(name)


@contextlib.contextmanager
def buffers_restored(model):
    """Puts the buffers of the modules back at the end: which they are, and their numbers."""
    mappings = [module._buffers for module in model.modules()]
    before = [(own, dict(own)) for own in mappings if isinstance(own, dict)]  # not TorchScript's
    try:
        with _numbers_restored(model.buffers()):
            yield
    finally:
        for own, buffers in before:
            if not _holds_same(own, buffers):
                own.clear()
                own.update(buffers)


@contextlib.contextmanager
def _numbers_restored(tensors):
    saved = {id(tensor): (tensor, tensor.detach().clone()) for tensor in tensors}
    try:
        yield
    finally:
        for tensor, value in saved.values():
            if not _is_same(tensor, value):
                with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                    tensor.copy_(value)


def _is_same(tensor, value):
    """What was not written keeps its version, which others look at."""
    if tensor.is_meta:
        return True
    return tensor.layout is torch.strided and not is_fake(tensor) and torch.equal(tensor, value)
