# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Training models whose forward changes something: buffers, weights, attributes of blocks."""

import collections
import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import assert_close, assert_same, gradients

import kerf


class Counts(nn.Module):
    """Reads what it writes."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 8))
        self.register_buffer("n", torch.zeros(8))

    def forward(self, x):
        self.n.add_(1.0)
        return torch.tanh((x + self.n) @ self.w)


class Mean(Counts):
    def forward(self, x):
        h = x @ self.w
        with torch.no_grad():
            self.n.lerp_(h.mean(0), 0.1)
        return h * (1 + self.n)


class Shrinks(Counts):
    def forward(self, x):
        with torch.no_grad():
            self.w.mul_(0.9)
        return torch.tanh(x @ self.w)


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.utils.spectral_norm(nn.Linear(8, 8))

    def forward(self, x):
        return self.lin(x).tanh()


class Renormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8, max_norm=1.0)

    def forward(self, x):
        return self.table(x.abs().sum(1).long() % 20)


@pytest.mark.parametrize("layer", [Counts, Mean, Shrinks, Spectral, Renormed])
@pytest.mark.parametrize("recompute", ["none", "all"])
def test_a_block_that_reads_what_it_writes(layer, recompute):
    torch.manual_seed(0)
    layers = [nn.Sequential(layer(), nn.Linear(8, 8), nn.Tanh()) for _ in range(3)]
    model = nn.Sequential(*layers).train()
    reference = copy.deepcopy(model)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    graph = kerf.trace(model, (x,))
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], training=True, recompute=recompute)
    with kerf.Pipeline(model, plan) as pipe:
        for _ in range(2):
            pipe.train_step(x, target=y, loss_fn=F.mse_loss)
            F.mse_loss(reference(x), y).backward()
    assert_close(gradients(model), gradients(reference))


def test_a_weight_that_forward_writes_keeps_its_gradient_when_a_step_fails():
    class Clamped(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(8, 8) * 3)

        def forward(self, x):
            with torch.no_grad():
                self.w.clamp_(-1, 1)
            return torch.tanh(x @ self.w)

    class Breaks(torch.autograd.Function):
        broken = True

        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            if Breaks.broken:
                raise ValueError("broke")
            return g

    class Block(nn.Module):
        def forward(self, x):
            return Breaks.apply(x)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Block(), Clamped()).train()
    x = torch.randn(8, 8)
    plan = kerf.plan(kerf.trace(model, (x,)), ["cpu:0", "cpu:1"], training=True)
    with kerf.Pipeline(model, plan) as pipe:
        with pytest.raises(ValueError, match="broke"):
            pipe.train_step(x, target=x, loss_fn=F.mse_loss)
        assert all(p.grad is None for p in model.parameters())
        Breaks.broken = False
        reference = copy.deepcopy(model)
        F.mse_loss(reference(x), x).backward()
        pipe.train_step(x, target=x, loss_fn=F.mse_loss)
    assert_close(gradients(model), gradients(reference))


def test_a_loss_that_runs_backward_itself_is_refused():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).train()
    x = torch.randn(8, 8)
    plan = kerf.plan(kerf.trace(model, (x,)), ["cpu:0", "cpu:1"], training=True, method="even")
    assert len(plan.stages) == 2

    def loss_fn(out, target):
        loss = F.mse_loss(out, target)
        loss.backward(retain_graph=True)
        return loss

    with kerf.Pipeline(model, plan) as pipe:
        with pytest.raises(ValueError, match="loss_fn has run backward itself"):
            pipe.train_step(x, target=x, loss_fn=loss_fn)
        assert all(p.grad is None for p in model.parameters())

        def penalty(out, target):
            loss = F.mse_loss(out, target)
            (slope,) = torch.autograd.grad(loss, out, create_graph=True)
            return loss + slope.square().sum()

        assert pipe.check_train(x, target=x, loss_fn=penalty) < 1e-4


def test_two_pipelines_on_one_model_in_two_threads_add_up():
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(8, 8)

        def forward(self, x):
            return self.lin(x).relu() if x.sum() > -1e9 else x

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Branch(), nn.Linear(8, 8)).train()
    reference = copy.deepcopy(model)
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    graph = kerf.trace(model, (x,))
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], training=True, method="even")
    failures = []

    def run(pipe):
        try:
            for _ in range(60):
                pipe.train_step(x, target=y, loss_fn=F.mse_loss)
        except Exception as error:
            failures.append(error)

    pipes = [kerf.Pipeline(model, plan) for _ in range(2)]
    threads = [threading.Thread(target=run, args=(pipe,)) for pipe in pipes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pipe in pipes:
        pipe.close()
    assert not failures
    F.mse_loss(reference(x), y).backward()
    for name, gradient in gradients(reference).items():
        torch.testing.assert_close(gradients(model)[name], gradient * 120, rtol=1e-3, atol=1e-4)


class Notes(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.seen = collections.deque()
        self.kinds = collections.Counter()
        self.groups = collections.defaultdict(list)
        self.register_buffer("grows", torch.zeros(3))
        self.register_buffer("odd", torch.full((1,), float("nan")).expand(4), persistent=False)

    def forward(self, x):
        self.seen.append(1)
        self.kinds["call"] += 1
        self.groups["call"].append(1)
        self.grows.data = torch.ones(self.grows.numel() + 1)
        return self.lin(x)


def test_whatever_a_block_keeps_is_put_back_and_the_error_is_the_users():
    model = nn.Sequential(nn.Linear(8, 8), Notes(), nn.Linear(8, 8)).train()
    x = torch.randn(8, 8)
    graph = kerf.trace(model, (x,), basic_blocks=["1"])
    notes = model[1]
    with kerf.Pipeline(model, kerf.plan(graph, ["cpu:0"], training=True)) as pipe:
        before = (list(notes.seen), dict(notes.kinds), dict(notes.groups), notes.grows.clone())

        def fails(out, target):
            raise ZeroDivisionError("mine")

        with pytest.raises(ZeroDivisionError, match="mine"):
            pipe.train_step(x, target=x, loss_fn=fails)
        after = (list(notes.seen), dict(notes.kinds), dict(notes.groups))
        assert after == before[:3]
        assert_same({"grows": notes.grows}, {"grows": before[3]})


def test_threads_that_a_loss_sets_are_its_own_affair():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).train()
    x = torch.randn(8, 8)
    plan = kerf.plan(kerf.trace(model, (x,)), ["cpu:0", "cpu:1"], training=True, method="even")
    seen = []

    def loss_fn(out, target):
        seen.append(torch.get_num_threads())
        torch.set_num_threads(3)
        return F.mse_loss(out, target)

    before = torch.get_num_threads()
    try:
        with kerf.Pipeline(model, plan) as pipe:
            for _ in range(3):
                pipe.train_step(x, target=x, loss_fn=loss_fn)
    finally:
        torch.set_num_threads(before)
    assert seen == [seen[0]] * 3
