# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""From a flat program to the records of a ``kerf.Graph``."""

import re
import sys

import torch

from kerf import _schema
from kerf._flatten import Result, results_in
from kerf._prune import Pruned
from kerf._symbols import NotAnExpression

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
_SCALARS = {torch.SymInt: "i64", torch.SymFloat: "f64", torch.SymBool: "bool"}


def dtype_name(dtype):
    # Rarer ones go by torch's name, which the graph knows as well.
    return DTYPES.get(dtype) or str(dtype).removeprefix("torch.")


_RECURRENT = ("aten.lstm.", "aten.gru.", "aten.rnn_tanh.", "aten.rnn_relu.")


def true_states(op, position, spec):
    """The record of a result as the kernel gives it: PyTorch 2.11 traces the states of recurrent
    operators, which have three dimensions, with a fourth of size 1 in second place."""
    if op.startswith(_RECURRENT) and position and spec["shape"][1:2] == [1]:
        if len(spec["shape"]) == 4:
            spec = {**spec, "shape": list(spec["shape"]), "strides": list(spec["strides"])}
            del spec["shape"][1], spec["strides"][1]
    return spec


class UnknownSize(Exception):
    """A size or argument that is no expression in the batch size; ``node`` is where it appeared."""

    def __init__(self, node, expression):
        super().__init__(str(expression))
        self.node = node
        self.expression = expression


