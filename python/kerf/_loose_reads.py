# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Streamed weights that are read while their own module does not run."""

import copy
import warnings

import torch


class LooseReads:
    """Gives code that reads ``self.embedding.weight``, and does not call ``self.embedding``, the
    weight on the device: a copy, until the call of the model ends."""

    def __init__(self, units, device, is_away, refuse_gradients):
        self._device = device
        self._is_away = is_away
        self._refuse_gradients = refuse_gradients
        self._unit_of = {id(p): unit for unit in units for p in unit.parameters}
        self._copies = {}  # id of a parameter -> (it, its copy, the copy's version)
        self._told = False
        self._watched = []  # (module, its own parameters, those that say when one is read)

    def watch(self, model):
        compiled = _compiled_modules(model)
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
        with torch.no_grad():
            for parameter, made, version in copies.values():
                if made._version != version:
                    parameter.copy_(made.cpu())  # an edit as any other

    def read(self, parameter):
        """Of a parameter on the host."""
        unit = self._unit_of.get(id(parameter))
        if unit is None or not self._is_away(unit):
            return parameter
        known = self._copies.get(id(parameter))
        if known is None:
            self._refuse_gradients(unit, (), {})
            self._tell(unit)
            with torch.inference_mode(False), torch.no_grad():
                made = torch.nn.Parameter(parameter.detach().to(self._device), requires_grad=False)
            known = self._copies[id(parameter)] = parameter, made, made._version
        return known[1]

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


class _WatchedParameters(dict):
    """The parameters of a module, where reading one by its name is seen."""

    def __getitem__(self, name):
        parameter = dict.__getitem__(self, name)
        if parameter is None or not parameter.is_cpu:
            return parameter
        return self.reads.read(parameter)

    def __reduce__(self):  # copies of the module have weights of their own
        return dict, (dict(self),)

    def __deepcopy__(self, memo):
        return copy.deepcopy(dict(self), memo)


def _compiled_modules(model):
    """Those that torch.compile has looked at: they have to stay as it saw them."""
    return {
        id(inner)
        for module in model.modules()
        if type(module).__name__ == "OptimizedModule"
        or getattr(module, "_compiled_call_impl", None) is not None
        for inner in module.modules()
    }
