# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""One test for each way in which training was wrong, or refused what is right."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import assert_close, assert_same, buffers, gradients

import kerf


def pipeline(model, args, devices=1, n_microbatches=1, **options):
    options = {"method": "even", "recompute": "none", **options}
    graph = kerf.trace(model, args)
    names = [f"cpu:{d}" for d in range(devices)]
    plan = kerf.plan(graph, names, n_microbatches=n_microbatches, training=True, **options)
    return kerf.Pipeline(model, plan, batch_independent=True)


def eager(model, args, target, loss_fn):
    """The gradients of a copy."""
    own = copy.deepcopy(model)
    own.zero_grad()
    loss_fn(own(*args), target).backward()
    return gradients(own)


def assert_trains(model, args, target, loss_fn=F.mse_loss, **options):
    expected = eager(model, args, target, loss_fn)
    with pipeline(model, args, **options) as pipe:
        pipe.train_step(*args, target=target, loss_fn=loss_fn)
    assert_close(gradients(model), expected)


# Autocast's cache of cast weights, filled by a forward without gradients, was taken by the second
# run: gradients of those weights stayed None.
@pytest.mark.parametrize("recompute", ["all", "none", ["1", "2"]])
def test_blocks_that_run_again_under_autocast(recompute):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(4)]
    model = nn.Sequential(*layers).train()
    x = torch.randn(8, 16)
    with torch.autocast("cpu", torch.bfloat16):
        expected = eager(model, (x,), x, lambda a, b: F.mse_loss(a.float(), b))
        with pipeline(model, (x,), recompute=recompute) as pipe:
            pipe.train_step(x, target=x, loss_fn=lambda a, b: F.mse_loss(a.float(), b))
    assert_close(gradients(model), expected, 1e-2)


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.gru, self.o = nn.Linear(8, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 8)

    def forward(self, x):
        return self.o(self.gru(self.i(x))[0])


class LowRank(nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.o = nn.Linear(8, 8), nn.Linear(8, 8)
        self.u = nn.Parameter(torch.randn(8, 4))

    def forward(self, x):
        return self.o(torch.einsum("bti,ir,jr->btj", self.i(x), self.u, self.u))


# One operator that is several functions of autograd, each with the weight: those further down were
# called for it twice.
@pytest.mark.parametrize("model", [Gru, LowRank])
def test_a_weight_that_one_operator_uses_often(model):
    torch.manual_seed(7)
    x, y = torch.randn(8, 5, 8), torch.randn(8, 5, 8)
    assert_trains(model().train(), (x,), y, devices=2, n_microbatches=2, schedule="zero_bubble")


# Parameters that a loss uses by itself: where gradients of weights are apart they got none.
@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_a_loss_with_a_penalty_and_parameters_of_its_own(schedule):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).train()
    head, own_head = nn.Linear(8, 3), nn.Linear(8, 3)
    own_head.load_state_dict(head.state_dict())
    x, y = torch.randn(8, 8), torch.randint(0, 3, (8,))

    def loss_of(model, head):
        return lambda out, y: F.cross_entropy(head(out), y) + model[2].weight.pow(2).sum()

    own = copy.deepcopy(model)
    loss_of(own, own_head)(own(x), y).backward()
    with pipeline(model, (x,), devices=2, n_microbatches=2, schedule=schedule) as pipe:
        pipe.train_step(x, target=y, loss_fn=loss_of(model, head), reduction="mean")
    found = gradients(model)
    expected = gradients(own)
    # Each of the two micro-batches has the penalty, and counts one half.
    assert_close(found, expected)
    assert_close(
        {n: p.grad for n, p in head.named_parameters()},
        {n: p.grad for n, p in own_head.named_parameters()},
    )


# It was detached.
@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_parameter_that_the_model_returns(devices, schedule):
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return self.b(self.a(x)), self.b.weight, self.a.bias

    torch.manual_seed(0)
    x, y = torch.randn(6, 8), torch.randn(6, 8)

    def loss(out, y):
        return F.mse_loss(out[0], y) + out[1].pow(2).sum() + out[2].sum()

    assert_trains(Returns().train(), (x,), y, loss, devices=devices, schedule=schedule)


