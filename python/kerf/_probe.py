# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What comes out of a block, found by running it alone at a few batch sizes.

It runs on fake tensors where its code allows that, else for real on made-up inputs, twice: what
comes out must depend on the shapes that go in, never on the values. Sizes are kept as (a, b), which
stands for a*B + b.
"""

import contextlib
import dataclasses
import functools
import json

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from kerf import _classes, _pytree, _schema
from kerf._quiet import quiet
from kerf._restore import attributes_restored, buffers_restored


class ProbeError(Exception):
    """A block whose outputs cannot be described; says why, and what to do about it."""

    def __init__(self, reason, advice="put it and what uses it into one larger submodule"):
        super().__init__(reason)
        self.advice = advice


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a block was called with, at any batch size."""

    path: str
    spec: str  # how the tensors nest, as JSON
    inputs: tuple  # of (shape as (a, b) of a*B + b, dtype, device, requires_grad)
    grad: bool = False  # it is trained: called in train mode, with gradients on

    def with_gradient(self, tensor, wanted):
        """An input, with a gradient as of something computed: it may be written, unlike a leaf."""
        if not wanted or not self.grad:
            return tensor
        with torch.enable_grad():
            return tensor.requires_grad_().clone()


@dataclasses.dataclass(frozen=True)
class Output:
    """One tensor that comes out. Sizes are (a, b) of a*B + b; ``alias`` is an input's number."""

    shape: tuple
    strides: tuple
    offset: tuple
    dtype: torch.dtype
    alias: int | None
    requires_grad: bool


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
    draws: bool  # random numbers, in a probe


def at(size, batch):
    slope, rest = size
    return slope * batch + rest if slope else rest


def _at(sizes, batch):
    return [at(size, batch) for size in sizes]


def symbol_text(size):
    """A symbolic integer inside a block's arguments, as an expression in B."""
    slope, rest = linear(size)
    return f"{slope}*B+({rest})" if slope else rest


def linear(size):
    """``size`` as (a, b) of a*B + b; all symbols in it stand for B. Raises ProbeError."""
    if isinstance(size, int):
        return 0, size
    two, three, five = (_value_at(size, n) for n in (2, 3, 5))
    slope = three - two
    rest = two - 2 * slope
    if five != 5 * slope + rest:
        raise ProbeError(f"a size of {size} is not linear in the batch")
    return slope, rest


def _value_at(size, n):
    expr = size.node.expr
    value = expr.xreplace(dict.fromkeys(expr.free_symbols, sympy.Integer(n)))
    if not value.is_Integer:
        raise ProbeError(f"a size of {size} is not a whole number")
    return int(value)


def signature_of(path, found, grad):
    inputs = tuple(
        (tuple(linear(d) for d in t.shape), t.dtype, t.device, t.requires_grad)
        for t in found.tensors
    )
    return Signature(path, json.dumps(found.spec), inputs, grad)


def probe(model, modules, signature, batch):
    """The Outcome of a block that is called like this. Raises ProbeError."""
    sizes = [batch, batch + 1, batch + 3]
    return _fit([_run(model, modules, signature, size) for size in sizes], sizes)


def _run(model, modules, signature, batch):
    """Runs a block at a batch size: on fake tensors if it lets itself, else for real."""
    module = model.get_submodule(signature.path)
    try:
        with quiet(), attributes_restored(module):
            return _run_fake(model, modules, module, signature, batch)
    except Exception as error:
        weights = [*module.parameters(), *module.buffers()]
        if any(w.is_meta for w in weights):
            raise ProbeError(f"it runs on real weights only: {error}") from error
    with attributes_restored(module):
        first, again = _run_twice(model, modules, module, signature, batch)
    _check_forms(first, again)
    tensors = [(*one[:-1], one[-1] or other[-1]) for one, other in zip(first[0], again[0])]
    return (tensors, *first[1:-1], first[-1] or again[-1])


