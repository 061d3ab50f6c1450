# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``symbolic_trace``: from a model and samples without data to an FX module that runs."""

import contextlib
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kerf._arguments import checked, found
from kerf._errors import ExportError
from kerf.symbolic._again import check_again
from kerf.symbolic._chance import Chance
from kerf.symbolic._guards import (
    TrainingGuard,
    check_argument,
    check_count,
    check_input,
    check_keys,
    class_name,
)
from kerf.symbolic._modes import unchanged_modes
from kerf.symbolic._module import SymbolicModule
from kerf.symbolic._patches import ruled_functions, tracing
from kerf.symbolic._places import line_of, results_of
from kerf.symbolic._plain_trace import check_hooks, plain_trace
from kerf.symbolic._regions import stand_ins
from kerf.symbolic._registry import REGISTRY, Registry, current_registry
from kerf.symbolic._state import Held, State
from kerf.symbolic._tracer import Tracer
from kerf.symbolic._trees import leaves, tensors_in

_EMPTY = inspect.Parameter.empty
_KINDS = inspect._ParameterKind


@checked("symbolic.trace", registry=REGISTRY)
def symbolic_trace(
    root: torch.nn.Module | Callable[..., Any],
    concrete_args: Mapping[str, Any] | None = None,
    meta_args: Mapping[str, Any] | None = None,
    trace_act_ckpt: bool = False,
    bias_addition_split: bool = False,
    registry: Registry | None = None,
) -> torch.fx.GraphModule:
    """Traces a module or a function to a ``torch.fx.GraphModule`` that computes the same.

    meta_args            name of an argument -> tensor, or lists and dictionaries of tensors; only
                         shapes, dtypes and devices count, so that meta tensors will do
    concrete_args        name -> value that the trace may rely on; the traced module refuses others
    trace_act_ckpt       keeps the regions of ``torch.utils.checkpoint`` in the traced module
    bias_addition_split  products and their biases are nodes of their own
    registry             rules to use instead of the current registry's

    The model runs once, without data. Where sizes decide on its path, the traced module checks that
    they still do; a path that depends on data is refused with ExportError.
    """
    _check(root)
    registry = registry or current_registry()
    arguments = Arguments(root, dict(meta_args or {}), dict(concrete_args or {}))
    options = {"regions": bool(trace_act_ckpt), "split": bool(bias_addition_split)}
    has_samples = bool(meta_args) or not arguments.missing
    if has_samples:
        arguments.check()
    else:
        check_hooks(root)

    def follow(state):
        if has_samples:
            return _run(root, arguments, registry, options, state)
        return plain_trace(root, arguments.concrete, registry, options)

    with torch.inference_mode(False):  # its tensors know no versions
        tracer, state = _trace(root, follow, arguments if has_samples else None)
        return SymbolicModule.made(root, tracer, state)


def _trace(root, follow, arguments=None):
    """What ``follow`` has traced, once it is certain that another call would do the same, and the
    state that it was traced in."""
    state = State(root)
    chance = Chance(root, state.generators())

    def run():
        state.empty_caches()
        return follow(state)

    try:
        tracer = run()
        chance.check(tracer, run)
        check_again(tracer, run, state)
        if arguments is not None and arguments.has_order():
            _guard_order(tracer, arguments, run)
    finally:
        state.restore()
    return tracer, state


def _guard_order(tracer, arguments, run):
    """Has the traced module refuse dictionaries in another order where the code goes by it."""
    arguments.turned = True
    try:
        turned = _written(run().recorder.graph)
    except Exception:
        turned = None
    finally:
        arguments.turned = False
    if turned == _written(tracer.recorder.graph):
        return
    for node in tracer.recorder.graph.nodes:
        if node.target is check_keys:
            node.args = (*node.args, True)


def _written(graph):
    return [(n.name, n.op, str(n.target), str(n.args), str(n.kwargs)) for n in graph.nodes]


def _run(root, arguments, registry, options, state):
    tracer = Tracer(root, registry, _home(root), state, **options)
    recorder = tracer.recorder
    args, kwargs = arguments.write(tracer)
    held = arguments.held(args, kwargs)
    try:
        _call(root, args, kwargs, tracer, registry)
        arguments.check_held(held)
    finally:
        held.restore()
    recorder.finished = True
    _guard_training(root, tracer, arguments)
    recorder.graph.lint()
    return tracer


def _call(root, args, kwargs, tracer, registry):
    recorder = tracer.recorder
    with contextlib.ExitStack() as stack:
        for context in (
            unchanged_modes(),
            torch.enable_grad(),
            stand_ins(),
            ruled_functions(registry),
            tracing(tracer),
            tracer,
        ):
            stack.enter_context(context)
        result = root(*args, **kwargs)
        tracer.check_caught()
        recorder.returns = True
        forward = root.forward if isinstance(root, torch.nn.Module) else root
        with tracing(None), results_of(line_of(getattr(forward, "__func__", forward))):
            recorder.node("output", "output", (recorder.argument(result),))


