# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Pipelines train: loss, gradients and buffers are the model's own."""

import re
import threading
import warnings

import models
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import (
    FOUR,
    State,
    assert_close,
    assert_same,
    buffers,
    gradients,
    squares,
    step,
    without_dropout,
)

import kerf

pytestmark = pytest.mark.filterwarnings("ignore::kerf.KerfWarning", "ignore::UserWarning")
ZOO = {**models.FLOOR, **models.OTHERS}
# Bit-equal to eager: what the traced operators are is what the model does.
EAGER = ["gpt2", "bert", "t5", "vit", "resnet", "unet", "lstm", "mamba", "llama_tied", "mixtral"]
EAGER += ["swin", "clip", "xlnet", "qwen3", "convnext", "segformer", "deberta", "slice_writer"]
OTHERWISE = {"view_writer"}  # PyTorch itself refuses to train it


@pytest.fixture(autouse=True)
def one_thread():
    """Kernels add up in another order on more threads; stages on the CPU have a core each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def traced(name):
    torch.manual_seed(0)
    model, args, kwargs = ZOO[name]()
    without_dropout(model)
    try:
        graph = kerf.trace(model, args, kwargs)
    except kerf.ExportError as error:
        pytest.skip(f"does not trace in train mode: {str(error)[:80]}")
    return model, graph, args, kwargs


def eager_step(model, args, kwargs):
    loss = squares(model(*args, **kwargs), None)
    loss.backward()
    return loss.detach(), gradients(model)


@pytest.mark.parametrize("name", [n for n in ZOO if n not in OTHERWISE])
def test_a_model_of_the_zoo_trains(name):
    model, graph, args, kwargs = traced(name)
    state = State(model)
    expected, expected_gradients = eager_step(model, args, kwargs)
    expected_buffers = buffers(model)
    for options in ({}, {"devices": 2, "method": "even", "schedule": "1f1b"}, FOUR):
        state.restore()
        loss, found, plan = step(model, graph, args, kwargs, **options)
        assert len(plan.stages) <= 4
        assert_close(found, expected_gradients)
        assert_close(buffers(model), expected_buffers)
        if name in EAGER:
            assert torch.equal(loss, expected)
            assert_same(found, expected_gradients)
            assert_same(buffers(model), expected_buffers)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble"])
@pytest.mark.parametrize("name", ["gpt2", "t5", "resnet", "unet", "lstm", "albert", "qwen3"])
def test_a_cut_changes_no_bit(name, schedule):
    model, graph, args, kwargs = traced(name)
    state = State(model)
    runs = []
    for options in (
        {"schedule": schedule},
        {"schedule": schedule, "devices": 2, "method": "even"},
        {"schedule": schedule, "devices": 2, "stages_per_device": 2},
    ):
        state.restore()
        loss, found, _ = step(model, graph, args, kwargs, n_microbatches=2, **options)
        runs.append((loss, found, buffers(model)))
    for loss, found, left in runs[1:]:
        assert torch.equal(loss, runs[0][0])
        assert_same(found, runs[0][1])
        assert_same(left, runs[0][2])


@pytest.mark.parametrize("name", ["gpt2", "resnet", "unet", "mamba"])
def test_what_is_computed_again_changes_no_bit(name):
    model, graph, args, kwargs = traced(name)
    state = State(model)
    state.restore()
    _, expected, _ = step(model, graph, args, kwargs, devices=2, n_microbatches=2)
    left = buffers(model)
    for schedule in ("1f1b", "zero_bubble"):
        state.restore()
        _, found, plan = step(
            model,
            graph,
            args,
            kwargs,
            devices=2,
            n_microbatches=2,
            recompute="all",
            schedule=schedule,
        )
        assert plan.recomputed
        assert_same(found, expected)
        assert_same(buffers(model), left)  # statistics are updated once


class Net(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.drop = nn.Dropout(dropout)
        self.middle = nn.Linear(8, 8)
        self.last = nn.Linear(8, 5)

    def forward(self, x):
        x = F.gelu(self.first(x))
        x = self.drop(self.norm(x))
        return self.last(torch.relu(self.middle(x)) + x)


def small(dropout=0.0, batch=8):
    torch.manual_seed(0)
    model = Net(dropout).train()
    x, y = torch.randn(batch, 6), torch.randint(0, 5, (batch,))
    return model, x, y, kerf.trace(model, (x,))


def pipeline(model, graph, n_microbatches=4, schedule="1f1b", **options):
    plan = kerf.plan(
        graph,
        ["cpu:0", "cpu:1"],
        n_microbatches=n_microbatches,
        training=True,
        method="even",
        schedule=schedule,
        **options,
    )
    assert len(plan.stages) == 2
    return kerf.Pipeline(model, plan)


def test_a_step_adds_to_gradients_as_backward_does():
    model, x, y, graph = small()
    with pipeline(model, graph) as pipe:
        for _ in range(2):
            loss = pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
    found = gradients(model)
    model.zero_grad()
    for _ in range(2):
        expected = F.cross_entropy(model(x), y)
        expected.backward()
    assert not loss.requires_grad
    assert torch.allclose(loss, expected)
    assert_close(found, gradients(model))


def test_training_learns():
    model, x, y, graph = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    with pipeline(model, graph) as pipe:
        losses = []
        for _ in range(60):
            losses.append(pipe.train_step(x, target=y, loss_fn=F.cross_entropy).item())
            optimizer.step()
            optimizer.zero_grad()
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("batch", [8, 7, 5, 3, 1])
def test_batches_of_other_sizes(batch):
    model, x, y, graph = small()
    with pipeline(model, graph) as pipe:
        pipe.train_step(x[:batch], target=y[:batch], loss_fn=F.cross_entropy)
        found = gradients(model)
        model.zero_grad()
        F.cross_entropy(model(x[:batch]), y[:batch]).backward()
        assert_close(found, gradients(model))


def test_sums_and_weights():
    model, x, y, graph = small()
    y[1] = y[6] = y[7] = -100
    with pipeline(model, graph) as pipe:
        pipe.train_step(x, target=y, loss_fn=F.cross_entropy, weight=lambda t: (t != -100).sum())
        found = gradients(model)
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        assert_close(found, gradients(model))
        model.zero_grad()
        pipe.train_step(
            x,
            target=y,
            reduction="sum",
            loss_fn=lambda out, t: F.cross_entropy(out, t, reduction="sum"),
        )
        found = gradients(model)
        model.zero_grad()
        F.cross_entropy(model(x), y, reduction="sum").backward()
        assert_close(found, gradients(model))


def test_targets_of_any_nesting_are_cut_like_the_batch():
    model, x, y, graph = small()
    weights = torch.rand(8, 2)

    def loss_fn(out, target):
        labels, (more, text) = target["labels"], target["more"]
        assert text == "text"
        assert len(out) == len(labels) == len(more)
        return (F.cross_entropy(out, labels, reduction="none") * more.sum(1)).mean()

    with pipeline(model, graph, n_microbatches=3) as pipe:
        target = {"labels": y, "more": (weights, "text")}
        loss = pipe.train_step(x, target=target, loss_fn=loss_fn)
        assert torch.allclose(loss, loss_fn(model(x), target))
        with pytest.raises(ValueError, match=r"target\.more\.0 is \(5, 2\) and the batch has 8"):
            pipe.train_step(x, target={"labels": y, "more": (weights[:5], "")}, loss_fn=loss_fn)


class OwnLoss(nn.Module):
    """Like the language models of transformers: labels are shifted, and some are ignored."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, labels):
        logits = self.head(torch.relu(self.mix(self.embed(ids))))
        labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
        loss = F.cross_entropy(logits.view(-1, 11), labels.view(-1), ignore_index=-100)
        return {"loss": loss, "logits": logits}


