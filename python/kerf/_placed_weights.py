# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The parameters and buffers of a placed model: where they are, and were."""

import os
import warnings

import torch

from kerf import _torch
from kerf._arguments import shown
from kerf._limits import CPU
from kerf._places import find_places, found_at, put
from kerf._units import is_plain
from kerf._unmade import tensors_of


class PlacedWeights:
    """The parameters and buffers of a model as they were, and ways to keep them elsewhere."""

    def __init__(self, model):
        self._model = model
        self._entries = [
            (own, name, tensor)
            for module in model.modules()
            for own in (module._parameters, module._buffers)
            if own
            for name, tensor in own.items()
            if tensor is not None
        ]
        self._mapped = []  # whose data is a file's, or pinned: to be in ordinary memory again
        self._device = CPU  # that computes
        self._moved = []  # to the device
        self._new = {}  # id of a tensor of the meta device -> what has its place
        self._stored = {}  # id of a tensor -> what the checkpoint has, of another dtype
        self._elsewhere = []  # (link, tensor of the meta device, what has its place)
        self._replaced = []  # tensors that had memory, and what they had, while there is no plan

    def map_checkpoint(self, path):
        """Gives each parameter and buffer the checkpoint's tensor of its name. Those of another
        dtype take no memory until it is known where they go: they are converted there."""
        stored = _torch.map_checkpoint(os.fspath(path))
        every, found = list(named(self._model)), {}
        names = {}
        others = _other_names(stored, every)
        for name, tensor in every:
            if name not in stored:
                continue
            _check_stored(name, tensor, stored[name])
            _refuse_scaled(name, tensor, stored[name], others)
            first = names.setdefault(id(tensor), name)
            if first != name:
                _refuse_others(first, name, stored)
            found[id(tensor)] = tensor, stored[first]
        # One name of a tied weight is enough.
        missing = [(name, tensor) for name, tensor in every if id(tensor) not in found]
        _refuse_missing(self._model, missing, others, path)
        for tensor, data in found.values():
            self._take(tensor, data)
        for own, name, tensor in self._entries:
            if id(tensor) in self._new:
                own[name] = self._new[id(tensor)]
        self._replace_elsewhere()

    def _replace_elsewhere(self):
        """What code has in a list, say, is to be what the modules have: computing with a tensor of
        the meta device need not fail, and gives any numbers."""
        if not self._new:
            return
        for path, place in find_places(self._model).items():
            new = self._new.get(id(place.tensor))
            if new is None:
                continue
            if place.links[-1][0] == "fixed":
                raise ValueError(
                    f"[kerf.place] '{path}' is a weight of the meta device in a tuple or a set, "
                    "which cannot be given another; expected weights that modules have, or lists "
                    "and dictionaries; read it from its module"
                )
            put(place.links[-1], new)
            self._elsewhere.append((place.links[-1], place.tensor, new))

    def _take(self, tensor, stored):
        """A tensor stays the object it is; one of the meta device cannot."""
        data = stored
        if stored.dtype != tensor.dtype:
            data = torch.empty(1, dtype=tensor.dtype).expand(tensor.shape)
        if not tensor.is_meta:
            self._mapped.append(tensor)
            self._replaced.append((tensor, tensor.data))
            tensor.data = data
            taken = tensor
        elif isinstance(tensor, torch.nn.Parameter):
            taken = self._new[id(tensor)] = torch.nn.Parameter(data, tensor.requires_grad)
        else:
            taken = self._new[id(tensor)] = data
        if data is not stored:
            self._stored[id(taken)] = stored

    def _source(self, tensor):
        """Where its numbers are now, and as what they are wanted."""
        return self._stored.get(id(tensor), tensor.data), tensor.dtype

    def _give(self, tensor, data):
        self._replaced.clear()  # there is a plan
        tensor.data = data
        self._stored.pop(id(tensor), None)

    def keep_in_files(self, units, folder):
        """Weights of these units that no file has go to one."""
        loose = [p for unit in units for p in unit.parameters if not is_mapped(p)]
        loose = list({id(p): p for p in loose}.values())
        if not loose:
            return
        if folder is None:
            raise ValueError(
                "[kerf.place] some weights are to be streamed from disk, and no file has them in "
                "the model's dtype and layout; expected a folder to write them to, "
                "max_memory={..., 'disk': 'folder'}, or checkpoint="
            )
        # Parameters may share memory: they go on doing so.
        places = {}
        for parameter in loose:
            places.setdefault(place_of(parameter), parameter)
        sources = [self._source(p) for p in places.values()]
        data = dict(zip(places, _torch.move_to_file(os.fspath(folder), sources), strict=True))
        for parameter in loose:
            self._mapped.append(parameter)
            self._give(parameter, data[place_of(parameter)])

    def load_others(self, units):
        """What is not streamed is in memory."""
        self._replaced.clear()
        streamed = {id(p) for unit in units for p in unit.parameters}
        for tensor in tensors_of(self._model):
            if id(tensor) not in streamed and self._is_in_file(tensor):
                self._give(tensor, _torch.load(*self._source(tensor), CPU))

    def _is_in_file(self, tensor):
        return id(tensor) in self._stored or is_mapped(tensor)

    def pin(self, units):
        """Weights of these units are in the host's memory, where a device fetches them itself."""
        arena = _torch.PinnedArena(sum(unit.bytes for unit in units))
        for unit in units:
            self._mapped.extend(unit.parameters)
            sources = [self._source(p) for p in unit.parameters]
            for parameter, data in zip(unit.parameters, arena.take(sources), strict=True):
                self._give(parameter, data)
        if arena.not_pinned:
            warnings.warn(
                f"[kerf.place] {arena.not_pinned} bytes of weights are in memory that could not be "
                "pinned; expected pinned memory: their copies are slower; raise the limit of "
                "locked memory, or give max_memory less of 'cpu'",
                stacklevel=6,
            )

    def move_others(self, units, device, beside=()):
        """What is not streamed is on the device; ``beside``: weights that no module has, too."""
        self._replaced.clear()
        self._device = device
        streamed = {id(p) for unit in units for p in unit.parameters}
        moved = {}  # those that share memory go on doing so
        for tensor in dict.fromkeys((*(tensor for _, _, tensor in self._entries), *beside)):
            tensor = self._new.get(id(tensor), tensor)
            if id(tensor) in streamed:
                continue
            place = place_of(tensor) if is_plain(tensor) else id(tensor)
            if place not in moved:
                moved[place] = self._on_device(tensor, device)
            self._moved.append(tensor)
            self._give(tensor, moved[place])

    def _on_device(self, tensor, device):
        if self._is_in_file(tensor):  # a view of the mapping would keep its pages in memory
            return _torch.load(*self._source(tensor), device)
        return tensor.data.to(device)

    def put_back(self):
        for tensor, data in self._replaced:
            self._stored.pop(id(tensor), None)
            tensor.data = data
        self._load_the_rest()
        data = {}
        for tensor in (*self._moved, *self._mapped):
            if tensor.device != CPU:
                place = place_of(tensor) if is_plain(tensor) else id(tensor)
                if place not in data:
                    data[place] = tensor.data.to(CPU)
                tensor.data = data[place]
                if tensor.is_leaf and tensor.grad is not None:
                    tensor.grad.data = tensor.grad.data.to(CPU)
        for tensor in self._mapped:
            if is_plain(tensor) and (is_mapped(tensor) or tensor.is_pinned()):
                place = place_of(tensor)
                if place not in data:
                    data[place] = tensor.data.clone()
                tensor.data = data[place]
        for own, name, tensor in self._entries:
            # Only where nobody has put something else since.
            if id(tensor) in self._new and own.get(name) is self._new[id(tensor)]:
                own[name] = tensor
        for link, tensor, new in self._elsewhere:
            if found_at(link) is new:
                put(link, tensor)
        self._bring_late_ones()

    def _bring_late_ones(self):
        """What has come meanwhile: a forward makes its masks where it runs."""
        if self._device == CPU:
            return
        for module in self._model.modules():
            for own in (module._parameters, module._buffers):
                for name, tensor in list(own.items()):
                    if tensor is None or tensor.device.type != self._device.type:
                        continue
                    if not tensor.is_inference():
                        tensor.data = tensor.data.to(CPU)
                    elif isinstance(tensor, torch.nn.Parameter):  # these stay where they are
                        there = tensor.detach().to(CPU)
                        own[name] = torch.nn.Parameter(there, requires_grad=tensor.requires_grad)
                    else:
                        own[name] = tensor.to(CPU)

    def _load_the_rest(self):
        """What was still to be converted when something failed."""
        for tensor in self._mapped:
            if id(tensor) in self._stored:
                self._give(tensor, _torch.load(*self._source(tensor), CPU))


