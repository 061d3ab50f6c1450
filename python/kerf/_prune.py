# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Which calls of an exported program are worth a node.

Left out are export's own checks, integer arithmetic on sizes, calls that provably give back their
input (dropout in eval mode, ``to`` the same dtype), copies of constants that nothing changes, and
what nobody uses. Calls that write or draw random numbers always stay.
"""

import torch

from kerf import _schema
from kerf._flatten import Result, results_in
from kerf._symbols import NotAnExpression


class Pruned:
    """``calls`` that stay, in order; ``resolve`` leads past the others to what they gave back."""

    def __init__(self, flat, symbols, blocks):
        self._grads = flat.requires_grad
        self._symbols = symbols
        self._blocks = blocks  # opaque calls by key
        self._same = {}  # Result -> the Result that it is identical to
        calls = [c for c in flat.calls if not self._is_empty(c)]
        kept = self._storages_to_keep(calls, flat.outputs)
        calls = [c for c in calls if not self._is_needless_copy(c, kept)]
        self.calls = self._used(calls, flat.outputs)

    def resolve(self, result):
        while result in self._same:
            result = self._same[result]
        return result

    def _is_empty(self, call):
        if call.schema.is_check:
            return True
        if isinstance(call.node.meta.get("val"), torch.types.py_sym_types):
            return self._is_size(call.node)
        first = call.args[0] if call.args else None
        if not isinstance(first, Result):
            return False
        if _schema.drops_nothing(call.schema, call.bound) or (
            _schema.may_be_identity(call.schema, call.bound)
            and self._is_same(Result(call.node), first)
        ):
            self._same[Result(call.node)] = self.resolve(first)
            return True
        return False

    def _is_size(self, node):
        try:
            self._symbols.text(node.meta["val"])
        except NotAnExpression:
            return node.target is torch.ops.aten.sym_size.int
        return True

    def _is_same(self, result, first):
        a, b = result.val, first.val
        return (
            isinstance(b, torch.Tensor)
            and a.untyped_storage()._cdata == b.untyped_storage()._cdata
            and a.dtype == b.dtype
            and self._grads.get(result) == self._grads.get(first)
            and _layout(a) == _layout(b)
        )

    def _storages_to_keep(self, calls, outputs):
        """Memory that a call changes or that leaves the graph."""
        kept = {_storage_of(r) for r in results_in(outputs)}
        for call in calls:
            written = [
                call.bound.get(n) for n in _schema.written_arguments(call.schema, call.bound)
            ]
            if call.node.target is torch.ops.kerf.opaque.default:
                inputs, key = call.args
                written = [inputs[i] for i in self._blocks[key].outcome.written_inputs]
            kept.update(_storage_of(r) for r in results_in(written))
        return kept

    def _is_needless_copy(self, call, kept):
        """A copy of a constant that nothing changes is as good as the constant."""
        result = Result(call.node)
        if call.node.target is not torch.ops.aten.lift_fresh_copy.default:
            return False
        if _storage_of(result) in kept:
            return False
        self._same[result] = self.resolve(call.args[0])
        return True

    def _used(self, calls, outputs):
        used = {self.resolve(r) for r in results_in(outputs)}
        kept = []
        for call in reversed(calls):
            if _has_effect(call) or any(r in used for r in call.results):
                used.update(self.resolve(r) for r in results_in([call.args, *call.kwargs.values()]))
                kept.append(call)
        kept.reverse()
        return kept


def _has_effect(call):
    return (
        not call.schema.name.startswith("aten.")
        or bool(_schema.written_arguments(call.schema, call.bound))
        or _schema.is_random(call.schema, call.bound)
    )


def _layout(val):
    # Expressions, not symbolic integers: to compare those is to ask whether they are equal at the
    # traced batch, and to settle it.
    sizes = (*val.shape, *val.stride(), val.storage_offset())
    return [s if type(s) is int else s.node.expr for s in sizes]


def _storage_of(result):
    val = result.val
    return val.untyped_storage()._cdata if isinstance(val, torch.Tensor) else None