def test_the_models_own_loss():
    torch.manual_seed(0)
    model = OwnLoss().train()
    ids = torch.randint(0, 11, (6, 7))
    with pipeline(model, kerf.trace(model, (ids, ids)), n_microbatches=3) as pipe:
        loss = pipe.train_step(ids, labels=ids)
        found = gradients(model)
        model.zero_grad()
        expected = model(ids, ids)["loss"]
        expected.backward()
        assert torch.allclose(loss, expected)
        assert_close(found, gradients(model))
        padded = ids.clone()
        padded[2, 4:] = -100
        with pytest.raises(ValueError, match="ignored .* expected weight="):
            pipe.train_step(ids, labels=padded)
        model.zero_grad()
        counts = [(part[:, 1:] != -100).sum() for part in padded.split(2)]
        loss = pipe.train_step(ids, labels=padded, weight=counts)
        found = gradients(model)
        model.zero_grad()
        expected = model(ids, padded)["loss"]
        expected.backward()
        assert torch.allclose(loss, expected)
        assert_close(found, gradients(model))
        with pytest.raises(ValueError, match="no output 'cost'; expected .* 'loss', 'logits'"):
            pipe.train_step(ids, labels=ids, loss="cost")


class Classes(nn.Module):
    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 5)
        self.loss = loss

    def forward(self, x, *labels):
        y = self.layer(x)
        return {"loss": self.loss(y, *labels), "y": y}


