# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The errors of kerf.fx. All are RuntimeErrors, as programs expect from the original."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch.fx import Node

import kerf
from kerf._core import FxOriginalError, Infeasible

_ROOM = re.compile(r"^\[partition[^\]]*\]")  # users know the package, not the room


class PartitionError(RuntimeError, ValueError):
    """Something is wrong with the module or with the configuration; the message says what."""


class InfeasibleError(kerf.InfeasibleError, RuntimeError):
    """No partitioning fits the devices. ``infeasible`` names the tightest and what it lacks."""

    infeasible: Infeasible


def _both(kind: type[Exception]) -> type[Exception]:
    """A class that is a RuntimeError and what the original raises, with the latter's text."""
    text = f"The original's {kind.__name__}, and a RuntimeError."
    both = type(kind.__name__, (kind, RuntimeError), {"__doc__": text, "__module__": __name__})
    both.__qualname__ = f"_BOTH_{kind.__name__}"  # where pickle looks for it
    globals()[both.__qualname__] = both
    return both


_KINDS: dict[type[Exception], type[Exception]] = {
    kind: _both(kind)
    for kind in (
        AssertionError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    )
}


def runtime_error(error: Exception) -> Exception:
    """The same error with the same text, as a RuntimeError too."""
    if isinstance(error, RuntimeError):
        return error
    kind = next((k for k in type(error).__mro__ if k in _KINDS), None)
    return _KINDS[kind](*error.args) if kind else RuntimeError(str(error))


@contextmanager
def runtime_errors() -> Iterator[None]:
    """Lets nothing out that is not a RuntimeError."""
    try:
        yield
    except RuntimeError:
        raise
    except Exception as error:
        raise runtime_error(error) from error


@contextmanager
def partition_errors() -> Iterator[None]:
    """Raises PartitionError for the core's ValueError: something is wrong with a request."""
    try:
        yield
    except PartitionError:
        raise
    except ValueError as error:
        raise PartitionError(_ROOM.sub("[kerf.fx]", str(error))) from None


def _division_error(rate: float) -> Exception:
    """Python words it by the type of the divisor."""
    try:
        return ZeroDivisionError(f"division by {1 / rate}")
    except ZeroDivisionError as error:
        return error


def _named(error: FxOriginalError, nodes: Sequence[Node], rate: float) -> Exception:
    match error.kind:
        case "key_node":
            return KeyError(nodes[error.key])
        case "key_partition" | "key_device":
            return KeyError(error.key)
        case "index":
            return IndexError(str(error))
        case "type":
            return TypeError(str(error))
        case "assertion":
            return AssertionError(str(error))
        case "zero_division":
            return _division_error(rate)
        case "recursion":
            return RecursionError(str(error))
        case "endless":
            return RuntimeError(
                f"[kerf.fx] {error}; the original would never return; expected partitions whose "
                "dependencies have no cycle"
            )
    return RuntimeError(_worded(str(error)))


# What older versions of PyTorch say instead.
_OLDER_WORDS = {
    " is too large to fit any device": "is too large to fit any device",
    " is too large to fit into a device": "is too large to fit into a device",
    "Devices do not have enough memory": "Devices have no enough memory",
}


def _worded(text: str) -> str:
    """In the words of the PyTorch that is installed: some were mended on the way to 2.13."""
    from torch.fx.experimental import accelerator_partitioner as original

    words = original.Partitioner.partition_graph.__code__.co_consts
    if any(isinstance(word, str) and "do not have enough memory" in word for word in words):
        return text
    for new, old in _OLDER_WORDS.items():
        text = text.replace(new, old)
    return text


@contextmanager
def original_errors(nodes: Sequence[Node] = (), rate: float = 0.0) -> Iterator[None]:
    """Raises what the original raises: ``nodes`` gives the core's positions their meaning."""
    try:
        yield
    except FxOriginalError as error:
        raise runtime_error(_named(error, nodes, rate)) from None
