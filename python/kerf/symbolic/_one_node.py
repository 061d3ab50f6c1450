# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Calls that become one node as a whole: of modules, of Python functions that have a rule, and of
functions with a backward of their own."""

import torch

from kerf._arguments import found
from kerf.symbolic import _bias, _modes
from kerf.symbolic._calls import first_line, full_name
from kerf.symbolic._devices import result_device
from kerf.symbolic._meta import MetaTensorMode
from kerf.symbolic._patches import tracing
from kerf.symbolic._places import location, refusal
from kerf.symbolic._trees import tensors_in, with_gradients


def apply_function(cls, *args, **kwargs):
    """Calls a function that has a backward of its own."""
    return cls.apply(*args, **kwargs)


class _Composite(Exception):
    """A module that cannot run without data, and whose parts may be followed."""


class OneNodes:
    """The part of a Tracer that decides which calls these are, and writes them down."""

    def is_leaf(self, module):
        if self._split and _bias.is_split(module):
            return False
        said = self.registry.is_leaf(type(module))
        if said is not None:
            return said
        own = type(module).__module__.startswith(("torch.nn", "torch.ao.nn"))
        return own and not isinstance(module, torch.nn.Sequential)

    def call_module(self, original, module, args, kwargs):
        if type(module).__name__ == "OptimizedModule" and "_orig_mod" in module._modules:
            module = module._orig_mod  # torch.compile: the same in other code
        name = self.recorder.name_of(module)
        if name != "" and self._is_one_node(module, name):
            try:
                with tracing(None):
                    return self._call_leaf(module, name, args, kwargs)
            except _Composite:
                pass  # its parts may be followed where it cannot run as a whole
            except Exception as error:
                self._note_failure(type(module).__name__, error)
                raise
        self._check_followed(module, name)
        recorder = self.recorder
        before = recorder.path, recorder.stack
        if name:
            recorder.path = name
            recorder.stack = {**before[1], name: (name, type(module))}
        try:
            return original(module, *args, **kwargs)
        finally:
            recorder.path, recorder.stack = before

    def _is_one_node(self, module, name):
        """A module without weights that forward has made is followed: train() and eval() of the
        model do not reach it."""
        said = self.registry.is_leaf(type(module))
        if said is None and name is None and not any(True for _ in _weights(module)):
            return False
        is_one = _has_backward_hooks(module) or self.is_leaf(module)
        changed = self._state.set_on(module) if is_one else None
        if changed and (said or _has_backward_hooks(module)):
            raise refusal(
                f"the code sets '{changed}' of {type(module).__name__}, which is one node",
                "expected modules of one node to stay as they are: the traced module calls them",
                "set it before the trace, or trace into it with kerf.register_non_leaf_module",
                name or "",
            )
        return is_one and not changed

    def _check_followed(self, module, name):
        if isinstance(module, torch.jit.ScriptModule):
            raise refusal(
                "the model has a module that TorchScript has compiled",
                "expected modules whose forward is Python",
                "trace the module that it was made of, or give its class a rule with "
                "@kerf.symbolic.register_leaf_module_impl",
                name or "",
            )
        if _has_backward_hooks(module):
            raise refusal(
                f"the model's {type(module).__name__} has hooks of its backward",
                "expected hooks of modules inside of it, which stay one node",
                "trace it without hooks, and register them with the traced module",
                name or "",
            )

    def _call_leaf(self, module, name, args, kwargs):
        rule = self.registry.find("leaf_rules", type(module))
        device = self._leaf_device(module, args, kwargs)
        if rule is not None:
            result = self._apart(rule, args, kwargs)
            if not tensors_in(result):
                raise TypeError(
                    f"[symbolic.trace] the rule of leaf module {type(module).__name__} returned "
                    f"{found(result)}; expected tensors with the shapes and dtypes of the results; "
                    "return torch.empty(..., device='meta')"
                )
            result = self._with_gradients(result, (args, list(module.parameters())), kwargs)
        else:
            twin = self._twins.module(module)
            versions = self.values.versions(args, kwargs)
            buffers = [(own, own._version) for own in twin.buffers()]
            try:
                result = self._apart(twin, args, kwargs)
            except Exception as error:
                if self._may_be_followed(module, error):
                    raise _Composite from error
                raise self._leaf_explained(module, name, error) from error
            if not self.values.note_writes(versions, all_known=False):
                result = self._apart_from((args, kwargs), result)
            for buffer, (own, version) in zip(module.buffers(), buffers, strict=True):
                if own._version != version:
                    self.values.forget(buffer)
        if name is None:
            self._check_made(module)
            name = self.recorder.fresh(module, "_module")
        self.recorder.attributes[name] = module
        node_args, node_kwargs = self.recorder.argument((args, kwargs))
        before = self.recorder.path, self.recorder.stack
        self.recorder.path = name
        self.recorder.stack = {**before[1], name: (name, type(module))}
        node = self.recorder.node("call_module", name, node_args, node_kwargs)
        self.recorder.path, self.recorder.stack = before
        self._add_results(node, result, device, None, False)
        return result

    def _check_made(self, module):
        """A copy that forward has made of a layer has weights that only the trace has."""
        if any(weight.is_meta for weight in _weights(module)) and module not in self._state:
            raise refusal(
                f"the code makes a {type(module).__name__} with weights of its own",
                "expected layers that outlive the call",
                "make it an attribute of the model, or call a function such as F.linear()",
                self.recorder.path,
            )

    def _with_gradients(self, result, args, kwargs):
        return with_gradients(result, tensors_in(self._untraced((args, kwargs))))

    def _leaf_device(self, module, args, kwargs):
        tensors = tensors_in((args, kwargs)) or list(module.parameters())[:1]
        return self.values.device(tensors[0]) if tensors else torch.device("cpu")

    def _apart(self, function, args, kwargs):
        """Calls a function on shadows, unseen by the trace; what it makes has no data either."""
        args, kwargs = self._untraced((args, kwargs))
        with tracing(None), _modes.unchanged_modes(), MetaTensorMode():
            return function(*args, **kwargs)

    def _may_be_followed(self, module, error):
        """Whether a module of torch.nn that cannot run without data has parts that may, or is no
        more than a function, which may have a rule."""
        said = self.registry.is_leaf(type(module))
        return (
            said is None
            and not _has_backward_hooks(module)
            and _is_for_want_of_data(error)
            and (any(True for _ in module.children()) or not any(True for _ in _weights(module)))
        )

    def _leaf_explained(self, module, name, error):
        if not _is_for_want_of_data(error):
            error.add_note(
                f"[symbolic.trace] while module '{name}' ({type(module).__name__}) ran on tensors "
                f"without data, at {location()}"
            )
            return error
        return refusal(
            f"{type(module).__name__} cannot be computed without data ({first_line(error)})",
            "expected a module that runs on the meta device, or a rule",
            "give it a rule with "
            f"@kerf.symbolic.register_leaf_module_impl({type(module).__name__})",
            name or "",
        )

    def call_function(self, function, original, args, kwargs):
        """A Python function that has a rule: one node. ``original`` is what it does."""
        if function in self._inside or not (
            tensors_in((args, kwargs)) or self.registry.find("tracer_rules", function)
        ):
            return original(*args, **kwargs)
        replaced = self._replacement(function, args, kwargs)
        if replaced is not NotImplemented:
            return replaced
        with tracing(None):
            return self._call_known(function, args, kwargs)

    def _call_known(self, function, args, kwargs):
        rule = self.registry.find("shape_rules", function)
        result = self._apart(rule or function, args, kwargs)
        if rule is not None and not tensors_in(result):
            raise TypeError(
                f"[symbolic.trace] the shape rule of {full_name(function)} returned "
                f"{found(result)}; expected tensors with the shapes and dtypes of the results; "
                "return torch.empty(..., device='meta')"
            )
        if rule is not None:
            result = self._with_gradients(result, args, kwargs)
        return self._one_node(function, args, kwargs, result, args, kwargs)

    def call_autograd(self, cls, args, kwargs):
        """A function with a backward of its own: one node, so that the backward stays."""
        with tracing(None):
            versions = self.values.versions(args, kwargs)
            try:
                result = self._apart(cls.apply, args, kwargs)
            except Exception as error:
                error = self._autograd_explained(cls, error)
                self._note_failure(cls.__name__, error)
                raise error from error.__cause__
            self.values.note_writes(versions, all_known=False)
            return self._one_node(apply_function, (cls, *args), kwargs, result, args, kwargs)

    def _autograd_explained(self, cls, error):
        if not _is_for_want_of_data(error):
            error.add_note(f"[symbolic.trace] while tracing {cls.__name__} at {location()}")
            return error
        refused = refusal(
            f"forward of {cls.__name__} cannot be computed without data ({first_line(error)})",
            "expected a function whose forward runs on the meta device",
            "compute on with tensors in it, or make the module that calls it one node with "
            "@kerf.symbolic.register_leaf_module_impl",
            self.recorder.path,
        )
        refused.__cause__ = error
        return refused

    def _one_node(self, target, node_args, node_kwargs, result, args, kwargs):
        device = result_device("to", tensors_in((args, kwargs))[:1], {}, self.values.device)
        node_args, node_kwargs = self.recorder.argument((node_args, node_kwargs))
        node = self.recorder.node("call_function", target, node_args, node_kwargs)
        self._add_results(node, result, device, None, False)
        return result


def _weights(module):
    yield from module.parameters()
    yield from module.buffers()


def _has_backward_hooks(module):
    return bool(module._backward_hooks or module._backward_pre_hooks)


def _is_for_want_of_data(error):
    text = str(error).lower()
    return "meta" in text or "data-dependent" in text