def own_step(model, *inputs, weight=None, **options):
    """A step of three micro-batches, and the model's own loss and gradients."""
    plan = kerf.plan(kerf.trace(model, inputs), ["cpu:0"], n_microbatches=3, training=True)
    model.zero_grad()
    loss = kerf.Pipeline(model, plan, **options).train_step(*inputs, weight=weight)
    found = gradients(model)
    model.zero_grad()
    expected = model(*inputs)["loss"]
    expected.backward()
    return (loss, found), (expected.detach(), gradients(model))


CLASSES = {
    "labels": F.cross_entropy,
    "a view": lambda y, t: F.cross_entropy(y, t[:, None].squeeze(1).to(torch.int64)),
    "nll": lambda y, t: F.nll_loss(y.log_softmax(1), t),
    "scaled": lambda y, t: 0.5 * F.cross_entropy(y, t) + y.pow(2).mean(),
}


@pytest.mark.parametrize("name", CLASSES)
def test_one_label_a_sample_may_not_be_ignored_without_weight(name):
    model, x = Classes(CLASSES[name]).train(), torch.randn(6, 6)
    t = torch.tensor([1, 2, 0, 4, 3, 1])
    for found, expected in zip(*own_step(model, x, t), strict=True):
        torch.testing.assert_close(found, expected)
    t[:1] = -100
    with pytest.raises(ValueError, match="'args.1' holds targets that are ignored .* weight="):
        own_step(model, x, t)
    if name != "scaled":
        for found, expected in zip(*own_step(model, x, t, weight=[1, 2, 2]), strict=True):
            torch.testing.assert_close(found, expected)


def test_labels_of_every_part_of_a_loss_are_looked_at():
    def two(y, a, b):
        return F.cross_entropy(y, a) + F.cross_entropy(y, b, ignore_index=4)

    model, x, t = Classes(two).train(), torch.randn(6, 6), torch.tensor([1, 2, 0, 0, 3, 1])
    own_step(model, x, t, t)
    for a, b in ((-100, 0), (0, 4)):
        with pytest.raises(ValueError, match=rf"'args.{1 if a else 2}' holds .* \({a or b}\)"):
            own_step(model, x, t.where(t > 0, a), t.where(t > 0, b))


def test_labels_that_the_model_makes():
    def hidden(y, t):
        return F.cross_entropy(y, t.masked_fill(t == 0, -100))

    def guessed(y):
        return F.cross_entropy(y, y.detach().argmax(1)) + F.cross_entropy(y, (y > 0)[:, 0].long())

    def all_one(y):
        return F.cross_entropy(y, y.new_ones(y.shape[0], dtype=torch.int64))

    x, t = torch.randn(6, 6), torch.tensor([0, 2, 0, 4, 3, 1])
    with pytest.raises(ValueError, match="makes itself.*weight=.*batch_independent=True"):
        own_step(Classes(hidden).train(), x, t)
    for loss in (guessed, all_one):
        for found, expected in zip(*own_step(Classes(loss).train(), x), strict=True):
            torch.testing.assert_close(found, expected)


