# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Layers put on devices: by moving their tensors, or by switching between clones of them."""

import collections
import contextlib

import torch
from torch import nn

from kerf._arguments import shortened
from kerf._layers import MODULE_ATTRIBUTES
from kerf._transfer import CPU, PLAIN


def _memory(tensor):
    """Which memory it lies in. Tensors of some layouts have none to show."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return "object", id(tensor)


def total_bytes(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def _group_bytes(group):
    """Of tensors that share memory, and of their gradients."""
    own = total_bytes(group) if len(group) == 1 else group[0].untyped_storage().nbytes()
    return own + total_bytes(t.grad for t in group if t.is_leaf and t.grad is not None)


def _held(layers):
    """By layer: ``[(path, tensor)]``. What is another's parameter is not an attribute's own."""
    weights = {id(tensor) for layer in layers for *_, tensor in layer.registered()}
    return {
        layer: [(path, tensor) for path, *_, tensor in layer.registered()]
        + [(path, tensor) for path, tensor in layer.loose() if id(tensor) not in weights]
        for layer in layers
    }


def _find_ties(held):
    """Places in two layers that share memory: ``[((layer, path), (layer, path))]``."""
    first, ties = {}, []
    for layer, tensors in held.items():
        for path, tensor in tensors:
            place = first.setdefault(_memory(tensor), (layer, path))
            if place[0] is not layer:
                ties.append((place, (layer, path)))
    return ties


def refuse_split(ties, device_of):
    for (a, path_a), (b, path_b) in ties:
        if device_of(a) != device_of(b):
            raise ValueError(
                f"[kerf.dataflow] '{path_a}' and '{path_b}' are one tensor, and {a.shown} is to be "
                f"on {device_of(a)}, {b.shown} on {device_of(b)}; expected one device for both; "
                "map them alike"
            )


class Moves:
    """Puts layers on devices by moving their tensors in place, as ``model.to`` does."""

    def __init__(self, mover, layers):
        self._mover = mover
        self._layers = layers
        self._home = torch.utils.weak.WeakTensorKeyDictionary()
        for tensors in _held(layers).values():
            for _, tensor in tensors:
                self._home[tensor] = mover.device_of(tensor)

    def ties(self):
        return _find_ties(_held(self._layers))

    def home_of(self, layer):
        """Where it was in the beginning."""
        first = next(layer.registered(), None)
        return CPU if first is None else self._home.get(first[-1], CPU)

    def place(self, changes):
        """``{layer: device}``. All of it or nothing: a move that fails is undone."""
        held = _held(self._layers)
        sharing = self._sharing(held)
        waiting = {}
        for layer in changes:
            memories = dict.fromkeys(_memory(tensor) for _, tensor in held[layer])
            waiting[layer] = [sharing[memory] for memory in memories]
        done = []
        try:
            while waiting:
                layer = self._next(waiting, changes)
                done.append(self._move(layer, waiting.pop(layer), changes[layer]))
        except BaseException as error:
            for layer in self._undo(done):
                error.add_note(f"[kerf.dataflow] {layer.shown} stays on {layer.device}: no room")
            raise

    def restore(self):
        """Tensors go back to where they were, and those that came later go with their layers."""
        held = _held(self._layers)
        for group in self._sharing(held).values():
            self._put([(group, self._home.get(group[0], self._mover.device_of(group[0])))])
        for layer, tensors in held.items():
            homes = [self._home[tensor] for _, tensor in tensors if tensor in self._home]
            late = [[tensor] for _, tensor in tensors if tensor not in self._home]
            if homes:
                self._put([(group, homes[0]) for group in late])
            layer.device = None

    def _sharing(self, held):
        """Tensors by the memory that they share, each once."""
        groups = collections.defaultdict(dict)
        for tensors in held.values():
            for _, tensor in tensors:
                groups[_memory(tensor)][id(tensor)] = tensor
        return {memory: list(group.values()) for memory, group in groups.items()}

    def _next(self, waiting, changes):
        """The first that fits, since one that does not may when others have left."""
        for layer, groups in waiting.items():
            free = self._mover.free_bytes(changes[layer])
            if free is None or self._missing(groups, changes[layer]) <= free:
                return layer
        return next(iter(waiting))

    def _missing(self, groups, device):
        away = (group for group in groups if self._mover.device_of(group[0]) != device)
        return sum(map(_group_bytes, away))

    def _move(self, layer, groups, device):
        """What it takes to undo it."""
        before = layer.device, [(group, self._mover.device_of(group[0])) for group in groups]
        self._carry(layer, groups, device)
        layer.device = device
        return layer, *before

    def _carry(self, layer, groups, device):
        missing, free = self._missing(groups, device), self._mover.free_bytes(device)
        try:
            self._put([(group, device) for group in groups])
        except (RuntimeError, MemoryError) as error:
            # Its traceback would keep what was copied so far.
            raise _move_failed(layer, device, missing, free, error) from error.with_traceback(None)

    def _undo(self, done):
        """Layers that could not go back, since others took the memory: they are served there."""
        stuck = []
        for layer, device, targets in reversed(done):
            try:
                self._put(targets)
                layer.device = device
            except Exception:
                stuck.append(layer)
        return stuck

    def _put(self, targets):
        """``[(group, device)]``. First all copies, then the change: what fails changes nothing."""
        away = [(g, device) for g, device in targets if self._mover.device_of(g[0]) != device]
        fresh = [pair for group, device in away for pair in self._copies(group, device)]
        for tensor, data in fresh:
            tensor.data = data

    def _copies(self, group, device):
        """``[(tensor, data on the device)]`` of tensors that share memory, and gradients."""
        if len(group) == 1:
            yield group[0], self._mover.to(group[0].data, device)
        else:
            yield from self._shared_copies(group, device)
        for tensor in group:
            if tensor.is_leaf and tensor.grad is not None:
                yield tensor.grad, self._mover.to(tensor.grad.data, device)

    def _shared_copies(self, group, device):
        storage = group[0].untyped_storage()
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        moved = self._mover.to(whole, device, copy=True).untyped_storage()
        for tensor in group:
            data = torch.empty(0, dtype=tensor.dtype, device=moved.device)
            place = tensor.storage_offset(), tensor.size(), tensor.stride()
            yield tensor, data.set_(moved, *place)


def _move_failed(layer, device, missing, free, error):
    if free is not None and missing > free:
        why = f"{missing} bytes, and {free} are free there: {missing - free} bytes short"
    else:
        why = f"{missing} bytes: {shortened(str(error), 200)}"
    return RuntimeError(
        f"[kerf.dataflow] {layer.shown} cannot be moved to {device}: it has {why}; expected room "
        "for it; put fewer layers there. The old flow stays in force"
    )


class Slot:
    """A parameter or buffer, and its data on every device."""

    __slots__ = ("copies", "home", "key", "mapping", "tensor", "version", "writer")

    def __init__(self, module, mapping, key, tensor, home):
        self.mapping = mapping
        self.key = key
        self.home = home
        self.copies = {}
        # In training, batch norm writes its buffers without telling their versions.
        self.writer = None if isinstance(tensor, nn.Parameter) else module
        self.remember(tensor)

    def remember(self, tensor):
        self.tensor = tensor
        self.version = None if tensor.is_inference() else tensor._version

    def is_fresh(self):
        """Has nobody written the tensor, or put another in its place?"""
        tensor = self.tensor
        return (
            self.mapping.get(self.key) is tensor
            and self.version is not None
            and self.version == tensor._version
            and (self.writer is None or not self.writer.training)
        )


class Parts:
    """What a layer has to switch, sorted by what has to be looked at when it does."""

    def __init__(self, layer, slots):
        own = [slots[id(tensor)] for *_, tensor in layer.registered()]
        self.steady = [s for s in own if s.writer is None and s.version is not None]
        self.written = [s for s in own if s.writer is not None or s.version is None]
        # PyTorch's own modules hold no tensors in attributes, unless somebody adds some.
        modules = [vars(module) for _, module in layer.modules]
        self._sizes = [(own, len(own)) for own in modules]
        self._others = any(_may_hold_tensors(module) for _, module in layer.modules)

    def may_hold_others(self):
        for own, size in self._sizes:
            if len(own) != size:
                return True
        return self._others


def _may_hold_tensors(module):
    own = vars(module)
    plain = all(type(own[name]) in PLAIN for name in own.keys() - MODULE_ATTRIBUTES)
    return not plain or not type(module).__module__.startswith("torch.nn.")


class Clones(Moves):
    """Puts layers on devices where all their weights are already: only references change."""

    def __init__(self, mover, layers):
        super().__init__(mover, layers)
        self._ties = _find_ties(_held(layers))
        self._slots = {}  # by id of tensor: tied layers have one in common
        for layer in layers:
            for _, module, mapping, key, tensor in layer.registered():
                if id(tensor) not in self._slots:
                    home = mover.device_of(tensor)
                    self._slots[id(tensor)] = Slot(module, mapping, key, tensor, home)
        self._parts = {layer: Parts(layer, self._slots) for layer in layers}
        self._devices = []
        homes = {slot.home for slot in self._slots.values()}
        self._add([d for d in mover.devices() if d.type != "cpu" or d in homes])

    def ties(self):
        return self._ties

    def place(self, changes):
        self._add(changes.values())
        before = [(layer, layer.device) for layer in changes]
        try:
            for layer, device in changes.items():
                self._switch(layer, device)
        except BaseException:  # only copies can fail: of what was written, of caches
            for layer, device in before:
                with contextlib.suppress(Exception):
                    self._go_home(layer) if device is None else self._switch(layer, device)
            raise

    def _switch(self, layer, device):
        parts = self._parts[layer]
        for slot in parts.steady:  # not is_fresh: this loop is what re-mapping costs
            tensor = slot.tensor
            if slot.version != tensor._version or slot.mapping.get(slot.key) is not tensor:
                self._refresh(slot)
            slot.tensor.data = slot.copies[device]
        for slot in parts.written:
            if not slot.is_fresh():
                self._refresh(slot)
            slot.tensor.data = slot.copies[device]
        if parts.may_hold_others():
            self._carry(layer, self._loose(layer), device)
        layer.device = device

    def _go_home(self, layer):
        parts = self._parts[layer]
        for slot in (*parts.steady, *parts.written):
            if not slot.is_fresh():
                self._refresh(slot)
            slot.tensor.data = slot.copies[slot.home]
        self._carry(layer, self._loose(layer), self.home_of(layer))
        layer.device = None

    def _loose(self, layer):
        return [[tensor] for _, tensor in layer.loose() if id(tensor) not in self._slots]

    def refresh(self):
        """After weights were written: the other copies get the same numbers."""
        for slot in self._slots.values():
            if not slot.is_fresh():
                self._refresh(slot)

    def restore(self):
        for layer in self._layers:
            self._go_home(layer)

    def copy_of(self, tensor, device):
        """The data of one of the model's tensors on a device."""
        self._add([device])
        return self._slots[id(tensor)].copies[device]

    def _add(self, devices):
        new = [device for device in dict.fromkeys(devices) if device not in self._devices]
        if not new:
            return
        self._check_room(new)
        groups = collections.defaultdict(list)
        for slot in self._slots.values():
            groups[_memory(slot.tensor)].append(slot.tensor)
        for device in new:
            for group in groups.values():
                for tensor, data in self._data_on(group, device):
                    self._slots[id(tensor)].copies[device] = data
        self._devices += new

    def _data_on(self, group, device):
        if self._mover.device_of(group[0]) == device:
            return [(tensor, tensor.data) for tensor in group]
        if len(group) == 1:
            return [(group[0], self._mover.to(group[0].data, device))]
        return list(self._shared_copies(group, device))

    def _check_room(self, devices):
        tensors = [slot.tensor for slot in self._slots.values()]
        short = []
        for device in devices:
            missing = total_bytes(t for t in tensors if self._mover.device_of(t) != device)
            free = self._mover.free_bytes(device)
            if free is not None and missing > free:
                short.append(f"{device} is {missing - free} bytes short of {missing}")
        if short:
            raise RuntimeError(
                f"[kerf.dataflow] enable_clone=True puts the whole model on every device, and "
                f"{', '.join(short)}; expected room for it; use enable_clone=False"
            )

    def _refresh(self, slot):
        now = slot.mapping.get(slot.key)
        if now is None:
            now = slot.tensor  # deleted: nobody looks at it
        self._slots[id(now)] = slot
        source = now.data
        for device, data in slot.copies.items():
            if _memory(data) == _memory(source):
                continue
            if (data.shape, data.dtype) == (source.shape, source.dtype):
                self._mover.write(data, source)  # constructed modules have the same memory
            else:
                slot.copies[device] = self._mover.to(source, device, copy=True)
        slot.remember(now)


class Frozen:
    """Parameters without gradients. Those that there were wait in the host's memory."""

    def __init__(self, mover, model):
        self._mover = mover
        self._before = [(p, p.requires_grad, p.grad) for p in model.parameters()]
        try:
            for parameter, _, gradient in self._before:
                parameter.requires_grad_(False)
                parameter.grad = None
                if gradient is not None:
                    gradient.data = mover.to(gradient.data, CPU)
        except BaseException:
            self.restore()
            raise

    def restore(self):
        for parameter, flag, gradient in self._before:
            parameter.requires_grad_(flag)
            if gradient is not None:
                gradient.data = self._mover.to(gradient.data, self._mover.device_of(parameter))
                parameter.grad = gradient