def is_mapped(tensor):
    return is_plain(tensor) and _torch.is_mapped(tensor.data)


def place_of(tensor):
    """What is equal for tensors that are the same numbers in the same memory."""
    data = tensor.data
    return data.data_ptr(), data.dtype, data.shape, data.stride(), data.is_conj()


def named(model):
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _check_stored(name, tensor, stored):
    if tensor.shape != stored.shape:
        raise ValueError(
            f"[kerf.place] the checkpoint has '{name}' with shape {list(stored.shape)}; expected "
            f"{list(tensor.shape)}, as the model has it; give the model's own checkpoint"
        )
    can_be_converted = stored.is_floating_point() and tensor.is_floating_point()
    if stored.dtype != tensor.dtype and not can_be_converted:
        raise ValueError(
            f"[kerf.place] the checkpoint has '{name}' as {stored.dtype}; expected {tensor.dtype}, "
            "as the model has it; give the model's own checkpoint"
        )


def _refuse_others(first, name, stored):
    a, b = stored[first], stored[name]
    if a.dtype != b.dtype or not _torch.same_bytes(a, b):
        raise ValueError(
            f"[kerf.place] the checkpoint has other numbers for '{first}' and '{name}', which are "
            "one weight of the model; expected the same; make the model without that tie "
            "(tie_word_embeddings=False), or give the model's own checkpoint"
        )