class HalfFixed(nn.Module):
    """``len`` fixes the batch of x; ``table`` is for all samples."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x, k, table):
        y = self.layer(x)
        return {"loss": y.sum() / len(y), "y": y, "k": self.layer(k), "table": self.layer(table)}


def test_a_batch_that_is_fixed_for_one_input_only():
    torch.manual_seed(0)
    model, x, k, table = HalfFixed().train(), torch.randn(6, 6), torch.randn(6, 6), torch.ones(4, 6)
    graph = kerf.trace(model, (x, k, table))
    assert graph.inputs[0]["shape"] == [6, 6] and graph.inputs[1]["shape"] == ["B", 6]
    plan = kerf.plan(graph, ["cpu:0"], n_microbatches=3, training=True)
    pipe = kerf.Pipeline(model, plan)
    loss = pipe.train_step(x, k, table)
    found = gradients(model)
    model.zero_grad()
    expected = model(x, k, table)["loss"]
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    assert_close(found, gradients(model))
    with pytest.raises(ValueError, match="'sum' for output 'loss', which no input that is cut"):
        pipe.train_step(x, k, table, reduction="sum")
    with pytest.raises(NotImplementedError, match="'loss' is made of input 'args.0', whose batch"):
        pipe.train_step(x, k, table, target=k, loss_fn=lambda out, t: F.mse_loss(out["k"], t))


def test_a_result_that_all_samples_share_goes_to_the_loss_whole():
    class Table(HalfFixed):
        def forward(self, x, table):
            return self.layer(x), self.layer(table)

    def loss_fn(result, target):
        return F.cross_entropy(result[0] @ result[1].T, target)

    torch.manual_seed(0)
    model, x, table = Table().train(), torch.randn(6, 6), torch.randn(4, 6)
    target = torch.tensor([0, 1, 2, 3, 0, 1])
    plan = kerf.plan(kerf.trace(model, (x, table)), ["cpu:0"], n_microbatches=3, training=True)
    loss = kerf.Pipeline(model, plan).train_step(x, table, target=target, loss_fn=loss_fn)
    torch.testing.assert_close(loss, loss_fn(model(x, table), target).detach())


def test_tied_weights_in_three_stages_are_one_sum():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(8, 8) for _ in range(3))
            self.b.weight = self.c.weight = self.a.weight

        def forward(self, x):
            return self.c(torch.relu(self.b(torch.relu(self.a(x)))))

    torch.manual_seed(0)
    model, x = Tied().train(), torch.randn(8, 8)
    graph = kerf.trace(model, (x,))
    plan = kerf.plan(
        graph,
        ["cpu:0", "cpu:1"],
        n_microbatches=4,
        training=True,
        method="aot",
        node_to_partition={n["name"]: i // 2 for i, n in enumerate(graph.nodes)},
        partition_to_device={0: "cpu:0", 1: "cpu:1", 2: "cpu:0"},
        schedule="1f1b",
    )
    assert len(plan.stages) == 3
    seen = []
    with kerf.Pipeline(model, plan) as pipe:
        for _ in range(50):
            model.zero_grad()
            pipe.train_step(x, loss_fn=squares)
            seen.append(gradients(model))
    for found in seen[1:]:
        assert_same(found, seen[0])
    model.zero_grad()
    squares(model(x), None).backward()
    assert_close(seen[0], gradients(model))


def test_dropout_is_the_same_however_the_model_is_cut():
    model, x, _, graph = small(dropout=0.4)
    runs = []
    for options in ({}, {"devices": 2, "method": "even"}, FOUR):
        for recompute in ("none", "all"):
            model.zero_grad()
            torch.manual_seed(7)
            _, found, _ = step(
                model, graph, (x,), {}, n_microbatches=2, recompute=recompute, **options
            )
            runs.append(found)
    for found in runs[1:]:
        assert_same(found, runs[0])
    model.zero_grad()
    torch.manual_seed(8)
    _, other, _ = step(model, graph, (x,), {}, n_microbatches=2)
    assert not torch.equal(other["last.weight"], runs[0]["last.weight"])


def test_inputs_that_require_a_gradient_get_theirs():
    model, x, y, graph = small()
    before = nn.Linear(6, 6)
    leaf = x.clone().requires_grad_(True)
    with pipeline(model, graph, n_microbatches=3) as pipe:
        pipe.train_step(leaf, target=y, loss_fn=F.cross_entropy)
        pipe.train_step(before(x), target=y, loss_fn=F.cross_entropy)
    found = [leaf.grad.clone(), before.weight.grad.clone()]
    leaf.grad = None
    before.zero_grad()
    F.cross_entropy(model(leaf), y).backward()
    F.cross_entropy(model(before(x)), y).backward()
    assert torch.allclose(found[0], leaf.grad, atol=1e-6)
    assert torch.allclose(found[1], before.weight.grad, atol=1e-6)


def test_parameters_that_are_frozen_between_steps():
    model, x, y, graph = small()
    with pipeline(model, graph) as pipe:
        for frozen in (["first"], ["first", "middle"], []):
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(name.split(".")[0] not in frozen)
            model.zero_grad()
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
            found = gradients(model)
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            assert_close(found, gradients(model))


def test_a_parameter_that_was_frozen_when_traced_is_refused():
    model, x, y, _ = small()
    model.first.weight.requires_grad_(False)
    graph = kerf.trace(model, (x,))
    with pipeline(model, graph) as pipe:
        pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
        assert model.first.weight.grad is None
        model.first.weight.requires_grad_(True)
        with pytest.raises(ValueError, match=r"'first\.weight' requires a gradient and did not"):
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy)


def test_sparse_gradients():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 8, sparse=True)
            self.head = nn.Linear(8, 3)

        def forward(self, ids):
            return self.head(torch.tanh(self.embed(ids)))

    torch.manual_seed(0)
    model, ids = Sparse().train(), torch.randint(0, 20, (8, 4))
    with pipeline(model, kerf.trace(model, (ids,))) as pipe:
        pipe.train_step(ids, loss_fn=squares)
    assert model.embed.weight.grad.is_sparse
    found = gradients(model)
    model.zero_grad()
    squares(model(ids), None).backward()
    assert_close(found, gradients(model))


def test_autocast():
    model, x, y, _ = small()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        graph = kerf.trace(model, (x,))
        with pipeline(model, graph, n_microbatches=1) as pipe:
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
            found = gradients(model)
            model.zero_grad()
            loss = F.cross_entropy(model(x), y)
        loss.backward()
    assert_close(found, gradients(model), 2e-2)


class Failing(Exception):
    pass


def test_a_step_that_fails_leaves_everything_as_it_was():
    class Norm(Net):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

    torch.manual_seed(0)
    model = Norm().train()
    x, y = torch.randn(8, 6), torch.randint(0, 5, (8,))
    calls = []

    def loss_fn(out, target):
        calls.append(1)
        if len(calls) == 3:
            raise Failing("in the third micro-batch")
        return F.cross_entropy(out, target)

    with pipeline(model, kerf.trace(model, (x,))) as pipe:
        pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
        before, kept = gradients(model), buffers(model)
        with pytest.raises(Failing):
            pipe.train_step(x, target=y, loss_fn=loss_fn)
        assert_same(gradients(model), before)
        assert_same(buffers(model), kept)
        pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
        assert not torch.equal(buffers(model)["norm.running_mean"], kept["norm.running_mean"])


def test_wrong_losses_are_refused():
    model, x, y, graph = small()
    with pipeline(model, graph) as pipe:
        with pytest.raises(ValueError, match="the loss is .* expected one number"):
            pipe.train_step(x, target=y, loss_fn=lambda out, t: out)
        with pytest.raises(ValueError, match="the loss has no gradient"):
            pipe.train_step(x, target=y, loss_fn=lambda out, t: out.detach().mean())
        with pytest.raises(ValueError, match="loss_fn gave float"):
            pipe.train_step(x, target=y, loss_fn=lambda out, t: 3.0)
        with pytest.raises(ValueError, match="reduction is 'average'; expected 'mean'"):
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy, reduction="average")
        with pytest.raises(ValueError, match="weight has 2 numbers; expected one for each"):
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy, weight=[1, 2])
        with pytest.raises(ValueError, match="weight gives -1"):
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy, weight=[1, 2, 3, -1])
        with pytest.raises(ValueError, match="no output 'loss'"):
            pipe.train_step(x)
        assert not gradients(model)


def test_hooks_on_parameters_are_refused():
    model, x, y, graph = small()
    with pipeline(model, graph) as pipe:
        hook = model.last.weight.register_hook(lambda g: g * 2)
        with pytest.raises(ValueError, match=r"'last\.weight' has a hook"):
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
        hook.remove()
        hook = model.middle.register_full_backward_hook(lambda *given: None)
        with pytest.raises(ValueError, match="module 'middle' has a backward hook"):
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
        hook.remove()
        pipe.train_step(x, target=y, loss_fn=F.cross_entropy)


def test_a_plan_of_inference_does_not_train():
    model, x, y, graph = small()
    with kerf.Pipeline(model, kerf.plan(graph, "cpu:2")) as pipe:
        with pytest.raises(ValueError, match="one of inference; expected one of training"):
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy)


def test_a_plan_of_training_infers_too():
    model, x, _, graph = small()
    with pipeline(model, graph) as pipe, torch.no_grad():
        assert torch.allclose(pipe(x), model(x), atol=1e-6)


def test_steps_from_several_threads_are_served_one_after_the_other():
    model, x, y, graph = small()
    with pipeline(model, graph) as pipe:
        threads = [
            threading.Thread(
                target=pipe.train_step, args=(x,), kwargs={"target": y, "loss_fn": F.cross_entropy}
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    found = gradients(model)
    model.zero_grad()
    for _ in range(4):
        F.cross_entropy(model(x), y).backward()
    assert_close(found, gradients(model))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble"])
def test_the_timeline_of_a_step_has_the_tasks_of_its_schedule(schedule):
    model, x, y, graph = small()
    with pipeline(model, graph, schedule=schedule) as pipe:
        pipe.record = True
        pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
        predicted = kerf.simulate(pipe.plan)

        def tasks(timeline, device):
            return [
                (e.stage, e.microbatch, e.phase)
                for e in timeline.events
                if e.kind == "compute" and e.device == device
            ]

        for device in ("cpu:0", "cpu:1"):
            assert tasks(pipe.timeline, device) == tasks(predicted, device)
        assert "backward" in str(kerf.compare_timelines(predicted, pipe.timeline))


def test_warnings_name_the_batch_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)).train()
    x, y = torch.randn(8, 6), torch.randint(0, 5, (8,))
    with pipeline(model, kerf.trace(model, (x,))) as pipe:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            pipe.train_step(x, target=y, loss_fn=F.cross_entropy)
        assert any("batch norm '1' takes the statistics of each" in str(w.message) for w in seen)


@pytest.mark.parametrize("name", ["gpt2", "resnet", "lstm"])
def test_check_train_compares_with_the_model(name):
    model, graph, args, kwargs = traced(name)
    state = State(model)
    squares(model(*args, **kwargs), None).backward()
    state_gradients, left = gradients(model), buffers(model)
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], n_microbatches=2, training=True, method="even")
    with kerf.Pipeline(model, plan, batch_independent=True) as pipe:
        assert pipe.check_train(*args, **kwargs, loss_fn=squares) < 1e-4
    assert_same(gradients(model), state_gradients)
    assert_same(buffers(model), left)
    state.restore()


def test_check_train_finds_a_difference():
    model, x, y, graph = small()
    with pipeline(model, graph) as pipe:
        calls = []

        def loss_fn(out, target):
            calls.append(1)
            return F.cross_entropy(out, target) * (1 if len(calls) <= 4 else 2)

        with pytest.raises(RuntimeError, match="differs from the model's by"):
            pipe.check_train(x, target=y, loss_fn=loss_fn)


class Doubled(torch.autograd.Function):
    """A gradient that the operators of its forward do not have."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class WithBlock(nn.Module):
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x):
            return Doubled.apply(self.norm(self.linear(x)))

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(6, 8), self.Inner(), nn.Linear(8, 5)

    def forward(self, x):
        return self.last(torch.relu(self.inner(torch.relu(self.first(x)))))


