# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Autocast, the default dtype and gradients: what surrounds a trace and a call."""

import warnings

import pytest
import torch
from comparing import assert_same, eager
from torch import nn

import kerf
from kerf import _core
from kerf._surroundings import Surroundings

X = torch.randn(4, 8)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()


def planned(net, x=X):
    graph = kerf.trace(net, x)
    return kerf.plan(graph, devices=["cpu:0", "cpu:1"], method="even", n_microbatches=2)


def test_a_trace_inside_autocast_is_for_calls_inside_it(tmp_path):
    net = model()
    with torch.autocast("cpu", torch.bfloat16):
        plan = planned(net)
    plan.graph.save(tmp_path / "net.graph")
    graph = kerf.load_graph(tmp_path / "net.graph")
    pipe = kerf.Pipeline(net, plan, graph=graph)
    with pytest.raises(ValueError, match=r"outside torch.autocast; the model was traced inside"):
        pipe(X)
    with torch.autocast("cpu", torch.float16):
        with pytest.raises(ValueError, match=r'autocast\("cpu", torch.float16\).*torch.bfloat16'):
            pipe(X)
    with torch.autocast("cpu", torch.bfloat16):
        assert pipe(X).dtype == torch.bfloat16
        assert_same(pipe(X), eager(net, (X,), {}))
        with torch.autocast("cpu", enabled=False), pytest.raises(ValueError, match="outside"):
            pipe(X)


class Casts(nn.Module):
    """What it casts to depends on autocast, and stands in the graph as a number."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        return torch.ones(8).to(y.dtype) * 1.001 + y


def test_a_trace_outside_autocast_is_for_calls_outside_it():
    net = Casts().eval()
    pipe = kerf.Pipeline(net, planned(net))
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ValueError, match="call it as it was traced, or trace it as it is"):
            pipe(X)
    with torch.autocast("cpu", enabled=False):
        assert_same(pipe(X), eager(net, (X,), {}))


def test_another_default_dtype_is_refused():
    class Made(nn.Module):
        def forward(self, x):
            return x + torch.ones(8)

    net = Made().eval()
    pipe = kerf.Pipeline(net, planned(net))
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ValueError, match="default dtype is float64; it was float32"):
            pipe(X)
    finally:
        torch.set_default_dtype(torch.float32)
    assert pipe(X).dtype == torch.float32


def gradient_warnings(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if issubclass(w.category, kerf.KerfWarning)]


def test_an_input_that_requires_grad_is_warned_about_once():
    net = model()
    pipe = kerf.Pipeline(net, planned(net))
    x = X.clone().requires_grad_()
    with torch.no_grad():
        assert not gradient_warnings(lambda: pipe(x))
    assert not gradient_warnings(lambda: pipe(X))  # parameters alone require grad by default
    assert "without gradients" in gradient_warnings(lambda: pipe(x))[0]
    assert not gradient_warnings(lambda: pipe(x))


def test_a_model_in_train_mode_is_warned_about_once():
    net = model().train()
    pipe = kerf.Pipeline(net, planned(net))
    assert len(gradient_warnings(lambda: pipe(X))) == 1
    assert not gradient_warnings(lambda: pipe(X))
    frozen = model().train().requires_grad_(False)
    pipe = kerf.Pipeline(frozen, planned(frozen))
    assert not gradient_warnings(lambda: pipe(X))


def test_autocast_of_the_cpu_counts_for_the_device_of_a_stage():
    """Without an accelerator: what a call has to be made inside of, and what is refused."""
    net = model()
    with torch.autocast("cpu", torch.bfloat16):
        surroundings = Surroundings(kerf.trace(net, X), {"cuda"})
        with pytest.raises(ValueError, match="outside torch.autocast; the model was traced inside"):
            surroundings.check()
        surroundings = Surroundings(kerf.trace(net, X), {"cpu", "cuda"})
        words = r'made inside torch.autocast\("cpu", .*\); .* devices is inside .*"cuda"'
        with pytest.raises(ValueError, match=words):
            surroundings.check()
        surroundings = Surroundings(kerf.trace(net, X), {"cuda"})
    try:  # torch.autocast does nothing where there is no such device
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        surroundings.check()
    finally:
        torch.set_autocast_enabled("cuda", False)
    text = kerf.trace(net, X).text()
    assert '"torch.autocast" = []' in text
    graph = _core.parse_graph(
        text.replace('"torch.autocast" = []', '"torch.autocast" = [["cuda", "bfloat16"]]')
    )
    with pytest.raises(ValueError, match="stages on cpu, where that has no effect"):
        Surroundings(graph, {"cpu", "cuda"})