def _guard_training(root, tracer, arguments):
    if not tracer.training or not isinstance(root, torch.nn.Module):
        return
    recorder = tracer.recorder
    recorder.attributes["_training_guard"] = TrainingGuard(root.training, tracer.read_training_at)
    place = next((n for n in recorder.graph.nodes if n.op != "placeholder"), None)
    with recorder.graph.inserting_before(place):
        recorder.graph.create_node("call_module", "_training_guard").meta["mod_dir"] = "self"


def _home(root):
    """Where tensors of the meta device stand for."""
    if isinstance(root, torch.nn.Module):
        for tensor in (*root.parameters(), *root.buffers()):
            if not tensor.is_meta:
                return tensor.device
    return torch.device("cpu")


def _parameters(function):
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # functions that are not written in Python
        raise TypeError(
            f"[symbolic.trace] root is {found(function)}, which does not say what it takes; "
            "expected a function of Python or a module; write a function that calls it"
        ) from None


class Arguments:
    """What each parameter of the root gets: a sample, a concrete value, or its default."""

    def __init__(self, root, meta, concrete):
        self.meta, self.concrete = meta, concrete
        function = root.forward if isinstance(root, torch.nn.Module) else root
        self.parameters, self._function = _parameters(function), function
        self._has_hooks = isinstance(root, torch.nn.Module) and bool(
            root._forward_pre_hooks or root._forward_hooks
        )
        names = [p.name for p in self.parameters]
        self.rest = next((p.name for p in self.parameters if p.kind is _KINDS.VAR_KEYWORD), None)
        for given, where in ((meta, "meta_args"), (concrete, "concrete_args")):
            for name in given:
                if name not in names and self.rest is None:
                    raise ValueError(
                        f"[symbolic.trace] {where} names {name!r}; forward takes "
                        f"{', '.join(names) or 'nothing'}; use one of these"
                    )
        for name in meta:
            if name in concrete:
                raise ValueError(
                    f"[symbolic.trace] {name!r} is in meta_args and in concrete_args; expected it "
                    "in one of them; leave it out of the other"
                )
        given = {*meta, *concrete}
        variadic = (_KINDS.VAR_KEYWORD, _KINDS.VAR_POSITIONAL)
        self.missing = [
            p.name
            for p in self.parameters
            if p.name not in given and p.default is _EMPTY and p.kind not in variadic
        ]
        self.extra = [name for name in (*meta, *concrete) if name not in names]
        self.turned = False  # whether dictionaries are passed the other way round

    def has_order(self):
        """Whether the model's code could go by the order of a dictionary that it is passed."""
        rest = [*self.meta.get(self.rest, ()), *self.concrete.get(self.rest, ()), *self.extra]
        return len(rest) > 1 or any(map(_has_order, self.meta.values()))

    def check(self):
        if self.missing:
            raise ValueError(
                f"[symbolic.trace] no value for {', '.join(map(repr, self.missing))}; expected one "
                "for each argument without a default; pass tensors with meta_args and plain values "
                "with concrete_args"
            )
        for name, value in self.meta.items():
            if not tensors_in(value):
                raise TypeError(
                    f"[symbolic.trace] meta_args[{name!r}] is {found(value)}; expected a tensor, "
                    "or a list, tuple or dictionary of them; pass plain values with concrete_args"
                )

    def write(self, tracer):
        """Placeholders and checks in the graph; what the model's code is called with."""
        recorder, self._by_place = tracer.recorder, []
        nodes = [(p, self._placeholder(recorder, p)) for p in self.parameters]
        args, kwargs = [], {}
        by_place = any(
            p.kind is _KINDS.POSITIONAL_ONLY
            or (
                p.kind is _KINDS.VAR_POSITIONAL and (p.name in self.meta or p.name in self.concrete)
            )
            for p in self.parameters
        )
        leads = self._has_hooks  # which look at what is passed by place
        for parameter, node in nodes:
            value = self._value(tracer, parameter, node)
            leads = leads and (parameter.name in self.meta or parameter.name in self.concrete)
            if parameter.kind is _KINDS.VAR_POSITIONAL:
                args += value
                self._by_place += [parameter.name] * len(value)
            elif parameter.kind is _KINDS.VAR_KEYWORD:
                kwargs.update(value)
            elif (by_place or leads) and parameter.kind is not _KINDS.KEYWORD_ONLY:
                args.append(value)
                self._by_place.append(parameter.name)
            elif parameter.name in self.meta or parameter.name in self.concrete:
                kwargs[parameter.name] = value  # what nobody gave is left to the model's code
        recorder.end_of_head()
        return args, kwargs

    def held(self, args, kwargs):
        """What lists, dictionaries and objects among the arguments hold before the call."""
        held = Held()
        for number, value in enumerate(args):
            held.hold(value, self._by_place[number])
        for name, value in kwargs.items():
            held.hold(value, name)
        for parameter in self.parameters:
            held.hold(parameter.default, parameter.name)
        return held

    def check_held(self, held):
        """The caller of the model would see what its code changes there; that of a graph not."""
        changed = held.changed()
        if changed is None:
            return
        line = line_of(getattr(self._function, "__func__", self._function))
        raise ExportError(
            f"[symbolic.trace] forward changes what its argument {changed!r} holds"
            f"{f' (forward: {line})' if line else ''}; expected lists, dictionaries and objects "
            "that a call leaves as they are; change a copy, and return it",
            location=line,
            module="",
        )

    def _placeholder(self, recorder, parameter):
        default = () if parameter.default is _EMPTY else (parameter.default,)
        stars = {_KINDS.VAR_POSITIONAL: "*", _KINDS.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if default and not _writable(default[0]):
            default = (None,)
        node = recorder.node("placeholder", stars + parameter.name, default, None, parameter.name)
        node.meta.pop("stack_trace", None)
        return node

    def _value(self, tracer, parameter, node):
        name = parameter.name
        if parameter.kind is _KINDS.VAR_POSITIONAL:
            value = tuple(self.meta.get(name, self.concrete.get(name, ())))
            return self._inputs(tracer, node, value, name)
        if parameter.kind is _KINDS.VAR_KEYWORD:
            value = dict(self.meta.get(name, {})) | dict(self.concrete.get(name, {}))
            value |= {key: (self.meta | self.concrete)[key] for key in self.extra}
            return self._inputs(tracer, node, value, name)
        if name in self.meta:
            return self._inputs(tracer, node, self.meta[name], name)
        value = self.concrete.get(name, parameter.default)
        recorder = tracer.recorder
        expected = recorder.argument(value)
        may_be_none = name in self.concrete or not _writable(parameter.default)
        recorder.node("call_function", check_argument, (node, expected, name, may_be_none))
        node.meta["val"] = value
        return value

    def _inputs(self, tracer, node, tree, name):
        recorder = tracer.recorder
        made, places = {}, {(): node}
        self._check_container(recorder, node, tree, name)
        for path, item in leaves(tree):
            keys = "".join(f"[{key!r}]" for key in path)
            place, inside = node, tree
            for depth, key in enumerate(path):
                inside, way = inside[key], path[: depth + 1]
                if way not in places:
                    places[way] = recorder.node("call_function", operator.getitem, (place, key))
                    name_of_it = name + "".join(f"[{k!r}]" for k in way)
                    self._check_container(recorder, places[way], inside, name_of_it)
                place = places[way]
            if not isinstance(item, torch.Tensor):
                check = (place, recorder.argument(item), name + keys)
                recorder.node("call_function", check_argument, check)
                continue
            tensor = made[path] = tracer.add_input(place, item)
            recorder.describe(place, tensor, tracer.values.find(tensor).device)
            check = (place, tensor.dim(), tensor.dtype, name + keys)
            recorder.node("call_function", check_input, check)
        return _rebuilt(tree, made, self.turned)

    @staticmethod
    def _check_container(recorder, node, item, name):
        kind = class_name(type(item))
        if isinstance(item, dict):
            recorder.node("call_function", check_keys, (node, list(item), name, kind))
        elif isinstance(item, tuple | list):
            recorder.node("call_function", check_count, (node, len(item), name, kind))


def _rebuilt(tree, made, turned, path=()):
    """The containers of an argument with traced tensors; dictionaries the other way round if
    ``turned``."""
    if path in made:
        return made[path]
    if isinstance(tree, dict):
        items = reversed(tree.items()) if turned else tree.items()
        return type(tree)((k, _rebuilt(v, made, turned, (*path, k))) for k, v in items)
    if not isinstance(tree, tuple | list):
        return tree
    items = [_rebuilt(v, made, turned, (*path, k)) for k, v in enumerate(tree)]
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


def _has_order(tree):
    """Whether a dictionary in it has an order."""
    if isinstance(tree, dict):
        return len(tree) > 1 or any(map(_has_order, tree.values()))
    return isinstance(tree, tuple | list) and any(map(_has_order, tree))


def _writable(value):
    """Whether generated source can hold a default."""
    return value is None or isinstance(value, bool | int | float | str | torch.dtype)


def _check(root):
    if isinstance(root, type):
        raise TypeError(
            f"[symbolic.trace] root is the class {root.__qualname__}; expected a module or a "
            "function; make an object of it first"
        )
    tensors = root.named_parameters() if isinstance(root, torch.nn.Module) else ()
    lazy = next((name for name, p in tensors if torch.nn.parameter.is_lazy(p)), None)
    if lazy is not None:
        raise ValueError(
            f"[symbolic.trace] parameter '{lazy}' has no shape yet; expected a model whose lazy "
            "modules have seen an input; call the model once"
        )
    if not callable(root):
        raise TypeError(
            f"[symbolic.trace] root is {found(root)}; expected a module or a function; pass one"
        )