@pytest.mark.parametrize("recompute", ["none", "all"])
@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_blocks_with_gradients_of_their_own(schedule, recompute):
    torch.manual_seed(0)
    model = WithBlock().train()
    x, y = torch.randn(8, 6), torch.randint(0, 5, (8,))
    state = State(model)
    graph = kerf.trace(model, (x,))
    assert any(n["op"] == "opaque" for n in graph.nodes)
    F.cross_entropy(model(x), y).backward()
    expected, left = gradients(model), buffers(model)
    state.restore()
    plan = kerf.plan(
        graph,
        ["cpu:0", "cpu:1"],
        training=True,
        method="even",
        schedule=schedule,
        recompute=recompute,
    )
    calls = []

    def failing(out, target):
        calls.append(1)
        if len(calls) == 2:
            raise Failing
        return F.cross_entropy(out, target)

    with kerf.Pipeline(model, plan, batch_independent=True) as pipe:
        pipe.train_step(x, target=y, loss_fn=failing)
        assert_close(gradients(model), expected)
        assert_close(buffers(model), left)
        before, kept = gradients(model), buffers(model)
        with pytest.raises(Failing):
            pipe.train_step(x, target=y, loss_fn=failing)
        assert_same(gradients(model), before)
        assert_same(buffers(model), kept)


