# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A batch is cut only when samples are separate; results are joined as the model made them."""

import warnings

import models
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import kerf


def pipeline(model, *inputs, n=2, trace=None, **options):
    graph = kerf.trace(model, inputs, **(trace or {}))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="kerf.plan")
        plan = kerf.plan(graph, ["cpu:0", "cpu:1"], n_microbatches=n)
    return kerf.Pipeline(model, plan, **options)


class Layer(nn.Module):
    """A layer, and then ``after`` of its result."""

    def __init__(self, after):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)
        self.after = after

    def forward(self, x, *more):
        return self.after(self.layer(x), *more)


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_what_the_data_of_a_call_does_not_show_is_refused_before_anything_runs():
    model = Layer(lambda h: h * torch.clamp(50 / h.norm(), max=1)).eval()
    with pytest.raises(NotImplementedError) as caught:
        pipeline(model, torch.randn(4, 8))
    message = str(caught.value)
    assert "output 'output' mixes samples" in message and "\n" not in message
    assert "test_micro_batches.py:" in message and "aten." in message
    assert "n_microbatches=1" in message


def test_a_plan_for_a_model_that_mixes_says_so():
    graph = kerf.trace(Layer(lambda h: h - h.mean(0)).eval(), (torch.randn(4, 8),))
    with pytest.warns(UserWarning, match=r"kerf.plan: output 'output'.*mean.*n_microbatches=1"):
        kerf.plan(graph, ["cpu:0"], n_microbatches=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kerf.plan(graph, ["cpu:0"], n_microbatches=1)


def test_a_proved_model_runs_nothing_but_the_call(monkeypatch):
    from kerf import _separate

    monkeypatch.setattr(_separate, "SeparateSamples", None)
    model = Layer(F.relu).eval()
    x = torch.randn(4, 8)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        assert_close(pipeline(model, x)(x), model(x))


class Branch(nn.Module):
    """Looks at the values of its input, which no graph shows."""

    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x - 1


class WithBranch(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.branch = Branch()

    def forward(self, x):
        return self.branch(self.layer(x))


def test_an_opaque_block_is_cut_only_when_the_user_vouches_for_it():
    model = WithBranch().eval()
    x = torch.randn(4, 8)
    with pytest.raises(NotImplementedError, match=r"Branch 'branch'.*batch_independent=True"):
        pipeline(model, x)
    with torch.no_grad():
        assert_close(pipeline(model, x, n=1)(x), model(x))
        pipe = pipeline(model, x, batch_independent=True)
        same = x[:1].expand(4, 8).contiguous()
        assert_close(pipe(same), model(same))


def test_the_word_of_the_user_does_not_cover_what_is_seen_to_mix():
    model = Layer(lambda h: h - h.mean(0)).eval()
    with pytest.raises(NotImplementedError, match="mixes samples"):
        pipeline(model, torch.randn(4, 8), batch_independent=True)


@pytest.mark.parametrize("wrong", [1, "yes"])
def test_batch_independent_is_true_or_false(wrong):
    with pytest.raises(TypeError, match="batch_independent is"):
        pipeline(Layer(F.relu).eval(), torch.randn(4, 8), batch_independent=wrong)


def clipped_by_sorting(h):
    # Sorting is not followed; what it gives matters only where numbers are large.
    largest = h.flatten().sort().values
    return h * torch.clamp(50 / largest.norm(), max=1)


def test_what_is_unknown_is_tried_at_several_scales_and_said_once():
    model = Layer(clipped_by_sorting).eval()
    x = torch.randn(4, 8)
    with pytest.warns(UserWarning, match=r"could not prove.*sort.*test_micro_batches.py:") as seen:
        pipe = pipeline(model, x)
    assert len(seen) == 1
    with pytest.raises(NotImplementedError, match="mixes samples"):
        pipe(x)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        assert_close(pipeline(model, x, batch_independent=True)(x), model(x))


def test_routed_experts_are_cut_as_before():
    model, args, kwargs = models.build("mixtral")
    graph = kerf.trace(model, args, kwargs)
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], n_microbatches=2)
    with pytest.warns(UserWarning, match="could not prove.*modeling_mixtral|could not prove.*moe"):
        pipe = kerf.Pipeline(model, plan)
    with torch.no_grad():
        assert_close(pipe(**kwargs).logits, model(**kwargs).logits)


def test_batch_norm_in_train_mode_is_cut_with_a_warning():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8)).train()
    x = torch.randn(4, 8)
    with pytest.warns(
        UserWarning, match="batch norm '1' and 1 more in train mode.*2 times per call"
    ):
        pipe = pipeline(model, x)
    pipe(x)
    assert model[1].num_batches_tracked == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline(model, x, n=1)
        pipeline(model.eval(), x)


