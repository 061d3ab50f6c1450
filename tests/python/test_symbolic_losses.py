# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Losses of PyTorch that read numbers on their way: a node, with the gradients of the model."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kerf
from kerf.symbolic import symbolic_trace


class Loss(nn.Module):
    """A layer and a loss behind it."""

    def __init__(self, loss, width):
        super().__init__()
        self.linear, self.loss = nn.Linear(width, width), loss

    def forward(self, x, others):
        return self.loss(self.linear(x), *others)


def check(loss, make):
    x, others = make()
    model = Loss(loss, x.shape[-1])
    without_data = [t.to("meta") for t in others]
    gm = symbolic_trace(model, meta_args={"x": x.to("meta"), "others": without_data})
    for _ in range(2):
        x, others = make()
        answers = []
        for module in (model, gm):
            model.zero_grad()
            answer = module(x, list(others))
            answer.sum().backward()
            answers.append((answer.detach(), [p.grad.clone() for p in model.parameters()]))
        torch.testing.assert_close(answers[1], answers[0])
    kerf.symbolic_profile(gm, x, list(others))
    assert kerf.profile_table(gm).unknown_ops == []
    output = next(n for n in gm.graph.nodes if n.op == "output").args[0]
    assert output.meta["val"].shape == answers[0][0].shape
    return gm


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("var", [(5, 4), (5, 1), (5,)])
def test_a_gaussian_loss_is_one_node_that_checks_its_variances(reduction, var):
    def make():
        return torch.randn(5, 4), (torch.randn(5, 4), torch.rand(var) + 0.1)

    for loss in (
        nn.GaussianNLLLoss(reduction=reduction),
        lambda *args: F.gaussian_nll_loss(*args, reduction=reduction),
    ):
        gm = check(loss, make)
        x, (target, variances) = make()
        with pytest.raises(ValueError, match="var has negative entr"):
            gm(x, [target, -variances])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_an_alignment_loss_reads_its_lengths_at_each_call(reduction, dtype):
    def make():
        log_probs = torch.randn(10, 3, 4).log_softmax(-1)
        targets = torch.randint(1, 4, (3, 5))
        lengths = torch.randint(8, 11, (3,)), torch.randint(1, 5, (3,))
        return log_probs, [t.to(dtype) for t in (targets, *lengths)]

    for loss in (
        nn.CTCLoss(reduction=reduction, zero_infinity=True),
        lambda *args: F.ctc_loss(*args, reduction=reduction),
        lambda *args: torch.ctc_loss(*args, 0, ("none", "mean", "sum").index(reduction), False),
    ):
        check(loss, make)


def test_a_norm_across_channels_is_one_node():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.CrossMapLRN2d(3))
    gm = symbolic_trace(model, meta_args={"input": torch.empty(2, 3, 4, 4)})
    answers = []
    for module in (model, gm):
        model.zero_grad()
        torch.manual_seed(0)
        answer = module(torch.randn(3, 3, 5, 5))
        answer.square().sum().backward()
        answers.append((answer.detach(), [p.grad.clone() for p in model.parameters()]))
    torch.testing.assert_close(answers[1], answers[0])
