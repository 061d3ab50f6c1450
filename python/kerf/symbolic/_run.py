# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an FX module node by node on tensors without data, while C++ writes down what it calls."""

import operator

import torch

from kerf import _torch
from kerf._arguments import found
from kerf._lower import source_of
from kerf.symbolic._devices import factories
from kerf.symbolic._functions import function_record
from kerf.symbolic._guards import is_without_effect
from kerf.symbolic._indices import index_without_data, place_without_data
from kerf.symbolic._modes import unchanged_modes
from kerf.symbolic._module import SymbolicModule
from kerf.symbolic._own_rules import FOLLOWED
from kerf.symbolic._reads import SHAPES
from kerf.symbolic._trees import map_tree, tensors_in, tensors_within, with_gradients
from kerf.symbolic._twin import Twins


class Run:
    """One run of a module. ``graph`` and ``spans`` are there when it has ended.

    results   node -> what it gave, without data
    flops     number of a span -> (forward, backward), by a user's rule
    op_flops  number of a node of the graph -> the same
    """

    def __init__(self, gm, args, kwargs, registry):
        self.gm, self.registry = gm, registry
        self.twins = Twins()
        self.results, self.flops = {}, {}
        self.inputs = bound_arguments(gm, args, kwargs)
        self.recorder = _torch.Recorder(type(gm).__name__, gm.training)
        self.graph = self.spans = self.op_flops = None
        self._result = None

    def run(self):
        check_autocast("symbolic.profile")
        try:
            with without_data():
                state_weights(self.recorder, self.gm, self.twins)
                state_rules(self.recorder, self.registry)
                self._state_inputs()
                for number, node in enumerate(self.gm.graph.nodes):
                    self._run_node(number, node)
        finally:
            self.recorder.abandon()
        finished = self.recorder.finish(tensors_within(self._result))
        self.graph, self.spans, self.op_flops = finished
        return self

    def _state_inputs(self):
        for node, value in self.inputs.items():
            made = map_tree(lambda item: input_twin(self.twins, item), value)
            self.inputs[node] = made
            for number, tensor in enumerate(tensors_in(made)):
                name = node.name if number == 0 else f"{node.name}.{number}"
                self.recorder.add_input(f"kwargs.{node.target}", name, tensor)

    def _run_node(self, number, node):
        results = self.results
        try:
            args, kwargs = map_tree(
                lambda item: results[item] if isinstance(item, torch.fx.Node) else item,
                (tuple(node.args), dict(node.kwargs)),
            )
        except KeyError as error:
            raise RuntimeError(
                f"[symbolic.profile] node '{node.name}' takes '{error.args[0].name}', which comes "
                "after it; expected a graph in the order of its calls; gm.graph.lint() finds others"
            ) from error
        function, as_op = self._function(node)
        weights = _held(function) if node.op == "call_module" else []
        if node.op == "call_module":
            function, as_op = self._module_or_rule(function, args, kwargs)
        inputs = [] if node.op == "placeholder" else tensors_within((args, kwargs))
        self._start(node, inputs, weights, as_op)
        try:
            result = self._call(node, function, args, kwargs)
        except Exception as error:
            self.recorder.abandon()
            result = _as_traced(node)
            if result is None:
                self._explain(node, error)
                raise
            self._check_as_traced(node)
            as_op = operator_of(node.target)
            self._start(node, inputs, weights, as_op)
        if as_op:
            _check_shapes(node, result)
            result = with_gradients(result, (*inputs, *weights))
        results[node] = result
        if node.op == "output":
            self._result = result
        self.recorder.end([] if node.op == "output" else tensors_within(result))
        rule = self._rule("flop_rules", node)
        if rule is not None:
            self.flops[number] = checked_flops(target_name(node), rule(*args, **kwargs))

    def _check_as_traced(self, node):
        """Its shape follows from numbers that the trace knew: for the sizes of the trace alone."""
        for given, result in self.results.items():
            traced = given.meta.get("val")
            both = isinstance(result, torch.Tensor) and isinstance(traced, torch.Tensor)
            if both and result.shape != traced.shape:
                raise ValueError(
                    f"[symbolic.profile] '{given.name}' has shape {tuple(result.shape)} and was "
                    f"traced for {tuple(traced.shape)}, where the shape of '{node.name}' "
                    f"({target_name(node)}) follows from numbers; expected the shapes of the "
                    "trace; trace again for these"
                )

    def _start(self, node, inputs, weights, as_op):
        meta = node.meta
        self.recorder.start(
            node.name,
            node.op,
            target_name(node),
            _scope(self.gm, node),
            "/".join(map(str, meta.get("activation_checkpoint") or ())),
            source_of(meta["stack_trace"]) if meta.get("stack_trace") else "",
            inputs,
            weights,
            as_op,
        )

    def _rule(self, table, node):
        return self.registry.find(table, node.target) if node.op == "call_function" else None

    def _module_or_rule(self, twin, args, kwargs):
        """A module, or the rule for its class where it cannot run without data."""
        rule = self.registry.find("leaf_rules", type(twin))
        if rule is not None:
            try:
                twin(*args, **kwargs)
            except Exception:
                return rule, operator_of(type(twin))
        return twin, ""

    def _function(self, node):
        """What a node calls, and the operator that it is as a whole, where a rule stands for it."""
        if node.op == "call_module":
            return self.twins.module(self.gm.get_submodule(node.target)), ""
        if node.target is operator.getitem and node.meta.get("mask_counts"):
            self._check_as_traced(node)
            counts = node.meta["mask_counts"]
            return lambda x, index: x[index_without_data(index, counts)], "aten.index.Tensor"
        rule = self._rule("shape_rules", node)
        if rule is None:
            return node.target, ""
        return rule, "" if rule is FOLLOWED.get(node.target) else operator_of(node.target)

    def _call(self, node, function, args, kwargs):
        if node.op == "placeholder":
            return self.inputs[node]
        if node.op == "get_attr":
            return self.twins.value(operator.attrgetter(node.target)(self.gm))
        if node.op == "output":
            return args[0]
        if is_without_effect(node, args):
            return None
        if node.op == "call_method":
            args, kwargs = on_meta(function, function, args, kwargs)
            return getattr(args[0], function)(*args[1:], **kwargs)
        if node.op == "call_function":
            args, kwargs = on_meta(function, getattr(function, "__name__", ""), args, kwargs)
        if function is operator.getitem and isinstance(args[0], torch.Tensor):
            args = args[0], index_without_data(args[1])
        if function is operator.setitem and isinstance(args[0], torch.Tensor):
            args = args[0], place_without_data(args[1]), args[2]
        return function(*args, **kwargs)

    def _explain(self, node, error):
        """Names the node; and the argument, where one is no tensor and should be."""
        for given in node.all_input_nodes:
            value = self.results.get(given)
            if given.op != "placeholder" or tensors_in(value) or given.meta.get("val") is value:
                continue
            raise TypeError(
                f"[symbolic.profile] argument '{given.target}' is {found(value)}, and node "
                f"'{node.name}' cannot take it ({_first_line(error)}); expected a tensor; pass one "
                "of the shape to be profiled, such as torch.empty(..., device='meta')"
            ) from error
        register = "kerf.symbolic.register_leaf_module_impl"
        if node.op != "call_module":
            register = "kerf.register_shape_impl"
        error.add_note(
            f"[symbolic.profile] node '{node.name}' ({node.op} {target_name(node)}) failed on "
            f"tensors without data; give it a rule with @{register} if that is due to the missing "
            "data"
        )