def test_batch_dims_are_offered_where_they_are_the_cure():
    model = nn.TransformerEncoderLayer(8, 2, 16).eval()
    x = torch.randn(5, 4, 8)
    with pytest.raises(NotImplementedError, match="batch_dims=1"):
        pipeline(model, x)
    with torch.no_grad():
        assert_close(pipeline(model, x, trace={"batch_dims": 1})(x), model(x))


# Results without a batch dimension


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.calls


def test_batch_dims_are_not_offered_where_state_is_the_reason():
    x = torch.randn(4, 8)
    with pytest.raises(NotImplementedError, match="buffer 'calls' would be left with.*every") as e:
        pipeline(Counts().eval(), x)
    assert "batch_dims" not in str(e.value) and "n_microbatches=1" in str(e.value)


LOSSES = {
    "mean": (lambda h: (h * h).mean(), "mean"),
    "scaled mean": (lambda h: 0.5 * (h * h).mean() + 1, "mean"),
    "sum": (lambda h: h.abs().sum(), "sum"),
    "sum over samples": (lambda h: h.abs().sum() / h.shape[0], "mean"),
    "mse": (lambda h: F.mse_loss(h, h * 2), "mean"),
    "summed mse": (lambda h: F.mse_loss(h, h * 2, reduction="sum"), "sum"),
    "classes": (lambda h: F.cross_entropy(h, h.argmax(-1)), "mean"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_put_together_as_the_model_makes_it(name):
    loss, how = LOSSES[name]
    model = Layer(lambda h: {"loss": loss(h), "h": h}).eval()
    x = torch.randn(5, 8)
    with torch.no_grad():
        assert_close(pipeline(model, x, reduce={"loss": how})(x), model(x))
    other = {"mean": "sum", "sum": "mean"}[how]
    if name != "sum over samples":
        with pytest.raises(ValueError, match=f"'{other}' for output 'loss'.*expected '{how}'"):
            pipeline(model, x, reduce={"loss": other})


def masked_mean(h):
    mask = h > 0
    return (h * mask).sum() / mask.sum()


WEIGHTED = {
    "masked mean": masked_mean,
    "ignored targets": lambda h: F.cross_entropy(h, h.argmax(-1), ignore_index=0),
    "weighed classes": lambda h: F.cross_entropy(h, h.argmax(-1), weight=torch.arange(1.0, 9.0)),
    "tokens": lambda h: F.cross_entropy(h.view(-1, 4), h.view(-1, 4).argmax(-1)),
    "part of a sum": lambda h: h.pow(2).mean() + 0.1 * masked_mean(h),
}


@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("how", ["mean", "sum"])
def test_a_mean_over_what_counts_is_not_a_mean_over_samples(name, how):
    model = Layer(lambda h: {"loss": WEIGHTED[name](h), "h": h}).eval()
    with pytest.raises(ValueError, match=r"output 'loss'.*every sample counts equally") as caught:
        pipeline(model, torch.randn(4, 8), reduce={"loss": how})
    assert "test_micro_batches.py:" in str(caught.value)


def test_labels_that_are_ignored_are_refused_when_a_call_has_them():
    model = Layer(lambda h, t: {"loss": F.cross_entropy(h, t), "h": h}).eval()
    x, t = torch.randn(4, 8), torch.tensor([1, 2, 3, 4])
    pipe = pipeline(model, x, t, reduce={"loss": "mean"})
    with torch.no_grad():
        assert_close(pipe(x, t), model(x, t))
        t[0] = -100
        with pytest.raises(ValueError, match=r"'args.1' holds targets that are ignored \(-100\)"):
            pipe(x, t)
        with pytest.raises(ValueError, match="ignored"):
            list(pipe.stream([(x, t)]))
        assert_close(pipe(x[:1], t[1:2]), model(x[:1], t[1:2]))
        assert_close(pipe(x[:1], t[:1])["h"], model(x[:1], t[:1])["h"])  # nothing is cut


def own(h):
    return torch.arange(h.shape[0])


def clip(h, t):
    logits = h @ t.T
    return (F.cross_entropy(logits, own(h)) + F.cross_entropy(logits.T, own(h))) / 2


# Samples are compared with each other before they are put together.
CONTRASTIVE = {
    "other": lambda h, t: F.cross_entropy(h @ t.T, own(h)),
    "itself": lambda h, t: F.cross_entropy(h @ h.T, own(h)),
    "both ways": clip,
    "nll": lambda h, t: F.nll_loss(F.log_softmax(h @ t.T, -1), own(h)),
    "mse": lambda h, t: F.mse_loss(h @ t.T, t @ h.T),
    "binary": lambda h, t: F.binary_cross_entropy_with_logits(h @ t.T, (t @ t.T).sigmoid()),
    "einsum": lambda h, t: F.cross_entropy(torch.einsum("bd,cd->bc", h, t), own(h)),
    "bmm": lambda h, t: F.cross_entropy(torch.bmm(h[None], t.T[None])[0], own(h)),
    "cosine": lambda h, t: F.cross_entropy(
        F.cosine_similarity(h[:, None], t[None], dim=-1), own(h)
    ),
    "broadcast": lambda h, t: F.l1_loss((h[:, None] * t[None]).sum(-1), (t[:, None] * t).sum(-1)),
    "broadcast in the loss": lambda h, t: F.mse_loss(h[:, :1], t[:, 0]),
    "hard negatives": lambda h, t: (h @ t.T).logsumexp(1).mean(),
    "distances": lambda h, t: F.relu(1 - torch.cdist(h, t)).mean(),
    "centred": lambda h, t: F.mse_loss(h - h.mean(0), t),
    "classes are samples": lambda h, t: F.cross_entropy(h.T, t.T.softmax(1)),
    "with another": lambda h, t: F.cross_entropy(h, t.argmax(1), ignore_index=3) + clip(h, t),
}


@pytest.mark.parametrize("name", CONTRASTIVE)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_loss_that_compares_samples_is_refused(name):
    x, t = torch.randn(4, 8), torch.randn(4, 8)
    model = Layer(lambda h, t: {"loss": CONTRASTIVE[name](h, t), "h": h})
    found = kerf.trace(model.eval(), (x, t)).batch_independence()
    assert found.verdict == "mixes" and found.reaches == "output 'loss'", found
    for how in ("mean", "sum"):
        with pytest.raises(NotImplementedError, match="output 'loss' mixes samples") as caught:
            pipeline(model, x, t, reduce={"loss": how})
        assert "test_micro_batches.py:" in str(caught.value)
    graph = kerf.trace(model.train(), (x, t))
    plan = kerf.plan(graph, ["cpu:0"], n_microbatches=2, training=True)
    for said in (False, True):
        pipe = kerf.Pipeline(model, plan, batch_independent=said)
        with pytest.raises(NotImplementedError, match="output 'loss' mixes samples"):
            pipe.train_step(x, t)
    if name != "centred":  # there it is the user's word what a micro-batch counts
        with pytest.raises(NotImplementedError, match="output 'loss' mixes samples"):
            pipe.train_step(x, t, weight=[1, 2])


def test_a_loss_of_what_cannot_be_followed_is_said_to_be_unknown():
    model = Layer(lambda h: {"loss": F.mse_loss(h.sort(0).values, h.sort(0).values * 2)}).train()
    x = torch.randn(4, 8)
    plan = kerf.plan(kerf.trace(model, (x,)), ["cpu:0"], n_microbatches=2, training=True)
    with pytest.warns(kerf.KerfWarning, match="could not prove .* sorts across the samples"):
        kerf.Pipeline(model, plan).train_step(x)


def test_reduce_names_outputs_without_a_batch_dimension():
    model = Layer(lambda h: {"loss": h.mean(), "h": h}).eval()
    x = torch.randn(4, 8)
    with pytest.raises(ValueError, match="'h', which has the batch in dimension 0.*omit it"):
        pipeline(model, x, reduce={"loss": "mean", "h": "mean"})
    with pytest.raises(ValueError, match="reduce names output 'lose'; expected one of 'loss', 'h'"):
        pipeline(model, x, reduce={"lose": "mean"})
    with pytest.raises(NotImplementedError, match="if it is a mean over the samples"):
        pipeline(model, x)


def test_a_parameter_that_the_model_writes_is_not_written_for_each_micro_batch():
    class Decays(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(8, 8)

        def forward(self, x):
            with torch.no_grad():
                self.a.weight.mul_(0.5)
            return self.a(x)

    model, x = Decays().eval(), torch.randn(4, 8)
    before = model.a.weight.detach().clone()
    plan = kerf.plan(kerf.trace(model, x), ["cpu:0", "cpu:1"], n_microbatches=2)
    with pytest.raises(NotImplementedError, match="parameter 'a.weight' would be left with"):
        kerf.Pipeline(model, plan)(x)
    assert torch.equal(model.a.weight, before)
