# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Which modules of a model come and go as one, and what each takes."""

import dataclasses
import functools

import torch

from kerf import _torch

# Modules that only hold others: their own forward is never called.
_HOLDERS = (torch.nn.ModuleList, torch.nn.ModuleDict)


@dataclasses.dataclass
class Unit:
    """A module, or the parameters that an opened module has itself."""

    path: str
    module: torch.nn.Module
    parameters: list
    stays: bool = False  # its parameters are used while others' modules run

    @functools.cached_property
    def bytes(self):
        return unit_bytes(self.parameters)


_EXACT = frozenset({torch.Tensor, torch.nn.Parameter})


def is_plain(parameter):
    """Can its numbers lie in a slot? Sparse and quantised tensors, those of classes of their own,
    and those made in inference mode stay where they are."""
    return (
        parameter.layout is torch.strided
        and (type(parameter) in _EXACT or type(parameter.data) is torch.Tensor)
        and not parameter.is_quantized
        and not parameter.is_inference()
    )


def unit_bytes(parameters):
    return sum(_look_at(p)[0] for p in parameters)


def _look_at(parameter):
    """Its bytes, and where its memory begins and ends: nowhere if it is odd, or has none."""
    if not is_plain(parameter):
        return parameter.numel() * parameter.element_size(), 0, 0
    return _torch.slot_bytes_and_extent(parameter)


def _sharing(found):
    """By id of a parameter that shares memory with others, what is the same for all of them."""
    out, end, last = {}, 0, None
    placed = ((begin, stop, i) for i, (_, begin, stop) in found.items() if stop > begin > 0)
    for begin, stop, i in sorted(placed):
        if begin < end:
            out[i] = out.setdefault(last, last)
        else:
            last = i
        end = max(end, stop)
    return out


class WeightSizes:
    """What each module of a model has in weights, those of modules inside included and each
    counted once. The model is gone through when this is made, and not again."""

    def __init__(self, model):
        self._own = {}  # id of a module -> its own parameters
        self._buffers = {}  # by id
        self._inside_of = {}  # id of a module -> its parameters with those inside, once asked for
        self._several = set()  # ids of parameters that are at more than one place
        self._collect(model)
        found = {id(p): _look_at(p) for own in self._own.values() for p in own}
        self._size = {i: size for i, (size, _, _) in found.items()}
        self.odd = {id(p) for own in self._own.values() for p in own if not is_plain(p)}
        # By id of a parameter that is in several places or shares its memory: what is the same for
        # all that are tied to it.
        every = found | {i: _look_at(b) for i, b in self._buffers.items()}
        self.sharing = _sharing(every)  # those of them that are tensors of their own
        # By what is the same for them: buffers that share memory with other tensors.
        self.buffers = {}
        for i, buffer in self._buffers.items():
            if i in self.sharing:
                self.buffers.setdefault(self.sharing[i], []).append(buffer)
        self.ties = {i: i for i in self._several} | self.sharing
        self.listed = frozenset()  # ids of parameters that are in lists, too; see ListedWeights
        self.beside = 0  # bytes of weights that no module has
        self._sums = {}  # id of a module -> (bytes, those in it that are in several places: bytes)
        self._whole = {}  # (path, id of a module) -> its unit

    def own(self, module):
        return self._own[id(module)]

    def bytes_of(self, module):
        once, shared = self._sum(module)
        return once + sum(shared.values())

    def of_parameter(self, parameter):
        return self._size[id(parameter)]

    def whole_unit(self, path, module):
        """All the weights of a module, with those inside: one object for each."""
        known = self._whole.get((path, id(module)))
        if known is None:
            known = self._whole[path, id(module)] = whole_unit(path, module, self)
        return known

    def parameters(self, module):
        """Its own first, then those of the modules inside."""
        known = self._inside_of.get(id(module))
        if known is None:
            known = self._inside_of[id(module)] = self._gather(module)
        return list(known)

    def _gather(self, module):
        out, seen = {}, set()
        waiting = [module]
        while waiting:
            module = waiting.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            out.update((id(p), p) for p in self._own[id(module)])
            waiting.extend(reversed(_inside(module)))
        return list(out.values())

    def _collect(self, model):
        seen = set()
        waiting = [model]
        while waiting:
            module = waiting.pop()
            if id(module) in self._own:
                self._several.update(map(id, module.parameters()))
                continue
            own = self._own[id(module)] = _own_parameters(module)
            buffers = module._buffers
            if not isinstance(buffers, dict) or buffers:
                self._buffers.update((id(b), b) for b in module.buffers(recurse=False))
            ids = [id(p) for p in own]
            self._several.update(i for i in ids if i in seen)
            seen.update(ids)
            waiting.extend(_inside(module))

    def _sum(self, module):
        found = self._sums.get(id(module))
        if found is not None:
            return found
        once, shared = 0, {}
        for parameter in self._own[id(module)]:
            size = self._size[id(parameter)]
            if id(parameter) in self._several:
                shared[id(parameter)] = size
            else:
                once += size
        for child in _inside(module):
            of_child, shared_there = self._sum(child)
            once += of_child
            shared.update(shared_there)
        self._sums[id(module)] = once, shared
        return once, shared


