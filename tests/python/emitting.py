# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Stages in a file, against the model that they were made of."""

import contextlib
import copy
import functools
import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

import torch
from comparing import assert_same, hand_plan, kept_state, one_thread, random_stages

import kerf

_numbers = itertools.count()


def load(path):
    """The file as a module, under a name of its own."""
    name = f"emitted_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def cut(graph, count, seed=0):
    """A plan with ``count`` stages, cut at random places."""
    stages = random_stages(graph, count, seed)
    return hand_plan(graph, stages, [f"cpu:{i}" for i in range(count)])


def in_mode(model, training, args, kwargs, **options):
    before = model.training
    try:
        return kerf.trace(model.train(training), args, kwargs, **options)
    finally:
        model.train(before)


def emitted(folder, graph, plan, eval_graph=None):
    """The file of a plan, loaded; it is as a formatter would leave it."""
    path = Path(folder) / f"{graph.name}.py"
    kerf.emit(plan, graph, path, eval_graph=eval_graph, overwrite=True)
    assert_formatted(path)
    return load(path)


def ruff(*arguments):
    program = Path(sys.executable).parent / "ruff"
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, cwd="/", timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def assert_formatted(path):
    ruff("format", "--isolated", "--line-length", "100", "--diff", path)
    rules = ("--select", "E4,E7,E9,F,I")
    ruff("check", "--isolated", "--line-length", "100", *rules, path)


def trial(call, model, args, kwargs, backward=True):
    """Results, gradients of parameters and buffers of a call; the model is as before afterwards."""
    args, kwargs = copy.deepcopy((args, kwargs))
    model.zero_grad(set_to_none=True)
    torch.manual_seed(0)
    with kept_state(model), one_thread():
        result = call(*args, **kwargs)
        tensors = [t for t in kerf._pytree.describe(result).tensors if t.requires_grad]
        if tensors and backward:
            torch.stack([t.abs().square().mean() for t in tensors]).sum().backward()
        buffers = {name: b.clone() for name, b in model.named_buffers()}
    gradients = {n: p.grad for n, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        return result, gradients, buffers, (args, kwargs)


def assert_as_model(module, model, args, kwargs, exact=True, backward=True):
    """The stages of a file do what the model does, in the modes that they have."""
    before = model.training
    for training in module.MODES:
        model.train(training)
        stages = [stage.train(training) for stage in module.make_stages(model)]
        expected = trial(model, model, args, kwargs, backward)
        run = functools.partial(module.run, stages)
        found = trial(run, model, args, kwargs, backward)
        assert_same(found[0], expected[0], exact)
        assert found[1].keys() == expected[1].keys()
        for name, gradient in expected[1].items():
            assert (gradient is None) == (found[1][name] is None), name
            if gradient is not None:
                assert_close(found[1][name], gradient, name, exact)
        for name, buffer in expected[2].items():
            assert_close(found[2][name], buffer, name, exact)
        assert_same(found[3], expected[3], exact)  # arguments, where they are written
    model.train(before)


def assert_close(found, expected, name, exact):
    if exact:
        assert torch.equal(found, expected), f"{name}: {(found - expected).abs().max()}"
    else:
        scale = expected.abs().max().item() if expected.numel() else 0.0
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 * max(scale, 1e-3))


@contextlib.contextmanager
def without_kerf(folder):
    """Arguments of a Python process in which kerf cannot be imported."""
    (folder / "kerf.py").write_text("raise ImportError('kerf is not here')\n")
    yield {"cwd": folder, "env": {"PYTHONPATH": str(folder), "PATH": ""}}
