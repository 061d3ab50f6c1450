# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The plan of a model whose device map says what stays and what is streamed."""

from kerf import _core
from kerf._device_map import DISK, ModulePlaces
from kerf._limits import CPU
from kerf._placed_plan import COPY_SECONDS, separate_ties, speed_of_both, unit_seconds
from kerf._units import may_be_called, own_unit, part_of, whole_unit

_SHARES = (2, 3, 4, 6, 8, 12)


def plan_mapped(model, sizes, limits, homes, link, disk, no_split):
    """A placement, its units, and those of them that come from a file. Of several sizes of units,
    that which moves least from where the map has it, and then takes the least time. ``sizes``: the
    model's."""
    failure = None
    for some in _sizes_to_try(model, limits, homes, no_split, sizes):
        best = None
        for largest in some:
            made = _Units(homes, limits.device, largest, no_split, sizes)
            made.add("", model)
            units = separate_ties(model, made.units, sizes, limits.device)
            try:
                placement, far = _placed(model, sizes, limits, homes, units, link, disk)
            except ValueError as error:
                failure = failure or error
                continue
            if best is None or (made.moved, placement.time) < best[0]:
                best = (made.moved, placement.time), (placement, units, far)
        if best is not None:
            return best[1]
    raise failure


def _placed(model, sizes, limits, homes, units, link, disk):
    device = limits.device
    streamed = [unit for unit in units if not unit.stays]
    far = [unit for unit in streamed if homes.of(unit.parameters[0]) == DISK]
    near = sum(unit.bytes for unit in streamed) - sum(unit.bytes for unit in far)
    if device != CPU:
        _refuse_too_much(near, limits.host_bytes)
    speed = disk if device == CPU or len(far) == len(streamed) > 0 else link
    source = "disk" if speed is disk else "cpu"
    if device != CPU and 0 < len(far) < len(streamed):
        speed, source = speed_of_both(streamed, far, link, disk), "cpu and disk"
    buffers = sum(buffer.nbytes for buffer in model.buffers()) + sizes.beside
    placement = _core.place_as_given(
        [unit.path for unit in units],
        [unit.bytes for unit in units],
        unit_seconds(units, device),
        [unit.stays for unit in units],
        None if limits.bytes is None else max(limits.bytes - buffers, 0),
        speed,
        COPY_SECONDS,
        str(device),
        source,
    )
    return placement, far


def _refuse_too_much(near, host_bytes):
    if host_bytes is not None and near > host_bytes:
        raise ValueError(
            f"[kerf.place] device_map keeps {near} bytes of weights on 'cpu'; expected no more "
            f"than max_memory['cpu'], {host_bytes}: {near - host_bytes} fewer; map more of them "
            "to 'disk', or allow more"
        )


class _Units:
    """Modules whose weights have one place, and are no larger than ``largest`` if they can be
    opened."""

    def __init__(self, homes, device, largest, no_split, sizes):
        self._homes = homes
        self._device = device
        self._largest, self._largest_with_own = largest
        self._no_split = frozenset(no_split or ())
        self._sizes = sizes
        self._places = ModulePlaces(homes.of, sizes.ties)
        self.units = []
        self.moved = 0  # bytes that stay although the map has them elsewhere

    def add(self, path, module):
        sizes = self._sizes
        places = self._places.of(module)
        if not places:
            return
        children = list(module.named_children())
        may_be_whole = may_be_called(path, module)
        is_one_class = may_be_whole and type(module).__name__ in self._no_split
        if len(places) > 1 and is_one_class:
            raise ValueError(
                f"[kerf.place] device_map has weights of '{path}' in {len(places)} places; "
                f"expected one: no_split_module_classes names {type(module).__name__}; map the "
                "module as a whole"
            )
        if not children:
            self._add_leaf(path, module)
            return
        most = self._largest_with_own if sizes.own(module) else self._largest
        fits = sizes.bytes_of(module) <= most or is_one_class
        if len(places) <= 1 and fits and may_be_whole:
            self._add_unit(whole_unit(path, module, sizes), next(iter(places), self._device))
            return
        if sizes.own(module):
            unit = own_unit(path, module, sizes)
            self._add_unit(unit, self._device)
            self.moved += sum(
                sizes.of_parameter(p)
                for p in unit.parameters
                if self._homes.of(p) != self._device and id(p) not in sizes.ties
            )
        for name, child in children:
            self.add(f"{path}.{name}" if path else name, child)

    def _add_leaf(self, path, module):
        """Some of its weights may stay while others come for its call."""
        by_place = {}
        for parameter in self._sizes.own(module):
            by_place.setdefault(self._homes.of(parameter), []).append(parameter)
        for place, parameters in by_place.items():
            self._add_unit(part_of(path, module, parameters, self._sizes), place)

    def _add_unit(self, unit, place):
        unit.stays = unit.stays or place == self._device or unit.path == ""
        self.units.append(unit)


def _sizes_to_try(model, limits, homes, no_split, sizes):
    """Of modules that have no weights of their own, and of those that have: opening one of these
    keeps its own weights on the device."""
    total = sizes.bytes_of(model)
    probe = _Units(homes, limits.device, (-1, -1), no_split, sizes)
    probe.add("", model)  # everything is opened that can be
    smallest = max((u.bytes for u in probe.units if not u.stays), default=0)
    most = total // 2 if limits.bytes is None else min(total // 2, limits.bytes // 2)
    if limits.bytes is None:
        return [[(smallest, most)], [(smallest, smallest)]]
    parts = [limits.bytes // share for share in _SHARES]
    first = [(smallest, most), *((part, most) for part in parts)]
    return [first, [(smallest, smallest), *((part, part) for part in parts)]]
