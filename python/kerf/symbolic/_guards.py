# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a traced module checks when it is called: that the trace holds for these arguments.

A trace follows one path through the model's code. Where a size, a flag or a number decided on the
path, a node of the graph calls one of these functions; a call that would have taken another path is
refused and not computed along the wrong one.
"""

import operator

import torch
from torch.fx.node import has_side_effect

from kerf._arguments import found, shown
from kerf.symbolic._reads import DATA

RELATIONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class GuardError(ValueError):
    """A traced module was called in a way in which the model would have taken another path."""


def check_size(left, relation, right, held, tensor, text, where):
    """``left relation right`` is still ``held``, what it was when the module was traced."""
    if RELATIONS[relation](left, right) == held:
        return
    was, now = ("held", "does not") if held else ("did not hold", "does")
    sizes = f"shape {tuple(tensor.shape)}" if tensor is not None else f"{left} and {right}"
    raise GuardError(
        f"[symbolic.call] {text} {was} when the module was traced and {now} for {sizes}; "
        f"trace again for this shape{_at(where)}"
    )


def check_value(value, expected, text, where):
    """A number that the model's code read from a tensor is still what it was."""
    now = value.tolist() if isinstance(value, torch.Tensor) else value
    if now == expected or (now != now and expected != expected):
        return
    raise GuardError(
        f"[symbolic.call] {text} was {shown(expected)} when the module was traced and is "
        f"{shown(now)}; trace again for these values{_at(where)}"
    )


def check_dtype(value, dtype, text, where):
    """A tensor whose dtype the model's code has read still has it: autocast and ``gm.half()``
    change it."""
    if value.dtype != dtype:
        raise GuardError(
            f"[symbolic.call] {text} was of {dtype} when the module was traced and is of "
            f"{value.dtype}, and the model's code reads its dtype; cast the model and its inputs, "
            f"and trace it again, without autocast{_at(where)}"
        )


def check_setting(name, args, expected, where):
    """PyTorch answers a question about its settings as it did in the trace."""
    now = getattr(torch, name)(*args)
    if now != expected:
        asked = f"torch.{name}({', '.join(map(repr, args))})"
        raise GuardError(
            f"[symbolic.call] {asked} was {expected} when the module was traced and is {now}, and "
            f"the model's code asks for it; call the module as it was traced{_at(where)}"
        )


def check_argument(value, expected, name, may_be_none=False):
    """A concrete argument is what the module was traced for; None where it may be left out."""
    if value is expected or (value is None and may_be_none):
        return
    try:
        same = type(value) is type(expected) and bool(value == expected)
    except Exception:  # a user's class may fail at comparing
        same = False
    if not same:
        raise GuardError(
            f"[symbolic.call] {name} is {shown(value)}; the module was traced for "
            f"{name}={shown(expected)}; trace again with concrete_args={{{name!r}: ...}}"
        )


def check_input(value, ndim, dtype, name):
    """An input has the rank and the dtype that the module was traced for."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"[symbolic.call] {name} is {found(value)}; the module was traced for a tensor of "
            f"{ndim} dimensions and {dtype}; pass one"
        )
    if value.dim() != ndim or value.dtype != dtype:
        raise GuardError(
            f"[symbolic.call] {name} has shape {tuple(value.shape)} and {value.dtype}; the module "
            f"was traced for {ndim} dimensions and {dtype}; trace again for this input"
        )


def check_keys(value, keys, name, kind="dict", in_order=False):
    """``**kwargs`` and dictionaries: what the module was traced for, by name; where the model's
    code goes by their order, in that order."""
    _check_kind(value, kind, name)
    now = list(value)
    if now != list(keys) if in_order else set(now) != set(keys):
        order = ", in this order" if in_order else ""
        raise GuardError(
            f"[symbolic.call] {name} holds {shown(now)}; the module was traced for "
            f"{shown(list(keys))}{order}; trace again for this call"
        )


def check_count(value, count, name, kind="tuple"):
    """``*args`` and lists: as many as the module was traced for."""
    _check_kind(value, kind, name)
    if len(value) != count:
        raise GuardError(
            f"[symbolic.call] {name} holds {len(value)} arguments; the module was traced for "
            f"{count}; trace again for this call"
        )


def _check_kind(value, kind, name):
    if class_name(type(value)) != kind:
        raise GuardError(
            f"[symbolic.call] {name} is {found(value)}; the module was traced for a {kind}; pass "
            "one, or trace again for this call"
        )


def class_name(cls):
    """``dict``, or ``collections.OrderedDict``."""
    home = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return f"{home}{cls.__qualname__}"


def check_results(value, count, text, where):
    """A function returned as many tensors as it did when the module was traced."""
    if len(value) != count:
        raise GuardError(
            f"[symbolic.call] {text} gave {count} tensors when the module was traced and gives "
            f"{len(value)}; trace again for this shape{_at(where)}"
        )


def is_without_effect(node, args):
    """Whether a node, called without data, can only be passed over: a check of numbers inside a
    tensor, or a call that reads them for such checks alone. Its result is None."""
    if node.target is check_value:
        return args[0] is None or isinstance(args[0], torch.Tensor)
    return (
        node.op == "call_method"
        and node.target in DATA
        and all(user.target is check_value for user in node.users)
    )


def check_rank(value, rank, text, where):
    """What squeeze() returned has as many dimensions as when the module was traced."""
    if value.dim() != rank:
        raise GuardError(
            f"[symbolic.call] {text} had {rank} dimensions when the module was traced and has "
            f"{value.dim()}, and the model's code asks how many; trace again for this shape"
            f"{_at(where)}"
        )


class TrainingGuard(torch.nn.Module):
    """Where the model's code has read ``self.training``: a trace holds for one mode."""

    _is_impure = True

    def __init__(self, expected, where=""):
        super().__init__()
        self.expected = self.training = expected
        self.where = where

    def forward(self):
        if self.training != self.expected:
            modes = ("eval", "train")
            raise GuardError(
                f"[symbolic.call] the module is in {modes[self.training]} mode; the model's code "
                f"read self.training and was traced in {modes[self.expected]} mode; trace again in "
                f"this mode{_at(self.where)}"
            )


def _at(where):
    return f" ({where})" if where else ""


CHECKS = (
    check_size,
    check_value,
    check_dtype,
    check_setting,
    check_argument,
    check_input,
    check_keys,
    check_count,
    check_results,
    check_rank,
)
for _check in CHECKS:
    has_side_effect(_check)  # nobody uses its result, and it must stay
