# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The traced module: an FX module with the model's weights, that can be pickled with its checks."""

import copy

import torch
from torch.fx import GraphModule

from kerf.symbolic._codegen import ActivationCheckpointCodeGen, SourceCodeGen, has_words
from kerf.symbolic._folder import write_folder
from kerf.symbolic._guards import check_input
from kerf.symbolic._reads import SHAPES
from kerf.symbolic._source import Source

_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


class SymbolicModule(GraphModule):
    """A ``torch.fx.GraphModule``. Its parameters are the model's own."""

    _source = None  # the model, where it is checked at each call

    @classmethod
    def made(cls, root, tracer, state):
        recorder = tracer.recorder
        gm = cls.from_graph(root, recorder.graph, tracer.region_options, recorder.attributes)
        if isinstance(root, torch.nn.Module):
            held = recorder.attributes.values()
            shared = [item for item in held if isinstance(item, torch.nn.Module)]
            gm._source = Source(root, state, shared)
        return gm

    def __call__(self, *args, **kwargs):
        if self._source is not None and not torch.compiler.is_compiling():
            self._source.check()
        return super().__call__(*args, **kwargs)

    @classmethod
    def from_graph(cls, root, graph, region_options, attributes=None):
        is_module = isinstance(root, torch.nn.Module)
        if region_options:
            graph.set_codegen(ActivationCheckpointCodeGen(region_options))
        elif has_words(graph.nodes):
            graph.set_codegen(SourceCodeGen())
        holder = torch.nn.Module() if attributes is not None else root
        for name, item in (attributes or {}).items():
            _put(holder, name, item)
        gm = cls(holder, graph, type(root).__name__ if is_module else _function_name(root))
        if is_module:
            _complete(gm, root)
            gm._leave_out(root, attributes or ())
        own = set(map(id, root.buffers())) if is_module else ()
        for name, item in (attributes or {}).items():
            if isinstance(item, torch.Tensor) and id(item) not in own:
                *path, last = name.split(".")
                place = _find(gm, path)
                place._non_persistent_buffers_set |= {last} & set(place._buffers)
        gm.training = root.training if is_module else True
        return gm

    _unregistered = ()

    def _leave_out(self, root, attributes):
        """Parts that the model has not registered are not in its state dict, nor in train()."""
        made = [name for name in attributes if name.startswith(("_module", "_param_constant"))]
        for table in (self._modules, self._parameters):
            for name in made:
                if name in table and not hasattr(root, name):
                    self._unregistered = (*self._unregistered, name)
                    self.__dict__[name] = table.pop(name)

    def unregistered(self):
        """Modules and parameters that the model uses and has not registered, by name."""
        return {name: self.__dict__[name] for name in self._unregistered}

    def to_folder(self, folder, module_name="FxModule"):
        """Writes a package to ``folder``: the generated source as the class ``module_name``, the
        state dict, and the rest that it needs. The class takes no arguments."""
        write_folder(self, folder, module_name)

    def __reduce__(self):
        state = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        return _load, (state, _saved(self._graph), self._graph._codegen, type(self).__name__)

    # FX copies what nodes read alone, and makes every buffer a persistent one.

    def __copy__(self):
        made = SymbolicModule(self, copy.deepcopy(self._graph), type(self).__name__)
        tables = {name: copy.copy(self.__dict__[name]) for name in _TABLES}
        made._source = self._source
        return made._with_tables(self.unregistered() | tables, self)

    def __deepcopy__(self, memo):
        made = super().__deepcopy__(memo)
        names = (*_TABLES, *self._unregistered)
        tables = {name: copy.deepcopy(self.__dict__[name], memo) for name in names}
        return made._with_tables(tables, self)

    def _with_tables(self, tables, original):
        self.__dict__.update(tables)
        self._unregistered, self.training = original._unregistered, original.training
        return self


def _function_name(root):
    return getattr(root, "__name__", "Function").strip("<>")


def _shell(root, path):
    """The module at a path; plain ones are made where there is none."""
    for name in path:
        child = root._modules.get(name)
        if child is None:
            child = torch.nn.Module()
            root._modules[name] = child
        root = child
    return root


def _put(holder, name, item):
    *path, last = name.split(".")
    place = _shell(holder, path)
    if isinstance(item, torch.nn.Module):
        place._modules[last] = item
    elif isinstance(item, torch.nn.Parameter):
        place._parameters[last] = item
    elif isinstance(item, torch.Tensor):
        place.register_buffer(last, item, persistent=False)
    else:
        place.__dict__[last] = item


