# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Layers put on devices: by moving their tensors, or by switching between clones of them."""

import collections
import contextlib

import torch
from torch import nn

from kerf import _core
from kerf._arguments import shortened
from kerf._layers import MODULE_ATTRIBUTES
from kerf._transfer import CPU, PLAIN, memory_of


def total_bytes(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def mode_of(tensor):
    """What is made in inference mode can never be trained, and a tensor that was made in it takes
    no other memory: copies are made as the tensor was, whatever the mode is now."""
    return torch.inference_mode(tensor.is_inference())


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
            place = first.setdefault(memory_of(tensor), (layer, path))
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
        self._homes = {}  # of layers, for tensors that come later
        for layer, tensors in _held(layers).items():
            for _, tensor in tensors:
                self._home[tensor] = mover.device_of(tensor)
                self._homes.setdefault(layer, self._home[tensor])

    def ties(self):
        return _find_ties(_held(self._layers))

    def home_of(self, layer):
        """Where it was in the beginning."""
        return self._homes.get(layer, CPU)

    def astray(self):
        """``{layer: its device}`` of those with weights elsewhere: other ones, or moved ones."""
        return {
            layer: layer.device
            for layer in self._layers
            if layer.device is not None
            and any(self._mover.device_of(t) != layer.device for *_, t in layer.registered())
        }

    def place(self, changes):
        """``{layer: device}``. All of it or nothing: a move that fails is undone."""
        held = _held(self._layers)
        sharing = self._sharing(held)
        waiting = {}
        for layer in changes:
            memories = dict.fromkeys(memory_of(tensor) for _, tensor in held[layer])
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
        """Tensors go back to where they were, and those that came later go with their layers. All
        of it or nothing."""
        done = []
        for group, home in self._ways_home():
            before = self._mover.device_of(group[0])
            try:
                self._put([(group, home)])
            except (RuntimeError, MemoryError) as error:
                with contextlib.suppress(RuntimeError, MemoryError):
                    for target in reversed(done):
                        self._put([target])
                raise _no_way_back(home, group, error) from error.with_traceback(None)
            done.append((group, before))
        for layer in self._layers:
            layer.device = None

    def _ways_home(self):
        """``[(tensors that share memory, device)]``."""
        held = _held(self._layers)
        homes = {}
        for layer, tensors in held.items():
            for _, tensor in tensors:
                late = self._homes.get(layer, self._mover.device_of(tensor))
                homes[id(tensor)] = self._home.get(tensor, late)
        return [(group, homes[id(group[0])]) for group in self._sharing(held).values()]

    def _sharing(self, held):
        """Tensors by the memory that they share, each once."""
        groups = collections.defaultdict(dict)
        for tensors in held.values():
            for _, tensor in tensors:
                groups[memory_of(tensor)][id(tensor)] = tensor
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
        before = {self._mover.device_of(group[0]) for group, _ in away}
        fresh = [pair for group, device in away for pair in self._copies(group, device)]
        if away:  # other streams may be using what is let go here, and will use what has come
            self._mover.finish({*before, *(device for _, device in away)})
        for tensor, data in fresh:
            tensor.data = data

    def _copies(self, group, device):
        """``[(tensor, data on the device)]`` of tensors that share memory, and gradients."""
        copies = self._memory_on(group, device)
        for tensor in group:
            if tensor.is_leaf and tensor.grad is not None:
                with mode_of(tensor.grad):
                    copies.append((tensor.grad, self._mover.to(tensor.grad.data, device)))
        return copies

    def _memory_on(self, group, device):
        with mode_of(group[0]):
            if len(group) == 1:
                return [(group[0], self._mover.to(group[0].data, device))]
            storage = group[0].untyped_storage()
            whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            moved = self._mover.to(whole, device, copy=True).untyped_storage()
            return [(tensor, _view_on(moved, tensor)) for tensor in group]


def _view_on(storage, tensor):
    with mode_of(tensor):
        data = torch.empty(0, dtype=tensor.dtype, device=storage.device)
        return data.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


def _move_failed(layer, device, missing, free, error):
    if free is not None and missing > free:
        why = f"{missing} bytes, and {free} are free there: {missing - free} bytes short"
    else:
        why = f"{missing} bytes: {shortened(str(error), 200)}"
    return RuntimeError(
        f"[kerf.dataflow] {layer.shown} cannot be moved to {device}: it has {why}; expected room "
        "for it; put fewer layers there. The old flow stays in force"
    )


def _no_way_back(device, group, error):
    return RuntimeError(
        f"[kerf.dataflow] {_group_bytes(group)} bytes of the model cannot go back to {device}, "
        f"where they were before the flow: {shortened(str(error), 200)}; expected room for them; "
        "free memory there, then call remove() again. The flow stays in force"
    )


class Slot:
    """A parameter or buffer, and its data on every device."""

    __slots__ = ("address", "copies", "device", "home", "readers", "tensor", "version")

    def __init__(self, tensor, home):
        self.home = home
        self.device = None  # of the copies: the one that the tensor shows; None before the first
        self.copies = {}  # {device: (data, its address)}
        self.readers = None  # {parameter of a constructed module: device}
        self.remember(tensor)

    def remember(self, tensor):
        self.tensor = tensor
        self.version = None if tensor.is_inference() else tensor._version
        self.address = _address(tensor)

    def is_fresh(self):
        """Has nobody written the tensor, or given it other memory (``tensor.data = x``)?"""
        tensor = self.tensor
        return (
            self.version is not None
            and self.version == tensor._version
            and self.address == _address(tensor)
        )

    def keep(self, device, data):
        self.copies[device] = data, _address(data)
        for reader, at in (self.readers or {}).items():
            if at == device:
                reader.data = data

    def show(self, device):
        self.tensor.data, self.address = self.copies[device]
        self.device = device


def _address(tensor):
    try:
        return tensor.data_ptr()
    except (NotImplementedError, RuntimeError):  # of some layouts
        return None


class Parts:
    """What a layer has to switch, sorted by what has to be looked at when it does."""

    def __init__(self, layer, slots):
        own = {id(tensor): slots[id(tensor)] for *_, tensor in layer.registered()}
        weights = {id(t) for *_, t in layer.registered() if isinstance(t, nn.Parameter)}
        self.slots = list(own.values())
        self._steady = [s for n, s in own.items() if n in weights and s.version is not None]
        self._others = [s for n, s in own.items() if n not in weights or s.version is None]
        # In training, batch norm writes its buffers without telling their versions.
        self._writers = tuple(module for _, module in layer.modules if module._buffers)
        self._gates = layer.gates
        inner = tuple(m for m in self._writers if id(m) not in layer.gated)
        for gate in layer.gates:
            gate.writers = inner
        # PyTorch's own modules hold no tensors in attributes, unless somebody adds some.
        modules = [vars(module) for _, module in layer.modules]
        self._sizes = [(own, len(own)) for own in modules]
        self._odd = any(_may_hold_tensors(module) for _, module in layer.modules)

    def stale(self):
        """Slots whose copies differ from their tensor, or may."""
        found = []
        for slot in self._steady:  # not is_fresh: this loop is what re-mapping costs
            tensor = slot.tensor
            if slot.version != tensor._version or slot.address != tensor.data_ptr():
                found.append(slot)
        if self._others:
            trained = self._have_trained()
            found += [slot for slot in self._others if trained or not slot.is_fresh()]
        return found

    def _have_trained(self):
        return any(gate.trained for gate in self._gates) or any(
            module.training for module in self._writers
        )

    def settle(self):
        for gate in self._gates:
            gate.trained = False

    def may_hold_others(self):
        for own, size in self._sizes:
            if len(own) != size:
                return True
        return self._odd


def _may_hold_tensors(module):
    own = vars(module)
    plain = all(type(own[name]) in PLAIN for name in own.keys() - MODULE_ATTRIBUTES)
    return not plain or not type(module).__module__.startswith("torch.nn.")


class Clones(Moves):
    """Puts layers on devices where all their weights are already: only references change."""

    def __init__(self, mover, layers):
        super().__init__(mover, layers)
        self._places = {}  # slots by the path of their tensor: tied layers have one in common
        self._slots = {}  # the same by the tensor's id
        homes = set(self._home.values())
        self._devices = [d for d in mover.devices() if d.type != "cpu" or d in homes]
        self._read()

    def ties(self):
        self._look()
        return self._ties

    def astray(self):
        return {}  # see place

    def place(self, changes):
        """Whether weights were written is asked of the layers that change, and without changes of
        all; where some were, all are brought up to date."""
        read = self._look()
        self._add(changes.values())
        if read or not changes or any(self._parts[layer].stale() for layer in changes):
            self.refresh()
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
        for slot in parts.slots:  # not show: it counts
            slot.tensor.data, slot.address = slot.copies[device]
            slot.device = device
        if parts.may_hold_others():
            self._carry(layer, self._loose(layer), device)
        layer.device = device

    def _go_home(self, layer):
        slots = self._parts[layer].slots
        for slot in slots:
            slot.show(slot.home)
        learned = [slot for slot in slots if slot.tensor.is_leaf and slot.tensor.grad is not None]
        self._put([([slot.tensor.grad], slot.home) for slot in learned])
        self._carry(layer, self._loose(layer), self.home_of(layer))
        layer.device = None

    def _loose(self, layer):
        return [[tensor] for _, tensor in layer.loose() if id(tensor) not in self._slots]

    def refresh(self):
        """After weights were written: the other copies get the same numbers."""
        self._look()
        stale = {id(slot): slot for parts in self._parts.values() for slot in parts.stale()}
        self._renew(stale.values())
        for parts in self._parts.values():
            parts.settle()

    def restore(self):
        self.refresh()
        for layer in self._layers:
            self._go_home(layer)

    def copy_of(self, tensor, device):
        """The data of one of the model's tensors on a device."""
        self._add([device])
        return self._slots[id(tensor)].copies[device][0]

    def share(self, tensor, reader, device):
        """Gives a parameter of a constructed module the data of the model's on a device."""
        reader.data = self.copy_of(tensor, device)
        slot = self._slots[id(tensor)]
        if slot.readers is None:
            slot.readers = torch.utils.weak.WeakTensorKeyDictionary()
        slot.readers[reader] = device

    # ---- what there is to be cloned

    def _look(self):
        """Parameters and buffers may have been added, or put in the place of others: were they?"""
        changed = not self._watch.unchanged()
        if changed:
            self._read()
        return changed

    def _read(self):
        held = [(path, layer, t) for layer in self._layers for path, *_, t in layer.registered()]
        places, slots, new = self._matched(held)
        self._copy(new, [*self._devices])
        self._places, self._slots = places, slots
        self._ties = _find_ties(_held(self._layers))
        self._parts = {layer: Parts(layer, slots) for layer in self._layers}
        for layer, parts in self._parts.items():
            for slot in parts.slots:
                if slot.device is None and layer.device is not None:
                    slot.show(layer.device)
        self._watch = _core.ObjectWatch()
        for layer in self._layers:
            for _, module in layer.modules:
                for mapping in (module._parameters, module._buffers):
                    if isinstance(mapping, dict):
                        self._watch.add_dict(mapping)

    def _matched(self, held):
        """Slots by path and by tensor, and those that have no copies yet. A tensor that stands in
        the place of another takes over its slot."""
        known = {id(slot.tensor): slot for slot in self._places.values()}
        there = {id(tensor) for *_, tensor in held}
        places, slots, new = {}, {}, []
        for path, layer, tensor in held:
            slot, old = slots.get(id(tensor)) or known.get(id(tensor)), self._places.get(path)
            if slot is None and old is not None and id(old.tensor) not in there:
                slot = old
                slot.tensor, slot.version = tensor, None  # stale
            if slot is None:
                slot = Slot(tensor, self._home_of_late(layer, tensor))
                new.append(slot)
            places[path] = slots[id(tensor)] = slot
        return places, slots, new

    def _home_of_late(self, layer, tensor):
        """Of a tensor that came later it is where the layer was."""
        home = self._home.get(tensor, self.home_of(layer))
        self._add([home])
        return home

    # ---- copies

    def _add(self, devices):
        new = [device for device in dict.fromkeys(devices) if device not in self._devices]
        if new:
            self._copy(self._slots.values(), new)
            self._devices += new

    def _copy(self, slots, devices):
        """All copies, or none."""
        if not slots:
            return
        self._check_room(slots, devices)
        groups = collections.defaultdict(list)
        for slot in slots:
            groups[memory_of(slot.tensor)].append(slot)
        made = []
        for device in devices:
            try:
                for group in groups.values():
                    data = self._data_on([slot.tensor for slot in group], device)
                    made += zip(group, [device] * len(group), data, strict=True)
            except (RuntimeError, MemoryError) as error:
                raise RuntimeError(
                    "[kerf.dataflow] enable_clone=True puts the whole model on every device, and "
                    f"{device} has no room for it: {shortened(str(error), 200)}; use "
                    "enable_clone=False"
                ) from error.with_traceback(None)
        self._mover.finish(devices)  # they will be used in any stream
        for slot, device, data in made:
            slot.keep(device, data)

    def _data_on(self, group, device):
        if self._mover.device_of(group[0]) == device:
            return [tensor.data for tensor in group]
        return [data for _, data in self._memory_on(group, device)]

    def _check_room(self, slots, devices):
        tensors = [slot.tensor for slot in slots]
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

    def _renew(self, slots):
        """All copies get the numbers of the tensors."""
        if slots:
            self._mover.finish(self._devices)  # other streams may be reading them
            for slot in slots:
                self._renew_one(slot)
            self._mover.finish(self._devices)

    def _renew_one(self, slot):
        source = slot.tensor.data
        for device, (data, _) in list(slot.copies.items()):
            if memory_of(data) == memory_of(source):
                continue
            if (data.shape, data.dtype) == (source.shape, source.dtype):
                with mode_of(data):  # constructed modules have the same memory
                    self._mover.write(data, source)
            else:
                with mode_of(source):
                    slot.keep(device, self._mover.to(source, device))
        slot.remember(slot.tensor)
        if slot.device is not None:
            slot.show(slot.device)


class Frozen:
    """Parameters without gradients. Those that there were wait in the host's memory."""

    def __init__(self, mover, model):
        self._mover = mover
        self._model = model
        self._before = [(p, p.requires_grad, p.grad) for p in model.parameters()]
        named = model.named_parameters(remove_duplicate=False)
        self._flags = {name: p.requires_grad for name, p in named}
        try:
            for parameter, _, gradient in self._before:
                _set_flag(parameter, False)
                parameter.grad = None
                if gradient is not None:
                    with mode_of(gradient):
                        gradient.data = mover.to(gradient.data, CPU)
        except BaseException:
            self.restore()
            raise

    def restore(self):
        # Parameters that came in place of others have taken over their flags, as in
        # load_state_dict(assign=True).
        for name, parameter in self._model.named_parameters(remove_duplicate=False):
            if self._flags.get(name) and (parameter.is_floating_point() or parameter.is_complex()):
                _set_flag(parameter, True)
        for parameter, flag, gradient in self._before:
            _set_flag(parameter, flag)
            if gradient is not None:
                with mode_of(gradient):
                    data = self._mover.to(gradient.data, self._mover.device_of(parameter))
                    gradient.data = data.to(parameter.dtype)  # the model may have become another
                parameter.grad = gradient


def _set_flag(parameter, flag):
    with mode_of(parameter):
        parameter.requires_grad_(flag)