def _own_parameters(module):
    own = module._parameters  # a dictionary, but for TorchScript's
    values = own.values() if isinstance(own, dict) else module.parameters(recurse=False)
    own = [p for p in values if p is not None]
    return own if len(own) < 2 else list({id(p): p for p in own}.values())


def _inside(module):
    inside = module._modules
    if not isinstance(inside, dict):
        return list(module.children())
    return [child for child in inside.values() if child is not None]


def find_units(model, largest, no_split=(), sizes=None):
    """The largest modules of no more than ``largest`` bytes, in the order the model has them.

    Larger ones are opened, elements of lists first. Leaves, and modules of the classes in
    ``no_split``, stay whole whatever they take. ``sizes``: the model's, where they are known.
    """
    return next(units_by_size(model, [largest], no_split, sizes or WeightSizes(model)))


def units_by_size(model, sizes_to_try, no_split, sizes):
    """The units for each of several sizes of the largest, which descend; those that would be the
    same as for the size before are left out."""
    smallest = None  # size for which the units would still be the last ones
    for largest in sizes_to_try:
        if smallest is not None and largest >= smallest:
            continue
        finding = _Finding(largest, frozenset(no_split), sizes)
        finding.add("", model)
        smallest = finding.needed
        yield finding.units


def part_of(path, module, parameters, sizes):
    """Some of the weights of a module; all that it has inside, or it has no modules inside."""
    unit = Unit(path, module, parameters)
    unit.bytes = sum(map(sizes.of_parameter, parameters))
    unit.stays = isinstance(module, torch.jit.ScriptModule) or any(
        id(p) in sizes.odd for p in parameters
    )
    return unit


def whole_unit(path, module, sizes):
    """All the weights of a module, with those inside."""
    return part_of(path, module, sizes.parameters(module), sizes)


def own_unit(path, module, sizes):
    """The weights of an opened module itself: used at any time while the modules inside run."""
    return Unit(path, module, list(sizes.own(module)), stays=True)


def may_be_called(path, module):
    return not isinstance(module, _HOLDERS) and path != ""


class _Finding:
    """Units of no more than ``largest`` bytes."""

    def __init__(self, largest, no_split, sizes):
        self._largest, self._no_split, self._sizes = largest, no_split, sizes
        self.units = []
        self.needed = 0  # bytes of the largest that is whole because it is no larger

    def add(self, path, module):
        sizes = self._sizes
        may_be_whole = may_be_called(path, module)
        inside = _inside(module)
        if may_be_whole and (not inside or type(module).__name__ in self._no_split):
            self._add_whole(path, module)
            return
        bytes_there = sizes.bytes_of(module)
        if may_be_whole and bytes_there <= self._largest:
            self.needed = max(self.needed, bytes_there)
            self._add_whole(path, module)
            return
        if sizes.own(module):
            self.units.append(own_unit(path, module, sizes))
        for name, child in module.named_children():
            self.add(f"{path}.{name}" if path else name, child)

    def _add_whole(self, path, module):
        unit = self._sizes.whole_unit(path, module)
        if unit.parameters:
            self.units.append(unit)
