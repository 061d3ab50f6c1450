# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Calls that give a copy or the tensor itself, as a trace has to see them.

Whether ``x.contiguous()`` copies depends on the strides of ``x``, which are others at another call.
Of a tensor that needs no copy Python gives back the very object, before any operator is called, and
a trace would take the two names for one. While a model is traced, such calls are made on an alias,
and always as operators: the graph has a node and two names, and at each call PyTorch decides anew.

The other way round, tracing has ``dropout`` copy where it drops nothing; PyTorch gives the argument
back. A trace follows PyTorch.
"""

import contextlib
import functools

import torch
from torch._subclasses.fake_tensor import FakeTensor

# Methods that take a memory format, and give the tensor itself where it has that already.
_CONVERSIONS = (
    *("to", "type", "cpu", "cuda", "float", "double", "half", "bfloat16", "cfloat", "cdouble"),
    *("chalf", "int", "long", "short", "char", "byte", "bool"),
)
_PRESERVED = (None, torch.preserve_format)


def _as_torch(function):
    """What is asked below it is asked by whoever called it: kernels call these methods, too, and
    torch tells its own code from a user's by the file."""
    function.__code__ = function.__code__.replace(co_filename=torch._tensor.__file__)
    return function


@contextlib.contextmanager
def strides_left_open():
    """Traces what depends on strides as operators on names of their own."""
    stand_ins = {"contiguous": _contiguous}
    stand_ins.update((name, _conversion(name)) for name in _CONVERSIONS)
    # Tensor inherits these methods, so that to delete a stand-in is to restore one.
    saved = {n: torch.Tensor.__dict__[n] for n in stand_ins if n in torch.Tensor.__dict__}
    for name, stand_in in stand_ins.items():
        setattr(torch.Tensor, name, stand_in)
    try:
        with _plain_dropout():
            yield
    finally:
        for name in stand_ins:
            if name in saved:
                setattr(torch.Tensor, name, saved[name])
            else:
                delattr(torch.Tensor, name)


def _alias(tensor):
    if torch.is_grad_enabled() or not tensor.requires_grad:
        return torch.ops.aten.alias.default(tensor)
    # Autograd lets nobody write to a view that was made without it, but for this kind.
    return torch.ops.aten.detach.default(tensor)


_inherited_contiguous = torch.Tensor.contiguous


@_as_torch
@functools.wraps(_inherited_contiguous)
def _contiguous(self, **kwargs):
    if not isinstance(self, FakeTensor):
        return _inherited_contiguous(self, **kwargs)
    return torch.ops.aten.contiguous.default(_alias(self), **kwargs)


def _conversion(name):
    inherited = getattr(torch.Tensor, name)

    @_as_torch
    @functools.wraps(inherited)
    def convert(self, *args, **kwargs):
        if isinstance(self, FakeTensor) and kwargs.get("memory_format") not in _PRESERVED:
            self = _alias(self)
        return inherited(self, *args, **kwargs)

    return convert


@contextlib.contextmanager
def _plain_dropout():
    op = torch.ops.aten.dropout.default
    kernels = dict(op.py_kernels)

    def dropout(input, p, train):
        return traced(input, p, train) if train and p != 0 else input

    traced = kernels.get(torch._C.DispatchKey.CompositeImplicitAutograd)
    if traced is None:
        yield
        return
    for key in kernels:
        op.py_kernels[key] = dropout
    op._dispatch_cache.clear()
    try:
        yield
    finally:
        op.py_kernels.update(kernels)
        op._dispatch_cache.clear()