class TwoResults(nn.Module):
    def __init__(self, keeps_result):
        super().__init__()
        self.a, self.c = nn.Linear(8, 8), nn.Linear(8, 8)
        self.t = nn.Sequential(nn.Tanh(), nn.Linear(8, 8))
        self.keeps_result = keeps_result

    def forward(self, x):
        h = torch.tanh(self.a(x)) if self.keeps_result else self.a(x)
        return self.c(self.t(h)), h


# The stage that made a result did not hear of a write by the loss to the memory that it shares.
@pytest.mark.parametrize(("devices", "recompute"), [(2, "all"), (3, "none")])
def test_a_loss_that_writes_a_result_in_place(devices, recompute):
    torch.manual_seed(0)
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    model = TwoResults(keeps_result=recompute == "none").train()

    def loss(out, y):
        out[1].mul_(2.0)
        return F.mse_loss(out[0], y) + out[1].pow(2).mean()

    with pipeline(model, (x,), devices=devices, recompute=recompute) as pipe:
        with pytest.raises(RuntimeError, match=r"modified by an inplace operation|written since"):
            pipe.train_step(x, target=y, loss_fn=loss)
        assert gradients(model) == {}


def test_a_loss_that_writes_a_weight():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).train()
    x = torch.randn(4, 8)

    def loss(out, y):
        with torch.no_grad():
            model[2].weight.mul_(2.0)
        return F.mse_loss(out, y)

    with pipeline(model, (x,), devices=2) as pipe:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            pipe.train_step(x, target=x, loss_fn=loss)


