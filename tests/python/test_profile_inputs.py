# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What kerf.profile is given: inputs that are not the traced ones, models whose code leaves traces,
and conditions that a cache of blocks has to know."""

import random

import pytest
import torch
import torch.nn as nn

import kerf


def measure(model, graph, *args, cache=False, isolate=True, **options):
    kept = {"cache": cache} if isolate else {}
    return kerf.profile(
        model,
        graph,
        args,
        isolate=isolate,
        budget_seconds=0.02,
        devices=["cpu:0"],
        **kept,
        **options,
    )


# Inputs


class Rows(nn.Module):
    """Also runs on other inputs than those that it was traced with."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 8)

    def forward(self, ids, x):
        return self.table(ids) + x


IDS, X = torch.arange(12).reshape(4, 3) % 10, torch.randn(4, 3, 8)


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize(
    ("ids", "x", "why"),
    [
        (IDS.int(), X, "'args.0' is i32.*its dtype differs"),
        (IDS, X.half(), "'args.1' is f16.*its dtype differs"),
        (IDS, X[:, :1], "dimension 1 has size 1, expected 3"),
        (IDS, X[:2], "dimension 0 has size 2, expected 4"),
        (IDS, X[0], "it has 2 dimensions"),
        (IDS[:0], X[:0], "the batch is empty"),
        (IDS, X.to_sparse(), "it is sparse"),
        (IDS, X.to("meta"), "it has no data"),
    ],
)
def test_inputs_of_another_form_than_traced_are_refused(tmp_path, isolate, ids, x, why):
    model = Rows().eval()
    graph = kerf.trace(model, (IDS, X))
    with pytest.raises(ValueError, match=why):
        measure(model, graph, ids, x, isolate=isolate, cache=tmp_path)
    with pytest.raises(ValueError, match=why):  # not only where they are taken as they are
        measure(model, graph, ids, x, isolate=isolate, cache=tmp_path, batch=8)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("isolate", [False, True])
def test_a_batch_for_which_the_trace_does_not_hold_is_refused(isolate):
    class Pairs(nn.Module):
        def forward(self, x):
            return x.reshape(-1, 16) * 2 if x.shape[0] % 2 == 0 else x * 2

    model, x = Pairs().eval(), torch.randn(4, 8)
    graph = kerf.trace(model, (x,))
    assert measure(model, graph, x, isolate=isolate, batch=6).total_forward > 0
    with pytest.raises(ValueError, match="batch of 3"):
        measure(model, graph, x, isolate=isolate, batch=3)


def test_a_batch_in_the_middle_is_laid_out_as_traced(tmp_path):
    model, x = nn.LSTM(8, 8).eval(), torch.randn(5, 4, 8)  # time first
    graph = kerf.trace(model, (x,), batch_dims=1)
    measure(model, graph, x[:, :2].contiguous(), cache=tmp_path)
    for batch, given in ((2, x), (2, x[:, :1].contiguous())):  # cut, and repeated
        profile = measure(model, graph, given, batch=batch, cache=tmp_path)
        assert profile.batch == 2 and profile.cache.misses == 0, profile.cache.reasons


# Strides


def convolutions():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))).eval()


def channels_last(tensor):
    return tensor.to(memory_format=torch.channels_last)


@pytest.mark.parametrize("of_weights", [False, True])
def test_other_strides_than_traced_share_no_figures(tmp_path, of_weights):
    model, x = convolutions(), torch.randn(2, 8, 16, 16)
    graph = kerf.trace(model, (x,))
    assert measure(model, graph, x, cache=tmp_path).cache.misses == 2
    files = sorted(tmp_path.iterdir())
    if of_weights:
        channels_last(model)
    other = measure(model, graph, x if of_weights else channels_last(x), cache=tmp_path)
    assert (other.cache.hits, other.cache.misses) == (0, 3)
    assert other.cache.reasons == ["inputs or weights are not as traced: 3"]
    what = "weight '0.weight'" if of_weights else "input 'args.0'"
    assert any(f"{what} has other strides" in note for note in other.notes)
    assert [block.kind for block in other.blocks] == [0, 1, 2]
    assert sorted(tmp_path.iterdir()) == files
    if not of_weights:
        assert measure(model, graph, x, cache=tmp_path).cache.hits == 2


def test_strides_as_traced_are_kept(tmp_path):
    model, x = channels_last(convolutions()), channels_last(torch.randn(2, 8, 16, 16))
    graph = kerf.trace(model, (x,))
    measure(model, graph, x, cache=tmp_path)
    assert measure(model, graph, x, cache=tmp_path).cache.hits == 2
    measure(model, graph, x[:1], cache=tmp_path)
    again = measure(model, graph, x, cache=tmp_path, batch=1)
    assert again.cache.hits == 2, again.cache.reasons


# Conditions


def test_a_miss_names_the_setting(tmp_path):
    model, x = nn.Linear(8, 8).eval(), torch.randn(4, 8)
    graph = kerf.trace(model, (x,))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        measure(model, graph, x, cache=tmp_path)
        torch.set_num_threads(2)
        other = measure(model, graph, x, cache=tmp_path)
        assert other.cache.reasons == ["other threads: '2', measured on '1': 1"]
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            other = measure(model, graph, x, cache=tmp_path)
    finally:
        torch.set_num_threads(before)
    # Of the two that are kept, the one with as many threads is named.
    assert other.cache.misses == 1 and "attention kernels: 'math'" in other.cache.reasons[0]


