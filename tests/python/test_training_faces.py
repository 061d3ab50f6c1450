# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a training step takes and refuses: losses, targets, weights, hooks, tensors of no module."""

import re

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import assert_close, assert_same, buffers, gradients

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


@pytest.mark.parametrize(
    ("target", "refusal"),
    [
        (torch.zeros(5), "target is (5,) and the batch has 8 samples; expected its first"),
        (torch.zeros(16), "target is (16,) and the batch has 8 samples; expected its first"),
        (torch.tensor(1.0), "target is () and the batch has 8 samples; expected its first"),
        ({"y": torch.zeros(3, 8)}, "target.y is (3, 8) and the batch has 8 samples"),
        (numpy.zeros(8), "target is a ndarray; expected tensors"),
        ({"y": [numpy.zeros(8)]}, "target.y.0 is a ndarray; expected tensors"),
        (object(), "target is a object; expected tensors"),
        ([0, 1, 2, 3, 4, 0, 1, 2], "target is a list of 8 values that are no tensors"),
        ([0, 1, 2], "target is a list of 3 values that are no tensors"),
        ([[0, 1]] * 8, "target is a list of 8 values that are no tensors"),
        ({"y": ("a",) * 8}, "target.y is a tuple of 8 values that are no tensors"),
    ],
)
def test_targets_that_cannot_be_cut_are_refused_by_name(target, refusal):
    model, (x, _) = net(), batch()
    with pipeline(model, x) as pipe:
        with pytest.raises(ValueError, match=r"^\[kerf.train_step\] " + re.escape(refusal)):
            pipe.train_step(x, target=target, loss_fn=lambda out, t: out.mean())
    assert not gradients(model)


def test_one_micro_batch_is_given_any_target_and_all_are_given_what_is_no_batch():
    model, (x, y) = net(), batch()
    seen = []

    def loss_fn(result, target):
        seen.append(target)
        return result.mean()

    with pipeline(model, x, n_microbatches=1) as pipe:
        pipe.train_step(x, target=[1, 2, 3], loss_fn=loss_fn)
        assert seen == [[1, 2, 3]]
    with pipeline(model, x, n_microbatches=2) as pipe:
        pipe.train_step(x, target=(y, 0.5, (3, 4), {"kind": "a"}), loss_fn=loss_fn)
        assert [t[1:] for t in seen[1:]] == [(0.5, (3, 4), {"kind": "a"})] * 2


def test_a_target_may_have_as_many_rows_as_a_result():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.Unflatten(1, (2, 5)), nn.Flatten(0, 1)).train()
    (x, _), (_, y) = batch(4), batch(8)
    with pipeline(model, x, 2) as pipe:
        assert pipe.check_train(x, target=y, loss_fn=F.cross_entropy) < 1e-5
        refusal = r"target is \(12,\) and the batch has 4 .*unflatten\(0, \(4, -1\)\)"
        with pytest.raises(ValueError, match=refusal):
            pipe.train_step(x, target=y.repeat(2)[:12], loss_fn=F.cross_entropy)


loose_scale = torch.ones(5, requires_grad=True)


class Loose(nn.Module):
    """Uses tensors that require a gradient and that no module has registered."""

    def __init__(self, use):
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.held = [nn.Parameter(torch.ones(5))]
        self.layers = [nn.Linear(5, 5)]
        self.own = torch.ones(5, requires_grad=True)
        self.tied = [self.first.bias]
        self.use = use

    def forward(self, x):
        return self.use(self, self.first(x))


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda m, x: x * m.held[0], "held.0"),
        (lambda m, x: x * loose_scale, ".*loose_scale"),
        (lambda m, x: m.layers[0](x), "layers.0.weight"),
        (lambda m, x: x * m.held[0].detach() + m.held[0], "held.0"),
    ],
)
def test_tensors_of_no_module_that_learn_are_refused_by_name(use, name):
    model, (x, _) = Loose(use).train(), batch()
    refusal = rf"faces.py:\d+ uses the tensor '{name}', which requires a gradient.*register it"
    with pytest.raises(kerf.ExportError, match=refusal) as raised:
        kerf.trace(model, x)
    assert raised.value.location.startswith("test_training_faces.py:")
    with torch.no_grad():
        kerf.trace(model, x)
    kerf.trace(model.eval(), x)


