# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a model's code says about gradients that no graph can hold.

The operators of a graph have the gradients PyTorch gives them. Code that wants others leaves no
operator behind: export runs the forward of a ``torch.autograd.Function`` and forgets its backward,
and hooks vanish. In train mode a trace therefore looks out for such code, and the module around it
runs as Python, where all of this works.
"""

import contextlib
import functools
import inspect
import threading

import torch
from torch.autograd import graph as autograd_graph
from torch.autograd.function import _SingleLevelFunction
from torch.nn.modules import module as torch_module

from kerf._blame import Blame, blame_here, is_called_by_user, location_of
from kerf._errors import ExportError

# Functions that are the backward of an operator, which the graph keeps whole.
_OF_OPERATORS = ("torch._library.", "torch._higher_order_ops.")
# Stands for the hooks of a module, which are found at the module.
_OF_HOOKS = torch.nn.modules._functions.BackwardHookFunction

_MODULE_HOOKS = {
    "_backward_pre_hooks": "register_full_backward_pre_hook",
    "_backward_hooks": "register_full_backward_hook",
}
_REGISTERING = (*_MODULE_HOOKS.values(), "register_backward_hook")
_TENSOR_HOOKS = {
    "_backward_hooks": "register_hook",
    "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook",
}
# By what of torch is called, as modes for functions see it.
_CALLS = {
    torch.Tensor.register_hook: "registers a hook on a tensor (register_hook)",
    torch.Tensor.register_post_accumulate_grad_hook: (
        "registers a hook on a tensor (register_post_accumulate_grad_hook)"
    ),
    torch.Tensor.backward: "computes gradients itself (Tensor.backward)",
    torch.autograd.grad: "computes gradients itself (torch.autograd.grad)",
}
_GRAD_FN = torch.Tensor.grad_fn.__get__


class OwnBackwards:
    """Finds what a model's code says about gradients while it is traced."""

    def __init__(self, model):
        self._model = model
        self._modules = {id(m.__dict__): path for path, m in model.named_modules()}
        self.found = []  # a Blame each, in the order of the last call

    @contextlib.contextmanager
    def watched(self):
        """Around one call of the model, by the thread that traces."""
        self.found = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(_functions_seen(self._see_function))
            hooks = autograd_graph.saved_tensors_hooks
            stack.enter_context(_method_seen(hooks, "__enter__", self._see_saving))
            mode = torch.inference_mode
            stack.enter_context(_method_seen(mode, "__enter__", self._see_inference))
            for name in _REGISTERING:
                stack.enter_context(_method_seen(torch.nn.Module, name, self._see_registering))
            yield

    def handlers(self):
        """By function of torch: what is to be done when it is called."""
        return {**dict.fromkeys(_CALLS, self._see_call), _GRAD_FN: self._see_grad_fn}

    def of_modules(self):
        """A Blame for every hook that was registered on a module."""
        for path, module in self._model.named_modules():
            for hook, how in _hooks(module, _MODULE_HOOKS):
                reason = f"it has the backward hook {hook_name(hook)} ({how})"
                yield Blame(path, location_of(hook), "", reason)

    def _note(self, reason):
        if torch.is_grad_enabled():  # else there is no gradient to be wrong
            self.found.append(blame_here(self._modules, reason))

    def _see_function(self, function):
        if function is _OF_HOOKS or function.__module__.startswith(_OF_OPERATORS):
            return
        self._note(f"it calls the torch.autograd.Function '{function.__qualname__}'")

    def _see_registering(self, name, module):
        self._note(f"it registers a backward hook on a module ({name})")

    def _see_saving(self, name, context):
        if not isinstance(context, autograd_graph.save_on_cpu):  # which changes no gradient
            self._note("it packs what autograd saves (saved_tensors_hooks)")

    def _see_inference(self, name, context):
        # Operators are recorded as if it were not there, and would have gradients.
        if context.mode:
            self._note("it enters torch.inference_mode, where torch.no_grad would be kept")

    def _see_call(self, function, args, kwargs):
        self._note(f"it {_CALLS[function]}")
        return function(*args, **kwargs)

    def _see_grad_fn(self, function, args, kwargs):
        # Hooks on it are seen by nobody. PyTorch's own modules read it for theirs.
        if is_called_by_user():
            self._note("it reads grad_fn, which a graph does not have")
        return function(*args, **kwargs)


@contextlib.contextmanager
def _functions_seen(see):
    """Calls ``see(class)`` at each ``apply`` in this thread.

    ``Function.apply`` itself stays, since code often binds it early (``swish = Swish.apply``): it
    ends in the class below it, which has none of its own.
    """
    thread = threading.get_ident()

    def apply(cls, *args, **kwargs):
        if threading.get_ident() == thread:
            see(cls)
        return super(_SingleLevelFunction, cls).apply(*args, **kwargs)

    with _replaced(_SingleLevelFunction, "apply", classmethod(apply)):
        yield


@contextlib.contextmanager
def _method_seen(owner, name, see):
    """Calls ``see(name, object)`` where a method is called in this thread."""
    thread = threading.get_ident()
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(holder, *args, **kwargs):  # not `self`: that is a module at work, for a Blame
        if threading.get_ident() == thread:
            see(name, holder)
        return original(holder, *args, **kwargs)

    with _replaced(owner, name, method):
        yield


@contextlib.contextmanager
def _replaced(owner, name, stand_in):
    """Puts back what the class itself had, or nothing."""
    had, before = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


def check_hooks(model):
    """Raises ExportError for hooks that belong to no block: those of weights and of all modules."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        for hook, how in _hooks(tensor, _TENSOR_HOOKS):
            raise ExportError(
                f"[trace] weight '{name}' has the hook {hook_name(hook)} ({how}){_at(hook)}; "
                "expected gradients that no hook changes, because a pipeline computes them in "
                "parts; remove the hook, and change the gradient after the step",
                location=location_of(hook),
                module=name.rpartition(".")[0],
            )
    for hook, how in global_backward_hooks():
        raise ExportError(
            f"[trace] all modules have the backward hook {hook_name(hook)} ({how}){_at(hook)}; "
            "expected hooks on single modules; remove it, or register it on the modules that need "
            "it",
            location=location_of(hook),
        )


def global_backward_hooks():
    """``(hook, how it was registered)`` of those that all modules have."""
    for name, how in _MODULE_HOOKS.items():
        for hook in getattr(torch_module, f"_global{name}").values():
            yield hook, how.replace("register_", "register_module_")


def _hooks(holder, names):
    """``(hook, how it was registered)`` of a module or a tensor."""
    for name, how in names.items():
        for hook in (getattr(holder, name, None) or {}).values():
            yield hook, how


def hook_name(hook):
    hook = inspect.unwrap(hook)
    return f"'{getattr(hook, '__qualname__', type(hook).__qualname__)}'"


def _at(hook):
    where = location_of(hook)
    return f" at {where}" if where else ""
