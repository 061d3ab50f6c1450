# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks that run as the original Python module, as one operator in a trace.

Such a block is entered through ``kerf::opaque``, which the trace records and does not look into. To
know what comes out of it, the block is run by itself at a few batch sizes (``probe``): on fake
tensors where its code allows that, else for real on made-up inputs.
"""

import contextlib
import dataclasses
import json

import sympy
import torch

from kerf import _pytree

_library = torch.library.Library("kerf", "FRAGMENT")
_library.define("opaque(Tensor[] inputs, str key) -> Tensor[]")

_calls = {}  # key -> BlockCall, for the length of a trace


class ProbeError(Exception):
    """A block whose outputs cannot be described; says why."""


class ProbeNeeded(BaseException):
    """Unwinds a trace that has met a block it knows nothing about. No user code may catch it."""

    def __init__(self, signature):
        super().__init__(signature)
        self.signature = signature


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a block was called with, at any batch size."""

    path: str
    spec: str  # how the tensors nest, as JSON
    inputs: tuple  # of (shape as (a, b) of a*B + b, dtype, device, requires_grad)


@dataclasses.dataclass(frozen=True)
class Output:
    """One tensor that comes out. Sizes are (a, b) of a*B + b; ``alias`` is an input's number."""

    shape: tuple
    strides: tuple
    offset: tuple
    dtype: torch.dtype
    alias: int | None


@dataclasses.dataclass
class Outcome:
    """What a block gives back and what it changes.

    ``spec`` describes a list: the result, and the arguments as the block left them where it changed
    one that is no tensor (a cache that it added to), else null.
    """

    outputs: list
    spec: object
    written_inputs: list
    written_weights: list  # names below the block


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
        shape = [_at(s, self.batch) for s in output.shape]
        strides = [_at(s, self.batch) for s in output.strides]
        if output.alias is not None:
            return inputs[output.alias].as_strided(shape, strides, _at(output.offset, self.batch))
        return inputs_device(inputs).new_empty_strided(shape, strides, dtype=output.dtype)

    def fill(self, record, ref, weights):
        """Turns the record of a ``kerf::opaque`` call into that of an ``opaque`` node."""
        inputs = record["args"][0]
        changed = [f"{self.path}.{name}" for name in self.outcome.written_weights]
        record["op"] = "opaque"
        record["args"] = [inputs]
        record["kwargs"] = {
            "module": self.path,
            "in_spec": json.dumps(self.spec),
            "out_spec": json.dumps(self.outcome.spec),
            "weights": _distinct(ref, [weights[n] for n in self.weights]),
            "written": [inputs[i] for i in self.outcome.written_inputs]
            + _distinct(ref, [weights[n] for n in changed]),
        }
        record["random"] = True  # it may draw; nobody knows
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


def _at(size, batch):
    slope, rest = size
    return slope * batch + rest if slope else rest


def _real(inputs, key):
    raise RuntimeError("kerf::opaque runs in a trace only")


_library.impl("opaque", _real, "CompositeExplicitAutograd")
torch.library.register_fake("kerf::opaque", lambda inputs, key: _calls[key].fake(inputs))


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
        return any(path == p or path.startswith(p + ".") for p in self.paths)

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
        try:
            yield
        finally:
            for module, hook in saved:
                module.__dict__.pop("_compiled_call_impl", None)
                if hook is not None:
                    module.__dict__["_compiled_call_impl"] = hook
            for key in self.calls:
                _calls.pop(key, None)

    def _entry(self, path, module, batch):
        names = [n for n, _ in module.named_parameters(remove_duplicate=False)]
        names += [n for n, _ in module.named_buffers(remove_duplicate=False)]

        def enter(*args, **kwargs):
            found = _pytree.describe(
                [list(args), kwargs],
                share=False,
                modules=self._modules,
                symbol=_linear_text(batch()),
            )
            signature = _signature(path, found, batch())
            outcome = self.known.get(signature) or self._suppose(signature)
            if outcome is None:
                raise ProbeNeeded(signature)
            key = f"{id(self)}:{len(self.calls)}"
            weights = [f"{path}.{n}" for n in names]
            call = BlockCall(path, weights, found.spec, outcome, batch())
            self.calls[key] = _calls[key] = call
            outputs = torch.ops.kerf.opaque(found.tensors, key)
            value, changed = _pytree.build(
                outcome.spec,
                outputs,
                device=_device_of(found.tensors),
                batch=batch(),
                module=self._find_module,
            )
            if changed is not None:
                _pytree.assign([list(args), kwargs], changed)
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

    def confirm(self, batch):
        """Probes what was only supposed in the last trace. False when one differs: trace again."""
        alike = True
        for signature, outcome in self.supposed.items():
            self.probe(signature, batch)
            alike = alike and self.known[signature] == outcome
        self.supposed = {}
        return alike

    def _find_module(self, path):
        return self.model.get_submodule(path)

    def probe(self, signature, batch):
        """Finds out what a block does when called like this. Raises ProbeError."""
        sizes = [batch, batch + 1, batch + 3]
        runs = []
        for size in sizes:
            runs.append(_run(self, signature, size))
        self.known[signature] = _fit(runs, sizes)


