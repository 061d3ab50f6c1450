# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Values on their way to the device of a layer, and what it did to them on the way back."""

import collections
import contextlib
import copy
import dataclasses
import functools
import operator
from collections.abc import MutableMapping
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import PackedSequence

CPU = torch.device("cpu")


class Mover:
    """Moves tensors, and knows which devices there are."""

    def devices(self):
        """All of them: accelerators by their numbers, then the CPU."""
        kind = torch.accelerator.current_accelerator(check_available=True)
        count = torch.accelerator.device_count() if kind is not None else 0
        return [torch.device(kind.type, number) for number in range(count)] + [CPU]

    def device_of(self, tensor):
        return tensor.device

    def to(self, tensor, device, copy=False):
        return tensor.to(device, copy=copy)

    def write(self, tensor, source):
        """The numbers of ``source`` into a tensor that may be on another device."""
        tensor.copy_(source)

    def finish(self, devices):
        """Waits for all work on them, in whatever stream."""
        for device in devices:
            if device.type != "cpu":
                torch.accelerator.synchronize(device)

    def free_bytes(self, device):
        """What could be allocated now, or None where that is not known."""
        try:
            if device.type == "cpu":
                with open("/proc/meminfo") as file:
                    return next(int(s.split()[1]) * 1024 for s in file if "MemAvailable" in s)
            cached = torch.accelerator.memory_reserved(device)
            return (
                torch.accelerator.get_memory_info(device)[0]
                + cached
                - torch.accelerator.memory_allocated(device)
            )
        except (AttributeError, OSError, RuntimeError, StopIteration, ValueError):
            return None


def memory_of(tensor):
    """Which memory it lies in. Tensors of some layouts have none to show."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return "object", id(tensor)


class Form(NamedTuple):
    """How a container is taken apart and made anew. ``refill`` changes one in place; None where
    the code that was given a copy cannot have changed it."""

    parts: object
    make: object
    refill: object = None


def _refill_with(method):
    def refill(value, parts):
        value.clear()
        getattr(value, method)(parts)

    return refill


def _make_mapping(value, parts):
    before = _MAPPING.parts(value)
    for copied in (copy.copy, _copy_around):
        made = copied(value)  # of its class, with its default factory and the like
        _set_items(made, parts)
        if _same(_MAPPING.parts(value), before):
            return made
        _set_items(value, before)
    raise TypeError(
        f"[kerf.dataflow] a copy of a {type(value).__name__} writes into the same items; expected "
        "one of its own, to put tensors of another device into; use a dictionary, or correct the "
        "class's __deepcopy__"
    )


def _copy_around(value):
    """All that holds the items, but not the items: a class may keep them in a dictionary of its
    own, which its copies share."""
    return copy.deepcopy(value, {id(part): part for part in _MAPPING.parts(value)})


def _set_items(value, parts):
    count = len(parts) // 2
    for key, item in zip(parts[:count], parts[count:], strict=True):
        value[key] = item


def _refill_mapping(value, parts):
    value.clear()
    _set_items(value, parts)


_MAPPING = Form(lambda v: [*v.keys(), *v.values()], _make_mapping, _refill_mapping)
_FORMS = {
    tuple: Form(list, lambda v, parts: tuple(parts)),
    frozenset: Form(list, lambda v, parts: frozenset(parts)),
    list: Form(list, lambda v, parts: parts, _refill_with("extend")),
    set: Form(list, lambda v, parts: set(parts), _refill_with("update")),
    collections.deque: Form(
        list, lambda v, parts: collections.deque(parts, v.maxlen), _refill_with("extend")
    ),
    PackedSequence: Form(
        lambda v: [v.data, v.sorted_indices, v.unsorted_indices],
        lambda v, parts: PackedSequence(parts[0], v.batch_sizes, *parts[1:]),  # sizes: on the CPU
    ),
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), _MAPPING),
}
PLAIN = frozenset({type(None), bool, int, float, str, torch.device, torch.dtype, torch.Size})


@functools.lru_cache(maxsize=1024)
def _form_of(cls):
    """None for what is no container. Such objects pass as they are: a cache that layers write is
    one object for all of them, and each layer's part of it stays where the layer runs."""
    if cls in _FORMS:
        return _FORMS[cls]
    if any(c.__name__ == "Cache" and c.__module__.startswith("transformers") for c in cls.__mro__):
        return None
    if cls in torch.utils._pytree.SUPPORTED_NODES:
        node = torch.utils._pytree.SUPPORTED_NODES[cls]
        return Form(
            lambda v: list(node.flatten_fn(v)[0]),
            lambda v, parts: node.unflatten_fn(parts, node.flatten_fn(v)[1]),
        )
    if issubclass(cls, tuple):
        named = hasattr(cls, "_fields")
        return Form(list, lambda v, parts: tuple.__new__(cls, parts) if named else cls(parts))
    if dataclasses.is_dataclass(cls):
        return _dataclass_form([field.name for field in dataclasses.fields(cls)])
    return _MAPPING if issubclass(cls, MutableMapping) else None


