# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers that count calls, and note what they are compared with.

From ``self.n % 100 == 99`` follows the call at which a model takes another path.
"""

import itertools
import math
import operator

_NEXT = 4096  # calls to come that are looked at one by one
_MOST = 16  # calls at which the code is followed
_ARITHMETIC = "add sub mul floordiv mod truediv pow and_ or_ xor lshift rshift".split()
_COMPARED = "eq ne lt le gt ge".split()


class _Counted:
    """``at(calls)``: what the number would be so many calls later."""

    def noting(self, at, compared):
        self.at, self.compared = at, compared
        return self

    def __bool__(self):
        return _compare(operator.ne, self, 0)

    def __neg__(self):
        return _compute(operator.neg, self)

    def __abs__(self):
        return _compute(operator.abs, self)

    def __divmod__(self, other):
        return self // other, self % other

    def __hash__(self):
        """A table may have an entry for any of the numbers to come."""
        for calls in range(1, _MOST + 1):
            self.compared.append((operator.eq, self.at, _at(self.at(calls))))
        return hash(self.at(0))


def _arithmetic(function, swapped):
    def method(self, other):
        if not isinstance(other, int | float):
            return NotImplemented
        return _compute(function, *((other, self) if swapped else (self, other)))

    return method


def _comparison(function):
    def method(self, other):
        return _compare(function, self, other) if isinstance(other, int | float) else NotImplemented

    return method


for _name in _ARITHMETIC:
    _function, _plain = getattr(operator, _name), _name.strip("_")
    setattr(_Counted, f"__{_plain}__", _arithmetic(_function, False))
    setattr(_Counted, f"__r{_plain}__", _arithmetic(_function, True))
for _name in _COMPARED:
    setattr(_Counted, f"__{_name}__", _comparison(getattr(operator, _name)))


class _Int(_Counted, int):
    __hash__ = _Counted.__hash__


class _Float(_Counted, float):
    __hash__ = _Counted.__hash__


def counted(now, step, compared):
    """A number that each call changes by ``step``; its comparisons are noted in ``compared``."""
    cls = _Int if isinstance(now, int) else _Float
    return cls(now).noting(lambda calls: now + calls * step, compared)


def _compute(function, *args):
    found = [a for a in args if isinstance(a, _Counted)]
    places = [_at(a) for a in args]

    def at(calls):
        return function(*(place(calls) for place in places))

    value = at(0)
    cls = {int: _Int, float: _Float}.get(type(value))
    return value if cls is None else cls(value).noting(at, found[0].compared)


def _compare(function, left, right):
    noted = left if isinstance(left, _Counted) else right
    noted.compared.append((function, _at(left), _at(right)))
    return function(_at(left)(0), _at(right)(0))


def _at(value):
    return value.at if isinstance(value, _Counted) else lambda calls: value


def deciding_calls(compared):
    """In how many calls a comparison has another outcome than now, for the first time."""
    found = {}
    for function, left, right in compared[: 8 * _MOST]:
        try:
            now = function(left(0), right(0))
            calls = itertools.chain(range(1, _NEXT), _crossings(left, right))
            found[next(n for n in calls if function(left(n), right(n)) != now)] = True
        except (StopIteration, ArithmeticError, ValueError):
            continue
    return sorted(found)[:_MOST]


def _crossings(left, right):
    """Where two straight lines meet."""
    gap, slope = left(0) - right(0), (left(1) - right(1)) - (left(0) - right(0))
    meet = math.floor(-gap / slope) if slope else 0
    return [n for n in range(meet - 1, meet + 3) if n > 0]
