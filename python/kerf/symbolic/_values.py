# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a trace knows about the tensors that the model's code holds.

The model computes on tensors of the meta device: they have shapes and no data. Weights stay what
they are in the eyes of the model's code; wherever one is used, its shadow without data is.

Some values are *known* nevertheless: what follows from constants, sizes and small buffers alone,
such as ``torch.arange(n)``. They are computed beside the trace, so that code may look at them.
"""

import torch

from kerf.symbolic._calls import name_of
from kerf.symbolic._devices import CPU, factories, named_device, result_device
from kerf.symbolic._numbers import is_number, plain_value
from kerf.symbolic._trees import map_tree, tensors_in
from kerf.symbolic._twin import Twins

MOVES = ("cpu", "cuda")
_MOST_KNOWN = 1 << 16  # elements
_MOST_STATE = 4096  # of a weight or a buffer
_RANDOM = ("rand", "bernoulli", "normal", "dropout", "multinomial", "uniform", "empty", "poisson")
_RANDOM += ("exponential", "geometric", "cauchy", "rrelu", "gumbel")


# Of a number from 0 up to, and without, 1: when a comparison with a bound is certain.
_BELOW = ((lambda bound: bound <= 0, False), (lambda bound: bound >= 1, True))
_AT_MOST = ((lambda bound: bound < 0, False), (lambda bound: bound >= 1, True))
_OUTCOMES = {
    **dict.fromkeys(("__lt__", "lt", "less"), _BELOW),
    **dict.fromkeys(("__le__", "le", "less_equal"), _AT_MOST),
    **dict.fromkeys(("__ge__", "ge", "greater_equal"), [(f, not o) for f, o in _BELOW]),
    **dict.fromkeys(("__gt__", "gt", "greater"), [(f, not o) for f, o in _AT_MOST]),
}


class Value:
    """A tensor of a trace.

    tensor   what is computed with: on the meta device
    node     its node; None until it is used, where it is an element of ``source``'s result
    source   (node, path of keys)
    device   where it would be
    known    its numbers, or None
    fixed    whether they hold for every call; sizes and weights may differ in the next
    uniform  its version when it was drawn from 0 up to 1; None otherwise
    """

    __slots__ = ("tensor", "node", "source", "device", "known", "fixed", "held", "uniform")

    def __init__(self, tensor, device, node=None, source=None, known=None, fixed=True, held=None):
        self.tensor, self.device = tensor, device
        self.node, self.source = node, source
        self.known, self.fixed = known, fixed
        self.held = held  # the tensor of the model that this is the shadow of
        self.uniform = None


class Values:
    """All of them, by the identity of the tensor that the model's code holds."""

    def __init__(self, home):
        self._values = {}
        self._written = set()  # memory whose numbers are no longer known
        self._home = home  # where tensors of the meta device stand for
        self.twins = Twins()  # of weights and modules: both see the same ones

    def find(self, tensor):
        return self._values.get(id(tensor))

    def add(self, tensor, value):
        self._values[id(tensor)] = value

    def of(self, tensor):
        """The value of any tensor; a weight or a constant becomes one when it is first used."""
        value = self._values.get(id(tensor))
        return value if value is not None else self._shadow(tensor)

    def device(self, tensor):
        return self.of(tensor).device

    def _shadow(self, tensor):
        with torch._C.DisableTorchFunction():
            device = self._home if tensor.is_meta else tensor.device
            value = Value(self.twins.tensor(tensor), device, held=tensor, fixed=False)
            value.known = _numbers_of_state(tensor)
        self._values[id(tensor)] = value
        return value

    def evaluate(self, func, args, kwargs, rule=None):
        """What a call gives, without data, and the device its results would be on."""
        name = name_of(func)
        device = result_device(name, args, kwargs, self.device)
        origin = self.device(args[0]) if name in ("to", *MOVES) else None
        args, kwargs = map_tree(self._plain, (args, kwargs))
        if rule is not None:
            return rule(*args, **kwargs), device
        if name in MOVES:  # the meta device has no such methods
            return args[0] if device == origin else args[0].clone(), device
        moved = name == "to" and device != origin
        args, kwargs = _on_meta(func, name, args, kwargs, device)
        result = func(*args, **kwargs)
        return result.clone() if moved and result is args[0] else result, device

    def _plain(self, item):
        if isinstance(item, torch.Tensor):
            return self.of(item).tensor
        return plain_value(item)

    def versions(self, args, kwargs):
        """How often the tensors of a call were written so far."""
        found = [self.of(t).tensor for t in tensors_in((args, kwargs))]
        return [(t, t._version) for t in found]

    def note_writes(self, versions, all_known):
        """After a call: numbers that it has overwritten with unknown ones are known no more."""
        written = [tensor for tensor, version in versions if tensor._version != version]
        if not all_known:
            self._written.update(map(_memory, written))
        return written

    def forget(self, tensor):
        """The numbers of a buffer that a module has overwritten are known no more."""
        self._written.add(_memory(self.of(tensor).tensor))

    def known(self, tensor):
        """The numbers of a tensor, or None."""
        value = self.of(tensor)
        if value.known is None or _memory(value.tensor) in self._written:
            return None
        return value.known

    def all_known(self, func, args, kwargs):
        """Whether the results of a call follow from known numbers."""
        if any(part in name_of(func) for part in _RANDOM):
            return False
        return all(self.known(t) is not None for t in tensors_in((args, kwargs)))

    def note_drawn(self, name, result):
        if name in ("rand", "rand_like") and isinstance(result, torch.Tensor):
            value = self.of(result)
            value.uniform = value.tensor._version

    def certain(self, name, args, result):
        """What comparing random numbers gives whatever they are, such as ``rand < 0.0``, or None:
        models that drop no layer compare nevertheless."""
        if name not in _OUTCOMES or len(args) != 2 or type(args[1]) not in (int, float):
            return None
        value = self.of(args[0]) if isinstance(args[0], torch.Tensor) else None
        if value is None or value.uniform is None or value.uniform != value.tensor._version:
            return None
        for holds, outcome in _OUTCOMES[name]:
            if holds(args[1]):
                return torch.full(result.shape, outcome)
        return None

    def compute(self, func, args, kwargs):
        """The numbers that a call gives, and whether they hold for every call; None if unknown."""
        fixed = True

        def numbers(item):
            nonlocal fixed
            if isinstance(item, torch.Tensor):
                fixed = fixed and self.of(item).fixed
                return self.known(item)
            fixed = fixed and not is_number(item)
            return plain_value(item)

        args, kwargs = map_tree(numbers, (args, kwargs))
        if "device" in kwargs:
            kwargs = {**kwargs, "device": CPU}
        if name_of(func) in ("to", "cuda", "cpu"):
            args = tuple(CPU if isinstance(a, torch.device) else a for a in args)
            args = args[:1] if name_of(func) in ("cuda", "cpu") else args
        try:
            with torch.no_grad():
                return func(*args, **kwargs), fixed
        except Exception:  # then nobody knows it: the trace goes on without
            return None, False


def may_be_known(result):
    return sum(t.numel() for t in tensors_in(result)) <= _MOST_KNOWN


def empty_like(tensor):
    """The same tensor without data: strides, dtype and gradients as they are."""
    if tensor.layout is not torch.strided:
        return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)
    made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
    return made.requires_grad_(tensor.requires_grad)


def _numbers_of_state(tensor):
    small = tensor.numel() <= _MOST_STATE and tensor.layout is torch.strided
    if not small or tensor.is_meta or tensor.device != CPU:
        return None
    return tensor.detach().clone()  # writes of the trace must not reach the model


def _memory(tensor):
    return tensor.untyped_storage()._cdata


def _on_meta(func, name, args, kwargs, device):
    if func in factories() or "device" in kwargs:
        return args, {**kwargs, "device": "meta"}
    if name == "to" and named_device(name, args, kwargs) is not None:
        given = args[2:] if len(args) > 1 and _is_device(args[1]) else args[1:]
        named = dict(zip(("dtype", "non_blocking", "copy"), given, strict=False))
        return args[:1], {**named, **kwargs, "device": "meta"}
    return args, kwargs


def _is_device(item):
    return isinstance(item, str | torch.device) or type(item) is int