def _dataclass_form(names):
    def make(value, parts):
        made = copy.copy(value)
        refill(made, parts)
        return made

    def refill(value, parts):
        for name, part in zip(names, parts, strict=True):
            if getattr(value, name, None) is not part:
                object.__setattr__(value, name, part)  # of frozen ones too

    return Form(lambda v: [getattr(v, name, None) for name in names], make, refill)


def _same(a, b):
    return len(a) == len(b) and all(map(operator.is_, a, b))


def _is_view_of(tensor, made):
    """Do gradients go from one to the other through views alone? Functions of the user's, which
    have a backward of their own, are none."""
    function, last = tensor.grad_fn, made.grad_fn
    while function is not None and function is not last:
        if isinstance(function, torch.autograd.function.BackwardCFunction):
            return False
        inputs = function.next_functions
        function = inputs[0][0] if len(inputs) == 1 else None
    return function is not None


def _same_view(tensor, made, origin):
    """Of ``origin`` what ``tensor`` is of its copy: a view. None where it cannot be one."""
    if tensor.dtype != made.dtype or made.stride() != origin.stride():
        return None
    if any(t.is_conj() or t.is_neg() for t in (tensor, made, origin)):
        return None
    if not tensor.requires_grad:
        origin = origin.detach()
    elif not _is_view_of(tensor, made):
        return None
    offset = origin.storage_offset() + tensor.storage_offset() - made.storage_offset()
    return origin.as_strided(tensor.size(), tensor.stride(), offset)


def _reach(tensor):
    """Where its elements are in memory: the first one, and behind the last one."""
    start = tensor.storage_offset()
    return start, start + 1 + sum(
        (n - 1) * d for n, d in zip(tensor.size(), tensor.stride(), strict=True)
    )


def _overlap(a, b):
    """Have two tensors of one memory elements in common?"""
    if not a.numel() or not b.numel():
        return False
    (a_start, a_end), (b_start, b_end) = _reach(a), _reach(b)
    if a_end * a.itemsize <= b_start * b.itemsize or b_end * b.itemsize <= a_start * a.itemsize:
        return False
    if a.itemsize != b.itemsize:
        return True
    start, end = min(a_start, b_start), max(a_end, b_end)
    taken = torch.zeros(end - start, dtype=torch.bool, device="cpu")
    _same_part(taken, a, start).fill_(True)
    return bool(_same_part(taken, b, start).any())


def _same_part(memory, tensor, start):
    size = [n if stride else 1 for n, stride in zip(tensor.size(), tensor.stride(), strict=True)]
    return memory.as_strided(size, tensor.stride(), tensor.storage_offset() - start)


