# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a trace would draw once and for all.

PyTorch's own are drawn by nodes, anew at each call. Python's and NumPy's decide while the trace
runs, and a generator that forward makes would go on from call to call where the model's begins
anew: both are refused.
"""

import pickle
import random
import sys

import torch

from kerf._errors import ExportError
from kerf.symbolic._places import line_of


class Chance:
    """The generators of Python and NumPy, and those of the model, as they are before a trace.

    ``generators``: those of Python and NumPy that the model holds, with their places.
    """

    def __init__(self, root, generators=()):
        self._root, self._generators = root, generators
        self._before = self._states()
        modules = root.modules() if isinstance(root, torch.nn.Module) else ()
        held = [item for module in modules for item in vars(module).values()]
        self._held = [(g, g.get_state()) for g in held if isinstance(g, torch.Generator)]

    def check(self, tracer, run_again):
        """Refuses a trace that drew from them, twice: other threads may draw once in a while."""
        self._check_held()
        made = _generators(tracer)
        drawn = _difference(self._before, self._states())
        if not made and drawn is None:
            return
        before = self._states()
        again = _generators(run_again())
        drawn = drawn and _difference(before, self._states())
        if drawn is not None:
            raise self._refused(
                f"forward draws numbers from {drawn}",
                "expected those of PyTorch, which a traced module draws anew",
                "use torch.rand() on the way to a tensor, or set what is random to 0 for the trace",
            )
        if any(a is not b for a, b in zip(made, again, strict=False)):
            raise self._refused(
                "forward makes a torch.Generator",
                "expected generators that outlive a call",
                "make it an attribute of the model, or pass it as an argument",
            )

    def _check_held(self):
        """Without data nothing is drawn: a state that is another one was set by forward."""
        changed = [(g, state) for g, state in self._held if not torch.equal(g.get_state(), state)]
        for generator, state in changed:
            generator.set_state(state)
        if changed:
            raise self._refused(
                "forward sets the state of a torch.Generator",
                "expected generators that go on from call to call",
                "seed it before the call",
            )

    def _states(self):
        states = {"random": random.getstate()}
        if "numpy" in sys.modules:  # which imports its part for random numbers when it is used
            import numpy.random

            kind, numbers, *rest = numpy.random.get_state()
            states["numpy.random"] = kind, numbers.tolist(), *rest
        for generator, place in self._generators:
            states[f"its attribute '{'.'.join(filter(None, place))}'"] = pickle.dumps(generator)
        return states

    def _refused(self, what, expected, advice):
        forward = getattr(self._root, "forward", self._root)
        line = line_of(getattr(forward, "__func__", forward))
        at = f" (forward: {line})" if line else ""
        return ExportError(
            f"[symbolic.trace] {what}{at}; {expected}; {advice}", location=line, module=""
        )


def _difference(before, after):
    """What was drawn from, or None."""
    for name, state in before.items():
        if state != after[name]:
            return name
    return None


def _generators(tracer):
    return [v for v in tracer.recorder.attributes.values() if isinstance(v, torch.Generator)]