def check_autocast(where):
    """Tensors without data are on no device that autocast knows: their dtypes would be wrong."""
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            raise NotImplementedError(
                f"[{where}] autocast is on for {device}; expected dtypes that follow from tensors; "
                "leave the block, and cast the model with .to() to profile it in another precision"
            )


class without_data:
    """Within the block tensors are made without data, and gradients are recorded."""

    def __enter__(self):
        self._contexts = (
            unchanged_modes(),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.device("meta"),
        )
        for context in self._contexts:
            context.__enter__()

    def __exit__(self, *error):
        for context in reversed(self._contexts):
            context.__exit__(*error)


def state_weights(recorder, model, twins):
    """Tells the recorder all parameters and buffers of a model, with all their names."""
    found = {}  # id -> [names, kind, tensor]
    parts = {"": model}
    for name, part in model.unregistered().items() if isinstance(model, SymbolicModule) else ():
        if isinstance(part, torch.nn.Module):
            parts[name] = part
        else:
            found.setdefault(id(part), ([], "parameter", part))[0].append(name)
    for prefix, part in parts.items():
        for name, tensor in part.named_parameters(prefix, remove_duplicate=False):
            found.setdefault(id(tensor), ([], "parameter", tensor))[0].append(name)
    for path, module in (
        pair for p, part in parts.items() for pair in part.named_modules(prefix=p)
    ):
        for key, tensor in module._buffers.items():
            if tensor is None:
                continue
            hidden = key in module._non_persistent_buffers_set
            kind = "non_persistent_buffer" if hidden else "buffer"
            name = f"{path}.{key}" if path else key
            found.setdefault(id(tensor), ([], kind, tensor))[0].append(name)
    for names, kind, tensor in found.values():
        recorder.add_weight(names, kind, twins.tensor(tensor))


