# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's schemas say of operators, for ``kerf.trace`` and ``kerf.fx``.

Facts only. What schemas leave out, and what follows for a call, is in C++
(kerf/graph/operator_effects).
"""

import functools

import torch

from kerf import _core


@functools.cache
def operator_of(op):
    """The schema of an overload, as the core takes it."""
    schema = op._schema
    # Of lists a schema does not say which memory they are in; a trace sees it.
    shared = {letter for r in schema.returns if r.alias_info for letter in r.alias_info.before_set}
    parameters = []
    for a in schema.arguments:
        written = a.alias_info is not None and a.alias_info.is_write
        aliased = a.alias_info is not None and bool(a.alias_info.before_set & shared)
        preset = (a.default_value,) if a.has_default_value() and _is_plain(a.default_value) else ()
        parameters.append((a.name, written, aliased, *preset))
    return _core.Operator(
        str(op),
        parameters,
        draws=torch.Tag.nondeterministic_seeded in op.tags,
        one_tensor=len(schema.returns) == 1 and not _is_list(schema.returns[0].type),
    )


def _is_plain(value):
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _is_list(kind):
    return "[]" in str(kind) or "List" in str(kind)


@functools.cache
def shared_parameters(op):
    """Names of the parameters whose memory results may be in, those of lists included."""
    returned = set().union(*(_memories(r.alias_info) for r in op._schema.returns))
    return [a.name for a in op._schema.arguments if _meet(_memories(a.alias_info), returned)]


def _memories(info):
    """The letters of an argument or result; "*" is any: lists do not say which."""
    return (info.before_set | info.after_set or {"*"}) if info is not None else set()


def _meet(own, returned):
    return bool(own & returned) or bool(own and returned and "*" in own | returned)


def draws(op, args, kwargs):
    """Does this call draw random numbers?"""
    numbers = {k: _number(v) for k, v in kwargs.items()}
    return operator_of(op).draws([_number(a) for a in args], numbers)


def _number(value):
    return value if isinstance(value, (bool, int, float)) else None


@functools.cache
def with_numbers(op, places):
    """The overload that takes numbers where ``op`` takes tensors at these places; None: there is
    none. `x * y.item()` is recorded as a product of tensors, which it is not."""
    wanted = op._schema.arguments
    for name in op.overloadpacket.overloads():
        other = getattr(op.overloadpacket, name)
        given = other._schema.arguments
        if len(given) == len(wanted) and all(
            isinstance(b.type, torch.NumberType)
            if i in places
            else (a.name, str(a.type)) == (b.name, str(b.type))
            for i, (a, b) in enumerate(zip(wanted, given, strict=True))
        ):
            return other
    return None