def _run_twice(model, modules, module, signature, batch):
    """On other values each time. Whole numbers are 0 and 1, or where these will not do, as for
    lengths of sequences, 1 the first time and 2 the second."""
    run = functools.partial(_run_real, model, modules, module, signature, batch)
    try:
        return run(seed=1), run(seed=2)
    except ProbeError:
        if not any(_is_whole(dtype) for _, dtype, _, _ in signature.inputs):
            raise
        with contextlib.suppress(ProbeError):
            return run(seed=1, whole=1), run(seed=2, whole=2)
        raise


def _is_whole(dtype):
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _check_forms(first, again):
    """Nesting, shapes and layouts of two runs on other values have to be the same."""
    if first[1] != again[1]:
        raise ProbeError(
            "the structure of its result, or a number in it, depends on the values of its inputs",
            "return tensors, nested the same way for all inputs",
        )
    _check_sorts([first, again])
    for (shape, *layout, _, _, _), (other, *other_layout, _, _, _) in zip(first[0], again[0]):
        if shape != other:
            raise ProbeError(
                "the shapes of its results depend on the values of its inputs",
                "put it and what uses its result into one submodule whose results have the same "
                "shape for all inputs",
            )
        if layout != other_layout:
            raise ProbeError(
                "the memory layout of its results depends on the values of its inputs",
                "return them in the same layout for all inputs (`.contiguous()`)",
            )


def _check_sorts(runs):
    """Dtypes, and what is shared with or written into an input, hold for all inputs or none."""
    for run in runs[1:]:
        for (*_, dtype, alias, _), (*_, other_dtype, other_alias, _) in zip(runs[0][0], run[0]):
            if alias != other_alias:
                raise ProbeError(
                    "it returns its input, or a part of it, for some inputs and a new tensor for "
                    "others",
                    "return a new tensor for all inputs (`return x.clone()`)",
                )
            if dtype != other_dtype:
                raise ProbeError(
                    "the dtypes of its results differ from one input to another",
                    "give its results the same dtype for all inputs (`.to(...)`)",
                )
        if run[2:-1] != runs[0][2:-1]:
            raise ProbeError(
                "it writes into its inputs or buffers for some inputs and not for others",
                "write for all inputs, or return a new tensor instead",
            )


def _run_fake(model, modules, module, signature, batch):
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        inputs = [
            signature.with_gradient(torch.empty(_at(shape, batch), dtype=t, device=device), grad)
            for shape, t, device, grad in signature.inputs
        ]
        state = {
            n: mode.from_tensor(t)
            for n, t in [
                *module.named_parameters(remove_duplicate=False),
                *module.named_buffers(remove_duplicate=False),
            ]
        }
        with torch.set_grad_enabled(signature.grad), _Draws() as draws:
            found = _observe(
                lambda a, k: torch.func.functional_call(
                    module, state, tuple(a), k, tie_weights=False
                ),
                model,
                modules,
                signature,
                inputs,
                state,
                batch,
            )
        return (*found, draws.seen)


def _run_real(model, modules, module, signature, batch, seed, whole=None):
    state = dict(module.named_buffers(remove_duplicate=False))
    devices = [d for _, _, d, _ in signature.inputs if d.type == "cuda"]
    grad = torch.set_grad_enabled(signature.grad)
    with torch.random.fork_rng(devices), grad, buffers_restored(module):
        torch.manual_seed(seed)
        inputs = [
            signature.with_gradient(_made_up(_at(shape, batch), dtype, device, whole), wanted)
            for shape, dtype, device, wanted in signature.inputs
        ]
        try:
            before = _random_states(devices)
            found = _observe(
                lambda a, k: module(*a, **k), model, modules, signature, inputs, state, batch
            )
            after = _random_states(devices)
            drew = not all(map(torch.equal, before, after))
            return (*found, drew)
        except Exception as error:
            raise ProbeError(
                f"running it by itself raised {type(error).__name__}: {error}"
            ) from error