class Lowering:
    """Adds the calls of one flat program to a builder.

    core       the module with GraphBuilder and the argument markers
    scopes     number of a module's scope by its path
    device     the device that is not written down, because every stage has its own
    opaque     the blocks that were called as operators, by key
    """

    def __init__(self, core, builder, flat, symbols, *, scopes, device, opaque):
        self.core = core
        self.builder = builder
        self.flat = flat
        self.symbols = symbols
        self.pruned = Pruned(flat, symbols, opaque)
        self.scopes = scopes
        self.device = device
        self.opaque = opaque
        self.values = {}  # Result -> value id
        self.weights = {}  # name -> value id
        self.storages = {}  # address of a fake storage -> key
        self.names = set()
        self.sources = {}  # stack trace -> source line

    # Tensors

    def spec(self, val, requires_grad):
        """The keywords that describe a tensor to the builder."""
        text = self.symbols.text
        storage = val.untyped_storage()
        itemsize = val.element_size()
        offset = val.storage_offset()
        return {
            "dtype": dtype_name(val.dtype),
            "shape": [d if type(d) is int else text(d) for d in val.shape],
            "strides": [d if type(d) is int else text(d) for d in val.stride()],
            "storage": self.storage_key(storage),
            "storage_bytes": text(storage.nbytes()),
            "offset": text(offset * itemsize),
            "requires_grad": requires_grad,
        }

    def storage_key(self, storage):
        return self.storages.setdefault(storage._cdata, len(self.storages))

    def bind(self, node, value):
        """Says that a placeholder is an input or a weight that the builder knows by now."""
        self.values[Result(node)] = value

    # Arguments

    def encode(self, item):
        """A followed argument as the builder takes it."""
        if isinstance(item, Result):
            return self.reference(self.pruned.resolve(item))
        if isinstance(item, list):
            return [self.encode(i) for i in item]
        if item is None or isinstance(item, (bool, int, float, str, complex)):
            return item
        if isinstance(item, torch.dtype):
            return self.core.DType(dtype_name(item))
        if isinstance(item, torch.device):
            return self.core.Dev("" if item == self.device else str(item))
        if isinstance(item, (torch.layout, torch.memory_format)):
            name = str(item).removeprefix("torch.")
            if isinstance(item, torch.memory_format):
                return self.core.Enum("memory_format", name.removesuffix("_format"))
            return self.core.Enum("layout", name)
        if isinstance(item, torch.types.py_sym_types):
            return self.symbol(item)
        raise TypeError(f"an argument of type {type(item).__name__}")

    def reference(self, result):
        value = self.values.get(result)
        if value is not None:
            return self.core.Ref(value)
        if isinstance(result.val, torch.types.py_sym_types):
            return self.symbol(result.val)
        if result.val is None:
            return None
        if isinstance(result.val, (list, tuple)):
            return [self.encode(Result(result.node, i)) for i in range(len(result.val))]
        if isinstance(result.val, (bool, int, float, str)):
            return result.val
        raise KeyError(result)

    def symbol(self, value):
        if not isinstance(value, torch.SymInt):
            raise NotAnExpression(value)
        text = self.symbols.text(value)
        return text if isinstance(text, int) else self.core.Sym(text)

    # Calls

    def run(self):
        for call in self.pruned.calls:
            try:
                self._emit(call)
            except NotAnExpression as error:
                raise UnknownSize(call.node, error.expression) from error

    def _emit(self, call):
        schema = call.schema
        outputs = self._outputs(call)
        record = {
            "name": self._unique(call.node.name),
            "op": schema.name,
            "args": [self.encode(a) for a in call.args],
            "kwargs": {k: self.encode(v) for k, v in call.kwargs.items()},
            "written_args": self._places(call, _schema.written_arguments(schema, call.bound)),
            "aliased_args": self._places(call, schema.aliases),
            "random": _schema.is_random(schema, call.bound),
        }
        if call.node.target is torch.ops.kerf.opaque.default:
            self.opaque[call.args[1]].fill(record, self.core.Ref, self.weights)
        made = self.builder.add_node(
            **record,
            outputs=outputs,
            scope=self._scope(call.node),
            source=self.source(call.node),
            region=call.region,
            grad_enabled=call.modes.grad_enabled,
            autocast=[(kind, dtype_name(t), on) for kind, t, on in call.modes.autocast],
        )
        tensors = [r for r, o in zip(call.results, outputs, strict=True) if o is not None]
        self.values.update(zip(tensors, made, strict=True))

    def _outputs(self, call):
        outputs = []
        results = call.results
        for i, result in enumerate(results):
            name = call.node.name if len(results) == 1 else f"{call.node.name}.{i}"
            val = result.val
            if isinstance(val, torch.Tensor):
                spec = self.spec(val, self._requires_grad(result, call))
                outputs.append({"name": name, **true_states(call.schema.name, i, spec)})
            elif isinstance(val, torch.types.py_sym_types):
                outputs.append({"name": name, "dtype": _SCALARS[type(val)], "scalar": True})
            else:
                outputs.append(None)
        return outputs

    def _requires_grad(self, result, call):
        known = self.flat.requires_grad.get(result)
        if known is not None:
            return known
        if not call.modes.grad_enabled or not result.val.is_floating_point():
            return False
        inputs = results_in([call.args, *call.kwargs.values()])
        return any(self.flat.requires_grad.get(r, False) for r in inputs)

    @staticmethod
    def _places(call, names):
        """Argument names as the builder wants them: position as text, or keyword."""
        found = []
        for name in names:
            if name in call.kwargs:
                found.append(name)
            elif call.schema.position(name) < len(call.args):
                found.append(str(call.schema.position(name)))
        return found

    def _unique(self, name):
        unique, count = name, 1
        while unique in self.names:
            unique, count = f"{name}_i{count}", count + 1
        self.names.add(unique)
        return unique

    def _scope(self, node):
        path, class_name = module_of(node)
        scope = self.scopes.get(path)
        if scope is None:
            scope = self.scopes[path] = self.builder.add_scope(path, class_name)
        return scope

    def source(self, node):
        trace = node.meta.get("stack_trace") or ""
        found = self.sources.get(trace)
        if found is None:
            found = self.sources[trace] = source_of(trace)
        return found


# The wrapper that a model is traced in holds it under this name, which no model uses.
MODEL = "_kerf_model"


def strip_model(path):
    """The model's own path for something in the wrapper; export leaves the prefix off at times."""
    return "" if path == MODEL else path.removeprefix(MODEL + ".")


def module_of(node):
    """Path and class of the innermost module a node was traced in."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return "", ""
    path, class_name = list(stack.values())[-1]
    if not isinstance(class_name, str):
        class_name = class_name.__qualname__
    return strip_model(path), class_name.rpartition(".")[2]


_FRAME = re.compile(r'File "(.+?)", line (\d+)')
_TORCH = torch.__path__[0]


def source_of(stack_trace):
    """The innermost line of the user's code: the last frame outside of torch and Kerf."""
    own = __file__.rpartition("/")[0]
    for file, line in reversed(_FRAME.findall(stack_trace)):
        if not file.startswith((_TORCH, own)):
            return f"{short_path(file)}:{line}"
    return ""


def short_path(file):
    """A file's path below the place it was imported from."""
    best = max((p for p in sys.path if p and file.startswith(p + "/")), key=len, default="")
    return file[len(best) + 1 :] if best else file