def _other_names(stored, every):
    """What the checkpoint has and the model does not."""
    own = {name for name, _ in every}
    return [name for name in stored if name not in own]


def _refuse_scaled(name, tensor, stored, others):
    """Numbers of 8 bits come with scales, without which they are not the weights."""
    if stored.dtype == tensor.dtype or stored.element_size() > 1:
        return
    module = name.rpartition(".")[0]
    scale = next((other for other in others if other.rpartition(".")[0] == module), None)
    if scale is not None:
        raise ValueError(
            f"[kerf.place] the checkpoint has '{name}' as {stored.dtype} and beside it '{scale}', "
            f"which the model does not know; expected {tensor.dtype}, or numbers without a scale; "
            "give a checkpoint that is not quantised"
        )


def _refuse_missing(model, missing, others, path):
    persistent = set(model.state_dict(keep_vars=True))
    needed = [name for name, tensor in missing if name in persistent or tensor.is_meta]
    if not needed:
        return
    name, more = needed[0], f" and {len(needed) - 1} more" if len(needed) > 1 else ""
    if name not in persistent:
        raise ValueError(
            f"[kerf.place] '{name}'{more} is on the meta device, and not among what checkpoints "
            "have; expected a buffer with its numbers; make the model with kerf.empty_weights(), "
            "which keeps buffers"
        )
    instead = _most_alike(name, others)
    has = f", but '{instead}', which the model has not" if instead is not None else ""
    raise ValueError(
        f"[kerf.place] checkpoint {shown(os.fspath(path))} has no tensor '{name}'{more}{has}; "
        "expected the names of model.state_dict(); give the model's own checkpoint, or write one "
        "from the model that has its weights: safetensors.torch.save_model(model, path)"
    )


def _most_alike(name, others):
    """The same with a prefix more or less, or with another part in the middle."""

    def alike(other):
        parts, own = other.split("."), name.split(".")
        return _same_first(parts[::-1], own[::-1]), _same_first(parts, own)

    best = max(others, key=alike, default=None)
    return best if best is not None and alike(best)[0] > 0 else None


def _same_first(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def refuse_elsewhere(model):
    if all(tensor.is_cpu for tensor in tensors_of(model)):
        return
    for name, tensor in named(model):
        if tensor.device.type != "cpu":
            hint = "give checkpoint=" if tensor.is_meta else "move the model to the host first"
            raise ValueError(
                f"[kerf.place] '{name}' is on {tensor.device}; expected weights on the host; {hint}"
            )