class _Draws(TorchDispatchMode):
    """Sees operators that draw random numbers, which on fake tensors moves no generator; and those
    that write statistics."""

    def __init__(self):
        super().__init__()
        self.seen = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.seen = self.seen or _schema.draws(func, args, kwargs)
        _count_statistics(func, args, kwargs)
        return func(*args, **kwargs)


def _count_statistics(func, args, kwargs):
    """Batch norms on fake tensors write no statistics, and real ones do in train mode."""
    names = [a.name for a in func._schema.arguments]
    given = {**dict(zip(names, args)), **kwargs}
    if not given.get("training", given.get("train", False)):
        return
    for name in ("running_mean", "running_var"):
        if given.get(name) is not None:
            torch.autograd.graph.increment_version(given[name])


def _random_states(devices):
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(d) for d in devices)]


def _made_up(shape, dtype, device, whole=None):
    if whole is not None and _is_whole(dtype):
        return torch.full(shape, whole, dtype=dtype, device=device)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, device=device).to(dtype)
    # Small numbers: they may be used as indices.
    return torch.randint(0, 2, shape, device=device).to(dtype)


def _observe(call, model, modules, signature, inputs, state, batch):
    """Runs ``call`` and describes what came out: comparable between runs."""
    versions = [t._version for t in inputs]
    state_versions = {n: t._version for n, t in state.items()}
    args, kwargs = _pytree.build(
        json.loads(signature.spec),
        inputs,
        batch=batch,
        module=model.get_submodule,
        classes=_classes.OWN,
    )
    found = observed_call(call, args, kwargs, inputs, modules)
    storages = {t.untyped_storage()._cdata: i for i, t in enumerate(inputs)}
    tensors = [
        (
            tuple(t.shape),
            t.stride(),
            t.storage_offset(),
            t.dtype,
            storages.get(t.untyped_storage()._cdata),
            t.requires_grad,
        )
        for t in found.tensors
    ]
    written = [i for i, t in enumerate(inputs) if t._version != versions[i]]
    changed = [n for n, t in state.items() if t._version != state_versions[n]]
    return tensors, found.spec, written, changed


def observed_call(call, args, kwargs, inputs, modules):
    """The description of what a call gives back, and of its arguments if it has changed those."""
    options = {"device": device_of(inputs), "modules": modules}
    before = _pytree.describe([args, kwargs], share=False, **options)
    value = call(args, kwargs)
    after = _pytree.describe([args, kwargs], share=False, **options)
    same = before.spec == after.spec and all(
        a is b for a, b in zip(before.tensors, after.tensors, strict=True)
    )
    changed = None if same else [args, kwargs]
    return _pytree.describe([value, changed], given=before.mutables, changed=not same, **options)


def device_of(inputs):
    return inputs[0].device if inputs else None


def _fit(runs, sizes):
    """One outcome for all batch sizes, from runs at a few."""
    first = runs[0]
    ranks = [[len(t[0]) for t in r[0]] for r in runs]
    if any(r != ranks[0] for r in ranks):
        raise ProbeError("its results differ in structure from one batch size to another")
    _check_sorts(runs)
    outputs = []
    for i, (shape, strides, _, dtype, alias, _) in enumerate(first[0]):
        outputs.append(
            Output(
                tuple(_line([r[0][i][0][d] for r in runs], sizes) for d in range(len(shape))),
                tuple(_line([r[0][i][1][d] for r in runs], sizes) for d in range(len(strides))),
                _line([r[0][i][2] for r in runs], sizes),
                dtype,
                alias,
                any(r[0][i][-1] for r in runs),
            )
        )
    spec = _fit_spec([r[1] for r in runs], sizes)
    return Outcome(outputs, spec, first[2], first[3], any(r[-1] for r in runs))


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
        raise ProbeError("a size of its results is not linear in the batch")
    return slope, rest
