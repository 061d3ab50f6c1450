# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What stands for parts of PyTorch that no function mode sees, while a trace runs.

Modules, functions with a backward of their own, checkpoint regions and autocast. The stand-ins ask
for the trace of their thread at every call and are the originals for everybody else.
"""

import contextlib
import types

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.amp.autocast_mode import autocast
from torch.autograd.function import Function

from kerf.symbolic import _settings
from kerf.symbolic._patches import Patch, active_tracer


def _module_call(original):
    def __call__(self, *args, **kwargs):
        tracer = active_tracer()
        if tracer is None:
            return original(self, *args, **kwargs)
        return tracer.call_module(original, self, args, kwargs)

    return __call__


def _apply_code(original):
    """``Function.apply`` is often kept under another name: its code is exchanged, not its name."""

    class Holder:
        def apply(cls, *args, **kwargs):
            if __class__ is not None:  # the original's one free variable
                from kerf.symbolic._regions import apply_seen

                return apply_seen(cls, args, kwargs)

    return Holder.apply.__code__


def apply_seen(cls, args, kwargs):
    tracer = active_tracer()
    if tracer is None:
        return _original_apply(cls, *args, **kwargs)
    if cls is torch_checkpoint.CheckpointFunction:
        inner, preserve, *rest = args
        with tracer.region(use_reentrant=True, preserve_rng_state=preserve):
            return inner(*rest)
    return tracer.call_autograd(cls, args, kwargs)


_FUNCTION = vars(Function)["apply"].__func__
_original_apply = types.FunctionType(
    _FUNCTION.__code__,
    _FUNCTION.__globals__,
    "apply",
    _FUNCTION.__defaults__,
    _FUNCTION.__closure__,
)


def _around_checkpoint(original):
    def generator(function, preserve_rng_state=True, context_fn=None, *args, **kwargs):
        tracer = active_tracer()
        if tracer is None:
            yield from original(function, preserve_rng_state, context_fn, *args, **kwargs)
            return
        options = {"use_reentrant": False, "preserve_rng_state": preserve_rng_state}
        if context_fn is not None and context_fn is not torch_checkpoint.noop_context_fn:
            options["context_fn"] = context_fn
        with tracer.region(**options):
            yield

    return generator


def _enter_autocast(original):
    def __enter__(self):
        tracer = active_tracer()
        if tracer is not None:
            tracer.enter_autocast(self)
        return original(self)

    return __enter__


def _exit_autocast(original):
    def __exit__(self, *error):
        tracer = active_tracer()
        if tracer is not None and error[:1] == (None,):
            tracer.exit_autocast(self)
        return original(self, *error)

    return __exit__


def _enter_inference(original):
    def __enter__(self):
        tracer = active_tracer()
        return original(self) if tracer is None else tracer.grad_blocks.enter_inference(self)

    return __enter__


def _exit_inference(original):
    def __exit__(self, *error):
        tracer = active_tracer()
        return original(self, *error) if tracer is None else tracer.grad_blocks.exit_inference(self)

    return __exit__


def _training(original):
    """Flags that the model's own code reads decide on its path; those that PyTorch reads do not."""

    def get(module):
        try:
            flag = module.__dict__["training"]
        except KeyError:
            raise AttributeError("training") from None
        tracer = active_tracer()
        if tracer is not None:
            tracer.note_training(module, flag)
        return flag

    def put(module, flag):
        module.__dict__["training"] = flag

    return property(get, put)


@contextlib.contextmanager
def stand_ins(modules=True):
    """All of them, within the block; that for calls of modules where nobody else has one."""
    patches = (
        Patch(_FUNCTION, "__code__", _apply_code),
        Patch(torch_checkpoint, "_checkpoint_without_reentrant_generator", _around_checkpoint),
        Patch(autocast, "__enter__", _enter_autocast),
        Patch(autocast, "__exit__", _exit_autocast),
        Patch(torch.inference_mode, "__enter__", _enter_inference),
        Patch(torch.inference_mode, "__exit__", _exit_inference),
        Patch(torch.nn.Module, "training", _training),
        *_settings.patches(),
    )
    if modules:
        patches += (Patch(torch.nn.Module, "__call__", _module_call),)
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield
