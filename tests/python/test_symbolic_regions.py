# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoint regions and split biases of ``symbolic_trace``."""

import copy
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from kerf.symbolic import ActivationCheckpointCodeGen, symbolic_trace


class Nested(nn.Module):
    """Checkpoints four deep, re-entrant and not."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(5)])

    def deepest(self, x):
        return checkpoint(self.layers[0], x, use_reentrant=False)

    def deep(self, x):
        y = checkpoint(self.deepest, self.layers[1](x), use_reentrant=True)
        return checkpoint(self.layers[2], y, use_reentrant=False)

    def outer(self, x):
        y = checkpoint(self.deep, x, use_reentrant=False)
        return checkpoint(self.layers[3], torch.relu(y), use_reentrant=True)

    def forward(self, x):
        return checkpoint(self.outer, self.layers[4](x), use_reentrant=False)


def gradients(model, x):
    x = x.clone().requires_grad_()
    out = model(x)
    out.square().sum().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    found |= {"out": out.detach(), "x": x.grad}
    model.zero_grad()
    return found


def test_nested_regions_are_functions_with_the_gradients_of_the_model():
    model, x = Nested(), torch.randn(3, 4)
    gm = symbolic_trace(model, meta_args={"x": x}, trace_act_ckpt=True)
    for name in ("0", "0_0", "0_0_0", "0_0_0_0", "0_0_1", "0_1"):
        assert f"def checkpoint_{name}(" in gm.code
    torch.testing.assert_close(gradients(gm, x), gradients(model, x))


def test_regions_are_on_the_nodes_and_gone_without_the_option():
    x = torch.randn(3, 4)
    gm = symbolic_trace(Nested(), meta_args={"x": x}, trace_act_ckpt=True)
    labels = {n.name: n.meta.get("activation_checkpoint") for n in gm.graph.nodes}
    assert labels["layers_0"] == [0, 0, 0, 0] and labels["layers_4"] is None
    gm = symbolic_trace(Nested(), meta_args={"x": x})
    assert "checkpoint" not in gm.code


def test_options_of_the_model_are_kept():
    layer = nn.Linear(4, 4)

    def forward(x):
        y = checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)
        return checkpoint(layer, y, use_reentrant=True)

    gm = symbolic_trace(
        forward, meta_args={"x": torch.empty(2, 4, requires_grad=True)}, trace_act_ckpt=True
    )
    assert "use_reentrant = False, preserve_rng_state = False" in gm.code
    assert "use_reentrant = True, preserve_rng_state = True" in gm.code


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda gm: pickle.loads(pickle.dumps(gm))])
def test_copies_keep_their_regions(copied):
    model, x = Nested(), torch.randn(3, 4)
    gm = copied(symbolic_trace(model, meta_args={"x": x}, trace_act_ckpt=True))
    assert "def checkpoint_0_0_1(" in gm.code
    torch.testing.assert_close(gradients(gm, x), gradients(model, x))


def annotated(labels):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)))
    gm = symbolic_trace(model, meta_args={"input": torch.empty(3, 4)})
    modules = [n for n in gm.graph.nodes if n.op == "call_module"]
    for node, label in zip(modules, labels, strict=True):
        if label is not None:
            node.meta["activation_checkpoint"] = label
    gm.graph.set_codegen(ActivationCheckpointCodeGen())
    gm.recompile()
    return model, gm


@pytest.mark.parametrize(
    "labels",
    [
        [None, [0], [0], [1], [1], [1], None, None],
        [[0], [0], None, [0], [0], [0, 0], [0, 0], [0]],
        [[0, 0], [0, 0], [0, 1], [0, 1], [1], [1], [1], [1]],
    ],
)
def test_regions_by_hand_give_the_gradients_of_the_model(labels):
    model, gm = annotated(labels)
    x = torch.randn(3, 4)
    torch.testing.assert_close(gradients(gm, x), gradients(model, x))
    assert gm.code.count("def checkpoint_") >= 2


def test_a_value_last_used_in_a_region_is_freed_by_the_caller():
    seen = []

    class Watched(nn.Module):
        def forward(self, x):
            y = torch.relu(x)
            z = checkpoint(lambda v: torch.tanh(v) + 1, y, use_reentrant=False)
            return z * 2

    gm = symbolic_trace(Watched(), meta_args={"x": torch.empty(4)}, trace_act_ckpt=True)
    assert "relu = None" in gm.code.split("_checkpoint(checkpoint_0")[1]

    def watch(x):
        out = torch.relu(x)
        seen.append(weakref.ref(out))
        return out

    node = next(n for n in gm.graph.nodes if "relu" in n.name)
    node.target = watch
    last = next(n for n in gm.graph.nodes if n.name == "mul")
    last.target = lambda a, b: a * b if seen[0]() is None else 1 / 0
    gm.recompile()
    with torch.no_grad():  # with gradients the checkpoint itself needs it
        gm(torch.ones(4))


MODULES = [
    (nn.Linear(3, 5), (2, 3)),
    (nn.Conv1d(3, 6, 3, padding=1, stride=2, groups=3), (2, 3, 9)),
    (nn.Conv2d(3, 6, 3, padding=1, dilation=2, padding_mode="reflect"), (2, 3, 9, 9)),
    (nn.Conv2d(3, 6, 3), (3, 9, 9)),
    (nn.Conv3d(3, 4, 2), (2, 3, 5, 5, 5)),
    (nn.ConvTranspose1d(3, 6, 3, stride=2, output_padding=1), (2, 3, 7)),
    (nn.ConvTranspose2d(3, 6, 3, stride=2, groups=3), (2, 3, 7, 7)),
    (nn.ConvTranspose3d(3, 4, 2), (2, 3, 4, 4, 4)),
]


class Renamed(nn.Linear):
    """Inherits its forward."""


class Scaled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    "module, shape", [*MODULES, (Renamed(3, 5), (2, 3)), (Scaled(3, 5), (2, 3))]
)
def test_modules_are_split_with_equal_results_and_gradients(module, shape):
    model, x = nn.Sequential(module), torch.randn(shape)
    gm = symbolic_trace(model, meta_args={"input": x}, bias_addition_split=True)
    assert " + " in gm.code
    torch.testing.assert_close(gradients(gm, x), gradients(model, x), rtol=1e-4, atol=1e-5)


def test_modules_without_a_bias_stay_whole():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Conv1d(2, 2, 1, bias=False))
    gm = symbolic_trace(model, meta_args={"input": torch.empty(2, 2, 3)}, bias_addition_split=True)
    assert sum(n.op == "call_module" for n in gm.graph.nodes) == 2


aten = torch.ops.aten
FORMS = {
    "addmm": (torch.addmm, torch.Tensor.addmm, aten.addmm, aten.addmm.default),
    "addbmm": (torch.addbmm, torch.Tensor.addbmm, aten.addbmm, aten.addbmm.default),
    "baddbmm": (torch.baddbmm, torch.Tensor.baddbmm, aten.baddbmm, aten.baddbmm.default),
}


@pytest.mark.parametrize("beta, alpha", [(1, 1), (2, 1), (1, 3), (2, 3), (0, 1)])
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("form", range(4))
def test_sums_of_products_are_split(name, form, beta, alpha):
    function = FORMS[name][form]
    first = torch.randn(5, 5) if name != "baddbmm" else torch.randn(2, 5, 5)
    if beta == 0:
        first.fill_(torch.nan)
    factors = [torch.randn(5, 5)] * 2 if name == "addmm" else [torch.randn(2, 5, 5)] * 2

    def forward(c, a, b):
        return function(c, a, b, beta=beta, alpha=alpha)

    given = (first, *factors)
    samples = dict(zip("cab", given, strict=True))
    gm = symbolic_trace(forward, meta_args=samples, bias_addition_split=True)
    assert (" + " in gm.code) == (beta != 0)
    assert (" * " in gm.code) == (alpha != 1 or beta not in (0, 1))
    torch.testing.assert_close(gm(*given), forward(*given), rtol=1e-4, atol=1e-5)
    whole = symbolic_trace(forward, meta_args=samples)
    assert " + " not in whole.code and " * " not in whole.code
    torch.testing.assert_close(whole(*given), forward(*given))


def test_the_functional_forms_are_split():
    def forward(x, w, b):
        return F.conv1d(F.linear(x, w, b), torch.ones(2, 2, 1), b[:2], padding=1)

    given = (torch.randn(3, 2, 4), torch.randn(5, 4), torch.randn(5))
    samples = dict(zip("xwb", given, strict=True))
    gm = symbolic_trace(forward, meta_args=samples, bias_addition_split=True)
    assert gm.code.count(" + ") == 2
    torch.testing.assert_close(gm(*given), forward(*given), rtol=1e-4, atol=1e-5)


CONVOLUTIONS = [
    (aten.conv1d, (2, 3, 9), (4, 3, 3), ()),
    (aten.conv2d.default, (2, 3, 9, 9), (4, 3, 3, 3), ([2, 2], [1, 1])),
    (aten.conv2d.padding, (2, 3, 9, 9), (4, 3, 3, 3), ([1, 1], "same")),
    (aten.conv_transpose1d, (3, 9), (3, 4, 3), ()),
    (torch.convolution, (2, 3, 9), (4, 3, 3), ([1], [0], [1], False, [0], 1)),
    (aten.convolution.default, (2, 3, 9), (3, 4, 3), ([1], [0], [1], True, [0], 1)),
]


@pytest.mark.parametrize("function, shape, weight, options", CONVOLUTIONS)
def test_convolutions_of_aten_are_split(function, shape, weight, options):
    def forward(x, w, b):
        return function(x, w, b, *options)

    given = torch.randn(shape), torch.randn(weight), torch.randn(4)
    samples = dict(zip("xwb", given, strict=True))
    gm = symbolic_trace(forward, meta_args=samples, bias_addition_split=True)
    assert " + " in gm.code
    torch.testing.assert_close(gm(*given), forward(*given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "forward, is_split",
    [
        (lambda c, a, b: torch.addmm(input=c, mat2=b, mat1=a, alpha=2), True),
        (lambda c, a, b: torch.addmm(2, c, 3, a, b), False),  # as it was written once
        (lambda c, a, b: torch.addmm(c, a, b, out=torch.empty(5, 5)), False),
    ],
)
def test_ways_to_pass_what_is_added(forward, is_split):
    given = [torch.randn(5, 5) for _ in range(3)]
    samples = dict(zip("cab", given, strict=True))
    gm = symbolic_trace(forward, meta_args=samples, bias_addition_split=True)
    assert (" + " in gm.code) == is_split
    torch.testing.assert_close(gm(*given), forward(*given), rtol=1e-4, atol=1e-5)
