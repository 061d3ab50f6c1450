# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks that run as the original Python module, as one operator in a trace.

Such a block is entered through ``kerf::opaque``, which the trace records and does not look into;
what comes out of it is known from a probe.
"""

import contextlib
import dataclasses
import json

import torch
from torch._subclasses.fake_tensor import is_fake

from kerf import _classes, _pytree, _spec
from kerf._arguments import shown
from kerf._call import module_finder
from kerf._capturable import is_packed
from kerf._probe import (
    Outcome,
    ProbeError,
    at,
    device_of,
    observed_call,
    probe,
    signature_of,
    symbol_text,
)

_library = torch.library.Library("kerf", "FRAGMENT")
# `weights` are there for autograd: a block with parameters that are trained gives gradients.
_library.define("opaque(Tensor[] inputs, Tensor[] weights, str key) -> Tensor[]")

_calls = {}  # key -> BlockCall, for the length of a trace


class ProbeNeeded(BaseException):
    """Unwinds a trace that has met a block it knows nothing about. No user code may catch it."""

    def __init__(self, signature):
        super().__init__(signature)
        self.signature = signature


@dataclasses.dataclass
class BlockCall:
    """One call of a block in a trace."""

    path: str
    weights: list  # names of parameters and buffers, as the model has them
    spec: object
    outcome: Outcome
    batch: object  # torch.SymInt, or an int in a static trace

    def fake(self, inputs):
        return [self._fake_output(o, inputs) for o in self.outcome.outputs]

    def _fake_output(self, output, inputs):
        shape = [at(s, self.batch) for s in output.shape]
        strides = [at(s, self.batch) for s in output.strides]
        if output.alias is not None:
            return inputs[output.alias].as_strided(shape, strides, at(output.offset, self.batch))
        return inputs_device(inputs).new_empty_strided(shape, strides, dtype=output.dtype)

    def fill(self, record, ref, weights):
        """Turns the record of a ``kerf::opaque`` call into that of an ``opaque`` node."""
        inputs = record["args"][0]
        changed = [f"{self.path}.{name}" for name in self.outcome.written_weights]
        record["op"] = "opaque"
        record["args"] = [inputs]
        record["kwargs"] = {
            "module": self.path,
            "in_spec": _classes.remember(json.dumps(self.spec)),
            "out_spec": json.dumps(self.outcome.spec),
            "weights": _distinct(ref, [weights[n] for n in self.weights]),
            "written": [inputs[i] for i in self.outcome.written_inputs]
            + _distinct(ref, [weights[n] for n in changed]),
        }
        record["random"] = self.outcome.draws
        record["written_args"] = ["written"]
        record["aliased_args"] = (
            ["0"] if any(o.alias is not None for o in self.outcome.outputs) else []
        )


def _distinct(ref, values):
    return [ref(v) for v in dict.fromkeys(values)]


def inputs_device(inputs):
    if not inputs:
        raise ProbeError("a block without tensor inputs")
    return inputs[0]


def _real(inputs, weights, key):
    raise RuntimeError("kerf::opaque runs in a trace only")


_library.impl("opaque", _real, "CompositeExplicitAutograd")
torch.library.register_fake("kerf::opaque", lambda inputs, _, key: _calls[key].fake(inputs))


def covers(paths, path):
    """Is one of the paths that of this module, or of one around it?"""
    return any(path == p or path.startswith(p + ".") for p in paths)


class Blocks:
    """The opaque blocks of one model, and what is known about them."""

    def __init__(self, model, paths=()):
        self.model = model
        self.paths = set(paths)
        self.known = {}  # Signature -> Outcome
        self.supposed = {}  # the same, not yet probed
        self.calls = {}  # key -> BlockCall, of the trace that ran last
        self._modules = {id(m): path for path, m in model.named_modules()}

    def add(self, path):
        """Makes a block opaque; what lies inside it no longer counts."""
        self.paths = {p for p in self.paths if not p.startswith(path + ".")} | {path}

    def covers(self, path):
        return covers(self.paths, path)

    @contextlib.contextmanager
    def installed(self, batch):
        """Calls of the blocks become operators; ``batch()`` gives the size being traced."""
        self.calls = {}
        self.supposed = {}
        saved = []
        for path, module in self.model.named_modules():
            saved.append((module, module.__dict__.get("_compiled_call_impl")))
            # This hook takes the place of __call__ with all its hooks. For other modules it is
            # emptied: what the user has compiled is traced from its own code.
            hook = self._entry(path, module, batch) if path in self.paths else None
            module.__dict__["_compiled_call_impl"] = hook
        stand_ins = self._stand_ins()
        for siblings, name, _, stand_in in stand_ins:
            siblings[name] = stand_in
        try:
            yield
        finally:
            for siblings, name, block, _ in stand_ins:
                siblings[name] = block
            for module, hook in saved:
                module.__dict__.pop("_compiled_call_impl", None)
                if hook is not None:
                    module.__dict__["_compiled_call_impl"] = hook
            for key in self.calls:
                _calls.pop(key, None)

    def _stand_ins(self):
        """(modules of a parent, name, quantised block, what export sees in its place).

        Export saves the state of all modules and looks into packed weights, in vain."""
        blocks = [self.model.get_submodule(path) for path in self.paths]
        packed = {id(b) for b in blocks if is_packed(b)}
        found = []
        for parent in self.model.modules():
            for name, child in parent._modules.items():
                if id(child) in packed:
                    stand_in = torch.nn.Module()
                    hook = child.__dict__["_compiled_call_impl"]
                    stand_in.__dict__["_compiled_call_impl"] = hook
                    found.append((parent._modules, name, child, stand_in))
        return found

    def _entry(self, path, module, batch):
        names = [n for n, _ in module.named_parameters(remove_duplicate=False)]
        names += [n for n, _ in module.named_buffers(remove_duplicate=False)]

        def enter(*args, **kwargs):
            found = _pytree.describe(
                [list(args), kwargs],
                share=False,
                modules=self._modules,
                symbol=symbol_text,
            )
            signature = signature_of(path, found, self.model.training and torch.is_grad_enabled())
            outcome = self.known.get(signature) or self._suppose(signature)
            if outcome is None:
                raise ProbeNeeded(signature)
            key = f"{id(self)}:{len(self.calls)}"
            weights = [f"{path}.{n}" for n in names]
            call = BlockCall(path, weights, found.spec, outcome, batch())
            self.calls[key] = _calls[key] = call
            trained = _trained(module) if signature.grad else []
            outputs = torch.ops.kerf.opaque(found.tensors, trained, key)
            if signature.grad:
                outputs = [_as_observed(*pair) for pair in zip(outputs, outcome.outputs)]
            # What the block changes of its arguments is changed on the way.
            value, _ = _pytree.build(
                outcome.spec,
                outputs,
                device=device_of(found.tensors),
                batch=batch(),
                module=self._find_module,
                classes=_classes.OWN,
                given=found.mutables,
            )
            return value

        return enter

    def _suppose(self, signature):
        """What a block that looks the same did: of many layers only the first has to wait."""
        kind = repr(self.model.get_submodule(signature.path))
        for other, outcome in self.known.items():
            alike = dataclasses.replace(other, path=signature.path) == signature
            if alike and repr(self.model.get_submodule(other.path)) == kind:
                self.supposed[signature] = outcome
                return outcome
        return None

    def _find_module(self, path):
        return self.model.get_submodule(path)

    def probe(self, signature, batch):
        """Finds out what a block does when called like this. Raises ProbeError."""
        self.known[signature] = probe(self.model, self._modules, signature, batch)


class Block:
    """An ``opaque`` node of a graph, ready to run: its module and how its tensors nest.

    The node may come from a file: its descriptions are checked here, once.
    """

    def __init__(self, model, kwargs, tensors):
        for key in ("module", "in_spec", "out_spec"):
            if type(kwargs.get(key)) is not str:
                raise _spec.error(f"an opaque block has no {key}", "what kerf.trace wrote")
        self.model = model
        self.path = kwargs["module"]
        self._find = module_finder(model)
        self.module = self._find(self.path)
        text = kwargs["in_spec"]
        what = f"opaque block '{self.path}'"
        self.classes = _classes.Classes.of_text(text, model)
        self.spec = _spec.parse(text, what)
        _spec.check(self.spec, what, tensors=tensors, classes=self.classes)
        if not _is_call(self.spec):
            raise _spec.error(
                f"{what} has an in_spec that is not a call", "arguments by position and name"
            )
        self.outcome = _spec.parse(kwargs["out_spec"], what)
        _spec.check(self.outcome, what)

    def run(self, inputs, batch):
        """Runs the block with its tensors in place; the results in the node's order."""
        args, kwargs = _pytree.build(
            self.spec,
            inputs,
            device=device_of(inputs),
            batch=batch,
            module=self._find,
            classes=self.classes,
        )
        modules = {id(m): path for path, m in self.model.named_modules()}
        found = observed_call(lambda a, k: self.module(*a, **k), args, kwargs, inputs, modules)
        if found.spec != _pytree.at_batch(self.outcome, batch):
            raise RuntimeError(
                f"[opaque] block '{self.path}' gave a result of a different structure than when "
                "it was traced; expected the same for all inputs; change the block, or trace with "
                "a "
                "module around it as one block (basic_blocks=)"
            )
        return found.tensors


