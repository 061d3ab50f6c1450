# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.place with an accelerator: a pretend one, see pretend.py."""

import copy

import models
import pytest
import torch
from comparing import assert_same
from small import mlp
from torch import nn

import kerf
from kerf import _torch

ALL = [name for name in (*models.FLOOR, *models.OTHERS) if name != "slice_writer"]


def total_bytes(model):
    return sum(p.nbytes for p in model.parameters())


def place_small(model, share=3, **more):
    """In a part of its bytes, or in what its largest layers need at least."""
    options = {key: more.pop(key) for key in ("checkpoint",) if key in more}
    options |= more.pop("options", {})
    for part in (share, 2.5, 2, 1.5, 1.1):
        limit = int(total_bytes(model) / part) + sum(b.nbytes for b in model.buffers())
        try:
            return kerf.place(model, max_memory={0: limit, **more}, **options)
        except ValueError as error:
            assert "does not fit" in str(error)
    raise AssertionError("nothing fits")


@pytest.mark.parametrize("name", ALL)
def test_a_model_of_the_zoo_gives_what_it_gives(pretend_device, name):
    model, args, kwargs = models.build(name)
    with torch.no_grad():
        expected = copy.deepcopy(model)(*args, **kwargs)
        placed = place_small(model)
        placement = placed.placement
        assert any(unit.residence == "streamed" for unit in placement.units)
        assert placement.device_bytes <= placement.memory
        with pretend_device.copy_delay(0.0005):
            for _ in range(3):
                found = model(*args, **kwargs)
                assert_same(found, expected, wherever=True)  # a cache stays on the device
                if isinstance(found, torch.Tensor):
                    assert found.device.type == "cpu"
    placed.remove()
    assert all(t.device.type == "cpu" and not t.is_pinned() for t in model.state_dict().values())
    with torch.no_grad():
        assert_same(model(*args, **kwargs), expected)


@pytest.mark.parametrize("name", ["gpt2", "llama_tied", "qwen2", "mamba", "t5", "bart", "mixtral"])
def test_generate_gives_the_same_text(pretend_device, name):
    model, _, _ = models.build(name)
    ids = models.ids(2, 9)
    how = {"max_new_tokens": 7, "do_sample": False, "pad_token_id": 0}
    expected = copy.deepcopy(model).generate(ids, **how)
    placed = place_small(model)
    text = model.generate(ids, **how)
    assert torch.equal(text.cpu(), expected)
    assert torch.equal(placed.generate(ids[:, :5], **how), model.generate(ids[:, :5], **how))
    placed.remove()
    assert torch.equal(model.generate(ids, **how), expected)


def test_memory_and_allocations_stay_what_was_planned(pretend_device):
    model, x = mlp(12, 128)
    before = pretend_device.memory_allocated(0)
    placed = place_small(model)
    held = pretend_device.memory_allocated(0) - before
    assert held <= placed.placement.memory
    with torch.no_grad():
        expected = [model(x), model(x)]
        pretend_device.reset_peak(0)
        model(x)
        assert torch.equal(*expected)
    activations = 8 * x.nbytes
    assert pretend_device.max_memory_allocated(0) - before <= placed.placement.memory + activations
    misses = placed.stats["misses"]
    with torch.no_grad():
        model(x)
    assert placed.stats["misses"] == misses
    placed.remove()
    assert pretend_device.memory_allocated(0) <= before + activations
    assert pretend_device.pinned_memory_allocated() == 0


def test_results_go_where_arguments_came_from(pretend_device):
    model, x = mlp()
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model)
        assert model(x).device.type == "cpu" and torch.equal(model(x), expected)
        there = model(x.to("pretend:0"))
        assert there.device == torch.device("pretend:0") and torch.equal(there.cpu(), expected)
        assert next(model.parameters()).device.type == "pretend"
        with pytest.raises(RuntimeError):
            model(torch.randn(4, 3))
        assert torch.equal(model(x), expected)
    placed.remove()


@pytest.mark.parametrize("layer", [2, 4, 8])
@pytest.mark.parametrize(
    "edit",
    [
        lambda w: w.mul_(2),
        lambda w: w.data.mul_(2),
        lambda w: w.data[3].fill_(1),
        lambda w: setattr(w, "data", w.data * 2),
    ],
    ids=["in_place", "data", "one_row", "other_data"],
)
def test_edits_of_weights_are_seen(pretend_device, layer, edit):
    model, x = mlp()
    twin = copy.deepcopy(model)
    placed = place_small(model)
    with torch.no_grad():
        model(x)
        model(x)
        for _ in range(2):
            edit(model[layer].weight)
            edit(twin[layer].weight)
            assert torch.equal(model(x), twin(x))
            assert torch.equal(model(x), twin(x))
    assert all(torch.equal(v.cpu(), twin.state_dict()[k]) for k, v in model.state_dict().items())
    placed.remove()


