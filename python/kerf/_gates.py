# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The two hooks of a module in a DataFlow: arguments come to it, its result goes to its caller."""

import threading

import torch

from kerf._transfer import PLAIN, Transfer


class Calls:
    """Calls of one module tree that are under way: a stack for each thread."""

    def __init__(self, mover, output_device=None):
        self.mover = mover
        self.flow = None  # weak reference: whose hooks these are; None in a copy of the model
        self.output_device = output_device
        self._local = threading.local()

    @property
    def depth(self):
        """How many calls of the flow this thread is in."""
        return getattr(self._local, "depth", 0)

    @depth.setter
    def depth(self, depth):
        self._local.depth = depth

    @property
    def stack(self):
        """``(gate, transfer of its arguments)``, the innermost last."""
        try:
            return self._local.stack
        except AttributeError:
            self._local.stack = []
            return self._local.stack

    def __reduce__(self):  # a copy of the model has calls of its own
        return Calls, (self.mover, self.output_device)

    def __deepcopy__(self, memo):
        return Calls(self.mover, self.output_device)


class Gate:
    """The hooks of a module: arguments come to its device, its result goes to its caller's.

    The caller is the module that runs, not the one that holds it: a parent may reach into a list or
    pass a layer on. Plain data, so that modules can be copied and pickled with their hooks.
    """

    def __init__(self, calls, parent=None, *, straight=False):
        self.calls = calls
        self.parent = parent
        self.straight = straight  # an nn.Sequential, which computes nothing itself
        self.device = None  # None until there is a flow: everything passes as it is
        self.inference_only = False  # these two only count at the model itself
        self.has_clones = False
        self.writers = ()  # modules inside that have buffers, and no gates themselves
        self.trained = False  # has one of them, or the module itself, been called in training?

    def install(self, module):
        return (
            module.register_forward_pre_hook(self.enter, prepend=True, with_kwargs=True),
            module.register_forward_hook(self.leave, with_kwargs=True, always_call=True),
        )

    def enter(self, module, args, kwargs):
        if self.has_clones:
            _refuse_training(module)
        if module.training:
            self.trained = True
        for writer in self.writers:
            if writer.training:
                self.trained = True
        calls = self.calls
        device = None if self.straight else self.device
        stays = not self.inference_only and (
            device is None or _are_there(calls.mover, (*args, *kwargs.values()), device)
        )
        transfer = None
        if not stays:
            here = None if self.parent is None else self._target()
            transfer = Transfer(calls.mover, device, detach=self.inference_only, here=here)
        calls.stack.append((self, transfer))
        return None if stays else (transfer(args), transfer(kwargs))

    def leave(self, module, args, kwargs, output):
        """Also called when the forward failed; ``output`` is None then."""
        if not self._has_entered():
            return None
        transfer = self._pop()
        device = self._target()
        if transfer is not None:
            way = transfer.returned(device)
            return None if device is None else way(output)
        mover = self.calls.mover
        if device is None or _are_there(mover, (output,), device):
            return None
        return Transfer(mover, device, here=self.device)(output)

    def _has_entered(self):
        """Not where a hook of the user's failed before ours."""
        stack = self.calls.stack
        return bool(stack) and (stack[-1][0] is self or any(gate is self for gate, _ in stack))

    def _pop(self):
        """The transfer of this call. Above it may be calls that an interrupt has ended, since
        PyTorch calls no hooks then."""
        while True:
            gate, transfer = self.calls.stack.pop()
            if gate is self:
                return transfer

    def _target(self):
        """Where the result goes; None: it stays, and the next layer gets it from there."""
        if self.parent is None:
            return self.calls.output_device
        stack = self.calls.stack
        caller = stack[-1][0] if stack else None
        if caller is not None:
            return None if caller.straight else caller.device
        # Called from outside, or by a checkpoint in the backward pass: then in the parent's stead.
        above = self.parent
        while above.straight and above.parent is not None:
            above = above.parent
        return self.calls.output_device if above.parent is None else above.device


def _are_there(mover, values, device):
    """Plain tensors on the device, and nothing that would have to be looked into: most calls."""
    for value in values:
        if type(value) is torch.Tensor:
            if mover.device_of(value) != device:
                return False
        elif type(value) not in PLAIN or (type(value) is torch.device and value != device):
            return False
    return True


def _refuse_training(module):
    if torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()):
        raise RuntimeError(
            "[kerf.dataflow] a call that records gradients, with enable_clone=True: training would "
            "make the copies of a weight differ; expected inference; call it under "
            "torch.no_grad(), make the flow with inference_only=True, or train with "
            "enable_clone=False"
        )


_HOOK_LISTS = (
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks"),
    *("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
)


def _gates_of(module):
    """``(number of the hook, gate)``."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for number, hook in hooks.items():
            gate = getattr(hook, "__self__", None)
            if isinstance(gate, Gate):
                yield number, gate


def hook_ids(module):
    return [number for number, _ in _gates_of(module)]


def flow_of(model):
    """The flow that a module in it belongs to. Hooks of a copy belong to none, and so do those of a
    flow that nobody holds any more."""
    gates = (gate for module in model.modules() for _, gate in _gates_of(module))
    flows = (gate.calls.flow and gate.calls.flow() for gate in gates)
    return next((flow for flow in flows if flow is not None), None)


def without_gates(model):
    """A copy of a hooked model, or one that is hooked no more."""
    for module in model.modules():
        for number in hook_ids(module):
            for name in _HOOK_LISTS:
                getattr(module, name).pop(number, None)
    return model
