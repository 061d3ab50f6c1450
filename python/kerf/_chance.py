# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers that decide what a model does.

A graph has one path. In train mode models draw numbers to choose one, to drop a layer for example.
A choice that no number can change is made here: ``torch.rand([]) < 0.0`` is false. Others are
refused, and so are numbers of Python's and NumPy's generators: the graph would keep those that the
trace happened to draw.
"""

import contextlib
import dataclasses
import math
import pickle
import random
import sys

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.value_ranges import ValueRanges
from torch.utils.weak import WeakTensorKeyDictionary

from kerf._blame import blame_here, chain_of, is_user

_DRAWS = (torch.rand, torch.rand_like)  # from 0 to 1, without 1
_NEVER_MORE = {torch.float32: 1 - 2**-24, torch.float64: 1 - 2**-53}
_COMPARISONS = {
    torch.lt: "lt",
    torch.less: "lt",
    torch.Tensor.lt: "lt",
    torch.Tensor.less: "lt",
    torch.le: "le",
    torch.less_equal: "le",
    torch.Tensor.le: "le",
    torch.Tensor.less_equal: "le",
    torch.gt: "gt",
    torch.greater: "gt",
    torch.Tensor.gt: "gt",
    torch.Tensor.greater: "gt",
    torch.ge: "ge",
    torch.greater_equal: "ge",
    torch.Tensor.ge: "ge",
    torch.Tensor.greater_equal: "ge",
}
_QUESTIONS = (torch.Tensor.__bool__, torch.is_nonzero, torch.Tensor.is_nonzero)
_UNKNOWN = "unknown"
_REASON = "it draws a random number and takes one path or another, as the number says"


class RandomPath(BaseException):
    """Unwinds a trace whose path depends on a random number. No user code may catch it."""

    def __init__(self, blame):
        super().__init__(blame)
        self.blame = blame


class Chance:
    """Follows random numbers through one call of a model, as far as to the branch they decide."""

    def __init__(self, model):
        self._modules = {id(m.__dict__): path for path, m in model.named_modules()}
        self._drawn = WeakTensorKeyDictionary()  # tensor of numbers in [0, 1) -> True
        self._compared = WeakTensorKeyDictionary()  # tensor -> a truth for all numbers, or _UNKNOWN
        self._symbols = set()  # of single numbers among those

    def handlers(self):
        """By function of torch: what is to be done when it is called."""
        return {
            **dict.fromkeys(_DRAWS, self._draw),
            **dict.fromkeys(_COMPARISONS, self._compare),
            **dict.fromkeys(_QUESTIONS, self._answer),
            torch.Tensor.item: self._take,
        }

    def _draw(self, function, args, kwargs):
        result = function(*args, **kwargs)
        if kwargs.get("out") is None:
            self._drawn[result] = True
        return result

    def _compare(self, function, args, kwargs):
        result = function(*args, **kwargs)
        if len(args) == 2 and not kwargs and self._is_drawn(args[0]):
            self._compared[result] = _truth(_COMPARISONS[function], args[1])
        return result

    def _answer(self, function, args, kwargs):
        truth = self._compared.get(args[0]) if isinstance(args[0], torch.Tensor) else None
        if truth is None:
            return function(*args, **kwargs)
        if truth is _UNKNOWN:
            raise RandomPath(blame_here(self._modules, _REASON))
        return truth

    def _take(self, function, args, kwargs):
        truth = self._compared.get(args[0], _UNKNOWN)
        number = function(*args, **kwargs) if truth is _UNKNOWN else truth
        most = _NEVER_MORE.get(args[0].dtype)
        if self._is_drawn(args[0]) and isinstance(number, torch.SymFloat) and most is not None:
            symbol = number.node.expr
            if isinstance(symbol, sympy.Symbol):
                ranges = number.node.shape_env.var_to_range
                ranges[symbol] = ValueRanges(sympy.Float(0.0), sympy.Float(most))
                self._symbols.add(symbol)
        return number

    def _is_drawn(self, value):
        return isinstance(value, torch.Tensor) and value in self._drawn

    def find_blame(self, error, blame):
        """The Blame of an error that a question about a single random number has raised; None for
        other errors. ``blame`` says where it was raised."""
        for one in chain_of(error):
            if isinstance(one, GuardOnDataDependentSymNode):
                if self._symbols & getattr(one.cond, "free_symbols", set()):
                    return dataclasses.replace(blame, reason=_REASON)
        return None


def _truth(relation, bound):
    """Whether all numbers from 0 to 1, without 1, are in this relation to a bound; or none is."""
    if type(bound) not in (int, float) or math.isnan(bound):
        return _UNKNOWN
    if relation in ("gt", "ge"):
        other = _truth({"gt": "le", "ge": "lt"}[relation], bound)
        return other if other is _UNKNOWN else not other
    if bound >= 1:
        return True
    if bound < 0 or (bound == 0 and relation == "lt"):
        return False
    return _UNKNOWN


class PlainDraws:
    """Notices that a model's code draws from Python's or NumPy's generator."""

    def __init__(self, model):
        self._modules = {id(m.__dict__): path for path, m in model.named_modules()}
        self.seen = []  # names of the generators that have moved in the last call
        self.blame = None  # who moved them, after a call that was ``located``

    @contextlib.contextmanager
    def watched(self):
        """Around one call of the model, which leaves the generators as they were."""
        before = {name: get() for name, (get, _) in generators().items()}
        try:
            yield
        finally:
            now = {name: get() for name, (get, _) in generators().items()}
            self.seen = [n for n in before if pickle.dumps(before[n]) != pickle.dumps(now[n])]
            for name in self.seen:  # others are left alone: other threads draw from them, too
                generators()[name][1](before[name])

    @contextlib.contextmanager
    def located(self):
        """Around a call like one in which generators moved; slow. Who moves them is looked for in
        this thread: another may have drawn as well."""
        seen, self.blame = self.seen, None
        python = self._python_located() if "Python" in seen else contextlib.nullcontext()
        numpy = self._numpy_located() if "NumPy" in seen else contextlib.nullcontext()
        with self.watched(), python, numpy:
            yield

    @contextlib.contextmanager
    def _python_located(self):
        """All that Python's generator does ends in a call of C, which a profiler sees."""

        def look(frame, event, function):
            drawn = event == "c_call" and getattr(function, "__self__", None) is random._inst
            if drawn and self.blame is None:
                self.blame = self._blame("Python", frame)

        outer = sys.getprofile()
        sys.setprofile(look)
        try:
            yield
        finally:
            sys.setprofile(outer)

    @contextlib.contextmanager
    def _numpy_located(self):
        """NumPy's functions are seen by nobody: looks after every line of the user's."""
        get, _ = generators()["NumPy"]
        before = pickle.dumps(get())
        last = None

        def look(frame, event, _):
            nonlocal last
            if self.blame is None and pickle.dumps(get()) != before:
                self.blame = last
            last = self._blame("NumPy", frame.f_back if event == "return" else frame)
            return look

        def enter(frame, event, arg):
            return look(frame, event, arg) if is_user(frame.f_code.co_filename) else None

        outer = sys.gettrace()
        sys.settrace(enter)
        try:
            yield
        finally:
            sys.settrace(outer)

    def _blame(self, generator, frame):
        reason = f"it draws from {generator}'s random generator"
        return blame_here(self._modules, reason, frame)


def generators():
    """name -> (get, set) of those that code gets without making one."""
    found = {"Python": (random.getstate, random.setstate)}
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        found["NumPy"] = (numpy.get_state, numpy.set_state)
    return found
