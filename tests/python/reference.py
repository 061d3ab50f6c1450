# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A plain interpreter of traced graphs, to check capture by itself.

``record`` traces a model; ``Recording.run`` calls the operators of its graph one by one. Nothing
is clever here: what comes out is what the graph says.
"""

import contextlib

import torch

from kerf import _call, _core, _opaque
from kerf._lower import DTYPES
from kerf._symbols import evaluate
from kerf._trace import Tracer


def record(model, args=(), kwargs=None, **options):
    """A Recording of ``kerf.trace(model, args, kwargs)``, masks as they are."""
    return Recording(model, Tracer(_core, model, args, kwargs, **options).run())


class Recording:
    """A graph and its model; ``nodes`` are the operators with their arguments."""

    def __init__(self, model, graph):
        self.model = model
        self.graph = graph
        self.nodes = _core.calls(graph)

    def run(self, args=(), kwargs=None, order=None):
        """The model's result, from the recorded operators alone, on CPU."""
        signature = _call.Signature.from_json(self.graph.in_spec)
        args = args if isinstance(args, tuple) else (args,)
        tensors, given = signature.inputs(args, kwargs or {})
        self.batch = self._batch(tensors)
        weights = [_call.find_weight(self.model, signature, w) for w in self.graph.weights]
        self.values = dict(enumerate([*tensors, *weights]))
        for n in order or range(len(self.nodes)):
            self._step(self.nodes[n])
        leaves = [self._decode(leaf) for leaf in _core.leaves(self.graph)]
        result = _call.Result.from_json(self.graph.out_spec, self.model)
        return result.build(leaves, batch=self.batch, model=self.model, given=given)

    def _batch(self, tensors):
        for record, tensor in zip(self.graph.inputs, tensors, strict=True):
            for size, given in zip(record["shape"], tensor.shape, strict=True):
                if size == "B":
                    return given
        return None

    def _step(self, record):
        args = [self._decode(a) for a in record["args"]]
        kwargs = {k: self._decode(v) for k, v in record["kwargs"].items()}
        with contextlib.ExitStack() as stack:
            # The caller's mode holds; the graph knows where the model itself switched it off.
            grad = torch.is_grad_enabled() and record["grad_enabled"]
            stack.enter_context(torch.set_grad_enabled(grad))
            for kind, dtype, enabled in record["autocast"]:
                dtype = {"bf16": torch.bfloat16, "f16": torch.float16}.get(dtype)
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
            if record["op"] == "opaque":
                results = _opaque.Block(self.model, kwargs, len(args[0])).run(args[0], self.batch)
            else:
                results = _operator(record["op"])(*args, **kwargs)
        if len(record["outputs"]) == 1 and not isinstance(results, (list, tuple)):
            results = [results]
        for output, result in zip(record["outputs"], results or [], strict=True):
            if output is not None:
                self._check(record, output, result)
                self.values[output["id"]] = result

    def _check(self, record, output, result):
        """The graph's sizes are those of the tensors that really come out."""
        if output["scalar"]:
            return
        said = [self._decode(s) for s in output["shape"]]
        where = f"{record['name']} ({record['op']})"
        assert said == list(result.shape), f"{where}: shape {said}, really {result.shape}"
        # Strides are not compared: attention kernels choose their own, by grad mode and device.
        assert str(result.dtype).endswith(_torch_name(output["dtype"])), f"{where}: {result.dtype}"

    def _decode(self, item):
        kind = type(item).__name__
        if kind == "Ref":
            return self.values[item.id]
        if kind == "Sym":
            return evaluate(item.text, self.batch)
        if kind == "DType":
            return getattr(torch, _torch_name(item.name))
        if kind == "Dev":
            return torch.device(item.name or "cpu")
        if kind == "Enum":
            suffix = "_format" if item.name in ("contiguous", "preserve") else ""
            return getattr(torch, item.name + suffix)
        if isinstance(item, list):
            return [self._decode(i) for i in item]
        return item


def _torch_name(dtype):
    names = {name: str(t).removeprefix("torch.") for t, name in DTYPES.items()}
    return names.get(dtype, dtype)


def _operator(name):
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def assert_same(expected, got, path="output"):
    """Equal bit by bit, in the same nesting of the same classes."""
    assert type(expected) is type(got), f"{path}: {type(expected)} and {type(got)}"
    if isinstance(expected, torch.Tensor):
        assert expected.shape == got.shape, f"{path}: {expected.shape} and {got.shape}"
        assert expected.dtype == got.dtype, path
        assert torch.equal(expected, got), f"{path}: differs by {(expected - got).abs().max()}"
    elif isinstance(expected, dict):
        assert list(expected) == list(got), path
        for key in expected:
            assert_same(expected[key], got[key], f"{path}.{key}")
    elif isinstance(expected, (list, tuple)):
        assert len(expected) == len(got), path
        for i, (a, b) in enumerate(zip(expected, got, strict=True)):
            assert_same(a, b, f"{path}.{i}")
    elif hasattr(expected, "__dict__") and not isinstance(expected, (type, torch.nn.Module)):
        assert_same(vars(expected), vars(got), path)
    elif not isinstance(expected, (type, torch.nn.Module)):
        assert expected == got, f"{path}: {expected!r} and {got!r}"
