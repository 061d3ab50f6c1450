# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Shapes and devices of all nodes of an FX module, without data and without the devices.

Weights and inputs may stand for tensors on any devices (``MetaTensor``): a mesh that this machine
does not have. Tensors on devices that do not go together are refused at their node.
"""

import torch
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from kerf._arguments import found
from kerf.symbolic._guards import is_without_effect
from kerf.symbolic._meta import MetaTensor, _device_of
from kerf.symbolic._registry import current_registry
from kerf.symbolic._trees import map_tree, tensors_in
from kerf.symbolic._twin import Twins


class sim_env(torch.autograd.graph.saved_tensors_hooks):
    """Within the block: notes what autograd keeps for backward.

    ``ctx`` maps storages to the tensors saved, all but the parameters and buffers of ``module``.
    """

    def __init__(self, module=None):
        if module is not None and not isinstance(module, torch.nn.Module):
            raise TypeError(
                f"[symbolic.sim_env] module is {found(module)}; expected the module whose weights "
                "are left out; pass it"
            )
        self.ctx = {}
        own = [*module.parameters(), *module.buffers()] if module is not None else []
        self._own = {_memory(tensor) for tensor in own}
        super().__init__(self._pack, lambda tensor: tensor)

    def __enter__(self):
        super().__enter__()
        return self

    def _pack(self, tensor):
        key = _memory(tensor)
        if key not in self._own:
            self.ctx[key] = tensor
        return tensor


class ShapeProp(torch.fx.Interpreter):
    """Runs a module node by node without data. Afterwards every node has ``meta["val"]``,
    ``meta["tensor_meta"]`` and ``meta["device"]``; ``ctx`` is what autograd would keep.

    Functions registered with ``register_shape_impl`` stand for their targets.
    """

    def __init__(self, gm, garbage_collect_values=True, registry=None):
        if not isinstance(gm, torch.fx.GraphModule):
            raise TypeError(
                f"[symbolic.ShapeProp] gm is {found(gm)}; expected a torch.fx.GraphModule; trace a "
                "model with kerf.symbolic_trace()"
            )
        super().__init__(gm, garbage_collect_values)
        self.extra_traceback = False  # run_node() says where
        self.ctx = {}
        self._registry = registry or current_registry()
        self._twins = _MetaTwins()

    def propagate(self, *inputs, device=None):
        """The result for these inputs, taken to be on ``device`` or where they are."""
        self._check(inputs)
        made = map_tree(lambda item: _without_data(item, device), inputs)
        twin = self._twins.module(self.module)
        environment = sim_env(twin)
        with environment, torch.enable_grad():
            result = self.run(*made)
        self.ctx = environment.ctx
        return result

    def _check(self, inputs):
        taken = [n for n in self.module.graph.nodes if n.op == "placeholder"]
        least = sum(not n.args and not n.target.startswith("*") for n in taken)
        most = len(inputs) if any(n.target.startswith("*") for n in taken) else len(taken)
        if not least <= len(inputs) <= most:
            names = ", ".join(n.target for n in taken) or "none"
            raise TypeError(
                f"[symbolic.ShapeProp] propagate() has {len(inputs)} inputs; the module takes "
                f"{names}; pass them in this order"
            )

    def run_node(self, node):
        args, _ = self.fetch_args_kwargs_from_env(node)
        try:
            result = None if is_without_effect(node, args) else super().run_node(node)
        except Exception as error:
            error.add_note(f"[symbolic.ShapeProp] at node '{node.name}' ({node.format_node()})")
            raise
        tensors = tensors_in(result)
        node.meta["val"] = result
        if isinstance(result, torch.Tensor):
            node.meta["tensor_meta"] = _described(result)
        elif tensors:
            node.meta["tensor_meta"] = map_tree(_described, result)
        if tensors:
            node.meta["device"] = _device_of(tensors[0])
        return result

    def call_function(self, target, args, kwargs):
        rule = self._registry.find("shape_rules", target)
        if rule is None:
            return super().call_function(target, args, kwargs)
        result = rule(*args, **kwargs)
        if not tensors_in(result):
            raise TypeError(
                f"[symbolic.shape_prop] the shape rule of {target.__name__} returned "
                f"{found(result)}; expected tensors with the shapes and dtypes of the results; "
                "return torch.empty(..., device='meta')"
            )
        tensors = tensors_in((args, kwargs))
        place = _device_of(tensors[0]) if tensors else None
        return map_tree(lambda item: _without_data(item, place), result)

    def call_module(self, target, args, kwargs):
        return self._twins.module(self.fetch_attr(target))(*args, **kwargs)

    def get_attr(self, target, args, kwargs):
        return self._twins.value(self.fetch_attr(target))


class _MetaTwins(Twins):
    """Twins that say on which device they are."""

    def _make_tensor(self, tensor):
        made = MetaTensor(super()._make_tensor(tensor), _device_of(tensor))
        if isinstance(tensor, torch.nn.Parameter):
            made._is_param = True
        return made


def shape_prop_pass(gm, *inputs):
    """Shapes of all nodes; the module itself is returned."""
    ShapeProp(gm).propagate(*inputs)
    return gm


def _described(item):
    return _extract_tensor_metadata(item) if isinstance(item, torch.Tensor) else None


def _without_data(item, device):
    return MetaTensor(item, device) if isinstance(item, torch.Tensor) else item


def _memory(tensor):
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.untyped_storage()._cdata
