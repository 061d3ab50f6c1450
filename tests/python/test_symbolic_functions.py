# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Functions with a backward of their own: what a profile says they keep and compute."""

import pytest
import torch
from saving import kept_bytes
from torch import nn

import kerf


class Gelu(torch.autograd.Function):
    """Keeps its input and computes again."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 0.5 * (1.0 + torch.tanh(0.8 * x * (1 + 0.04 * x * x)))

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * torch.tanh(x)


class KeepsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class KeepsInside(torch.autograd.Function):
    """A tensor of its own, past save_for_backward."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.mask = x > 0
        ctx.scale = scale
        return x * ctx.mask * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.mask * ctx.scale, None


class TwoResults(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w, x + 1

    @staticmethod
    def backward(ctx, product, total):
        x, w = ctx.saved_tensors
        return product @ w.t() + total, x.t() @ product


class Looks(torch.autograd.Function):
    """Whose backward looks at its data."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 if ctx.saved_tensors[0].sum() > 0 else gradient


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x):
        return self.b(self.function(self.a(x), self.b.weight))


FUNCTIONS = {
    "input": lambda x, w: Gelu.apply(x),
    "result": lambda x, w: KeepsResult.apply(x),
    "inside": lambda x, w: KeepsInside.apply(x, 3.0),
    "two results": lambda x, w: sum(TwoResults.apply(x, w)),
    "one of two results": lambda x, w: TwoResults.apply(x, w)[0].sin(),
    "one after the other": lambda x, w: Gelu.apply(KeepsResult.apply(x) + 1),
    "without a gradient": lambda x, w: Gelu.apply(x.detach()) + x,
    "under no_grad": lambda x, w: x + torch.no_grad()(Gelu.apply)(x),
    "of a weight": lambda x, w: x @ KeepsResult.apply(w),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_keeps_what_it_keeps_in_a_real_call(name):
    model, x = Net(FUNCTIONS[name]).train(), torch.randn(4, 8)
    gm = kerf.symbolic_trace(model, meta_args={"x": x})
    kerf.symbolic_profile(gm, x, device_kind="cpu", strict=True)
    table = kerf.profile_table(gm)
    assert table.ops_without_rule == []
    unseen = x.numel() if name == "inside" else 0  # hooks do not see the mask
    assert table.totals["saved"] == kept_bytes(model, (x,), {}) + unseen


def test_the_backward_of_a_function_is_what_it_calls():
    def call(x, w):
        return TwoResults.apply(x, w)

    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, 6, requires_grad=True)
    forward, backward = kerf.flop_count(lambda x, w: TwoResults.apply(x, w)[0], x, w)
    product = 2 * 4 * 8 * 6
    assert forward == product + 4 * 8
    assert backward == 2 * product + 4 * 8
    gm = kerf.symbolic_trace(call, meta_args={"x": x, "w": w})
    kerf.symbolic_profile(gm, x, w)
    (node,) = [node for node in gm.graph.nodes if "apply" in node.name]
    assert kerf.MetaInfo(node).bwd_flop == backward
    assert kerf.MetaInfo(node).fwd_in == 4 * (4 * 8 + 8 * 6)


def test_a_backward_that_looks_at_data_is_listed():
    gm = kerf.symbolic_trace(Net(lambda x, w: Looks.apply(x)), meta_args={"x": torch.randn(4, 8)})
    kerf.symbolic_profile(gm, torch.randn(4, 8))
    ((op, count, _),) = kerf.profile_table(gm).unknown_ops
    assert (op, count) == ("kerf.python_function.Looks", 1)
    with pytest.raises(NotImplementedError, match="python_function.Looks"):
        kerf.symbolic_profile(gm, torch.randn(4, 8), strict=True)


@torch.library.custom_op("kerf_test_functions::scaled", mutates_args=())
def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.exp() @ w


@scaled.register_fake
def _(x, w):
    return x.new_empty(x.shape[0], w.shape[1])


def _keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[1], output)


def _scaled_backward(ctx, gradient):
    w, output = ctx.saved_tensors
    return (gradient * output) @ w.t(), None


scaled.register_autograd(_scaled_backward, setup_context=_keep)


def test_an_operator_with_a_backward_in_python_is_one_node_and_keeps_what_it_keeps():
    model, x = Net(lambda x, w: scaled(x, w * 2)).train(), torch.randn(4, 8)
    gm = kerf.symbolic_trace(model, meta_args={"x": x})
    assert not any("apply" in node.name for node in gm.graph.nodes)
    torch.testing.assert_close(gm(x), model(x))
    kerf.symbolic_profile(gm, x, device_kind="cpu")
    table = kerf.profile_table(gm)
    assert table.totals["saved"] == kept_bytes(model, (x,), {})
    assert [op for op, _, _ in table.unknown_ops] == ["kerf_test_functions.scaled.default"]
    registry = kerf.symbolic.Registry()
    rule = kerf.register_flop_count_impl(torch.ops.kerf_test_functions.scaled, registry=registry)
    rule(lambda x, w: (1000, 2000))
    kerf.symbolic_profile(gm, x, registry=registry, strict=True)
    (info,) = [kerf.MetaInfo(n) for n in gm.graph.nodes if "scaled" in n.name]
    assert (info.fwd_flop, info.bwd_flop) == (1000, 2000)


def test_a_step_with_a_function_has_a_memory():
    gm = kerf.symbolic_trace(Net(FUNCTIONS["input"]), meta_args={"x": torch.randn(4, 8)})
    kerf.symbolic_profile(gm, torch.randn(4, 8))
    memory = kerf.memory(gm, device_kind="cpu")
    assert memory.at_peak["gradients"] == 2 * 4 * (8 * 8 + 8)
    assert memory.saved == 2 * 4 * 8 * 4
