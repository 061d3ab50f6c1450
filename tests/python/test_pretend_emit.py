# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Stages from a file, each on a device of its own: the pretend accelerator's two and the host."""

import copy

import emit_models
import pytest
import torch
from emitting import cut, emitted, in_mode
from training import floating

DEVICES = ("pretend:0", "cpu", "pretend:1")


def staged(folder, make, training):
    """A model, the same in stages on three devices, and the call."""
    model, args, kwargs = make()
    graph, other = (in_mode(model, mode, args, kwargs) for mode in (True, False))
    module = emitted(folder, graph, cut(graph, 3), other)
    twin = copy.deepcopy(model).train(training)
    stages = [stage.train(training) for stage in module.make_stages(model)]
    for stage, device in zip(stages, DEVICES):
        stage.to(device)
        assert stage.device == torch.device(device)
    return twin, stages, module, args, kwargs


def step(call, args, kwargs):
    results = floating(call(*args, **kwargs))
    sum(t.square().mean().cpu() for t in results if t.requires_grad).backward()
    return [t.detach().cpu() for t in results]


@pytest.mark.parametrize(
    ("make", "training"),
    [
        (emit_models.make_cnn, True),
        (emit_models.make_cnn, False),
        (emit_models.make_decoder_with_loss, False),
    ],
)
def test_stages_on_several_devices_are_the_model(pretend_device, tmp_path, make, training):
    model, stages, module, args, kwargs = staged(tmp_path, make, training)
    expected = step(model, args, kwargs)
    found = step(lambda *a, **k: module.run(stages, *a, **k), args, kwargs)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
    gradients = {n: p.grad for stage in stages for n, p in stage.named_parameters()}
    for name, parameter in model.named_parameters():
        assert torch.equal(gradients[name].cpu(), parameter.grad), name
    buffers = {n: b for stage in stages for n, b in stage.named_buffers()}
    for name, buffer in model.named_buffers():
        assert torch.equal(buffers[name].cpu(), buffer), name
    state = {name: t for stage in stages for name, t in stage.state_dict().items()}
    model.load_state_dict(state)  # back in the model, wherever it was
    assert not pretend_device.races()