def state_rules(recorder, registry):
    """Tells the recorder the rules for operators, which hold wherever one is called, and how to
    read functions with a backward of their own."""
    recorder.set_function_reader(function_record)
    for function in registry.functions():
        rule = registry.find("flop_rules", function)
        if rule is None:
            continue
        overloads = [function] if isinstance(function, torch._ops.OpOverload) else []
        if isinstance(function, torch._ops.OpOverloadPacket):
            overloads = [getattr(function, name) for name in function.overloads()]
        for overload in overloads:
            recorder.set_rule(str(overload), _op_rule(str(function), rule))


def _op_rule(name, rule):
    return lambda *args, **kwargs: checked_flops(name, rule(*args, **kwargs))


def input_twin(twins, item):
    """An input without data. One with a gradient is no leaf, so that it may be written in place."""
    if not isinstance(item, torch.Tensor):
        return item
    twin = twins.tensor(item)
    if not twin.requires_grad:
        return twin
    with torch.enable_grad():
        return twin.clone()


def bound_arguments(gm, args, kwargs):
    """Placeholder -> what it is given. Missing ones take their default."""
    kwargs = dict(kwargs)
    places = [node for node in gm.graph.nodes if node.op == "placeholder"]
    names = [str(node.target) for node in places]
    given = list(args)
    bound = {}
    for node, name in zip(places, names, strict=True):
        if name.startswith("**"):
            bound[node], kwargs = kwargs, {}
        elif name.startswith("*"):
            bound[node], given = tuple(given), []
        elif given:
            bound[node] = given.pop(0)
        elif name in kwargs:
            bound[node] = kwargs.pop(name)
        elif node.args:
            bound[node] = node.args[0]
        else:
            raise TypeError(
                f"[symbolic.profile] no value for '{name}'; forward takes {', '.join(names)}; pass "
                "one for each, in this order or by name (kwargs=)"
            )
        if isinstance(node.meta.get("val"), torch.Tensor):
            _check_tensor(name, bound[node])
    if given or kwargs:
        extra = f"{len(args)} arguments" if given else f"'{next(iter(kwargs))}'"
        raise TypeError(
            f"[symbolic.profile] was given {extra}; forward takes "
            f"{', '.join(names) or 'nothing'}; leave out the rest"
        )
    return bound


