# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A model's modules as they were, after code of theirs has run that was no call of the user's."""

import collections
import contextlib

import torch
from torch._subclasses.fake_tensor import is_fake

from kerf._plain import NAMESPACES
from kerf._reads import is_watchable, own_attributes, weight_ids

# Those of which a copy is the same again, in the same order; OrderedDict are hooks.
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_LISTS = (list, collections.deque)
_CONTAINERS = (*_LISTS, *_DICTS, set)
_DEEPEST = 3
_MODULE_STATE = frozenset({"_parameters", "_buffers", "_modules"})  # these have ways of their own


class Attributes:
    """What a module or another object had, and what was in its lists, dictionaries and sets."""

    def __init__(self, holder):
        self._own = own_attributes(holder)
        self.before = dict(self._own)
        self._contents = {
            name: [(found, found.copy()) for found in _containers(value)]
            for name, value in self.before.items()
            if name not in _MODULE_STATE
        }

    def now(self):
        """What it has, but for weights and modules."""
        return {n: v for n, v in self._own.items() if n not in _MODULE_STATE}

    def names(self):
        """All that it has or had."""
        return [*self.before, *(name for name in self._own if name not in self.before)]

    def is_as_before(self):
        """But for what is in its containers."""
        own = self.now()
        return (
            all(
                name in own and (own[name] is value or _are_alike(own[name], value))
                for name, value in self.before.items()
                if name not in _MODULE_STATE
            )
            and own.keys() <= self.before.keys()
        )

    def put_back(self, name):
        if name not in self.before:
            self._own.pop(name, None)
            return
        if self._own.get(name, self) is not self.before[name]:
            self._own[name] = self.before[name]
        for container, was in self._contents.get(name, ()):
            if not _holds_same(container, was):
                container.clear()
                (container.extend if type(was) in _LISTS else container.update)(was)


def _containers(value):
    """The value and containers in it that can be changed in place."""
    return [found for found in walk_containers(value) if type(found) in _CONTAINERS]


def walk_containers(value, depth=0):
    """A value and what is in it, as far as containers go."""
    yield value
    if depth < _DEEPEST and type(value) in (*_CONTAINERS, tuple):
        for item in list(value.values() if isinstance(value, dict) else value):
            yield from walk_containers(item, depth + 1)


def _holders(model):
    """The modules, and objects of users' classes that they hold, in containers too."""
    found = {id(module): module for module in model.modules()}
    for holder in list(found.values()):
        _add_held(holder, found, 0)
    return list(found.values())


def _add_held(holder, found, depth):
    for name, value in own_attributes(holder).items() if depth < _DEEPEST else ():
        for item in walk_containers(value) if name not in _MODULE_STATE else ():
            if id(item) not in found and (is_watchable(item) or isinstance(item, NAMESPACES)):
                found[id(item)] = item
                _add_held(item, found, depth + 1)


def _are_alike(a, b):
    """Is one a copy of the other container?"""
    return type(a) is type(b) and type(a) in _CONTAINERS and _holds_same(a, b)


def _holds_same(a, b):
    """Two containers of one type. Without asking what they hold: that runs code of its class."""
    items = [[*v, *v.values()] if isinstance(v, dict) else list(v) for v in (a, b)]
    return [id(item) for item in items[0]] == [id(item) for item in items[1]]


class KeptAttributes:
    """Attributes of the modules, and of objects that they hold, with the numbers in all tensors
    among them."""

    def __init__(self, model):
        self._before = [Attributes(holder) for holder in _holders(model)]
        weights = weight_ids(model)
        values = (value for attributes in self._before for value in attributes.now().values())
        held = (
            item for value in values for item in walk_containers(value) if id(item) not in weights
        )
        self._numbers = KeptNumbers(item for item in held if isinstance(item, torch.Tensor))

    def put_back(self, which=Attributes.names):
        """Those that ``which(attributes)`` names, and all numbers."""
        self._numbers.put_back()
        for attributes in self._before:
            for name in which(attributes):
                attributes.put_back(name)


@contextlib.contextmanager
def attributes_restored(model, which=Attributes.names):
    """Puts attributes of the modules, and of objects that they hold, back at the end: those that
    ``which(attributes)`` names, and the numbers in all tensors among them."""
    kept = KeptAttributes(model)
    try:
        yield
    finally:
        kept.put_back(which)


@contextlib.contextmanager
def contents_restored(model):
    """Puts back what was in the containers of objects that modules hold: export does so for modules
    alone. Not where other things stay changed: those may go with what is in the containers."""
    holders = _holders(model)
    before = [Attributes(holder) for holder in holders]
    try:
        yield
    finally:
        if all(attributes.is_as_before() for attributes in before):
            for holder, attributes in zip(holders, before, strict=True):
                for name in () if isinstance(holder, torch.nn.Module) else attributes.before:
                    attributes.put_back(name)


class KeptBuffers:
    """The buffers of the modules: which they are, and their numbers."""

    def __init__(self, model):
        mappings = [module._buffers for module in model.modules()]
        # Not TorchScript's.
        self._before = [(own, dict(own)) for own in mappings if isinstance(own, dict)]
        self._numbers = KeptNumbers(model.buffers())

    def put_back(self):
        self._numbers.put_back()
        for own, buffers in self._before:
            if not _holds_same(own, buffers):
                own.clear()
                own.update(buffers)


@contextlib.contextmanager
def buffers_restored(model):
    """Puts the buffers of the modules back at the end: which they are, and their numbers."""
    kept = KeptBuffers(model)
    try:
        yield
    finally:
        kept.put_back()


class KeptNumbers:
    """The numbers in these tensors, and whether they have a history for gradients."""

    def __init__(self, tensors):
        self._saved = {id(t): (t, t.detach().clone(), t.grad_fn) for t in tensors}

    def put_back(self):
        """Those that were not written stay alone."""
        for tensor, value, grad_fn in self._saved.values():
            if tensor.shape != value.shape:  # other data was put in its place
                tensor.data = value
            elif not _is_same(tensor, value):
                with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                    tensor.copy_(value)
            if tensor.grad_fn is not None and grad_fn is None:  # of what was written into it
                with contextlib.suppress(RuntimeError):  # views keep theirs
                    tensor.detach_()


@contextlib.contextmanager
def numbers_restored(tensors):
    """Puts the numbers in these tensors back at the end, and their gradients' history; those that
    were not written stay alone."""
    kept = KeptNumbers(tensors)
    try:
        yield
    finally:
        kept.put_back()


def _is_same(tensor, value):
    """What was not written keeps its version, which others look at."""
    if tensor.is_meta:
        return True
    if tensor.layout is not torch.strided or is_fake(tensor) or tensor.is_nested:
        return False
    if torch.equal(tensor, value):
        return True
    # What is no number does not equal itself.
    floats = value.is_floating_point() or value.is_complex()
    return (
        floats
        and torch.equal(tensor.nan_to_num(), value.nan_to_num())
        and bool(
            (tensor.isnan() == value.isnan()).all() and (tensor.isinf() == value.isinf()).all()
        )
    )
