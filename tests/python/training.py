# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Training steps, of a model itself and of pipelines, from the same state."""

import torch

import kerf


def floating(value):
    """The floating tensors of a result, however it nests."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        value = vars(value).values() if hasattr(value, "__dict__") else []
    return [tensor for item in value for tensor in floating(item)]


def squares(result, target):
    """A loss of everything that has a gradient, a mean over samples."""
    del target
    return sum((t.float() ** 2).mean() for t in floating(result) if t.requires_grad)


def without_dropout(model):
    """In train mode, and without chance: dropout of every spelling is 0."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    return model.train()


class State:
    """Parameters and buffers of a model, to go back to."""

    def __init__(self, model):
        self._model = model
        self._kept = {k: v.detach().clone() for k, v in self._tensors()}

    def _tensors(self):
        yield from self._model.named_parameters()
        yield from self._model.named_buffers()

    def restore(self):
        for name, tensor in self._tensors():
            tensor.data.copy_(self._kept[name])
        self._model.zero_grad()


def gradients(model):
    """By name, dense; what has none is left out."""
    return {
        name: (p.grad.to_dense() if p.grad.is_sparse else p.grad).clone()
        for name, p in model.named_parameters()
        if p.grad is not None
    }


def buffers(model):
    return {name: b.clone() for name, b in model.named_buffers()}


def assert_same(found, expected):
    """To the last bit."""
    assert found.keys() == expected.keys()
    wrong = [name for name in found if not torch.equal(found[name], expected[name])]
    assert not wrong, {n: (found[n] - expected[n]).abs().max().item() for n in wrong}


def assert_close(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(1e-3, value.abs().max().item()) if value.numel() else 1.0
        difference = (found[name] - value).abs().max().item() if value.numel() else 0.0
        assert difference <= tolerance * scale, (name, difference, scale)


def step(model, graph, args, kwargs, devices=1, n_microbatches=1, loss_fn=squares, **options):
    """Loss, gradients and the plan of one step of a pipeline; buffers stay as it left them."""
    names = [f"cpu:{d}" for d in range(devices)]
    told = {k: options.pop(k) for k in ("target", "weight", "reduction", "loss") if k in options}
    options = {"recompute": "none", **options}
    plan = kerf.plan(graph, names, n_microbatches=n_microbatches, training=True, **options)
    with kerf.Pipeline(model, plan, batch_independent=True) as pipe:
        loss = pipe.train_step(*args, **kwargs, loss_fn=loss_fn, **told)
    return loss, gradients(model), plan


FOUR = {"devices": 2, "stages_per_device": 2, "schedule": "interleaved_1f1b"}