def _linear_text(batch):
    """Symbolic integers inside a block's arguments, as expressions in B."""

    def text(value):
        slope, rest = linear(value, batch)
        return f"{slope}*B+({rest})" if slope else rest

    return text


def linear(size, batch):
    """``size`` as (a, b) of a*B + b, where ``batch`` is B. Raises ProbeError."""
    if isinstance(size, int):
        return 0, size
    at = [_value_at(size, batch, n) for n in (2, 3, 5)]
    slope = at[1] - at[0]
    rest = at[0] - 2 * slope
    if at[2] != 5 * slope + rest:
        raise ProbeError(f"a size of {size} is not linear in the batch")
    return slope, rest


def _value_at(size, batch, n):
    expr = size.node.expr
    value = expr.xreplace(dict.fromkeys(expr.free_symbols, sympy.Integer(n)))
    if not value.is_Integer:
        raise ProbeError(f"a size of {size} is no whole number")
    return int(value)


def _signature(path, found, batch):
    inputs = tuple(
        (tuple(linear(d, batch) for d in t.shape), t.dtype, t.device, t.requires_grad)
        for t in found.tensors
    )
    return Signature(path, json.dumps(found.spec), inputs)


# Probing


def _run(blocks, signature, batch):
    """Runs a block at a batch size: on fake tensors if it lets itself, else for real."""
    module = blocks.model.get_submodule(signature.path)
    try:
        return _run_fake(blocks, module, signature, batch)
    except Exception as error:
        weights = [*module.parameters(), *module.buffers()]
        if any(w.is_meta for w in weights):
            raise ProbeError(f"it runs on real weights only: {error}") from error
    first = _run_real(blocks, module, signature, batch, seed=1)
    again = _run_real(blocks, module, signature, batch, seed=2)
    if first != again:
        raise ProbeError("the shapes that come out of it depend on the values that go in")
    return first


def _run_fake(blocks, module, signature, batch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        inputs = [
            torch.empty([_at(s, batch) for s in shape], dtype=dtype, device=device)
            for shape, dtype, device, _ in signature.inputs
        ]
        state = {
            n: mode.from_tensor(t)
            for n, t in [
                *module.named_parameters(remove_duplicate=False),
                *module.named_buffers(remove_duplicate=False),
            ]
        }
        with torch.no_grad():
            return _observe(
                lambda a, k: torch.func.functional_call(module, state, a, k, tie_weights=False),
                blocks,
                signature,
                inputs,
                state,
                batch,
            )


def _run_real(blocks, module, signature, batch, seed):
    state = dict(module.named_buffers(remove_duplicate=False))
    saved = {n: t.clone() for n, t in state.items()}
    devices = [d for _, _, d, _ in signature.inputs if d.type == "cuda"]
    with torch.random.fork_rng(devices), torch.no_grad():
        torch.manual_seed(seed)
        inputs = [
            _made_up([_at(s, batch) for s in shape], dtype, device)
            for shape, dtype, device, _ in signature.inputs
        ]
        try:
            return _observe(lambda a, k: module(*a, **k), blocks, signature, inputs, state, batch)
        except Exception as error:
            raise ProbeError(
                f"running it by itself raised {type(error).__name__}: {error}"
            ) from error
        finally:
            for name, value in saved.items():
                state[name].copy_(value)


def _made_up(shape, dtype, device):
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, device=device).to(dtype)
    # Small numbers: they may be used as indices.
    return torch.randint(0, 2, shape, device=device).to(dtype)


def _observe(call, blocks, signature, inputs, state, batch):
    """Runs ``call`` and describes what came out: comparable between runs."""
    versions = [t._version for t in inputs]
    state_versions = {n: t._version for n, t in state.items()}
    args, kwargs = _pytree.build(
        json.loads(signature.spec), inputs, batch=batch, module=blocks._find_module
    )
    found = _call(call, args, kwargs, inputs, blocks._modules)
    storages = {t.untyped_storage()._cdata: i for i, t in enumerate(inputs)}
    tensors = [
        (
            tuple(t.shape),
            t.stride(),
            t.storage_offset(),
            t.dtype,
            storages.get(t.untyped_storage()._cdata),
        )
        for t in found.tensors
    ]
    written = [i for i, t in enumerate(inputs) if t._version != versions[i]]
    changed = [n for n, t in state.items() if t._version != state_versions[n]]
    return tensors, found.spec, written, changed


