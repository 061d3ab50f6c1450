# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""How a call of PyTorch is written down as an FX node: as its author has written it, where that can
be told, so that generated source reads ``x + y`` and ``x.view(b, -1)``.
"""

import operator

import torch

_OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "matmul": operator.matmul,
    "pow": operator.pow,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "neg": operator.neg,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__floordiv__": operator.floordiv,
    "remainder": operator.mod,
    "bitwise_not": operator.invert,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
}
_SWAPPED = {
    "__rsub__": operator.sub,
    "__rdiv__": operator.truediv,
    "__rtruediv__": operator.truediv,
    "__rpow__": operator.pow,
    "__rfloordiv__": operator.floordiv,
    "__rmatmul__": operator.matmul,
    "__rmod__": operator.mod,
    "__radd__": operator.add,
    "__rmul__": operator.mul,
}
_UNARY = {"neg", "bitwise_not"}


def name_of(func):
    """``add`` for ``Tensor.add`` and ``torch.ops.aten.add.Tensor``; an attribute's own name."""
    if is_getter(func) or is_setter(func):
        return getattr(func.__self__, "__name__", "")
    name = getattr(func, "__name__", "") or type(func).__name__
    return name.partition(".")[0]


def is_getter(func):
    return getattr(func, "__name__", "") == "__get__"


def is_setter(func):
    return getattr(func, "__name__", "") == "__set__"


def is_method(func):
    return type(func).__name__ in ("method_descriptor", "wrapper_descriptor") or (
        getattr(func, "__qualname__", "").startswith(("Tensor.", "TensorBase."))
    )


def as_node(func, args, kwargs):
    """``(op, target, args, kwargs)`` of the node for a call."""
    if is_getter(func):
        return "call_function", getattr, (args[0], name_of(func)), {}
    if not is_method(func):
        return "call_function", func, args, kwargs
    name = func.__name__
    plain = not kwargs and len(args) == (1 if name in _UNARY else 3 if "set" in name else 2)
    if plain and name in _OPERATORS:
        return "call_function", _OPERATORS[name], args, kwargs
    if plain and name in _SWAPPED:
        return "call_function", _SWAPPED[name], (args[1], args[0]), kwargs
    if args and isinstance(args[0], torch.Tensor):
        return "call_method", name, args, kwargs
    return "call_function", getattr(torch.Tensor, name), args, kwargs


def full_name(func):
    if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"torch.ops.{func}"
    module = getattr(func, "__module__", None) or "torch"
    name = getattr(func, "__qualname__", None) or name_of(func)
    name = name.removeprefix("_VariableFunctionsClass.").replace("TensorBase.", "Tensor.")
    return f"{module}.{name}"


def first_line(error):
    return str(error).partition("\n")[0][:200] or type(error).__name__