class Scaled:
    """Three steps of a small model with loss scaling."""

    def __init__(self, scale):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).train()
        self.x, self.y = torch.randn(8, 16), torch.randint(0, 4, (8,))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    def loss(self, result, target):
        return self.scaler.scale(10 * F.cross_entropy(result, target))

    def learn(self, step):
        """Losses, and what the weights are in the end."""
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            losses.append(step().detach())
            self.scaler.step(optimizer)
            self.scaler.update()
            optimizer.zero_grad()
        return torch.stack(losses), dict(self.model.state_dict())

    def eager(self):
        loss = self.loss(self.model(self.x), self.y)
        loss.backward()
        return loss


@pytest.mark.parametrize("scale", [1024.0, 3e38])  # the second overflows: steps are skipped
def test_a_scaler_inside_the_loss(scale):
    own, piped = Scaled(scale), Scaled(scale)
    graph = kerf.trace(piped.model, (piped.x,))
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], n_microbatches=2, training=True)
    expected_losses, expected = own.learn(own.eager)
    with kerf.Pipeline(piped.model, plan) as pipe:
        losses, found = piped.learn(
            lambda: pipe.train_step(piped.x, target=piped.y, loss_fn=piped.loss)
        )
    assert_close(found, expected)
    assert torch.allclose(losses, expected_losses)
    assert piped.scaler.get_scale() == own.scaler.get_scale()
    assert (piped.scaler.get_scale() < scale) == (scale > 1e30)


class Greedy(nn.Module):
    """Asks for 4 TiB per sample."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        many = self.first(x).unsqueeze(1).expand(-1, 2**37, -1).contiguous()
        return self.last(many[:, 0])


@pytest.mark.parametrize("training", [False, True])
def test_memory_that_is_not_there_is_told_with_what_would_fit(training):
    model, x = Greedy().train(training), torch.randn(4, 8)
    options = {"training": True, "recompute": "none"} if training else {}
    graph = kerf.trace(model, (x,))
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], method="even", n_microbatches=2, **options)
    with kerf.Pipeline(model, plan) as pipe, pytest.raises(torch.OutOfMemoryError) as raised:
        if training:
            pipe.train_step(x, target=x, loss_fn=F.mse_loss)
        else:
            pipe(x)
    text = str(raised.value)
    assert "node 'contiguous'" in text and "(micro-batch 0)" in text
    assert "tried to allocate 8796093022208 bytes" in text
    assert re.search(r"the plan predicts \d+\.\d TiB for cpu:1 with this batch", text)
    assert re.search(r"n_microbatches=4 needs \d+\.\d+ TiB", text)
    assert ("recompute='all'" in text) == training