@pytest.mark.parametrize(
    "use",
    [
        lambda m, x: x * m.own,
        lambda m, x: x * m.tied[0],
        lambda m, x: x * without_gradients(m.held[0]),
    ],
)
def test_tensors_that_modules_have_or_that_do_not_learn_are_taken(use):
    torch.manual_seed(0)
    model, (x, y) = Loose(use).train(), batch()
    F.cross_entropy(model(x), y).backward()
    expected = [gradients(model), model.own.grad, model.held[0].grad]
    model.zero_grad()
    model.own.grad = None
    with pipeline(model, x, 1) as pipe:
        pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
    assert_same(gradients(model), expected[0])
    for found, wanted in zip((model.own.grad, model.held[0].grad), expected[1:], strict=True):
        assert (found is None) == (wanted is None)
        assert found is None or torch.equal(found, wanted)


def without_gradients(tensor):
    with torch.no_grad():
        return tensor * 2


class Inferring(nn.Module):
    """Makes a part of its result in inference mode."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen = nn.Linear(6, 5), nn.Linear(5, 5)

    def forward(self, x):
        x = self.first(x)
        with torch.inference_mode():
            more = self.frozen(x.detach())
        return x + more.clone()


class Decorated(Inferring):
    @torch.inference_mode()
    def more(self, x):
        return self.frozen(x.detach())

    def forward(self, x):
        x = self.first(x)
        return x + self.more(x).clone()


@pytest.mark.parametrize("kind", [Inferring, Decorated])
def test_inference_mode_in_a_forward_that_learns(kind):
    torch.manual_seed(0)
    model, (x, y) = kind().train(), batch()
    with pytest.raises(kerf.ExportError, match=r"faces.py:\d+ .*it enters torch.inference_mode"):
        kerf.trace(model, x)
    kerf.trace(model.eval(), x)
    model = nn.Sequential(model, nn.Linear(5, 5)).train()  # as one block
    F.cross_entropy(model(x), y).backward()
    expected = gradients(model)
    assert "0.frozen.weight" not in expected
    model.zero_grad()
    with pipeline(model, x, 1) as pipe:
        assert any("enters torch.inference_mode" in note for note in pipe.graph.notes)
        pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
    assert_same(gradients(model), expected)


class Failing(Exception):
    pass


@pytest.mark.parametrize("before", [False, True])
def test_a_loss_with_parameters_of_its_own_leaves_no_gradients_when_it_fails(before):
    model, (x, y) = net(), batch()
    head = nn.Linear(5, 5)
    calls, last = [], 4

    def loss_fn(out, target):
        calls.append(1)
        if len(calls) == last:
            raise Failing
        penalty = sum((p**2).sum() for p in model.parameters())
        return F.cross_entropy(head(out.add_(head.bias)), target) + 0.1 * penalty

    with pipeline(model, x) as pipe:
        if before:
            last = 0
            pipe.train_step(x, target=y, loss_fn=loss_fn)
            last = len(calls) + 4
        kept, kept_head, left = gradients(model), gradients(head), buffers(model)
        tensors = [p.grad for p in [*model.parameters(), *head.parameters()]]
        assert bool(kept) == bool(kept_head) == before
        with pytest.raises(Failing):
            pipe.train_step(x, target=y, loss_fn=loss_fn)
        assert_same(gradients(model), kept)
        assert_same(gradients(head), kept_head)
        assert_same(buffers(model), left)
        now = [p.grad for p in [*model.parameters(), *head.parameters()]]
        assert all(a is b for a, b in zip(now, tensors, strict=True))
        last = 0
        pipe.train_step(x, target=y, loss_fn=loss_fn)
    assert gradients(head)


@pytest.mark.parametrize("before", [False, True])
def test_a_failure_in_what_made_an_input_leaves_everything_as_it_was(before):
    model, (x, y) = net(), batch()
    maker, second = nn.Linear(6, 6), nn.Linear(6, 6)
    leaf = torch.randn(8, 6, requires_grad=True)
    modules = nn.ModuleList([model, maker, second])
    with pipeline(model, x) as pipe:
        made = maker(x)
        pipe.train_step(made, target=y, loss_fn=F.cross_entropy)
        if not before:
            modules.zero_grad()
        kept, left = gradients(modules), buffers(model)
        tensors = [p.grad for p in modules.parameters()]
        for given in (made, second(x + leaf) + made):
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                pipe.train_step(given, target=y, loss_fn=F.cross_entropy)
            assert_same(gradients(modules), kept)
            assert_same(buffers(model), left)
            assert leaf.grad is None
            now = [p.grad for p in modules.parameters()]
            assert all(a is b for a, b in zip(now, tensors, strict=True))
        pipe.train_step(second(x + leaf), target=y, loss_fn=F.cross_entropy)
    assert leaf.grad is not None


@pytest.mark.parametrize("n_microbatches", [1, 4])
def test_check_train_does_not_measure_by_what_is_zero_but_for_rounding(n_microbatches):
    torch.manual_seed(0)
    norms = [nn.BatchNorm1d(8), nn.BatchNorm1d(8)]  # the first has no gradient but for rounding
    model = nn.Sequential(nn.Linear(6, 8), *norms, nn.Tanh(), nn.Linear(8, 5)).train()
    x, y = batch(32)
    with pipeline(model, x, n_microbatches) as pipe:
        assert pipe.check_train(x, target=y, loss_fn=F.cross_entropy) < 1e-4
    assert not gradients(model)


def test_check_train_finds_what_differs_in_one_small_gradient():
    model, (x, y) = net(), batch(32)
    calls, extra = [], [0.0]

    def loss_fn(out, target):
        calls.append(1)
        loss = F.cross_entropy(out, target)
        return loss if len(calls) <= 4 else loss + extra[0] * model[0].bias.sum()

    with pipeline(model, x) as pipe:
        for extra[0] in (1e-3, float("nan")):
            calls.clear()
            with pytest.raises(RuntimeError, match=r"(0\.bias|loss) differs from the model's by"):
                pipe.check_train(x, target=y, loss_fn=loss_fn)


def test_check_train_leaves_the_gradients_of_all_that_takes_part():
    model, (x, _) = net(), batch()
    maker, head = nn.Linear(6, 6), nn.Linear(5, 5)
    leaf, soft = x.clone().requires_grad_(True), torch.rand(8, 5, requires_grad=True)

    def loss_fn(out, target):
        return F.cross_entropy(head(out), target.softmax(1)) + (maker.weight**2).sum()

    with pipeline(model, x) as pipe:
        made = maker(x)
        for given in (leaf, made, made):
            assert pipe.check_train(given, target=soft, loss_fn=loss_fn) < 1e-4
            assert leaf.grad is soft.grad is None
            assert not gradients(nn.ModuleList([model, maker, head]))
        pipe.train_step(leaf, target=soft, loss_fn=loss_fn)
        kept = [leaf.grad, soft.grad, head.weight.grad]
        numbers = [gradient.clone() for gradient in kept]
        pipe.check_train(leaf, target=soft, loss_fn=loss_fn)
        assert leaf.grad is kept[0] and soft.grad is kept[1] and head.weight.grad is kept[2]
        assert all(torch.equal(a, b) for a, b in zip(kept, numbers, strict=True))


class OwnLoss(nn.Module):
    def __init__(self, mean=True):
        super().__init__()
        self.first, self.mean = nn.Linear(6, 5), mean

    def forward(self, x, labels):
        x = self.first(x)
        if self.mean:
            return {"loss": F.cross_entropy(x.view(-1, 5), labels.view(-1), ignore_index=-100)}
        return {"loss": (x * labels.unsqueeze(-1)).mean()}


def test_weights_of_a_models_own_loss_are_a_function_of_its_labels():
    torch.manual_seed(0)
    model, x, y = OwnLoss().train(), torch.randn(8, 3, 6), torch.randint(0, 5, (8, 3))
    y[1, 1:] = y[6, 0] = y[7] = -100
    seen = []

    def weight(labels):
        seen.append(labels)
        return (labels != -100).sum()

    loss = model(x, y)["loss"]
    loss.backward()
    expected = gradients(model)
    model.zero_grad()
    with pipeline(model, (x, y)) as pipe:
        with pytest.raises(
            ValueError, match=r"a function of its targets, weight=lambda y: \(y != -100\)"
        ):
            pipe.train_step(x, y)
        found = pipe.train_step(x, y, weight=weight)
        assert torch.equal(torch.cat(seen), y) and len(seen) == 4
        assert_close(gradients(model), expected)
        assert torch.allclose(found, loss)
        assert pipe.check_train(x, y, weight=weight) < 1e-5
    with pipeline(model, (x, y), 1) as pipe:
        pipe.train_step(x, y, weight=weight)


def test_a_function_of_targets_that_are_not_known_is_refused():
    torch.manual_seed(0)
    model, (x, y) = OwnLoss(mean=False).train(), batch()
    with pipeline(model, (x, y)) as pipe:
        with pytest.raises(ValueError, match="known to hold the targets, found none; give a list"):
            pipe.train_step(x, y, weight=lambda labels: len(labels))
        pipe.train_step(x, y, weight=[2, 2, 2, 2])