class Transfer:
    """Values on their way to ``device``; None leaves tensors where they are.

    What is there already stays the object that it is, and so does a container of such things.
    ``origins`` are what copies were made of, by the copies' ids: these are taken where they fit,
    and views of them for views of ``copies``: ``{memory of a copy: (copy, origin)}``.
    ``here`` is where the sender computes: as a value (``x.device``) it becomes ``device``.
    """

    def __init__(self, mover, device, *, detach=False, here=None, origins=None, copies=None):
        self._mover = mover
        self._device = device
        self._here = here if device is not None else None
        self._detach = detach
        self._origins = origins or {}
        self._copies = copies or {}
        self._tensors = {}  # id -> (tensor, its copy, the copy's version)
        self._containers = {}  # id -> (container, its copy, what the copy held, form)
        self._passed = {}  # id -> (container that went as it is, what it held, form)

    def __call__(self, value):
        kind = type(value)
        if kind in PLAIN:
            return self._device if kind is torch.device and value == self._here else value
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        form = _form_of(kind)
        return value if form is None else self._container(value, form)

    def has_copied(self):
        """Was anything not there already?"""
        return bool(self._tensors or self._containers)

    def _tensor(self, tensor):
        if self._detach and tensor.requires_grad:
            tensor = tensor.detach()
        origin = self._origins.get(id(tensor))
        if origin is None and self._copies:
            origin = self._view_of_origin(tensor)
        if self._device is None:
            return tensor if origin is None else origin
        if self._mover.device_of(tensor) == self._device:
            return tensor
        if origin is not None and self._mover.device_of(origin) == self._device:
            return origin
        known = self._tensors.get(id(tensor))
        if known is None:
            made = self._copy(tensor)
            known = self._tensors[id(tensor)] = (tensor, made, made._version)
        return known[1]

    def _view_of_origin(self, tensor):
        """A view of the argument, where it is one of the argument's copy: what is written into it
        later is the argument's too. None if it is none."""
        made, origin = self._copies.get(memory_of(tensor), (None, None))
        if made is None or self._device not in (None, self._mover.device_of(origin)):
            return None
        view = _same_view(tensor, made, origin)
        if view is not None:
            self._origins[id(tensor)] = view  # the same one, where the result has it twice
        return view

    def _copy(self, tensor):
        if not torch.is_inference_mode_enabled() and not tensor.is_inference():
            return self._mover.to(tensor, self._device)
        # Copies made in that mode would not say whether a layer has written them.
        with torch.inference_mode(False), torch.no_grad():
            return self._mover.to(tensor, self._device)

    def _container(self, value, form):
        origin = self._origins.get(id(value))
        if origin is not None:
            return origin
        known = self._containers.get(id(value))
        if known is not None:
            return known[1]
        before = form.parts(value)
        parts = [self(part) for part in before]
        if _same(parts, before):
            if form.refill is not None:
                self._passed[id(value)] = (value, before, form)
            return value
        made = form.make(value, parts)
        self._containers[id(value)] = (value, made, form.parts(made), form)
        return made

    def returned(self, device):
        """The way back to ``device``, after what was given has been changed as the layer has
        changed its copies: tensors written in place, items added to a list."""
        kept = (*self._tensors.values(), *self._containers.values())
        copies = {memory_of(made): (made, tensor) for tensor, made, _ in self._tensors.values()}
        origins = {id(k[1]): k[0] for k in kept}
        here = None if self._here is None else self._device
        way = Transfer(self._mover, device, here=here, origins=origins, copies=copies)
        written = [
            (t, made) for t, made, version in self._tensors.values() if made._version != version
        ]
        for tensor, made in written:
            self._refuse_overlaps(tensor)
            # A leaf can only have been written where no gradients were recorded.
            leaf = tensor.is_leaf and tensor.requires_grad
            with torch.no_grad() if leaf else contextlib.nullcontext():
                self._mover.write(tensor, made)
        for value, made, held, form in self._containers.values():
            parts = form.parts(made)
            if form.refill is not None and not _same(parts, held):
                form.refill(value, [way(part) for part in parts])
        for value, held, form in self._passed.values():
            parts, known = form.parts(value), set(map(id, held))
            if not _same(parts, held):
                form.refill(value, [part if id(part) in known else way(part) for part in parts])
        return way

    def _refuse_overlaps(self, written):
        """Two arguments that share memory were two copies: the layer may have read old numbers."""
        for tensor, *_ in self._tensors.values():
            if tensor is written or memory_of(tensor) != memory_of(written):
                continue
            if _overlap(tensor, written):
                raise RuntimeError(
                    "[kerf.dataflow] a layer has written an argument in place that shares memory "
                    "with another of its arguments; expected that only where both are on its "
                    "device, since they came to it as two copies; map the layer to the device of "
                    "the module that calls it, or give it a clone()"
                )
