# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Measured blocks, written stages and kerf.pipe_model on a card."""

import copy

import emit_models
import pytest
import torch
import torch.nn as nn
from emitting import cut, emitted, in_mode, load
from training import floating

import kerf

DEVICE = "cuda:0"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


@pytest.fixture(autouse=True)
def exact_products():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


class Layer(nn.Module):
    """Layers of one width with another slope each: of kinds of their own."""

    def __init__(self, width, slope):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.slope = slope

    def forward(self, x):
        return x + self.down(nn.functional.leaky_relu(self.up(x), self.slope))


def layers(number=6, width=1024):
    torch.manual_seed(0)
    return nn.Sequential(*[Layer(width, 0.1 * (i + 1)) for i in range(number)])


def measured(model, x, **options):
    graph = kerf.coarsen(kerf.trace(model, (x,)), basic_blocks=[Layer])
    return kerf.profile(
        model, graph, (x,), devices=[DEVICE], isolate=True, cache=False, budget_seconds=2, **options
    )


@pytest.mark.parametrize("training", [False, True])
def test_blocks_are_on_the_card_in_turns(training):
    model, x = layers().train(training), torch.randn(256, 1024)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    profile = measured(model, x, training=training)
    assert len({block.kind for block in profile.blocks}) == len(model)
    for block in profile.blocks:
        assert block.forward > 0 and block.samples > 0
        assert (block.backward > 0) == training
    assert all(p.device.type == "cpu" and p.grad is None for p in model.parameters())
    assert torch.cuda.max_memory_allocated() - before < weights / 2
    assert torch.cuda.memory_allocated() <= before + (32 << 20)  # workspaces of libraries stay


def test_peaks_are_those_of_the_allocator():
    model, x = layers(2).eval(), torch.randn(256, 1024)
    block = measured(model, x).blocks[0]
    layer, here = copy.deepcopy(model[0]).to(DEVICE), x.to(DEVICE)
    with torch.no_grad():
        layer(here)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        layer(here)
    peak = torch.cuda.max_memory_allocated() - before
    assert abs(block.forward_peak_bytes - peak) <= 0.02 * peak


def step(call, args, kwargs):
    results = floating(call(*args, **kwargs))
    sum(t.square().mean().cpu() for t in results if t.requires_grad).backward()
    return [t.detach().cpu() for t in results]


@pytest.mark.parametrize("make", [emit_models.make_cnn, emit_models.make_decoder_with_loss])
def test_written_stages_on_the_host_and_on_the_card_are_the_model(tmp_path, make):
    model, args, kwargs = make()
    graph, other = (in_mode(model, mode, args, kwargs) for mode in (True, False))
    module = emitted(tmp_path, graph, cut(graph, 3), other)
    twin = copy.deepcopy(model).eval()
    stages = [stage.eval() for stage in module.make_stages(model)]
    for stage, device in zip(stages, (DEVICE, "cpu", DEVICE), strict=True):
        stage.to(device)
        assert stage.device == torch.device(device)
    expected = step(twin, args, kwargs)
    found = step(lambda *a, **k: module.run(stages, *a, **k), args, kwargs)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    gradients = {n: p.grad.cpu() for stage in stages for n, p in stage.named_parameters()}
    wanted = {n: p.grad for n, p in twin.named_parameters()}
    torch.testing.assert_close(gradients, wanted, rtol=1e-2, atol=1e-4)


def test_a_model_is_piped_over_one_card(tmp_path):
    model, args, kwargs = emit_models.make_decoder_with_loss()
    plan = kerf.pipe_model(
        model.train(),
        args,
        kwargs,
        devices=[DEVICE, DEVICE],
        basic_blocks=[emit_models.Block],
        output_file=tmp_path / "stages.py",
        budget_seconds=1,
        time_budget=0.5,
    )
    assert plan.profile_source == "measured" and plan.training
    assert kerf.verify(plan, plan.graph) == []
    module = load(tmp_path / "stages.py")
    model.eval()
    expected = step(copy.deepcopy(model), args, kwargs)
    stages = [stage.eval().to(DEVICE) for stage in module.make_stages(model)]
    found = step(lambda *a, **k: module.run(stages, *a, **k), args, kwargs)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
