# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""From a flat program to a ``kerf.Graph``: all calls are stated, the core takes what it needs."""

import re
import sys

import torch

from kerf import _schema
from kerf._flatten import Result, UnsupportedCall, results_in
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
    """States the calls of one flat program to a capture.

    core       the module with the argument markers
    device     the device that is not written down, because every stage has its own
    opaque     the blocks that were called as operators, by key
    """

    def __init__(self, core, capture, flat, symbols, *, device, opaque):
        self.core = core
        self.capture = capture
        self.flat = flat
        self.symbols = symbols
        self.device = device
        self.opaque = opaque
        self.values = {}  # Result -> value id
        self.weights = {}  # name -> value id
        self.storages = {}  # address of a fake storage -> key
        self.sources = {}  # stack trace -> source line
        self.refusal = None  # what could not be written down of the call at hand

    # Tensors

    def spec(self, val, requires_grad):
        """The keywords that describe a tensor to the capture."""
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
        """Says that a placeholder is an input or a weight that the capture knows by now."""
        self.values[Result(node)] = value

    # Arguments

    def encode(self, item):
        """A followed argument as the capture takes it."""
        if isinstance(item, Result):
            return self.reference(item)
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
        raise TypeError(f"an argument of type {type(result.val).__name__}")

    def symbol(self, value):
        if not isinstance(value, torch.SymInt):
            raise NotAnExpression(value)
        text = self.symbols.text(value)
        return text if isinstance(text, int) else self.core.Sym(text)

    # Calls

    def run(self, names):
        """States the calls and the outputs, by their names, and lets the core leave out what no
        graph needs. Raises for a call that it does need and that no graph can hold."""
        refused = []  # by call that was stated
        for call in self.flat.calls:
            if self._is_size(call.node):
                continue
            self.refusal = None
            self._state(call)
            refused.append((call.node, self.refusal))
        self.refusal = None
        self.capture.set_outputs([self._try(self.encode, o) for o in self.flat.outputs], names)
        needed = self.capture.simplify()
        if needed is not None:
            node, error = refused[needed]
            if isinstance(error, NotAnExpression):
                raise UnknownSize(node, error.expression) from error
            if isinstance(error, TypeError):
                raise UnsupportedCall(node, f"takes {error}, which no graph can hold") from error
            raise error

    def _is_size(self, node):
        """A number that is written as an expression, where it is used, and is no call."""
        if not isinstance(node.meta.get("val"), torch.types.py_sym_types):
            return False
        try:
            self.symbols.text(node.meta["val"])
        except NotAnExpression:
            return node.target is torch.ops.aten.sym_size.int
        return True

    def _try(self, make, *args):
        """None, and a refusal, where the graph has no words for something. That matters only if
        the call stays."""
        try:
            return make(*args)
        except Exception as error:
            self.refusal = self.refusal or error
            return None

    def _state(self, call):
        outputs = self._outputs(call)
        record = {
            "name": call.node.name,
            "op": str(call.op),
            "args": [self._try(self.encode, a) for a in call.args],
            "kwargs": {k: self._try(self.encode, v) for k, v in call.kwargs.items()},
        }
        if call.op is torch.ops.kerf.opaque.default:
            self.opaque[call.args[2]].fill(record, self.core.Ref, self.weights)
        else:
            self.capture.add_operator(_schema.operator_of(call.op))
        made = self.capture.add_call(
            **record,
            outputs=outputs,
            scope=module_of(call.node),
            source=self.source(call.node),
            region=call.region,
            grad_enabled=call.modes.grad_enabled,
            autocast=[(kind, dtype_name(t), on) for kind, t, on in call.modes.autocast],
            refused=self.refusal is not None,
        )
        tensors = [r for r, o in zip(call.results, outputs, strict=True) if o is not None]
        self.values.update(zip(tensors, made, strict=True))

    def _outputs(self, call):
        outputs = []
        results = call.results
        for i, result in enumerate(results):
            name = call.node.name if len(results) == 1 else f"{call.node.name}.{i}"
            val = result.val
            record = {"dtype": _SCALARS.get(type(val), "i64"), "scalar": True}
            if isinstance(val, torch.Tensor):
                spec = self._try(self.spec, val, self._requires_grad(result, call))
                record = record if spec is None else true_states(str(call.op), i, spec)
            elif not isinstance(val, torch.types.py_sym_types):
                outputs.append(None)
                continue
            outputs.append({"name": name, **record})
        return outputs

    def _requires_grad(self, result, call):
        known = self.flat.requires_grad.get(result)
        if known is not None:
            return known
        if not call.modes.grad_enabled or not result.val.is_floating_point():
            return False
        inputs = results_in([call.args, *call.kwargs.values()])
        return any(self.flat.requires_grad.get(r, False) for r in inputs)

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
