# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Ordinary code of models that symbolic traces once refused: sizes in NumPy's functions, known
numbers where PyTorch takes numbers, tensors made in functions with a backward of their own."""

import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from given_code import Model, x
from torch import nn

from kerf import ExportError
from kerf.symbolic import GuardError, profile_table, symbolic_profile, symbolic_trace


def agrees(forward, *batches):
    model = Model(forward)
    gm = symbolic_trace(model, meta_args={"x": x()})
    for batch in batches or (4, 4, 3):
        given, found = x(batch), []
        for module in (model, gm):
            model.zero_grad()
            out = module(given.clone())
            out.sum().backward()
            found.append((out, [p.grad for p in model.parameters()]))
        torch.testing.assert_close(found[1], found[0])
    return gm


# Sizes in functions of NumPy


@pytest.mark.parametrize(
    "numbers",
    [
        lambda n: np.arange(n),
        lambda n: np.arange(n, dtype=np.float32) * n,
        lambda n: np.ones(8, dtype=np.float32) * n + n,
        lambda n: np.linspace(0, 1, n) * np.sqrt(n) + np.ceil(n / 3),
        lambda n: np.full((n,), 2.0) + np.prod([n, 2]) + np.clip(n, 1, 3) + np.maximum(n, 9),
    ],
)
def test_sizes_are_numbers_for_numpy(numbers):
    def forward(model, x):
        made = numbers(x.shape[1])
        assert made.dtype != object
        return model.linear(x) * torch.from_numpy(made)

    agrees(forward)


@pytest.mark.parametrize(
    "factor",
    [
        lambda n: np.float64(2.5) * n,
        lambda n: n * np.float32(2),
        lambda n: np.int64(3) * n - np.int64(1),
        lambda n: n // np.int64(2) + np.int64(9) % n,
    ],
)
def test_arithmetic_with_numbers_of_numpy_holds_for_other_batches(factor):
    agrees(lambda model, x: model.linear(x) * factor(x.shape[0]), 4, 3, 7)


def test_a_comparison_with_a_number_of_numpy_is_guarded():
    gm = agrees(lambda model, x: model.linear(x) * (2 if np.int64(3) < x.shape[0] else 5), 4, 7)
    with pytest.raises(GuardError, match=r"test_symbolic_followed.py:\d+"):
        gm(x(2))


# Tensors of one known number where PyTorch takes numbers


@pytest.mark.parametrize(
    "pick",
    [
        lambda x, n: x[:, :n] + x[:, n : 2 * n],
        lambda x, n: x.view(-1, n, 4) * torch.ones(n, 1),
        lambda x, n: F.interpolate(x[None], size=(n,)),
        lambda x, n: torch.zeros(n).sum() + x,
    ],
)
def test_a_tensor_of_one_known_number_is_a_number(pick):
    agrees(lambda model, x: pick(model.linear(x), torch.tensor(2)))


def test_a_number_that_follows_from_a_size_is_checked():
    gm = agrees(lambda model, x: model.linear(x)[: torch.tensor(x.shape[0]) // 2], 4, 5)
    with pytest.raises(GuardError, match=r"was 2 .* is 1.*test_symbolic_followed.py:\d+"):
        gm(x(3))


def test_a_slice_by_data_is_refused():
    with pytest.raises(ExportError, match=r"x\[\.\.\.\] returns depends on the data .*\.py:\d+"):
        agrees(lambda model, x: model.linear(x)[: x.argmax()])


# Tensors that functions with a backward of their own make


class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        kept = torch.ones(x.shape).masked_fill(torch.arange(8) > 3, torch.tensor(0.5))
        ctx.save_for_backward(kept)
        return x * kept

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0] * 2


def test_a_function_with_its_own_backward_may_make_tensors():
    agrees(lambda model, x: Masked.apply(model.linear(x)))


# Casts that change nothing


def test_a_cast_that_changes_nothing_is_followed_and_another_refused():
    def forward(model, x):
        model.linear = model.linear.to(x.dtype).float()
        return model.linear(x)

    agrees(forward)
    with pytest.raises(ExportError, match=r"sets \.data"):
        agrees(lambda model, x: model.linear.double()(x.double()))


# Distributions, which check what they are given


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(4, 8)

    def forward(self, x):
        mean, scale = self.encoder(x).chunk(2, -1)
        posterior = torch.distributions.Normal(mean, scale.exp())
        decoded = self.decoder(posterior.rsample())
        likelihood = torch.distributions.Bernoulli(logits=decoded)
        prior = torch.distributions.Normal(0.0, 1.0)
        distance = torch.distributions.kl_divergence(posterior, prior)
        return likelihood.log_prob((x > 0).float()).sum(-1) - distance.sum(-1)


def test_distributions_are_followed_and_their_checks_kept(monkeypatch):
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    model = Variational()
    gm = symbolic_trace(model, meta_args={"x": x()})
    for batch in (4, 3):
        given, found = x(batch), []
        for module in (model, gm):
            torch.manual_seed(0)
            found.append(module(given))
        torch.testing.assert_close(found[1], found[0])
    nothing = torch.full((2, 8), torch.nan)
    with pytest.raises(ValueError, match="invalid values"):
        model(nothing)
    with pytest.raises(GuardError, match=r"check of torch.distributions .*_followed.py:\d+"):
        gm(nothing)
    assert profile_table(symbolic_profile(gm, x())).totals["fwd_mac"] == 4 * (8 * 8 + 4 * 8)


# Questions and results that once were answered by the trace alone


def test_a_gradient_that_the_code_asks_for_is_guarded():
    def forward(model, x):
        gradient = model.linear.weight.grad
        return model.linear(x) * (1 if gradient is None else gradient.norm())

    gm = symbolic_trace(model := Model(forward), meta_args={"x": x()})
    gm(x()).sum().backward()
    with pytest.raises(GuardError, match=r"grad of linear.weight was None .*_followed.py:\d+"):
        gm(x())
    model.zero_grad()
    assert gm(x()).shape == (4, 8)


def test_sizes_are_returned_as_sizes():
    def forward(model, x):
        return x.shape, {"all": [model.linear(x).view(x.shape).shape]}

    gm = symbolic_trace(Model(forward), meta_args={"x": x()})
    for made in (gm, pickle.loads(pickle.dumps(gm))):
        size, inside = made(x(3))
        assert type(size) is type(inside["all"][0]) is torch.Size
        assert size == inside["all"][0] == (3, 8)
