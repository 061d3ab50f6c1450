# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What an operator does to memory and to the random stream, read from its schema.

Schemas leave a few things out, and those are the tables below: normalisations update their running
statistics without saying so, and an operator that may draw numbers does not when its probability is
zero.
"""

import dataclasses
import functools

import torch

# Operators that change arguments their schema calls read-only, by the flag that makes them do it.
_HIDDEN_WRITES = {
    "aten.batch_norm": ("training", ("running_mean", "running_var")),
    "aten.native_batch_norm": ("training", ("running_mean", "running_var")),
    "aten.cudnn_batch_norm": ("training", ("running_mean", "running_var")),
    "aten.miopen_batch_norm": ("training", ("running_mean", "running_var")),
    "aten._batch_norm_impl_index": ("training", ("running_mean", "running_var")),
    "aten.instance_norm": ("use_input_stats", ("running_mean", "running_var")),
}

_CHECKS = (
    "aten._assert_",
    "aten._functional_assert_",
    "aten.sym_constrain_range",
    "aten._functional_sym_constrain_range",
)

_DROPOUTS = {
    "aten.dropout",
    "aten.dropout_",
    "aten.feature_dropout",
    "aten.feature_dropout_",
    "aten.alpha_dropout",
    "aten.alpha_dropout_",
    "aten.feature_alpha_dropout",
    "aten.feature_alpha_dropout_",
}

# Operators that may be the identity in the trace and are not always: squeeze depends on the batch
# being one, contiguous on strides that kernels choose, the others carry a flag that shape and
# strides do not show.
_NEVER_IDENTITY = {
    "aten.squeeze",
    "aten.contiguous",
    "aten._conj",
    "aten._neg_view",
    "aten.conj",
    "aten.adjoint",
}


@dataclasses.dataclass(frozen=True)
class Schema:
    """The facts about one operator overload."""

    name: str  # "aten.add.Tensor"
    packet: str  # "aten.add"
    arguments: tuple  # (name, has_default, default), in order
    writes: tuple  # names of arguments that are changed
    aliases: tuple  # names of arguments that an output may share memory with
    draws: bool  # may take numbers from the random stream
    returns: tuple  # per result: is it a list of tensors?

    def bind(self, args, kwargs):
        """Arguments by name, defaults filled in."""
        bound = {name: default for name, known, default in self.arguments if known}
        bound.update(zip((a[0] for a in self.arguments), args, strict=False))
        bound.update(kwargs)
        return bound

    def position(self, name):
        return next(i for i, a in enumerate(self.arguments) if a[0] == name)

    @property
    def is_check(self):
        return self.name.startswith(_CHECKS)


@functools.cache
def schema_of(op):
    schema = op._schema
    shared = {letter for r in schema.returns if r.alias_info for letter in r.alias_info.before_set}
    arguments, writes, aliases = [], [], []
    for a in schema.arguments:
        known = a.has_default_value()
        arguments.append((a.name, known, a.default_value if known else None))
        if a.alias_info is None:
            continue
        if a.alias_info.is_write:
            writes.append(a.name)
        if a.alias_info.before_set & shared:
            aliases.append(a.name)
    name = str(op)
    return Schema(
        name=name,
        packet=name.rpartition(".")[0],
        arguments=tuple(arguments),
        writes=tuple(writes),
        aliases=tuple(aliases),
        draws=torch.Tag.nondeterministic_seeded in op.tags,
        returns=tuple("[]" in str(r.type) or "List" in str(r.type) for r in schema.returns),
    )


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


def written_arguments(schema, bound):
    """Names of the arguments that this call changes."""
    flag, hidden = _HIDDEN_WRITES.get(schema.packet, ("", ()))
    if bound.get(flag):
        return [*schema.writes, *(name for name in hidden if bound.get(name) is not None)]
    return list(schema.writes)


def is_random(schema, bound):
    """Does this call draw random numbers?"""
    if not schema.draws:
        return False
    if bound.get("train") is False or bound.get("training") is False:
        return False
    if schema.packet in _DROPOUTS:
        return bound["p"] != 0
    if "dropout_p" in bound:
        return bound["dropout_p"] != 0
    if "dropout" in bound:  # recurrent networks
        return bound["dropout"] != 0
    return True


def drops_nothing(schema, bound):
    """A dropout that gives back its input."""
    return schema.packet in _DROPOUTS and (
        bound["train"] is False or (schema.packet == "aten.dropout" and bound["p"] == 0)
    )


def may_be_identity(schema, bound):
    """Is a result with the shape and place of the first argument that argument itself?"""
    if bound.get("memory_format") not in (None, torch.preserve_format):
        return False
    if schema.packet in _NEVER_IDENTITY or len(schema.returns) != 1 or schema.returns[0]:
        return False
    if schema.packet == "aten.detach_":
        return True
    return not schema.writes and schema.aliases == (schema.arguments[0][0],)
