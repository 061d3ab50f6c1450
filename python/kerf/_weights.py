# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The model's own tensors behind a graph's weights."""

import operator

from kerf._call import find_weight, lookup, module_finder


class Weights:
    """Where each weight of a graph lives in a model, and what stands there now.

    The places are found once; reading them costs a dictionary look-up each, so that a pipeline can
    look on every call: ``load_state_dict(assign=True)`` and plain assignment put other tensors
    there.
    """

    def __init__(self, model, signature, graph):
        self._places = []
        self._seen = []
        for record in graph.weights:
            tensor = find_weight(model, signature, record)
            self._seen.append(tensor)
            self._places.append(_place(model, record["names"], tensor))

    def tensors(self):
        """All of them, in the graph's order."""
        return list(self._seen)

    def changed(self):
        """True when other tensors stand in the model than at the last look; looks again."""
        now = [lookup(mapping, key) for mapping, key in self._places]
        if all(map(operator.is_, now, self._seen)):
            return False
        self._seen = now
        return True


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
