# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The model's own tensors behind a graph's weights."""

from kerf import _core
from kerf._call import find_weight, lookup, module_finder
from kerf._watch import add_entries


class Weights:
    """Where each weight of a graph lives in a model, and what stands there now.

    The places are found once, and a pipeline looks at them on every call:
    ``load_state_dict(assign=True)`` and plain assignment put other tensors there.
    """

    def __init__(self, model, signature, graph):
        self._places = []
        self._seen = []
        for record in graph.weights:
            tensor = find_weight(model, signature, record)
            self._seen.append(tensor)
            self._places.append(_place(model, record["names"], tensor))
        self._remember()

    def tensors(self):
        """All of them, in the graph's order."""
        return list(self._seen)

    def unchanged(self):
        """Do the tensors that were seen last still stand in the model?"""
        return self._watch.unchanged() and all(m[k] is t for m, k, t in self._others)

    def look(self):
        """What stands in the model now; ``keep`` it once it is in use."""
        return [lookup(mapping, key) for mapping, key in self._places]

    def keep(self, tensors):
        self._seen = tensors
        self._remember()

    def _remember(self):
        """In C++: a model of 700 weights that are in no cache takes Python 0.3 ms to look at."""
        self._watch = _core.ObjectWatch()
        self._others = []  # mappings that are no dictionaries: a torch.jit module's
        add_entries(self._watch, [p for p in self._places if isinstance(p[0], dict)])
        for (mapping, key), tensor in zip(self._places, self._seen, strict=True):
            if not isinstance(mapping, dict):
                self._others.append((mapping, key, tensor))


def _place(model, names, tensor):
    """The dictionary and key that hold the tensor; a constant of the graph holds itself."""
    find = module_finder(model)
    for name in names:
        owner, _, attribute = name.rpartition(".")
        try:
            module = find(owner)
        except ValueError:
            continue
        for mapping in (module._parameters, module._buffers, module.__dict__):
            if lookup(mapping, attribute) is tensor:
                return mapping, attribute
    return {"": tensor}, ""


def move_weights(model, graph, plan, weights):
    """Moves weights that accelerator stages use to their device, in place, as ``model.to`` would.

    Returns a sentence for each device that says what was moved; stages on another device get copies
    that are kept up to date.
    """
    targets = plan_devices(graph, plan)
    moved = {}
    for tensor, target in zip(weights.tensors(), targets, strict=True):
        if target is None or str(tensor.device) == target:
            continue
        size = tensor.numel() * tensor.element_size()
        tensor.data = tensor.data.to(target)
        count, total = moved.get(target, (0, 0))
        moved[target] = (count + 1, total + size)
    return [
        f"moved {count} weights ({total / 2**20:.1f} MiB) to {target}"
        for target, (count, total) in moved.items()
    ]


def plan_devices(graph, plan):
    """For each weight the accelerator of the first stage that uses it; None for CPU stages."""
    stage_device = {}
    for stage in plan.stages:
        device = torch_device(plan.cluster, stage.device)
        for node in stage.nodes:
            stage_device[node] = device
    wanted = {}
    for node in graph.nodes:
        device = stage_device[node["name"]]
        for name in node["inputs"]:
            wanted.setdefault(name, device)
    found = [wanted.get(record["name"]) for record in graph.weights]
    return [None if device == "cpu" else device for device in found]


def device_types(plan):
    """The types of device that a plan's stages run on, as PyTorch names them."""
    names = (torch_device(plan.cluster, stage.device) for stage in plan.stages)
    return {name.split(":")[0] for name in names}


def torch_device(cluster, name):
    """The name PyTorch has for a device of a plan: "cuda:0" for "cuda:0#1", "cpu" for "cpu:1"."""
    return "cpu" if name.split(":")[0] == "cpu" else name.split("#")[0]
