# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes of traced tensors, as the model's code sees them.

They are numbers: ``isinstance(n, int)`` holds, they compare, count loops and index lists. What
arithmetic makes of them stays symbolic, so that ``x.view(b * t, -1)`` is recorded as such and the
traced module takes other batch sizes. A comparison answers and leaves a guard; whatever needs the
plain number, such as ``range(n)``, leaves a guard that it is the same.

They derive from PyTorch's symbolic numbers because its argument parser takes those where it takes
numbers; they share none of their machinery.
"""

import math
import operator
import sys

import torch

_BINARY = {
    "add": (operator.add, "+"),
    "sub": (operator.sub, "-"),
    "mul": (operator.mul, "*"),
    "floordiv": (operator.floordiv, "//"),
    "mod": (operator.mod, "%"),
    "truediv": (operator.truediv, "/"),
    "pow": (operator.pow, "**"),
    "and": (operator.and_, "&"),
    "or": (operator.or_, "|"),
    "xor": (operator.xor, "^"),
    "lshift": (operator.lshift, "<<"),
    "rshift": (operator.rshift, ">>"),
}
_RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

# By the names that NumPy has for them.
_OF_NUMPY = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


class _Number:
    """``text`` is the expression for people; ``home`` the one tensor whose sizes it is made of."""

    def __init__(self, tracer, value, text, home, make):
        self.__dict__.update(tracer=tracer, value=value, text=text, home=home, make=make)

    def plain(self):
        """The number itself; from here on the trace holds for it alone."""
        self.tracer.guard(self, "==", self.value, True)
        return self.value

    def __getattr__(self, name):
        if name == "node" or name.startswith("__"):  # what PyTorch's own code asks for
            raise AttributeError(name)
        return getattr(self.plain(), name)

    def __bool__(self):
        return not self.tracer.relation(self, "==", 0)

    def __index__(self):
        return operator.index(self.plain())

    def __array__(self, dtype=None, copy=None):
        """For numpy.arange(n), which takes what is no number of NumPy's for an object."""
        return sys.modules["numpy"].asarray(self.plain(), dtype)

    def __array_ufunc__(self, function, method, *inputs, **kwargs):
        """Arithmetic with numbers of NumPy is as with others; its arrays take the plain number."""
        operation = _OF_NUMPY.get(function.__name__) if method == "__call__" else None
        others = [i for i in inputs if not is_number(i)]
        if operation is not None and not kwargs and not any(getattr(i, "ndim", 0) for i in others):
            return operation(*(i.item() if hasattr(type(i), "item") else i for i in inputs))
        plain = (i.plain() if is_number(i) else i for i in inputs)
        return getattr(function, method)(*plain, **kwargs)

    def __int__(self):
        return int(self.plain())

    def __float__(self):
        return float(self.plain())

    def __complex__(self):
        return complex(self.plain())

    def __hash__(self):
        return hash(self.plain())

    def __str__(self):
        return str(self.plain())

    def __format__(self, spec):
        return format(self.plain(), spec)

    def __repr__(self):
        return repr(self.value)

    def __neg__(self):
        return apply(operator.neg, (self,), "-{}")

    def __pos__(self):
        return self

    def __invert__(self):
        return apply(operator.invert, (self,), "~{}")

    def __abs__(self):
        return apply(operator.abs, (self,), "abs({})")

    def __ceil__(self):
        return apply(math.ceil, (self,), "ceil({})")

    def __floor__(self):
        return apply(math.floor, (self,), "floor({})")

    def __trunc__(self):
        return apply(math.trunc, (self,), "int({})")

    def __round__(self, digits=None):
        return round(self.plain(), digits)

    def __divmod__(self, other):
        return self // other, self % other

    def __rdivmod__(self, other):
        return other // self, other % self

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce_ex__(self, protocol):
        return type(self.value), (self.plain(),)


def _binary(function, sign, swapped):
    def method(self, other):
        if isinstance(other, torch.Tensor) or not isinstance(other, int | float):
            return NotImplemented
        args = (other, self) if swapped else (self, other)
        return apply(function, args, f"{{}} {sign} {{}}")

    return method


def _relation(sign):
    def method(self, other):
        if isinstance(other, torch.Tensor) or not isinstance(other, int | float):
            return NotImplemented
        return self.tracer.relation(self, sign, other)

    return method


class Size(_Number, torch.SymInt):
    __slots__ = ()
    __class__ = property(lambda self: int)
    __hash__ = _Number.__hash__

    def __ceil__(self):
        return self

    __floor__ = __trunc__ = __ceil__


class Ratio(_Number, torch.SymFloat):
    __slots__ = ()
    __class__ = property(lambda self: float)
    __hash__ = _Number.__hash__


for _name, (_function, _sign) in _BINARY.items():
    setattr(_Number, f"__{_name}__", _binary(_function, _sign, False))
    setattr(_Number, f"__r{_name}__", _binary(_function, _sign, True))
for _name, _sign in _RELATIONS.items():
    setattr(_Number, f"__{_name}__", _relation(_sign))


def is_number(value):
    return issubclass(type(value), _Number)


def plain_value(value):
    """The number without a guard: for what only the trace itself looks at."""
    return value.value if is_number(value) else value


def make_number(tracer, value, text, home, make):
    cls = Size if isinstance(value, int) else Ratio
    number = object.__new__(cls)
    _Number.__init__(number, tracer, value, text, home, make)
    return number


def apply(function, args, form):
    """The result of arithmetic; a plain number where it has no single tensor nor a trace."""
    value = function(*map(plain_value, args))
    numbers = [a for a in args if is_number(a)]
    if isinstance(value, complex):
        return function(*(a.plain() if is_number(a) else a for a in args))
    tracer = numbers[0].tracer
    home = numbers[0].home if all(n.home is numbers[0].home for n in numbers) else None
    text = form.format(*(_bracketed(a) for a in args))
    return make_number(tracer, value, text, home, lambda: tracer.arithmetic(function, args, home))


def _bracketed(value):
    if not is_number(value):
        return repr(value)
    return f"({value.text})" if " " in value.text else value.text
