# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that fail anywhere on real devices: one error that says where, nothing left behind, and the
pipeline trains on. As many faults as KERF_FAULTS says; ``make stress`` asks for more."""

import os
import random
import signal

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import assert_same, buffers, gradients

import kerf

FAULTS = int(os.environ.get("KERF_FAULTS", "300"))
SEED = int(os.environ.get("KERF_FAULTS_SEED", "15"))
WIDTH = 8


class Bomb:
    """Goes off at a call of a phase, counted over all threads; how is up to the test."""

    def __init__(self):
        self.calls = {"forward": 0, "backward": 0, "loss": 0}
        self.at = None
        self.kind = "raise"

    def set(self, at=None, kind="raise"):
        self.calls = dict.fromkeys(self.calls, 0)
        self.at, self.kind = at, kind

    def tick(self, phase):
        number = self.calls[phase]
        self.calls[phase] = number + 1
        if self.at != (phase, number):
            return
        if self.kind == "allocation":
            torch.empty(2**60, dtype=torch.uint8)
        if self.kind == "interrupt":
            signal.raise_signal(signal.SIGUSR1)  # its handler raises in the main thread
            return
        raise ArithmeticError(f"a fault in {phase} {number}")


bomb = Bomb()


@torch.library.custom_op("kerf_faults::tick", mutates_args=())
def tick(x: torch.Tensor) -> torch.Tensor:
    bomb.tick("forward")
    return x.clone()


@tick.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("kerf_faults::tick_back", mutates_args=())
def tick_back(gradient: torch.Tensor) -> torch.Tensor:
    bomb.tick("backward")
    return gradient.clone()


@tick_back.register_fake
def _(gradient):
    return torch.empty_like(gradient)


tick.register_autograd(lambda _, gradient: tick_back(gradient))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return x + torch.tanh(tick(self.norm(self.linear(x))))


class Model(nn.Module):
    """Layers with running statistics, a skip over all of them and a tied weight."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(4)])

    def forward(self, x):
        h = start = self.first(x)
        for layer in self.layers:
            h = layer(h)
        return F.linear(h, self.first.weight) + start


class FromOutside(Exception):
    """What the signal handler raises."""


def raise_from_outside(*_):
    raise FromOutside("from outside")


@pytest.fixture
def handler():
    before = signal.signal(signal.SIGUSR1, raise_from_outside)
    yield
    signal.signal(signal.SIGUSR1, before)


def loss_fn(result, target):
    bomb.tick("loss")
    return F.mse_loss(result, target)


CONFIGURATIONS = [
    {"devices": devices, "schedule": schedule, "recompute": recompute, "v": v, "m": m}
    for devices, schedule, v, m in (
        (1, "gpipe", 1, 2),
        (2, "gpipe", 1, 4),
        (2, "1f1b", 1, 4),
        (3, "1f1b", 1, 2),
        (2, "interleaved_1f1b", 2, 4),
        (2, "zero_bubble", 1, 3),
    )
    for recompute in ("none", "all")
]


class Subject:
    """A pipeline, a batch, and what a step that succeeds gives."""

    def __init__(self, devices, schedule, recompute, v, m):
        torch.manual_seed(0)
        bomb.set()
        self.model = Model().train()
        self.x, self.y = torch.randn(8, WIDTH), torch.randn(8, WIDTH)
        graph = kerf.trace(self.model, (self.x,))
        plan = kerf.plan(
            graph,
            [f"cpu:{d}" for d in range(devices)],
            n_microbatches=m,
            training=True,
            schedule=schedule,
            recompute=recompute,
            stages_per_device=v,
        )
        self.pipe = kerf.Pipeline(self.model, plan, batch_independent=True)
        self.start = buffers(self.model)
        bomb.set()
        self.step()
        self.calls = [(phase, i) for phase, n in bomb.calls.items() for i in range(n)]
        self.gradients, self.buffers = gradients(self.model), buffers(self.model)
        self.rewind()

    def step(self):
        return self.pipe.train_step(self.x, target=self.y, loss_fn=loss_fn)

    def rewind(self):
        self.model.zero_grad()
        for name, buffer in self.model.named_buffers():
            buffer.copy_(self.start[name])


def is_changed(found, kept):
    return found.keys() != kept.keys() or not all(torch.equal(found[n], kept[n]) for n in kept)


def check_told(error, phase, kind):
    """One error, that says where."""
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    if kind == "interrupt":
        assert isinstance(error, FromOutside)
        return
    assert "on cpu:" in text and "stage " in text, text
    if phase == "loss":
        assert "loss_fn" in text
    elif phase == "backward":
        assert "backward" in text
    else:
        assert "tick" in text, text
    if kind == "allocation":
        assert "you tried to allocate" in text, text
    else:
        assert "a fault in" in text, text


@pytest.mark.filterwarnings("ignore")
def test_a_fault_anywhere_is_told_once_and_leaves_nothing_behind(handler):
    rng = random.Random(SEED)
    subjects = [Subject(**c) for c in CONFIGURATIONS]
    for number in range(FAULTS):
        subject = rng.choice(subjects)
        phase, call = rng.choice(subject.calls)
        kind = rng.choice(("raise", "raise", "allocation", "interrupt"))
        before = rng.random() < 0.5  # with gradients there already
        if before:
            bomb.set()
            subject.step()
            subject.model.load_state_dict({**subject.model.state_dict(), **subject.start})
        kept, statistics = gradients(subject.model), buffers(subject.model)
        bomb.set((phase, call), kind)
        where = f"fault {number}: {kind} in {phase} {call}, {subject.pipe.plan.schedule}"
        try:
            subject.step()
        except (ArithmeticError, RuntimeError, FromOutside) as error:
            check_told(error, phase, kind)
        else:
            assert kind == "interrupt", where  # it may come after the last poll
        found = gradients(subject.model)
        if kind == "interrupt" and is_changed(found, kept):  # too late: all of the step is there
            statistics = subject.buffers
            kept = {n: kept[n] + g if n in kept else g for n, g in subject.gradients.items()}
        assert_same(found, kept)
        assert_same(buffers(subject.model), statistics)
        bomb.set()
        subject.rewind()
        subject.step()
        assert_same(gradients(subject.model), subject.gradients)
        assert_same(buffers(subject.model), subject.buffers)
        subject.rewind()
    for subject in subjects:
        subject.pipe.close()
