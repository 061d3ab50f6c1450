# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What the model's code asks PyTorch about its settings, and what it tells PyTorch, in calls that
no function mode sees.

Questions, such as ``torch.is_grad_enabled()``, are answered, and the traced module checks that the
answer is the same. Seeds, transforms of functions and the like are refused: a graph would lose
them.
"""

import functools
import sys

import torch
import torch._functorch.eager_transforms
import torch._functorch.vmap
import torch.random

from kerf.symbolic._patches import Patch, active_tracer
from kerf.symbolic._places import is_pytorch, refusal

QUESTIONS = ("is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled")
_SEEDS = ("manual_seed", "seed", "set_rng_state")
_TRANSFORMS = (
    (torch._functorch.vmap, "vmap_increment_nesting"),
    (torch._functorch.eager_transforms, "grad_increment_nesting"),
    (torch._functorch.eager_transforms, "jvp_increment_nesting"),
)


def patches():
    made = [Patch(torch, name, functools.partial(_asked, name)) for name in QUESTIONS]
    for holder in (torch, torch.random):
        made += [Patch(holder, name, _seeded) for name in _SEEDS]
    made += [Patch(holder, name, _transformed) for holder, name in _TRANSFORMS]
    made.append(Patch(torch, "cond", _conditional))
    made.append(Patch(torch.Tensor, "set_", _other_memory))
    made.append(Patch(torch.autograd.graph.saved_tensors_hooks, "__enter__", _packed))
    made.append(Patch(torch, "broadcast_shapes", _broadcast))
    made.append(Patch(torch.jit.ScriptFunction, "__call__", _scripted))
    return made


def _stand_in(original, act):
    """``act(tracer, args, kwargs)`` while a trace runs, and the original otherwise."""

    @functools.wraps(original)
    def stand_in(*args, **kwargs):
        tracer = active_tracer()
        if tracer is None:
            return original(*args, **kwargs)
        return act(tracer, args, kwargs)

    return stand_in


def _asked(name, original):
    def act(tracer, args, kwargs):
        answer = original(*args, **kwargs)
        if not is_pytorch(sys._getframe(2)):  # PyTorch's own code asks to put it back
            tracer.note_setting(name, (*args, *kwargs.values()), answer)
        return answer

    return _stand_in(original, act)


def _seeded(original):
    def act(tracer, args, kwargs):
        caller = sys._getframe(2)
        if is_pytorch(caller) and caller.f_globals.get("__name__") != "torch.random":
            return original(*args, **kwargs)
        raise refusal(
            f"the code sets the state of PyTorch's random numbers ({original.__name__}())",
            "expected numbers that are drawn where the caller's are",
            "call torch.manual_seed() before the traced module, or draw with a torch.Generator "
            "that is an attribute of the model",
            tracer.module_path(),
        )

    return _stand_in(original, act)


def _transformed(original):
    def act(tracer, args, kwargs):
        raise refusal(
            "the code transforms a function (torch.func, torch.vmap)",
            "expected calls of functions of PyTorch on tensors",
            "write what it computes with batched functions or torch.autograd.grad(), or make its "
            "module one node with kerf.register_leaf_module",
            tracer.module_path(),
        )

    return _stand_in(original, act)


def _conditional(original):
    def act(tracer, args, kwargs):
        raise refusal(
            "the code calls torch.cond(), whose path depends on data",
            "expected a path that shapes, flags and constants decide",
            "write torch.where(), or make its module one node with kerf.register_leaf_module",
            tracer.module_path(),
        )

    return _stand_in(original, act)


def _other_memory(original):
    """No function mode sees ``Tensor.set_``, which Python's class inherits."""

    def act(tracer, args, kwargs):
        if is_pytorch(sys._getframe(2)):
            return torch._C.TensorBase.set_(*args, **kwargs)
        raise refusal(
            "the code puts other memory into a tensor (set_())",
            "expected tensors to be changed by functions of PyTorch",
            "use copy_(), or go on with the other tensor",
            tracer.module_path(),
        )

    return _stand_in(torch._C.TensorBase.set_, act)


def _packed(original):
    def act(tracer, args, kwargs):
        raise refusal(
            "the code changes what autograd keeps (torch.autograd.graph.saved_tensors_hooks)",
            "expected gradients that follow from the calls of PyTorch: such hooks are no part of a "
            "graph",
            "enter the block around the call of the traced module, or make the module one node "
            "with kerf.register_leaf_module",
            tracer.module_path(),
        )

    return _stand_in(original, act)


def _broadcast(original):
    def act(tracer, shapes, kwargs):
        shapes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
        dims = max(map(len, shapes), default=0)
        padded = [(1,) * (dims - len(s)) + s for s in shapes]
        return torch.Size([_common(sizes) for sizes in zip(*padded, strict=True)])

    return _stand_in(original, act)


def _common(sizes):
    result = 1
    for size in sizes:
        if size == 1:
            continue
        if result != 1 and result != size:
            raise RuntimeError(f"Shape mismatch: sizes {result} and {size} cannot be broadcast")
        result = size
    return result


def _scripted(original):
    """What TorchScript has compiled runs as the Python that it was compiled from."""

    def act(tracer, args, kwargs):
        function, *args = args
        source = getattr(function, "_torchdynamo_inline", None)
        if source is not None:
            return source(*args, **kwargs)
        raise refusal(
            f"the code calls {function.name}, which TorchScript has compiled",
            "expected functions of Python",
            "call the function that it was compiled from, or give it a rule with "
            "@kerf.register_tracer_impl",
            tracer.module_path(),
        )

    return _stand_in(original, act)
