# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The layers of a model: modules that go to a device together."""

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from kerf import _core
from kerf._gates import Gate
from kerf._pytree import join
from kerf._reads import is_watchable, own_attributes
from kerf._restore import walk_containers
from kerf._transfer import PLAIN


class Layer:
    """Modules whose own tensors go to a device together, and the gates in front of them."""

    def __init__(self, name):
        self.name = name  # "" is what the model holds itself: that follows output_device
        self.modules = []  # (path, module)
        self.gates = []
        self.gated = set()  # ids of modules
        self.device = None

    @property
    def shown(self):
        return f"layer '{self.name}'" if self.name else "the model itself (output_device)"

    def registered(self):
        """``(path, module, mapping, key, tensor)`` of parameters and buffers."""
        for path, module in self.modules:
            for mapping in (module._parameters, module._buffers):
                if not isinstance(mapping, dict):
                    mapping = dict(mapping.items())  # TorchScript's
                for key, tensor in mapping.items():
                    if tensor is not None:
                        yield join(path, key), module, mapping, key, tensor

    def loose(self):
        """``(path, tensor)`` of tensors in attributes: caches, running values."""
        for path, module in self.modules:
            for name in vars(module).keys() - MODULE_ATTRIBUTES:
                value = vars(module)[name]
                if type(value) not in PLAIN:
                    for tensor in _tensors_in(value):
                        yield join(path, name), tensor

    def move_gates(self):
        for gate in self.gates:
            gate.device = self.device


MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
_DEEPEST = 3


def _tensors_in(value, depth=0):
    for item in walk_containers(value):
        if isinstance(item, torch.Tensor):
            yield item
        elif depth < _DEEPEST and not isinstance(item, nn.Module) and is_watchable(item):
            for held in list(own_attributes(item).values()):
                yield from _tensors_in(held, depth + 1)


class Tree:
    """The layers of a model by name, and the modules that have gates.

    Direct parameters follow their module, since its code reads them. So do those of modules that
    are never called, such as ``nn.ParameterList``: they follow the module that holds them.
    """

    def __init__(self, model, fine_grained, calls, names=None):
        """``names``: of the layers of the tree that ``model`` is a copy of; it may have got buffers
        where there were none."""
        self._calls = calls
        self._model = model
        self._names = names
        self._remember()
        self.layers = {"": Layer("")}
        self.gates = []  # (module, gate), the model's first
        # (path, module, gate) of modules that are called, have layers inside and are none.
        self.opened = []
        self._seen = {id(model)}
        own = self.layers[""]
        if _is_whole(model):
            own.modules += model.named_modules()
            self._gate(model, own, None)
            return
        own.modules.append(("", model))
        gate = self._gate(model, own, None, opened=True)
        for name, child in model.named_children():
            if fine_grained:
                self._open(name, child, own, gate)
            else:
                layer = self.layers[name] = Layer(name)
                self._take(name, child, layer, own, gate)
                if not layer.gates:  # nothing in it is called: parameters that the model reads
                    del self.layers[name]

    def _remember(self):
        self._modules = {id(module): module for module in self._model.modules()}
        self._watch = _core.ObjectWatch()
        for module in self._modules.values():
            if isinstance(module._modules, dict):  # TorchScript has its own
                self._watch.add_dict(module._modules)

    def stranger(self):
        """The path of a module that has come into the model since this was read, or None."""
        if self._watch.unchanged():
            return None
        for path, module in self._model.named_modules():
            if id(module) not in self._modules:
                return path
        self._remember()  # some have left
        return None

    def _take(self, path, module, layer, holder, above):
        """All of ``module`` is the layer's; the calls may be of modules in it, as in lists."""
        if not _is_called(module):
            holder.modules.append((path, module))
            for name, child in module.named_children():
                self._take(join(path, name), child, layer, holder, above)
        elif self._is_new(module):
            layer.modules += module.named_modules(prefix=path)
            self._gate(module, layer, above)

    def _open(self, path, module, holder, above):
        """Every module that is called and holds no others that are called is a layer."""
        if not self._is_new(module):
            return
        if not _is_called(module):
            holder.modules.append((path, module))
            self._open_children(path, module, holder, above)
            return
        layer = self.layers[path] = Layer(path)
        if _is_whole(module):
            layer.modules += module.named_modules(prefix=path)
            self._gate(module, layer, above)
            return
        layer.modules.append((path, module))
        gate = self._gate(module, layer, above, opened=True)
        self._open_children(path, module, layer, gate)
        is_empty = next(layer.registered(), None) is None
        if is_empty if self._names is None else path not in self._names:  # its children are layers
            del self.layers[path]
            self.opened.append((path, module, gate))
            own = self.layers[""]
            own.modules += layer.modules
            own.gates += layer.gates
            own.gated |= layer.gated

    def _open_children(self, path, module, holder, above):
        for name, child in module.named_children():
            self._open(join(path, name), child, holder, above)

    def _is_new(self, module):
        new = id(module) not in self._seen
        self._seen.add(id(module))
        return new

    def _gate(self, module, layer, above, opened=False):
        # A Sequential that is a layer as a whole runs on the layer's device like any other.
        plain = (
            opened
            and type(module).forward is nn.Sequential.forward
            and "forward" not in vars(module)
            and all(map(_is_called, module.children()))
        )
        gate = Gate(self._calls, above, straight=plain)
        layer.gates.append(gate)
        layer.gated.add(id(module))
        self.gates.append((module, gate))
        return gate

    def follow_layers(self):
        """A module that is no layer computes where its layers are, if that is one device, and not
        on the output device; one that holds tensors in attributes, which are there, does not."""
        at = {}  # paths, of layers and around them: devices
        for name, layer in self.layers.items():
            while name:
                at.setdefault(name, set()).add(layer.device)
                name = name.rpartition(".")[0]
        held = {path for path, _ in self.layers[""].loose()}
        for path, module, gate in self.opened:
            own = any(join(path, name) in held for name in vars(module))
            devices = at.get(path, ())
            follows = len(devices) == 1 and not own
            gate.device = next(iter(devices)) if follows else self.layers[""].device

    def install(self):
        return [handle for module, gate in self.gates for handle in gate.install(module)]


def _is_called(module):
    """TorchScript takes no hooks: to us its parent reads its weights."""
    if isinstance(module, torch.jit.ScriptModule):
        return False
    return type(module).forward is not nn.Module.forward or "forward" in vars(module)


def _is_whole(module):
    """No modules in it have calls of their own: none are there, or it reads their weights."""
    if isinstance(module, nn.MultiheadAttention):
        return True
    if type(module).__name__ == "OptimizedModule":  # torch.compile's: hooks inside would break it
        return True
    inner = (child for child in module.modules() if child is not module)
    return is_parametrized(module) or not any(map(_is_called, inner))
