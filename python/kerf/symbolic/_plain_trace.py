# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A trace without any sample: PyTorch's own, with Kerf's leaves, regions and rules for biases.

Nothing is known about the inputs but that they are tensors; code that looks at one is refused.
"""

import contextlib
import operator

import torch
from torch.fx.node import base_types
from torch.fx.proxy import TraceError
from torch.overrides import TorchFunctionMode

from kerf._errors import ExportError
from kerf.symbolic import _bias, _modes
from kerf.symbolic._calls import name_of
from kerf.symbolic._devices import factories
from kerf.symbolic._guards import TrainingGuard, check_argument, check_setting
from kerf.symbolic._modes import unchanged_modes
from kerf.symbolic._patches import active_tracer, ruled_functions, tracing
from kerf.symbolic._places import location, refusal, stack_line
from kerf.symbolic._regions import stand_ins
from kerf.symbolic._trees import tensors_in


class _Proxy(torch.fx.Proxy):
    __class__ = property(lambda self: torch.Tensor)  # what the model's code will find here

    _is_param = False  # nor of a parameter

    def _number(self):
        return self.tracer.number(self)

    __int__ = __float__ = __index__ = __complex__ = __len__ = _number

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tracer = _tracer_of((args, kwargs))
        replaced = tracer.replacement(func, args, kwargs) if tracer else NotImplemented
        if replaced is not NotImplemented:
            return replaced
        return super().__torch_function__(func, types, args, kwargs)


class PlainTracer(torch.fx.Tracer):
    proxy_buffer_attributes = True  # or what the code writes there would be written now

    def __init__(self, registry, regions, split):
        super().__init__()
        self.attributes = {}  # what the nodes refer to, by name
        self.training_read_at = None
        self.registry, self._keep_regions, self.split = registry, regions, split
        self.regions, self.region_options, self._counts = [], {}, [0]
        self._inside, self.refused = set(), None
        self.path = "self"
        self.grad_blocks = _modes.GradBlocks(
            lambda function, args: self.create_node("call_function", function, args, {})
        )

    @property
    def recorder(self):
        return self

    def proxy(self, node):
        return _Proxy(node, self)

    def number(self, proxy):
        return self._noted(self._no_number, proxy)

    @staticmethod
    def _no_number(proxy):
        raise TraceError("the code reads numbers of an input or of what follows from one")

    def _proxy_placeholder(self, name, concrete_args, sig, fn_for_analysis):
        """A value that the trace relies on: the traced module refuses others."""
        given = concrete_args or {}
        parameter = sig.parameters.get(name.lstrip("*"))
        is_left_out = parameter is not None and parameter.default is None
        if name.startswith("*") or not (name in given or is_left_out):
            return super()._proxy_placeholder(name, concrete_args, sig, fn_for_analysis)
        value, default = given.get(name), parameter.default
        is_written = default is None or isinstance(default, base_types)
        defaults = () if default is parameter.empty else (default if is_written else None,)
        passed = self.create_proxy("placeholder", name, defaults, {})
        check = (passed, value, name, name in given)
        self.create_proxy("call_function", check_argument, check, {})
        return value

    def made(self, func, args, kwargs):
        """A call on no input, which FX would carry out once and for all."""
        name = name_of(func)
        if func in factories():
            return self.create_proxy("call_function", func, args, kwargs)
        is_in_place = name.endswith("_") and not name.startswith("__")
        if (is_in_place or name in ("__setitem__", "__set__")) and tensors_in((args, kwargs)):
            raise refusal(
                "the code writes into a tensor that is neither the model's nor made by a call that "
                "the trace has seen",
                "expected a buffer of the model, or a tensor made in forward with a function such "
                "as torch.zeros",
                "register it as a buffer, or make it in forward",
                self.module_path(),
            )
        return func(*args, **kwargs)

    def to_bool(self, proxy):
        return self._noted(super().to_bool, proxy)

    def iter(self, proxy):
        return self._noted(super().iter, proxy)

    def keys(self, proxy):
        return self._noted(super().keys, proxy)

    def _noted(self, function, proxy):
        try:
            return function(proxy)
        except TraceError as error:
            self.refused = self.refused or error  # which the model's code may catch
            raise

    def create_arg(self, item):
        return item.node if issubclass(type(item), torch.fx.Proxy) else super().create_arg(item)

    def create_node(self, *args, **kwargs):
        node = super().create_node(*args, **kwargs)
        node.meta["mod_dir"] = self.path
        line = stack_line()
        if line:
            node.meta["stack_trace"] = line
        if self.regions:
            node.meta["activation_checkpoint"] = list(self.regions)
        return node

    def path_of_module(self, module):
        try:
            return super().path_of_module(module)
        except NameError:
            raise TraceError("it calls a module that the model has not registered") from None

    def is_leaf_module(self, module, name):
        if self.split and _bias.is_split(module):
            return False
        said = self.registry.is_leaf(type(module))
        return super().is_leaf_module(module, name) if said is None else said

    def call_module(self, module, forward, args, kwargs):
        before, self.path = self.path, self.path_of_module(module) or "self"
        try:
            return super().call_module(module, forward, args, kwargs)
        finally:
            self.path = before

    def replacement(self, func, args, kwargs):
        rule = self.registry.find("tracer_rules", func)
        if rule is None and self.split:
            rule = self.registry.find("bias_rules", func) or _bias.RULES.get(func)
        if rule is None or func in self._inside:
            return NotImplemented
        self._inside.add(func)
        try:
            return rule(*args, **kwargs)
        finally:
            self._inside.discard(func)

    def call_function(self, function, original, args, kwargs):
        """A Python function that has a rule: one node. ``original`` is what it does."""
        if function in self._inside or _tracer_of((args, kwargs)) is None:
            return original(*args, **kwargs)
        replaced = self.replacement(function, args, kwargs)
        if replaced is not NotImplemented:
            return replaced
        return self.create_proxy("call_function", function, args, kwargs)

    # What the stand-ins for checkpoints ask for

    @contextlib.contextmanager
    def region(self, **options):
        if not self._keep_regions:
            yield
            return
        self.regions.append(self._counts[-1])
        self.region_options[tuple(self.regions)] = options
        self._counts.append(0)
        try:
            yield
        finally:
            self._counts.pop()
            self._counts[-1] += 1
            self.regions.pop()

    def call_autograd(self, cls, args, kwargs):
        raise refusal(
            f"{cls.__name__} has a backward of its own",
            "expected samples, without which its results are unknown",
            "pass meta_args",
        )

    def note_training(self, module, flag):
        if any(part is module for part in self.root.modules()):
            self.training_read_at = self.training_read_at or location()

    def module_path(self):
        return "" if self.path == "self" else self.path

    def note_setting(self, name, args, answer):
        self.create_node("call_function", check_setting, (name, args, answer, location()), {})

    def enter_autocast(self, context):
        raise refusal("the code switches autocast", "expected samples", "pass meta_args")

    def exit_autocast(self, context):
        pass


class _Calls(TorchFunctionMode):
    """Shows a tracer the calls that proxies do not see: those that switch gradients, and those that
    no input goes into."""

    def __init__(self, tracer):
        super().__init__()
        self._tracer = tracer

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch._C._set_grad_enabled:
            return self._tracer.grad_blocks.switch(func, *args)
        kwargs = kwargs or {}
        if active_tracer() is self._tracer and _tracer_of((args, kwargs)) is None:
            return self._tracer.made(func, args, kwargs)
        return func(*args, **kwargs)


def check_hooks(root):
    """FX calls ``forward`` past the hooks of the root."""
    if isinstance(root, torch.nn.Module) and any(getattr(root, name) for name in _HOOKS):
        raise ExportError(
            f"[symbolic.trace] {type(root).__name__} has hooks, which a trace without samples does "
            "not see; expected a model without, or samples; pass meta_args",
            location="",
            module="",
        )


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def plain_trace(root, concrete, registry, options):
    """A tracer that has followed the code, with its graph and what it refers to."""
    tracer = PlainTracer(registry, **options)
    contexts = (
        unchanged_modes(),
        stand_ins(modules=False),
        ruled_functions(registry),
        tracing(tracer),
        _Calls(tracer),
    )
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        try:
            graph = tracer.trace(root, concrete or None)
            if tracer.refused is not None:
                raise tracer.refused
        except ExportError:  # is a NotImplementedError itself
            raise
        except (TraceError, TypeError, NotImplementedError) as error:
            raise ExportError(
                f"[symbolic.trace] without samples the code cannot be followed: {error}; expected "
                "code that looks at no input; pass meta_args, so that shapes are known",
                location="",
                module="",
            ) from error
    if tracer.training_read_at is not None:
        guard = TrainingGuard(root.training, tracer.training_read_at)
        tracer.attributes["_training_guard"] = guard
        with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
            graph.call_module("_training_guard").meta["mod_dir"] = "self"
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr") and node.target not in tracer.attributes:
            tracer.attributes[node.target] = operator.attrgetter(node.target)(tracer.root)
    return tracer


def _tracer_of(tree):
    found = []

    def note(item):
        found.append(item.tracer)
        return item

    for part in torch.utils._pytree.tree_leaves(tree):
        if type(part) is _Proxy:
            note(part)
    return found[0] if found else None