def _call(call, args, kwargs, inputs, modules):
    """The description of what a call gives back, and of its arguments if it has changed those."""
    options = {"device": _device_of(inputs), "modules": modules}
    before = _pytree.describe([args, kwargs], share=False, **options)
    value = call(args, kwargs)
    after = _pytree.describe([args, kwargs], share=False, **options)
    same = before.spec == after.spec and all(
        a is b for a, b in zip(before.tensors, after.tensors, strict=True)
    )
    return _pytree.describe([value, None if same else [args, kwargs]], **options)


def _device_of(inputs):
    return inputs[0].device if inputs else None


def _fit(runs, sizes):
    """One outcome for all batch sizes, from runs at a few."""
    first = runs[0]
    ranks = [[len(t[0]) for t in r[0]] for r in runs]
    if any(r[2:] != first[2:] for r in runs) or any(r != ranks[0] for r in ranks):
        raise ProbeError("its results differ in structure from one batch size to another")
    outputs = []
    for i, (shape, strides, _, dtype, alias) in enumerate(first[0]):
        outputs.append(
            Output(
                tuple(_line([r[0][i][0][d] for r in runs], sizes) for d in range(len(shape))),
                tuple(_line([r[0][i][1][d] for r in runs], sizes) for d in range(len(strides))),
                _line([r[0][i][2] for r in runs], sizes),
                dtype,
                alias,
            )
        )
    spec = _fit_spec([r[1] for r in runs], sizes)
    return Outcome(outputs, spec, first[2], first[3])


def _fit_spec(specs, sizes):
    """One description for all batch sizes: numbers that follow the batch become expressions."""
    first = specs[0]
    if any(type(s) is not type(first) for s in specs):
        raise ProbeError("its results differ in structure from one batch size to another")
    if isinstance(first, dict):
        if any(s.keys() != first.keys() for s in specs):
            raise ProbeError("its results differ in structure from one batch size to another")
        return {key: _fit_spec([s[key] for s in specs], sizes) for key in first}
    if isinstance(first, list):
        if any(len(s) != len(first) for s in specs):
            raise ProbeError("its results differ in structure from one batch size to another")
        return [_fit_spec(list(items), sizes) for items in zip(*specs, strict=True)]
    if all(s == first for s in specs):
        return first
    if type(first) is not int:
        raise ProbeError("its results differ from one batch size to another")
    slope, rest = _line(specs, sizes)
    return {"sym": f"{slope}*B+({rest})"}


def _line(values, sizes):
    slope = (values[1] - values[0]) // (sizes[1] - sizes[0])
    rest = values[0] - slope * sizes[0]
    if any(v != slope * n + rest for v, n in zip(values, sizes, strict=True)):
        raise ProbeError("a size that comes out of it is not linear in the batch")
    return slope, rest


def run_block(model, args, kwargs, batch):
    """Runs an ``opaque`` node with its tensors in place; the results in the node's order."""
    inputs = args[0]
    find = model.get_submodule
    spec = json.loads(kwargs["in_spec"])
    call_args, call_kwargs = _pytree.build(
        spec, inputs, device=_device_of(inputs), batch=batch, module=find
    )
    module = find(kwargs["module"])
    modules = {id(m): path for path, m in model.named_modules()}
    found = _call(lambda a, k: module(*a, **k), call_args, call_kwargs, inputs, modules)
    if found.spec != _pytree.at_batch(json.loads(kwargs["out_spec"]), batch):
        raise RuntimeError(
            f"[opaque] block '{kwargs['module']}' gave a result of another structure than when it "
            "was traced; expected the same for all inputs; trace it inside a larger block"
        )
    return found.tensors


def find_blocks(model, wanted):
    """Paths of the modules that ``basic_blocks`` names: by class, class name or path."""
    paths = {}
    for want in wanted:
        found = [p for p, m in model.named_modules() if p and _matches(want, p, m)]
        if not found:
            raise ValueError(
                f"[trace] basic_blocks names {want!r}; expected the class, the class name or the "
                "path of a module inside the model; see model.named_modules()"
            )
        paths.update(dict.fromkeys(found))
    return [p for p in paths if not any(p.startswith(q + ".") for q in paths)]


def _matches(want, path, module):
    if isinstance(want, str):
        return want in (path, type(module).__name__)
    return isinstance(want, type) and isinstance(module, want)