def paths_of(graph):
    """Of the modules that run as blocks."""
    return {node["kwargs"]["module"] for node in graph.nodes if node["op"] == "opaque"}


def _as_observed(output, said):
    """Of several results some may have no gradient: indices, or what the block detaches."""
    return output.detach() if output.requires_grad and not said.requires_grad else output


def _trained(module):
    """Its parameters that require gradients, as the trace sees them."""
    return [p for p in module.parameters() if p.requires_grad and is_fake(p)]


def _is_call(spec):
    """A list of positional arguments and a dictionary of named ones, as ``Blocks`` describes it."""
    parts = spec.get("list") if type(spec) is dict else None
    return (
        type(parts) is list
        and len(parts) == 2
        and all(type(part) is dict for part in parts)
        and "list" in parts[0]
        and "dict" in parts[1]
        and all(type(name) is str for name, _ in parts[1]["dict"])
    )


def find_blocks(model, wanted):
    """Paths of the modules that ``basic_blocks`` names: by class, class name or path."""
    paths = {}
    for want in wanted:
        found = [p for p, m in model.named_modules() if p and _matches(want, p, m)]
        if not found:
            raise ValueError(
                f"[trace] basic_blocks names {shown(want)}; expected the class, the class name or "
                "the path of a module inside the model; see model.named_modules()"
            )
        paths.update(dict.fromkeys(found))
    return [p for p in paths if not any(p.startswith(q + ".") for q in paths)]


def _matches(want, path, module):
    if isinstance(want, str):
        return want in (path, type(module).__name__)
    return isinstance(want, type) and isinstance(module, want)
