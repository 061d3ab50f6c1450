# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""torch.fx's own partitioner, made deterministic and kept from running for ever."""

import contextlib
import io
import signal
from typing import NamedTuple

from torch.fx.experimental import accelerator_partitioner as original
from torch.fx.experimental import partitioner_utils as utils


class OrderedSet:
    """A set that remembers the order of insertion (fault K6: the original's order is by hash)."""

    def __init__(self, items=()):
        self._items = dict.fromkeys(items)

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)

    def __contains__(self, item):
        return item in self._items

    def __eq__(self, other):
        return set(self) == set(other)

    __hash__ = None

    def add(self, item):
        self._items.setdefault(item)

    def remove(self, item):
        del self._items[item]

    def pop(self):
        return self._items.popitem()[0]

    def copy(self):
        return OrderedSet(self)

    def union(self, other):
        return OrderedSet([*self, *other])

    def intersection(self, other):
        return OrderedSet(item for item in self if item in other)


@contextlib.contextmanager
def ordered():
    """Inside, the original's sets are ordered."""
    for module in (original, utils):
        module.set = OrderedSet
    try:
        yield
    finally:
        for module in (original, utils):
            del module.set


class Endless(BaseException):
    """The original did not return in time. Not an Exception: nothing on the way may catch it."""


@contextlib.contextmanager
def time_limit(seconds):
    def stop(*_):
        raise Endless

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def to_original(config):
    """The same configuration in the original's own types."""
    return utils.PartitionerConfig(
        [utils.Device(*d) for d in config.devices],
        utils.PartitionMode[config.mode.name],
        *config[2:],
    )


class Outcome(NamedTuple):
    """What one call did: an answer or an error, and what it printed."""

    partitioner: object
    result: object
    error: BaseException | None
    printed: str


def attempt(partitioner, action):
    printed = io.StringIO()
    result = error = None
    with contextlib.redirect_stdout(printed):
        try:
            result = action(partitioner)
        except Exception as raised:
            error = raised
    return Outcome(partitioner, result, error, printed.getvalue())


def call(partitioner, module, config):
    return attempt(partitioner, lambda p: p.partition_graph(module, module, config))


def attempt_original(module, devices, action, seconds=5.0):
    """One or more methods of a fresh object of the original. Raises Endless."""
    with ordered(), time_limit(seconds):
        partitioner = original.Partitioner()
        partitioner.graph_module = module
        partitioner.devices = [utils.Device(*d) for d in devices]
        return attempt(partitioner, action)


def call_original(module, config, seconds=5.0):
    """One call of the original. Raises Endless."""
    with ordered(), time_limit(seconds):
        return call(original.Partitioner(), module, to_original(config))
