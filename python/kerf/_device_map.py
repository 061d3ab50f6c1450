# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""accelerate's device maps: which module's weights are on which device, or in a file."""

import torch

from kerf._arguments import shown
from kerf._limits import device_of

DISK = "disk"
_EXPECTED = "expected places by module, {'model.embed_tokens': 0, 'model.layers': 'cpu'}, or 'auto'"


def places_of(device_map):
    """By key: the device, or "disk". None for what ``max_memory`` decides alone."""
    if device_map is None or device_map == "auto":
        return None
    if isinstance(device_map, str) and device_map.startswith(("balanced", "sequential")):
        raise ValueError(
            f"[kerf.place] device_map is {shown(device_map)}, which spreads a model over several "
            f"accelerators; {_EXPECTED}; give 'auto' with max_memory={{0: '2GiB'}}"
        )
    if not isinstance(device_map, dict):
        device_map = {"": device_map}  # one place for all
    if not device_map or not all(isinstance(key, str) for key in device_map):
        raise ValueError(f"[kerf.place] device_map is {shown(device_map)}; {_EXPECTED}")
    return {
        key: DISK if isinstance(place, str) and place == DISK else device_of(place, "device_map")
        for key, place in device_map.items()
    }


class Homes:
    """Where each parameter of a model is to be, by a map: the longest key that fits its name."""

    def __init__(self, model, places, device):
        self._places = places
        self._device = device
        self._of = {}  # id of a parameter -> place
        self._used = set()
        self._missing = []
        self._look("", model, None)
        self._refuse_unknown()
        self._refuse_missing()

    def of(self, parameter):
        return self._of[id(parameter)]

    def _look(self, path, module, around):
        place = self._place(path, around)
        for name, tensor in _own_tensors(module):
            full = _join(path, name)
            found = self._place(full, place)
            if found is None:
                self._missing.append(full)
            # Of one that has several names, and places by them, the device is where it can be.
            is_elsewhere = self._of.get(id(tensor), found) != found
            self._of[id(tensor)] = self._device if is_elsewhere else found
        for name, child in _inside(module):
            self._look(_join(path, name), child, place)

    def _place(self, path, around):
        if path not in self._places:
            return around
        self._used.add(path)
        return self._places[path]

    def _refuse_unknown(self):
        unknown = [key for key in self._places if key not in self._used]
        if unknown:
            raise ValueError(
                f"[kerf.place] device_map names {shown(unknown[0])}, and the model has no such "
                "module, parameter or buffer; expected names as in model.named_modules(); correct "
                "the key"
            )

    def _refuse_missing(self):
        if self._missing:
            more = f" and {len(self._missing) - 1} more" if len(self._missing) > 1 else ""
            raise ValueError(
                f"[kerf.place] device_map has no place for '{self._missing[0]}'{more}; expected "
                "one for every parameter and buffer; add the module's name, or '' for all the rest"
            )


class ModulePlaces:
    """Where the weights of modules are, with those inside. ``ties``, which stay together whatever
    a map says, have no say where there are others."""

    def __init__(self, place_of, ties=()):
        self._place_of = place_of  # of a parameter
        self._ties = ties  # ids
        self._untied = {}  # id of a module -> places

    def of(self, module):
        return self._look(module) or {self._place_of(p) for p in module.parameters()}

    def _look(self, module):
        found = self._untied.get(id(module))
        if found is None:
            own = [p for p in module._parameters.values() if p is not None]
            found = {self._place_of(p) for p in own if id(p) not in self._ties}
            found = found.union(*(self._look(child) for _, child in _inside(module)))
            self._untied[id(module)] = found
        return found


def map_of(model, place_of, device):
    """The map of a placed model: as few keys as say where all weights are."""
    places, out = ModulePlaces(place_of), {}

    def write(path, module):
        found = places.of(module)
        if len(found) == 1:
            out[path] = next(iter(found))
        elif not found and any(True for _ in module.buffers()):
            out[path] = device
        elif found:
            for name, tensor in _own_tensors(module):
                is_weight = isinstance(tensor, torch.nn.Parameter)
                out[_join(path, name)] = place_of(tensor) if is_weight else device
            for name, child in _inside(module):
                write(_join(path, name), child)

    write("", model)
    return _named(model, out, device)


def _named(model, places, device):
    """What computes comes first, and is named even where it holds nothing of its own."""
    if places and device not in places.values():
        if "" in places:  # all in one place; only modules have weights, for own ones would stay
            names = [
                name for name, child in _inside(model) if any(True for _ in child.parameters())
            ]
            places = dict.fromkeys(names, places[""])
        places = {"": device, **places}
    ordered = sorted(places, key=lambda key: places[key] != device)
    return {key: _name(places[key]) for key in ordered}


def _name(place):
    is_cuda = isinstance(place, torch.device) and place.type == "cuda"
    return place.index or 0 if is_cuda else str(place)


def _own_tensors(module):
    """By each of their names."""
    for own in (module._parameters, module._buffers):
        yield from ((name, tensor) for name, tensor in own.items() if tensor is not None)


def _inside(module):
    return [(name, child) for name, child in module._modules.items() if child is not None]


def _join(path, name):
    return f"{path}.{name}" if path else name
