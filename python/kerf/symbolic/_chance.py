# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a trace would draw once and for all.

PyTorch's own are drawn by nodes, anew at each call. Python's and NumPy's decide while the trace
runs, and a generator that forward makes would go on from call to call where the model's begins
anew: both are refused.
"""

import random
import sys

import torch

from kerf._errors import ExportError


class Chance:
    """The generators of Python and NumPy as they are now, before a trace."""

    def __init__(self):
        self._before = _states()

    def check(self, tracer, run_again):
        """Refuses a trace that drew from them, twice: other threads may draw once in a while."""
        made = _generators(tracer)
        drawn = _difference(self._before, _states())
        if not made and drawn is None:
            return
        before = _states()
        again = _generators(run_again())
        drawn = drawn and _difference(before, _states())
        if drawn is not None:
            raise _refused(
                f"forward draws numbers from {drawn}",
                "expected those of PyTorch, which a traced module draws anew",
                "use torch.rand() on the way to a tensor, or set what is random to 0 for the trace",
            )
        if any(a is not b for a, b in zip(made, again, strict=False)):
            raise _refused(
                "forward makes a torch.Generator",
                "expected generators that outlive a call",
                "make it an attribute of the model, or pass it as an argument",
            )


def _states():
    states = {"random": random.getstate()}
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        kind, numbers, *rest = numpy_random.get_state()
        states["numpy.random"] = kind, numbers.tolist(), *rest
    return states


def _difference(before, after):
    """The module that was drawn from, or None."""
    for name, state in before.items():
        if state != after[name]:
            return name
    return None


def _generators(tracer):
    return [v for v in tracer.recorder.attributes.values() if isinstance(v, torch.Generator)]


def _refused(what, expected, advice):
    return ExportError(f"[symbolic.trace] {what}; {expected}; {advice}", location="", module="")