class Counter(nn.Module):
    """Counts its calls in a weight, where no version counts them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64))

    def forward(self, x):
        self.weight.data[0] += 1
        return x + self.weight


def test_what_a_forward_writes_goes_home(pretend_device):
    model, x = mlp()
    model = nn.Sequential(*model, Counter())
    twin = copy.deepcopy(model)
    placed = place_small(model)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(model(x), twin(x))
    placed.remove()
    assert model[-1].weight[0].item() == 3


def test_three_tiers(pretend_device, tmp_path):
    model, x = mlp(16)
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model, share=4, cpu=total_bytes(model) // 4, disk=tmp_path)
        assert placed.placement.source == "cpu and disk"
        assert 0 < pretend_device.pinned_memory_allocated() <= total_bytes(model) // 2 + (33 << 20)
        for _ in range(3):
            assert torch.equal(model(x), expected)
        placed.remove()
        assert torch.equal(model(x), expected)


def test_gradients_and_several_accelerators_are_refused(pretend_device):
    model, x = mlp()
    with pytest.raises(NotImplementedError, match="2 accelerators"):
        kerf.place(model, max_memory={0: "1MiB", 1: "1MiB"})
    placed = place_small(model)
    with pytest.raises(RuntimeError, match="gradients"):
        model(x)
    placed.remove()
    model(x).sum().backward()


class ReadsAnEmbedding(nn.Module):
    """Takes rows of a weight whose module it never calls, as T5 and DeBERTa do."""

    def __init__(self, write=False):
        super().__init__()
        self.write = write
        self.table = nn.Embedding(50, 64)
        self.body = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, x):
        first, again = self.table.weight, self.table.weight
        assert first is again
        if self.write:
            first[:4] += 1
        for layer in self.body:
            x = layer(x).tanh() + self.table.weight[: len(x)]
        return x


@pytest.mark.parametrize("write", [False, True])
def test_a_weight_read_outside_of_its_module_is_on_the_device(pretend_device, write):
    torch.manual_seed(0)
    model, x = ReadsAnEmbedding(write), torch.randn(4, 64)
    model.body[0], first = nn.Linear(64, 64), model.body[0]  # the first parameter stays
    model = nn.Sequential(first, model).eval()
    plain = copy.deepcopy(model)
    own = model[1].table._parameters
    placed = kerf.place(model, max_memory={0: 60 << 10})
    assert {u.path: u.residence for u in placed.placement.units}["1.table"] == "streamed"
    with torch.no_grad():
        with pytest.warns(UserWarning, match="of module '1.table' is read while the module does"):
            assert torch.equal(model(x), plain(x))
        assert torch.equal(model(2 * x), plain(2 * x))
    assert torch.equal(model[1].table.weight, plain[1].table.weight)
    assert type(copy.deepcopy(model)[1].table._parameters) is dict
    placed.remove()
    assert model[1].table._parameters is own
    assert torch.equal(model[1].table.weight, plain[1].table.weight)


class EditsTheNextOnes(nn.Module):
    """Writes weights of modules that run later in the same call, and have run before."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x)
            with torch.no_grad():
                self.layers[(number + 1) % 8].weight.mul_(1.01)
                self.layers[(number + 3) % 8].bias.data.add_(0.1)
        return x


@pytest.mark.filterwarnings("ignore:.*is read while the module does not run")
@pytest.mark.parametrize("host", [False, True])
def test_what_a_forward_writes_into_other_modules_is_seen_by_them(pretend_device, host):
    torch.manual_seed(0)
    model, x = EditsTheNextOnes().eval(), torch.randn(3, 64)
    plain = copy.deepcopy(model)
    placed = place_small(model, options=HOST if host else {})
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(model(x), plain(x))
    placed.remove()
    for weight, expected in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(weight, expected)


def on_host(placed):
    return [unit for unit in placed.placement.units if unit.host_rows > 0]


# A slow link and a quick host: it computes what it may.
HOST = {"link_bytes_per_second": 1e6, "host_computes": 1e12}


@pytest.mark.parametrize("name", ALL)
def test_the_host_computes_units_and_results_are_those_of_the_model(pretend_device, name):
    model, args, kwargs = models.build(name)
    with torch.no_grad():
        expected = copy.deepcopy(model)(*args, **kwargs)
        placed = place_small(model, options=HOST)
        for _ in range(3):
            assert_same(model(*args, **kwargs), expected, wherever=True)
    assert not pretend_device.races()
    placed.remove()


def test_weights_keep_the_order_they_have_in_memory(pretend_device, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Conv2d(8, 8, 3, padding=1) for _ in range(9)]).eval()
    model.to(memory_format=torch.channels_last)
    strides, x = [p.stride() for p in model.parameters()], torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model, cpu=total_bytes(model) // 3, disk=tmp_path)
        found = model(x)
        assert torch.equal(found, expected) and found.stride() == expected.stride()
        placed.remove()
    assert [p.stride() for p in model.parameters()] == strides


def test_pinned_blocks_leave_little_unused(pretend_device):
    mib, each, count = 1 << 20, 86, 14  # as a matrix of a model of 7B parameters
    weight = torch.zeros(1, dtype=torch.uint8).expand(each * mib)
    before = pretend_device.pinned_memory_allocated()
    arena = _torch.PinnedArena(count * each * mib)
    kept = [arena.take([(weight, torch.uint8)]) for _ in range(count)]
    taken = pretend_device.pinned_memory_allocated() - before
    assert len(kept) == count and arena.not_pinned == 0
    assert taken <= 1.2 * count * each * mib
