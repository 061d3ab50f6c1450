# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a trace decided about its batch: ``if x.shape[0] > 2``, ``range(B // 2)``, ``x.split(2)``.

Export asks its ``ShapeEnv`` each time something depends on a symbolic size, and goes on with the
answer for the example. Every such answer is kept here with the user's line, because the graph is
right only for sizes that would have been answered the same way. Export's own guards do not do: they
leave out what follows from "a size is never one", and a micro-batch may well have one row.

A question is asked by code (the model's, or a function of torch that the model calls) or within one
operator. The latter is kept in the graph as a whole, so its questions matter only where they say
how many tensors or dimensions come out of it: not those about the layout of its memory, nor whether
a size of one is to be broadcast.
"""

import contextlib
import dataclasses
import sys

import sympy
import torch
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from kerf._blame import is_user, user_location


@dataclasses.dataclass(frozen=True)
class Decision:
    """``expr``, of export's symbols, is true for the example; ``source`` is the user's line."""

    expr: sympy.Basic
    source: str


class Decisions:
    """The decisions of one trace, in order, each once."""

    def __init__(self):
        self._found = {}  # expression that is true -> Decision
        self._origins = {}  # symbol of a number that was taken from a tensor -> the user's line
        self._known = {}  # (expression, smallest size) -> whether it is always true

    def __iter__(self):
        return iter(self._found.values())

    @contextlib.contextmanager
    def watched(self):
        """Keeps what is decided in the meantime."""
        original = ShapeEnv.evaluate_expr

        def watching(env, expr, *args, **kwargs):
            answer = original(env, expr, *args, **kwargs)
            if getattr(expr, "free_symbols", None) and not free_unbacked_symbols(expr):
                self._note(expr, answer, sys._getframe(1))
            return answer

        # Torch looks at who asks, to tell an `assert` from a branch, and passes by its own files.
        watching.__code__ = watching.__code__.replace(co_filename=symbolic_shapes.__file__)
        ShapeEnv.evaluate_expr = watching
        try:
            with _sizes_as_text(), self._numbers_watched():
                yield
        finally:
            ShapeEnv.evaluate_expr = original

    def origin(self, symbol):
        """The user's line that made a number of a tensor's values; "" when it is not known."""
        return self._origins.get(symbol, "")

    @contextlib.contextmanager
    def _numbers_watched(self):
        names = ("create_unbacked_symint", "create_unbacked_symfloat", "create_unbacked_symbool")
        makers = {name: getattr(ShapeEnv, name) for name in names}

        def noting(make):
            def made(*args, **kwargs):
                number = make(*args, **kwargs)
                for symbol in number.node.expr.free_symbols:
                    self._origins[symbol] = user_location()
                return number

            return made

        for name, make in makers.items():
            setattr(ShapeEnv, name, noting(make))
        try:
            yield
        finally:
            for name, make in makers.items():
                setattr(ShapeEnv, name, make)

    def _note(self, expr, answer, frame):
        true = _as_truth(expr, answer)
        if true in self._found or self._follows(true, 1):
            return
        asked_by = _asked_by(frame)
        if asked_by is _LAYOUT or (asked_by is _BROADCAST and _is_about_one(true)):
            return
        if asked_by in (_OPERATOR, _BROADCAST) and self._follows(true, 2):
            return
        self._found[true] = Decision(true, user_location())

    def _follows(self, expr, smallest):
        found = self._known.get((expr, smallest))
        if found is None:
            found = self._known[expr, smallest] = follows_from(expr, smallest)
        return found


def _as_truth(expr, answer):
    if answer in (True, sympy.true):
        return expr
    if answer in (False, sympy.false):
        return sympy.Not(expr)
    return sympy.Eq(expr, answer)


def follows_from(expr, smallest):
    """Whether an expression is true for all sizes of at least ``smallest``, as far as is known."""
    ranges = {s: ValueRanges(smallest, int_oo) for s in expr.free_symbols}
    try:
        return bound_sympy(expr, ranges).lower is sympy.true
    except Exception:  # torch cannot bound everything: unknown
        return False


def _is_about_one(expr):
    return isinstance(expr, sympy.Ne) and sympy.S.One in expr.args


# Who asks: an operator about its memory, about sizes that may be broadcast, about whether to drop
# a dimension, or about anything else; or code.
_LAYOUT, _BROADCAST, _RANK, _OPERATOR, _CODE = "layout", "broadcast", "rank", "operator", "code"
_FUNCTION, _SKIP = "function", "skip"

_TORCH = torch.__path__[0] + "/"
# Where operators are dispatched in a trace: what is asked below these is asked within one.
_DISPATCH = (_TORCH + "_subclasses/", _TORCH + "fx/experimental/proxy_tensor.py")
_INSIDE = {
    # How memory is laid out, or how a view is best made of another.
    "is_contiguous": _LAYOUT,
    "check_contiguous_sizes_strides": _LAYOUT,
    "is_contiguous_for_memory_format": _LAYOUT,
    "are_strides_like_channels_last_or_false": _LAYOUT,
    "is_non_overlapping_and_dense_or_false": _LAYOUT,
    "compute_elementwise_output_logical_to_physical_perm": _LAYOUT,
    "_reshape_view_helper_core_alg": _LAYOUT,
    "_collapse_view_helper": _LAYOUT,
    "_split_dim_meta": _LAYOUT,
    "_get_output_tensor_from_cache_entry": _LAYOUT,
    # Which of two sizes is the result's; both are, where the one is one.
    "_broadcast_shapes": _BROADCAST,
    "_broadcast_in_dim_meta": _BROADCAST,
    "infer_size": _BROADCAST,
    "should_expand": _BROADCAST,
}
_RANK_OPERATORS = {"aten::squeeze", "aten::squeeze_", "aten::squeeze_copy"}

_kinds = {}  # code object -> what a frame of it says


def _asked_by(frame):
    inside = None
    dispatched = False
    while frame is not None:
        code = frame.f_code
        kind = _kinds.get(code)
        if kind is None:
            kind = _kinds[code] = _kind_of(code.co_filename, code.co_name)
        if kind is _CODE:
            return inside if dispatched else _CODE
        if kind is _FUNCTION:
            # Contiguous or made so: the numbers are the same.
            if getattr(frame.f_locals.get("func"), "__name__", "") == "contiguous":
                return _LAYOUT
        elif kind is _OPERATOR:
            operator = frame.f_locals.get("func")
            inside, dispatched = inside or _OPERATOR, True
            if isinstance(operator, torch._ops.OpOverload):
                if operator.name().partition(".")[0] not in _RANK_OPERATORS:
                    # That it may squeeze something on its way is its own affair.
                    return _OPERATOR if inside is _RANK else inside
                inside = _RANK if inside is _OPERATOR else inside
        elif kind is not _SKIP:
            inside = inside or kind
        frame = frame.f_back
    return _CODE


def _kind_of(file, function):
    if not file.startswith(_TORCH):
        return _CODE
    if function == "__torch_function__":
        return _FUNCTION
    if function in _INSIDE:
        return _INSIDE[function]
    return _OPERATOR if file.startswith(_DISPATCH) and "sym_dispatch" not in function else _SKIP


@contextlib.contextmanager
def _sizes_as_text():
    """A size that the user's code writes into a text becomes the number that it is."""
    original = torch.SymInt.__repr__  # which texts of any form are made with

    def numbered(self):
        file = sys._getframe(1).f_code.co_filename
        if file.startswith("<") or is_user(file):
            return str(int(self))
        return original(self)

    torch.SymInt.__repr__ = numbered
    try:
        yield
    finally:
        torch.SymInt.__repr__ = original
