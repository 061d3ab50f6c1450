# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What other libraries ask a placed model: which device it is on, and its device map."""

import threading

import torch

_lock = threading.Lock()
_patched = {}  # class -> (its property, what has its place, number of placed models)


class PlacedAnswers:
    """``model.device`` is the device that computes, wherever the weights are that a model looks at
    to tell; ``hf_device_map`` says what transformers asks it for."""

    def __init__(self, model, device, device_map):
        self._model = model
        self._marked = []  # (dictionary of a module, name)
        self._classes = []
        self._before = model.__dict__.get("hf_device_map")
        self._map = HfDeviceMap(device_map)
        model.__dict__["hf_device_map"] = self._map
        for module in model.modules():
            cls = device_class(type(module))
            if device.type != "cpu" and cls is not None:
                self._mark(module, "_kerf_device", _OfThis(device))
                self._classes.append(cls)
            if "_hf_hook" not in module.__dict__ and any(True for _ in module.children()):
                self._mark(module, "_hf_hook", HfHook(device))
        self._classes = list(dict.fromkeys(self._classes))
        for cls in self._classes:
            _patch(cls)

    def _mark(self, module, name, value):
        module.__dict__[name] = value
        self._marked.append((module.__dict__, name, value))

    def remove(self):
        own = self._model.__dict__
        if own.get("hf_device_map") is self._map:
            del own["hf_device_map"]
            if self._before is not None:
                own["hf_device_map"] = self._before
        for mapping, name, value in self._marked:
            if mapping.get(name) is value:
                del mapping[name]
        for cls in self._classes:
            _restore(cls)
        self._marked, self._classes = [], []


class HfDeviceMap(dict):
    """A copy of the model has all its weights in memory."""

    def __deepcopy__(self, memo):
        return self.__reduce__()[1][0]

    def __reduce__(self):
        return dict, (dict.fromkeys(self, "cpu"),)


class HfHook:
    """accelerate's hook of a module, where transformers looks for one: what it is for, bringing
    results to where the arguments were, Kerf's own hooks do."""

    io_same_device = True

    def __init__(self, device):
        self.execution_device = device

    def detach_hook(self, module):
        return module


class _OfThis:
    """The device of a placed model's module. A copy is not placed."""

    def __init__(self, device):
        self.device = device

    def __deepcopy__(self, memo):
        return None

    def __reduce__(self):
        return type(None), ()


def device_class(cls):
    """The class that says what ``device`` of a module is, if any does."""
    for base in cls.__mro__:
        found = vars(base).get("device")
        if found is not None:
            return base if type(found) is property and found.fget is not None else None
    return None


def _patch(cls):
    with _lock:
        if cls in _patched:
            original, made, count = _patched[cls]
        else:
            original, count = vars(cls)["device"], 0
            made = _answering(original)
            cls.device = made
        _patched[cls] = original, made, count + 1


def _restore(cls):
    with _lock:
        original, made, count = _patched[cls]
        if count > 1:
            _patched[cls] = original, made, count - 1
            return
        del _patched[cls]
        if vars(cls).get("device") is made:  # nobody has put another one there
            cls.device = original


def _answering(original):
    def device(self):
        found = original.fget(self)
        mark = self.__dict__.get("_kerf_device")
        # A streamed weight is on the host, but for its own module's calls.
        is_home = isinstance(found, torch.device) and found.type == "cpu"
        return mark.device if mark is not None and is_home else found

    return property(device, original.fset, original.fdel, original.__doc__)
