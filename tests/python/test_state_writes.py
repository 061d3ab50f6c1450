# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a model keeps from one call to the next: right with one micro-batch, and with several either
proved to end the same or refused by name."""

import copy
import warnings

import pytest
import torch
from comparing import assert_same
from torch import nn
from torch.nn.utils import parametrizations

import kerf

X = torch.randn(4, 8)


def pipeline(model, n_microbatches=2, x=X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kerf.KerfWarning)
        graph = kerf.trace(model, x)
        plan = kerf.plan(graph, ["cpu:0", "cpu:1"], n_microbatches=n_microbatches, method="even")
        return kerf.Pipeline(model, plan)


class Keeping(nn.Module):
    """Runs ``write(self, y)`` on a tensor that it keeps in one of several ways."""

    def __init__(self, write, how="attribute", size=8):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.write = write
        if how == "attribute":
            self.kept = torch.zeros(size)
        elif how == "buffer":
            self.register_buffer("kept", torch.zeros(size))
        elif how == "not persistent":
            self.register_buffer("kept", torch.zeros(size), persistent=False)
        elif how == "parameter":
            self.kept = nn.Parameter(torch.zeros(size), requires_grad=False)

    def forward(self, x):
        y = self.linear(x)
        self.write(self, y)
        return y


def assign(m, value):
    m.kept = value


WAYS = ["attribute", "buffer", "not persistent", "parameter"]
CHANGES = {
    "counter": lambda m, y: m.kept.add_(1),
    "doubled zero": lambda m, y: m.kept.mul_(2),
    "part": lambda m, y: m.kept[2:4].add_(1),
    "column of itself": lambda m, y: m.kept[2:4].copy_(m.kept[:2] + 1),
    "average of samples": lambda m, y: m.kept.lerp_(y.mean(0), 0.1),
    "sum of samples": lambda m, y: m.kept.add_(y.sum(0)),
    "maximum of samples": lambda m, y: m.kept.copy_(y.amax(0)),
    "last sample": lambda m, y: m.kept.copy_(y[-1]),
    "size of the batch": lambda m, y: m.kept.fill_(y.shape[0]),
    "place by the batch": lambda m, y: m.kept[y.shape[0]].fill_(1),
    "random": lambda m, y: m.kept.copy_(torch.rand(8)),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("change", CHANGES)
def test_state_that_micro_batches_would_change_is_refused(change, how, training):
    model = Keeping(CHANGES[change], how).train(training)
    with pytest.raises(NotImplementedError, match=r"'kept' .*test_state_writes.py:\d+.*=1$"):
        pipeline(model)
    assert not model.kept.any()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("change", [c for c in CHANGES if c != "random"])
def test_one_micro_batch_leaves_what_the_model_leaves(change, how):
    model = Keeping(CHANGES[change], how).eval()
    pipe, alone = pipeline(model, 1), copy.deepcopy(model)
    with torch.no_grad():
        for _ in range(3):
            assert_same(pipe(X), alone(X))
            assert torch.equal(model.kept, alone.kept)


REPEATED = {
    "filled": lambda m, y: m.kept.fill_(3),
    "parts": lambda m, y: (m.kept[:2].fill_(3), m.kept[1:4].copy_(torch.ones(3))),
    "indexed": lambda m, y: m.kept.index_put_((torch.tensor([1, 2]),), torch.tensor(4.0)),
    "of a weight": lambda m, y: m.kept.copy_(m.linear.bias * 2),
    "assigned": lambda m, y: assign(m, m.linear.bias * 2),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("change", REPEATED)
def test_state_that_is_overwritten_alike_is_proved(change, training):
    model = Keeping(REPEATED[change], "buffer").train(training)
    for n_microbatches in (1, 2, 3):
        pipe, alone = pipeline(model, n_microbatches), copy.deepcopy(model)
        with torch.no_grad():
            assert_same(pipe(X), alone(X))
        assert torch.equal(model.kept, alone.kept)
        model.kept.zero_()


def test_a_trial_leaves_no_trace_in_what_the_graph_writes():
    class Model(Keeping):
        def forward(self, x):
            return super().forward(x).sort(-1).values.histc(8).expand_as(x) * 0 + x.cumsum(1)

    for how in WAYS:
        model = Model(lambda m, y: m.kept.fill_(3), how).eval()
        pipe = pipeline(model)
        with pytest.raises(ValueError, match="dimension 1"):
            pipe(torch.randn(4, 7))
        assert not model.kept.any()


STATISTICS = {
    "instance norm": (nn.Sequential(nn.InstanceNorm1d(8, track_running_stats=True)), (4, 8, 5)),
    "spectral norm": (parametrizations.spectral_norm(nn.Linear(8, 8)), (4, 8)),
    "old spectral norm": (nn.utils.spectral_norm(nn.Linear(8, 8)), (4, 8)),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_in_train_mode_are_refused_by_name(name):
    model, shape = STATISTICS[name]
    x = torch.randn(shape)
    with pytest.raises(NotImplementedError, match="buffer '.*' would be left with other values"):
        pipeline(model.train(), 2, x)
    pipe, alone = pipeline(model, 1, x), copy.deepcopy(model)
    with torch.no_grad():
        assert_same(pipe(x), alone(x))
    for (path, found), expected in zip(model.named_buffers(), alone.buffers(), strict=True):
        assert torch.allclose(found, expected), path


@pytest.mark.filterwarnings("ignore:.*batch norm")
def test_batch_norm_keeps_its_warning():
    model = nn.Sequential(nn.Conv1d(8, 8, 1), nn.BatchNorm1d(8)).train()
    x = torch.randn(4, 8, 6)
    plan = kerf.plan(kerf.trace(model, x), ["cpu:0"], n_microbatches=2)
    with pytest.warns(kerf.KerfWarning, match="batch norm '1' in train mode"):
        pipe = kerf.Pipeline(model, plan)
    pipe(x)


class TwoNames(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("first", torch.zeros(8))
        if how == "registered":
            self.register_buffer("second", self.first)
        elif how == "attribute":
            self.second = self.first
        elif how == "view":
            self.second = self.first[:]
        self.list = [self.first]
        self.how = how

    def forward(self, x):
        written = self.list[0] if self.how == "list" else self.second
        written.add_(1)
        return self.linear(x) + self.first


@pytest.mark.parametrize("how", ["registered", "attribute", "view", "list"])
def test_a_second_name_of_a_written_buffer(how):
    model = TwoNames(how).eval()
    with pytest.raises(NotImplementedError, match="buffer 'first'.*would be left with"):
        pipeline(model)
    pipe, alone = pipeline(model, 1), copy.deepcopy(model)
    with torch.no_grad():
        for _ in range(2):
            assert_same(pipe(X), alone(X))
            assert torch.equal(model.first, alone.first)


@pytest.mark.parametrize("how", WAYS)
def test_a_check_leaves_what_the_model_keeps_as_it_was(how):
    model = Keeping(CHANGES["counter"], how).eval()
    assert pipeline(model, 1).check(X) < 1e-5
    assert not model.kept.any()


def test_a_trace_leaves_no_gradients_in_what_forward_writes():
    model = Keeping(CHANGES["sum of samples"]).eval()
    kerf.trace(model, X)
    assert not model.kept.requires_grad and model.kept.grad_fn is None