def test_what_was_measured_beside_a_profiler_is_not_kept(tmp_path):
    model, x = nn.Linear(8, 8).eval(), torch.randn(4, 8)
    graph = kerf.trace(model, (x,))
    with torch.profiler.profile(profile_memory=True):
        deaf = measure(model, graph, x, cache=tmp_path)
    assert deaf.blocks[0].forward_peak_bytes == 0
    assert any("a profiler listens" in note for note in deaf.notes)
    heard = measure(model, graph, x, cache=tmp_path)
    assert (heard.cache.hits, heard.blocks[0].forward_peak_bytes) == (0, 4 * 8 * 4)


# What is left as it was


class Diary(nn.Module):
    """Runs as Python, and notes what it has done wherever a module can."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))
        self.calls, self.seen, self.fails_after = 0, [], None

    def forward(self, x):
        self.calls += 1
        if self.fails_after is not None and self.calls > self.fails_after:
            raise ValueError("enough")
        self.seen.append(random.random())
        self.mean = 0.9 * self.mean + x.detach().mean(0)  # another tensor
        with torch.no_grad():
            self.inner.weight.mul_(0.5)
        return self.inner(x) if x.sum() < 1e9 else x


class Noted(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.diary = nn.Linear(8, 8), Diary()

    def forward(self, x):
        return self.diary(self.first(x))


def left_by(model):
    diary = model.diary
    numbers = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    identities = [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    return numbers, identities, (diary.calls, list(diary.seen)), random.getstate()


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_what_blocks_of_python_change_is_put_back(isolate, training, fails):
    torch.manual_seed(0)
    model, x = Noted().train(training), torch.randn(4, 8)
    with pytest.warns(kerf.KerfWarning):
        graph = kerf.trace(model, (x,))
    before = left_by(model)
    if fails:
        Diary.fails_after = model.diary.calls + 2
        del model.diary.fails_after
        before = left_by(model)
        with pytest.raises(ValueError, match="enough"):
            measure(model, graph, x, isolate=isolate, training=training)
        del Diary.fails_after
    else:
        measure(model, graph, x, isolate=isolate, training=training)
    after = left_by(model)
    assert all(torch.equal(before[0][name], tensor) for name, tensor in after[0].items())
    assert before[1:] == after[1:]


class Writes(nn.Module):
    """What it writes into its input has gradients."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x, cache):
        cache[:, 0] = self.first(x)
        return self.last(cache.sum(1))


@pytest.mark.parametrize("isolate", [False, True])
def test_gradients_may_flow_through_an_input_that_is_written(isolate):
    torch.manual_seed(0)
    model, x = Writes().train(), torch.randn(4, 8)
    for cache in (torch.zeros(4, 3, 8), torch.zeros(4, 6, 8)[:, 1:4]):
        graph = kerf.trace(model, (x, cache))
        profile = measure(model, graph, x, cache, isolate=isolate, training=True)
        by_op = {node["op"]: profile.nodes[i] for i, node in enumerate(graph.nodes)}
        assert by_op["aten.sum.dim_IntList"].backward > 0
        assert not cache.requires_grad and not cache.any()


@pytest.mark.parametrize("isolate", [False, True])
def test_inputs_that_need_gradients_get_none(isolate):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).train()
    for traced in (False, True):
        graph = kerf.trace(model, (torch.randn(4, 8, requires_grad=traced),))
        leaf = torch.randn(4, 8, requires_grad=True)
        leaf.grad = torch.ones(4, 8)
        made = leaf * 2
        for x in (leaf, made):
            measure(model, graph, x, isolate=isolate, training=True)
        assert torch.equal(leaf.grad, torch.ones(4, 8))
        made.sum().backward()  # its history is whole


class Clamped(nn.Module):
    """Forward writes a parameter that learns."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64, bias=False)

    def forward(self, x):
        with torch.no_grad():
            self.inner.weight.clamp_(-0.05, 0.05)
        return self.inner(torch.tanh(x))


def test_a_parameter_that_is_written_learns_while_it_is_measured():
    torch.manual_seed(0)
    model, x = Clamped().train(), torch.randn(4, 64)
    profile = measure(model, kerf.trace(model, (x,)), x, training=True)
    block = next(block for block in profile.blocks if block.weight_bytes)
    assert block.backward > 0
    assert block.backward_peak_bytes >= block.weight_bytes  # its gradient
    assert model.inner.weight.grad is None


def test_a_frozen_layer_shares_no_figures_with_one_that_learns(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3))).train()
    x = torch.randn(4, 64)
    graph = kerf.trace(model, (x,))
    measure(model, graph, x, training=True, cache=tmp_path)
    files = sorted(tmp_path.iterdir())
    model[1].requires_grad_(False)
    frozen = measure(model, graph, x, training=True, cache=tmp_path)
    assert frozen.cache.reasons == ["inputs or weights are not as traced: 3"]
    assert any("weight '1.weight' is frozen" in note for note in frozen.notes)
    peaks = [block.backward_peak_bytes for block in frozen.blocks]
    assert peaks[1] < peaks[2]  # no gradient of a weight
    assert sorted(tmp_path.iterdir()) == files
    again = measure(model, kerf.trace(model, (x,)), x, training=True, cache=tmp_path)
    assert (again.cache.hits, again.cache.misses) == (2, 1)


def test_blocks_are_measured_in_inference_mode_too():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).train(), torch.randn(4, 8)
    graph = kerf.trace(model, (x,))
    with torch.inference_mode():
        assert measure(model, graph, x, training=True).total_backward > 0


def test_weights_without_data_are_named():
    model, x = nn.Linear(8, 8).to("meta").eval(), torch.randn(4, 8)
    graph = kerf.trace(model, (x,))
    for isolate in (False, True):
        with pytest.raises(ValueError, match="weight 'weight' has no data"):
            measure(model, graph, x, isolate=isolate)