def _complete(gm, root):
    """Weights that no node reads, so that ``state_dict`` is the model's; flags of the rest."""
    for path, module in root.named_modules(remove_duplicate=False):
        keys = path.split(".") if path else []
        place = _find(gm, keys)
        if place is module:
            continue
        own = {k: t for k, t in module._parameters.items() if t is not None}
        buffers = {k: t for k, t in module._buffers.items() if t is not None}
        if not own and not buffers:
            continue
        place = _shell(gm, keys)
        place._parameters.update({k: t for k, t in own.items() if k not in place._parameters})
        for name, tensor in buffers.items():
            place._buffers[name] = tensor
        hidden = module._non_persistent_buffers_set
        place._non_persistent_buffers_set -= set(buffers)
        place._non_persistent_buffers_set |= hidden & set(buffers)
    for path, module in root.named_modules(remove_duplicate=False):
        place = _find(gm, path.split(".") if path else [])
        if place is not None and place is not module:
            _order_as(place, module)


def _order_as(place, module):
    """Weights in the model's order, by which optimizers know them."""
    for table in ("_parameters", "_buffers", "_modules"):
        own = place.__dict__[table]
        known = {name: own[name] for name in module.__dict__[table] if name in own}
        place.__dict__[table] = {**known, **own}


def _find(root, path):
    for name in path:
        root = root._modules.get(name)
        if root is None:
            return None
    return root


# Pickling: FX traces generated source again, which would run the checks; nodes are saved instead.


def _saved(graph):
    nodes = []
    for node in graph.nodes:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: _Ref(n.name))
        meta = {k: node.meta[k] for k in _KEPT if k in node.meta}
        if "nn_module_stack" in node.meta:  # classes by name: those of a function have no other
            stack = node.meta["nn_module_stack"].items()
            meta["nn_module_stack"] = {key: (path, _class_name(cls)) for key, (path, cls) in stack}
        is_input = node.op == "placeholder" or any(n.target is check_input for n in node.users)
        if is_input or getattr(node.target, "__name__", node.target) in SHAPES:
            meta["val"] = node.meta.get("val")  # a profile goes by it
        nodes.append((node.op, _target(node), args, kwargs, node.name, meta))
    return nodes


_KEPT = ("mod_dir", "stack_trace", "activation_checkpoint", "mask_counts")


def _class_name(cls):
    return cls if isinstance(cls, str) else cls.__name__


class _Ref:
    def __init__(self, name):
        self.name = name


class _Named:
    """A function by its name: those of PyTorch cannot all be pickled."""

    def __init__(self, name):
        self.name = name

    def find(self):
        import importlib

        parts = self.name.split(".")
        item = importlib.import_module(parts[0])
        for part in parts[1:]:
            item = getattr(item, part)
        return item


def _target(node):
    if isinstance(node.target, str):
        return node.target
    from torch.fx.node import _get_qualified_name

    if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return _Named(f"torch.ops.{node.target}")
    name = _Named(_get_qualified_name(node.target))
    try:
        return name if name.find() is node.target else node.target
    except (AttributeError, ImportError):
        return node.target


def _load(state, nodes, codegen, class_name):
    graph, made = torch.fx.Graph(), {}
    for op, target, args, kwargs, name, meta in nodes:
        target = target.find() if isinstance(target, _Named) else target
        args, kwargs = _with_nodes((args, kwargs), made)
        made[name] = graph.create_node(op, target, args, kwargs, name)
        made[name].meta.update(meta)
    graph.set_codegen(codegen)
    holder = torch.nn.Module()
    holder.__dict__.update(state)
    gm = SymbolicModule(holder, graph, class_name)
    for key, item in state.items():
        gm.__dict__.setdefault(key, item)
    for table in _TABLES:
        gm.__dict__[table] = state[table]
    gm.training = state["training"]
    return gm


def _with_nodes(item, made):
    if isinstance(item, _Ref):
        return made[item.name]
    if isinstance(item, tuple):
        return tuple(_with_nodes(i, made) for i in item)
    if isinstance(item, list):
        return [_with_nodes(i, made) for i in item]
    if isinstance(item, dict):
        return {k: _with_nodes(v, made) for k, v in item.items()}
    if isinstance(item, slice):
        return slice(*(_with_nodes(i, made) for i in (item.start, item.stop, item.step)))
    return item