def _check_tensor(name, value):
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"[symbolic.profile] argument '{name}' is {found(value)}; expected a tensor, as in the "
            "trace; pass one of the shape to be profiled, such as torch.empty(..., device='meta')"
        )


def on_meta(function, name, args, kwargs):
    """The arguments of a call with the meta device wherever they name one."""
    if name in ("cpu", "cuda"):
        return args[:1], {}
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": "meta"}
    elif name == "to":
        args = (args[0], *("meta" if _is_device(item) else item for item in args[1:]))
    elif function in factories():
        kwargs = {**kwargs, "device": "meta"}
    return args, kwargs


def _is_device(item):
    return isinstance(item, torch.device | str)


def operator_of(function):
    """An operator's name for a function: torch's own go by PyTorch's, which formulas know."""
    if isinstance(function, str):  # a method
        return f"aten.{function.strip('_')}.default"
    if isinstance(function, torch._ops.OpOverload):
        return str(function)
    if isinstance(function, torch._ops.OpOverloadPacket):
        return f"{function}.default"
    name = getattr(function, "__name__", type(function).__name__)
    module = getattr(function, "__module__", None) or ""
    if module.partition(".")[0] in ("torch", "_operator") and hasattr(torch.ops.aten, name):
        return f"aten.{name}.default"
    return "".join(c if c.isalnum() or c in "._" else "_" for c in f"{module}.{name}")


def target_name(node):
    """What a node calls, as users write it."""
    if isinstance(node.target, str):
        return node.target
    if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(node.target)
    name = getattr(node.target, "__qualname__", None) or getattr(node.target, "__name__", "")
    module = getattr(node.target, "__module__", None) or ""
    return f"{module}.{name}".strip(".") or str(node.target)


def _scope(gm, node):
    """Path and class of the module that a node belongs to."""
    if node.op == "call_module":
        return node.target, type(gm.get_submodule(node.target)).__name__
    stack = node.meta.get("nn_module_stack")
    if not stack:
        path = node.meta.get("mod_dir") or ""
        return ("", "") if path == "self" else (path, "")
    path, cls = list(stack.values())[-1]
    return path, cls if isinstance(cls, str) else cls.__name__


def _held(module):
    """All parameters and buffers below a module."""
    found = [t for t in module._parameters.values() if t is not None]
    found += [t for t in module._buffers.values() if t is not None]
    for child in module._modules.values():
        if child is not None:
            found += _held(child)
    return found


def _as_traced(node):
    """What a call gave whose shape depends on numbers that the trace knew and checks, as indices of
    a constant; None for any other call."""
    name = getattr(node.target, "__name__", node.target)
    if node.op not in ("call_function", "call_method") or name not in SHAPES:
        return None
    known = node.meta.get("val")
    if not tensors_in(known):
        return None
    return map_tree(lambda t: torch.empty_like(t) if isinstance(t, torch.Tensor) else t, known)


def _check_shapes(node, result):
    if not tensors_in(result):
        raise TypeError(
            f"[symbolic.profile] the shape rule of {target_name(node)} returned {found(result)}; "
            "expected tensors with the shapes and dtypes of the results; return "
            "torch.empty(..., device='meta')"
        )


def checked_flops(name, pair):
    """What a rule returned, as two numbers."""
    fits = isinstance(pair, tuple | list) and len(pair) == 2
    if not fits or not all(isinstance(n, int | float) and not isinstance(n, bool) for n in pair):
        raise TypeError(
            f"[symbolic.profile] the flop rule of {name} returned {found(pair)}; expected two "
            "numbers, (forward, backward); return both, 0 where there is none"
        )
    if not all(0 <= n < 2.0**1000 for n in pair):
        raise ValueError(
            f"[symbolic.profile] the flop rule of {name} returned {found(pair)}; expected two "
            "numbers from 0 on, (forward, backward)"
        )
    return float(pair[0]), float(pair[1])


def _first_line(error):
    return str(error).partition("\n")[0] or type(error).__name__
