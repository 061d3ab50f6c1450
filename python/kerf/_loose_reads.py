# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Streamed weights that are read while their own module does not run."""

import warnings

import torch

from kerf import _torch
from kerf._placed_copies import HomeDict


class LooseReads:
    """Gives code that reads ``self.embedding.weight``, and does not call ``self.embedding``, the
    weight on the device: a copy, until the call of the model ends."""

    def __init__(self, units, device, is_away, refuse_gradients):
        self._device = device
        self._is_away = is_away
        self._refuse_gradients = refuse_gradients
        self._unit_of = {id(p): unit for unit in units for p in unit.parameters}
        self._copies = {}  # id of a parameter -> _Copy
        self._told = False
        self._watched = []  # (module, its own parameters, those that say when one is read)

    def watch(self, model):
        compiled = compiled_modules(model)
        for module in model.modules():
            own = module.__dict__.get("_parameters") or {}
            if id(module) in compiled or not any(id(p) in self._unit_of for p in own.values()):
                continue
            watched = _WatchedParameters(own)
            watched.reads = self
            module.__dict__["_parameters"] = watched
            self._watched.append((module, own, watched))

    def remove(self):
        for module, own, watched in self._watched:
            if module.__dict__.get("_parameters") is watched:
                own.clear()
                own.update(watched)
                module.__dict__["_parameters"] = own
        self._watched.clear()
        self._copies.clear()
        self._is_away = lambda unit: False  # and no circle of references keeps the slots
        self._refuse_gradients = None

    def end_call(self):
        """What was written to the copies is written to the weights."""
        copies, self._copies = self._copies, {}
        for copied in copies.values():
            copied.write_back()

    def enter(self, unit):
        """The same for the weights of a unit that is about to run."""
        if self._copies:
            for parameter in unit.parameters:
                copied = self._copies.get(id(parameter))
                if copied is not None:
                    copied.write_back()

    def read(self, parameter):
        """Of a parameter on the host."""
        unit = self._unit_of.get(id(parameter))
        if unit is None or not self._is_away(unit):
            return parameter
        known = self._copies.get(id(parameter))
        if known is None:
            self._refuse_gradients(unit, (), {})
            self._tell(unit)
            known = self._copies[id(parameter)] = _Copy(parameter, self._device)
        known.bring_up_to_date()
        return known.made

    def is_one(self, tensor):
        return id(tensor) in self._unit_of and isinstance(tensor, torch.nn.Parameter)

    def original(self, tensor):
        """The weight that a copy was made of; any other tensor is itself."""
        for copied in self._copies.values():
            if copied.made is tensor:
                return copied.parameter
        return tensor

    def _tell(self, unit):
        if self._told:
            return
        self._told = True
        warnings.warn(
            f"[kerf.place] a weight of module '{unit.path}' is read while the module does not "
            "run; expected it to be read in the module's own forward: it is copied to the device "
            "at each call of the model, and nothing fetches it ahead; name the class of the "
            "module that reads it in no_split_module_classes=[...] to stream both together",
            stacklevel=4,
        )


class _Copy:
    """A weight's numbers on the device, until the call ends."""

    def __init__(self, parameter, device):
        self.parameter = parameter
        with torch.inference_mode(False), torch.no_grad():
            there = parameter.detach().to(device)
            self.made = torch.nn.Parameter(there, requires_grad=False)
        self._remember()

    def _remember(self):
        self._versions = _version(self.parameter), self.made._version
        self._is_watched = _torch.watch_writes(self.made)  # for writes through .data

    def bring_up_to_date(self):
        """With the weight, where that was written: by its own module, say."""
        if _version(self.parameter) != self._versions[0]:
            with torch.inference_mode(False), torch.no_grad():
                self.made.copy_(self.parameter)
            self._remember()

    def write_back(self):
        if not self._is_written():
            return
        with torch.inference_mode(False), torch.no_grad():
            self.parameter.copy_(self.made.cpu())  # an edit as any other
        self._remember()

    def _is_written(self):
        if self.made._version != self._versions[1]:
            return True
        if self._is_watched:
            return not _torch.is_watched(self.made)
        return not torch.equal(self.made.cpu(), self.parameter)


def _version(tensor):
    return None if tensor.is_inference() else tensor._version


class _WatchedParameters(HomeDict):
    """The parameters of a module, where reading one by its name is seen."""

    def __getitem__(self, name):
        parameter = dict.__getitem__(self, name)
        if parameter is None or not parameter.is_cpu:
            return parameter
        return self.reads.read(parameter)

    def __setitem__(self, name, parameter):
        """What was read may be put back, as ``torch.func.functional_call`` does."""
        dict.__setitem__(self, name, self.reads.original(parameter))


def compiled_modules(model):
    """Those that torch.compile has looked at: they have to stay as it saw them."""
    return {
        id(inner)
        for module in model.modules()
        if type(module).__name__ == "OptimizedModule"
        or getattr(module, "_compiled_call_impl", None) is not None
        for inner in module.modules()
    }