class Compares(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = self.a(x)
        return self.b(x) * (h > 0) + h.detach()


class MakesAMask(nn.Module):
    """Its blocks give something without a gradient, too."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    def forward(self, x):
        masks = []
        for layer in self.layers:
            x = torch.tanh(layer(x))
            masks.append(torch.zeros_like(x) + 0.5)
        return x * masks[0] * masks[2]


# A tensor with a gradient that goes to readers which give none was refused; so was one without that
# comes out of a block which runs again.
@pytest.mark.parametrize("model", [Compares, MakesAMask])
@pytest.mark.parametrize("recompute", ["none", "all"])
@pytest.mark.parametrize("devices", [2, 3])
def test_what_needs_no_gradient_crosses_a_cut(model, devices, recompute):
    torch.manual_seed(0)
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    assert_trains(model().train(), (x,), y, devices=devices, recompute=recompute)


def test_t5_whose_blocks_run_again():
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "vocab_size": 50}
    layers = {"num_layers": 2, "num_decoder_layers": 2, "dropout_rate": 0.0}
    config = T5Config(**sizes, **layers, decoder_start_token_id=0, pad_token_id=0)
    model = T5ForConditionalGeneration(config).train()
    ids = torch.randint(1, 50, (6, 10))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    own = copy.deepcopy(model)
    own(**inputs).loss.backward()
    graph = kerf.trace(model, kwargs=inputs)
    plan = kerf.plan(
        graph, ["cpu:0", "cpu:1", "cpu:2"], n_microbatches=3, training=True, recompute="all"
    )
    with kerf.Pipeline(model, plan) as pipe:
        pipe.train_step(**inputs)
    assert_close(gradients(model), gradients(own))


def test_a_sparse_gradient_after_a_dense_one():
    class Embeds(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(8, 8, sparse=True)

        def forward(self, x, i):
            return F.linear(x, self.e.weight) + self.e(i)

    torch.manual_seed(0)
    assert_trains(Embeds().train(), (torch.randn(6, 8), torch.arange(6)), torch.randn(6, 8))


def test_a_gradient_that_nothing_can_be_added_to_is_refused_before_anything_is():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)).train()
    x = torch.randn(8, 8)
    with pipeline(model, (x,)) as pipe:
        model[2].bias.grad = torch.zeros(1).expand(8)
        before, statistics = gradients(model), buffers(model)
        with pytest.raises(ValueError, match=r"gradient of weight '2.bias' has one number in many"):
            pipe.train_step(x, target=x, loss_fn=F.mse_loss)
        assert_same(gradients(model), before)
        assert_same(buffers(model), statistics)


def test_a_penalty_of_a_step_that_fails_later_is_gone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).train()
    x = torch.randn(8, 8)
    calls = []

    def loss(out, y):
        calls.append(1)
        if len(calls) == 3:
            raise ArithmeticError("no loss")
        return F.mse_loss(out, y) + model[0].weight.pow(2).sum()

    with pipeline(model, (x,), n_microbatches=4, schedule="1f1b") as pipe:
        model[0].weight.grad = torch.ones(8, 8)
        with pytest.raises(ArithmeticError):
            pipe.train_step(x, target=x, loss_fn=loss)
    assert_same(gradients(model), {"0.weight": torch.ones(8, 8)})


def test_a_micro_batch_that_counts_nothing_adds_nothing_to_the_loss():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 5)).train()
    x, y = torch.randn(8, 8), torch.randint(0, 5, (8,))
    y[4:] = -100
    expected = F.cross_entropy(model(x), y)
    with pipeline(model, (x,), n_microbatches=2) as pipe:
        loss = pipe.train_step(
            x, target=y, loss_fn=F.cross_entropy, weight=lambda y: (y != -100).sum()
        )
    torch.testing.assert_close(loss, expected.detach())


# What a step takes was planned without what waits for gradients of weights, and without the loss.
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble"])
def test_a_step_takes_no_more_than_planned(schedule):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(128, 128), nn.GELU()) for _ in range(6)]
    model = nn.Sequential(*layers, nn.Linear(128, 2000)).train()
    x, y = torch.randn(64, 128), torch.randint(0, 2000, (64,))
    options = {"schedule": schedule, "optimizer": "none", "n_microbatches": 4, "devices": 2}
    with pipeline(model, (x,), **options) as pipe:
        pipe.record = True
        for _ in range(2):
            model.zero_grad()
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
        for device in pipe.plan.devices:
            measured = pipe.timeline.peak(device.name)
            assert measured <= device.predicted_bytes <= 1.25 * measured


def test_a_block_that_replaces_a_buffer_is_put_back_after_a_failing_step():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("sums", torch.zeros(4))
            self.seen = []
            self.last = 0

        def forward(self, x):
            self.calls = self.calls + 1
            self.sums.add_(x.detach().sum(0))
            self.seen.append(len(x))
            self.last += 1
            return self.lin(x)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Counter(), torch.nn.Linear(4, 3)).train()
    x = torch.randn(6, 4)
    graph = kerf.trace(model, (x,), basic_blocks=[Counter])
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], training=True)
    with kerf.Pipeline(model, plan) as pipe:
        pipe.train_step(x, loss_fn=lambda y, _: y.square().mean())
        counter = model[1]
        held, numbers = counter.calls, buffers(model)
        seen, last, kept = list(counter.seen), counter.last, gradients(model)

        def failing(y, _):
            assert counter.last == last + 1
            raise RuntimeError("on purpose")

        with pytest.raises(RuntimeError, match="on purpose"):
            pipe.train_step(x, loss_fn=failing)
        assert counter.calls is held
        assert_same(buffers(model), numbers)
        assert_same(gradients(model), kept)
        assert (counter.seen, counter.last) == (seen, last)
        pipe.train_step(x, loss_fn=lambda y, _: y.square().mean())
        assert counter.last == last + 1


def test_a_hook_on_the_node_that_adds_to_a_gradient_is_refused_by_name():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)).train()
    x = torch.randn(6, 4)
    plan = kerf.plan(kerf.trace(model, (x,)), ["cpu:0", "cpu:1"], training=True)
    weight = model[1].weight
    node = weight.expand_as(weight).grad_fn.next_functions[0][0]
    with kerf.Pipeline(model, plan) as pipe:
        pipe.train_step(x, loss_fn=lambda y, _: y.sum())
        handle = node.register_hook(lambda *_: None)
        with pytest.raises(ValueError, match=r"'1\.weight' has a hook on the node"):
            pipe.train_step(x, loss_fn=lambda y, _: y.sum())
        handle.remove()
        pipe.train_step(x, loss_fn=lambda y, _: y.sum())
