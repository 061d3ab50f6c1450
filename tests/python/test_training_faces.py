# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a training step takes and refuses: losses, targets, weights, hooks, tensors of no module."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import gradients

import kerf

pytestmark = pytest.mark.filterwarnings("ignore::kerf.KerfWarning", "ignore::UserWarning")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 5)).train()


def batch(size=8):
    torch.manual_seed(1)
    return torch.randn(size, 6), torch.randint(0, 5, (size,))


def pipeline(model, example, n_microbatches=4, **options):
    graph = kerf.trace(model, example)
    plan = kerf.plan(
        graph, ["cpu:0", "cpu:1"], n_microbatches=n_microbatches, training=True, method="even"
    )
    return kerf.Pipeline(model, plan, **options)


def test_backward_hooks_on_all_modules_are_refused():
    model, (x, y) = net(), batch()
    module = torch.nn.modules.module
    with pipeline(model, x) as pipe:
        for register in ("full_backward_hook", "full_backward_pre_hook"):
            hook = getattr(module, f"register_module_{register}")(lambda *given: None)
            try:
                with pytest.raises(ValueError, match=rf"all modules .*_module_{register}\).*none"):
                    pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
            finally:
                hook.remove()
        pipe.train_step(x, target=y, loss_fn=F.cross_entropy)


class ComplexLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)

    def forward(self, x):
        x = self.first(x)
        return {"loss": x.mean() * 1j, "out": x}


@pytest.mark.parametrize("n_microbatches", [1, 2])
def test_a_complex_loss_is_refused_as_backward_does(n_microbatches):
    torch.manual_seed(0)
    model, (x, _) = ComplexLoss().train(), batch()
    with pytest.raises(RuntimeError, match="only for real"):
        model(x)["loss"].backward()
    with pipeline(model, x, n_microbatches, batch_independent=True) as pipe:
        with pytest.raises(ValueError, match="output 'loss' is complex64; expected a real loss"):
            pipe.train_step(x)
        with pytest.raises(ValueError, match="what loss_fn gave is complex64; expected a real"):
            pipe.train_step(x, loss_fn=lambda result, target: result["loss"])
        pipe.train_step(x, loss_fn=lambda result, target: result["loss"].abs())
    assert gradients(model)


def test_a_sum_takes_no_weights():
    model, (x, y) = net(), batch()
    with pipeline(model, x) as pipe:
        for weight in ([1, 2, 3, 4], len):
            with pytest.raises(ValueError, match="weight is given, and reduction is 'sum'.*leave"):
                pipe.train_step(
                    x, target=y, loss_fn=F.cross_entropy, reduction="sum", weight=weight
                )
    assert not gradients(model)
