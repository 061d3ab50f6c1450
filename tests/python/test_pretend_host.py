# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Units of a placed model that the host computes, beside a pretend accelerator, see pretend.py."""

import copy
import time

import models
import pytest
import torch
from comparing import assert_same
from torch import nn

import kerf
from kerf import _host_units

# A slow link and a quick host: it computes what it may, in calls of up to 16 rows.
HOST = {"link_bytes_per_second": 1e6, "host_computes": 1e12}
WIDTH = 64


class Block(nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.inplace = inplace

    def forward(self, x):
        y = self.down(torch.relu(self.up(self.norm(x))))
        return x.add_(y) if self.inplace else x + y


def stack(make=Block, layers=8):
    torch.manual_seed(0)
    return nn.Sequential(*[make() for _ in range(layers)]).eval()


def place_part(model, part=4, **more):
    total = sum(p.nbytes for p in model.parameters())
    return kerf.place(model, max_memory={0: int(total / part)}, **{**HOST, **more})


def uses_on_host(placed, x):
    before = placed.stats["on_host"]
    placed(x)
    return placed.stats["on_host"] - before


def test_a_call_of_few_rows_is_the_hosts_and_one_of_many_is_not(pretend_device):
    model = stack()
    few, many = torch.randn(1, WIDTH), torch.randn(64, WIDTH)
    with torch.no_grad():
        expected = model(few), model(many)
        placed = place_part(model)
        for _ in range(3):
            assert torch.equal(placed(few), expected[0])
            assert torch.equal(placed(many), expected[1])
    rows = [unit.host_rows for unit in placed.placement.units]
    assert min(rows) == 0 and max(rows) == 16
    assert uses_on_host(placed, few) == sum(n > 0 for n in rows)
    assert uses_on_host(placed, many) == 0
    assert "with one row the host computes" in str(placed.placement)
    assert placed.placement.lower_bound_with_host <= placed.placement.time_with_host
    assert not pretend_device.races()
    placed.remove()


def test_each_kind_of_call_finds_its_weights_there(pretend_device):
    model = stack()
    few, many = torch.randn(1, WIDTH), torch.randn(64, WIDTH)
    placed = place_part(model)
    for _ in range(2):
        placed(few), placed(many)
    misses = placed.stats["misses"]
    for _ in range(3):
        placed(few), placed(many)
    # The first module of a call tells its kind: what it needs itself may be late.
    assert placed.stats["misses"] - misses <= 6
    placed.remove()


def test_arguments_that_the_host_writes_are_written_on_the_device(pretend_device):
    model = stack(lambda: Block(inplace=True))
    x = torch.randn(2, WIDTH)
    with torch.no_grad():
        written = x.clone()
        expected = model(written)
        placed = place_part(model)
        given = x.to("pretend:0")
        found = placed(given)
    assert uses_on_host(placed, x.clone()) > 0
    assert torch.equal(found.cpu(), expected) and torch.equal(given.cpu(), written)
    placed.remove()


@pytest.mark.parametrize("name", ["gpt2", "llama_tied", "qwen2", "mamba", "t5", "bart", "mixtral"])
def test_generate_gives_the_same_text(pretend_device, name):
    model, _, _ = models.build(name)
    ids = models.ids(2, 9)
    how = {"max_new_tokens": 7, "do_sample": False, "pad_token_id": 0}
    expected = copy.deepcopy(model).generate(ids, **how)
    placed = place_part(model, part={"mamba": 1.6, "mixtral": 1.1}.get(name, 2.5))
    assert any(unit.host_rows > 0 for unit in placed.placement.units)
    for _ in range(2):
        assert torch.equal(model.generate(ids, **how).cpu(), expected)
    assert not pretend_device.races()
    placed.remove()
    assert torch.equal(model.generate(ids, **how), expected)


class Remembers(Block):
    def forward(self, x):
        self.last = x
        return super().forward(x)


class RemembersBelowADecorator(Block):
    @torch.no_grad()
    def forward(self, x):
        self.last = x
        return super().forward(x)


class Buffered(Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(WIDTH))

    def forward(self, x):
        return super().forward(x * self.scale)


class TakesMore(Block):
    def forward(self, x, cache=None):
        return super().forward(x)


def hooked():
    block = Block()
    block.up.register_forward_hook(lambda module, args, result: None)
    return block


MAKERS = [Remembers, RemembersBelowADecorator, Buffered, TakesMore, hooked]


@pytest.mark.parametrize("make", MAKERS)
def test_modules_that_may_need_the_device_run_on_it(pretend_device, make):
    model = stack(make)
    x = torch.randn(1, WIDTH)
    with torch.no_grad():
        expected = stack(make)(x)
    classes = [make.__name__] if isinstance(make, type) else ["Block"]
    placed = place_part(model, part=2.5, no_split_module_classes=classes)
    assert all(unit.host_rows == 0 for unit in placed.placement.units)
    assert torch.equal(placed(x), expected)
    placed.remove()


def test_autocast_and_training_stay_on_the_device(pretend_device):
    model = stack()
    x = torch.randn(1, WIDTH)
    placed = place_part(model)
    assert uses_on_host(placed, x) > 0
    with torch.autocast("pretend", dtype=torch.bfloat16):
        assert uses_on_host(placed, x) == 0
    model.train()
    assert uses_on_host(placed, x) == 0
    placed.remove()


def test_edits_are_seen_wherever_the_unit_is_computed(pretend_device):
    model, edited = stack(), stack()
    placed = place_part(model)
    few, many = torch.randn(1, WIDTH), torch.randn(64, WIDTH)
    for number, scale in ((1, 2.0), (5, 0.5), (6, 3.0)):
        placed(few), placed(many)
        for m in (model, edited):
            with torch.no_grad():
                m[number].down.weight.mul_(scale)
        with torch.no_grad():
            assert_same(placed(few), edited(few))
            assert_same(placed(many), edited(many))
    placed.remove()


class Fails(Block):
    fail = False

    def forward(self, x):
        if Fails.fail:
            raise ValueError("on purpose")
        return super().forward(x)


def test_an_exception_on_the_host_leaves_the_model_usable(pretend_device):
    model = stack(Fails)
    x = torch.randn(1, WIDTH)
    with torch.no_grad():
        expected = model(x)
    placed = place_part(model, part=2.5, no_split_module_classes=["Fails"])
    assert uses_on_host(placed, x) > 0
    Fails.fail = True
    try:
        with pytest.raises(ValueError, match="on purpose"):
            placed(x)
    finally:
        Fails.fail = False
    assert torch.equal(placed(x), expected)
    placed.remove()


def test_gradients_and_wrong_speeds_are_refused(pretend_device):
    model = stack()
    placed = place_part(model)
    with pytest.raises(RuntimeError, match="gradients to be taken"):
        model(torch.randn(1, WIDTH))
    placed.remove()
    for wrong in (0, -1.0, "fast", float("nan")):
        with pytest.raises(ValueError, match="host_computes is"):
            kerf.place(model, max_memory={0: "1GiB"}, host_computes=wrong)


def test_a_host_that_computes_nothing_has_no_column(pretend_device):
    placed = place_part(stack(), host_computes=False)
    assert placed.placement.time_with_host is None
    assert "host computes" not in str(placed.placement)
    placed.remove()


class Slow(Block):
    def forward(self, x):
        time.sleep(0.002)
        return super().forward(x)


def test_the_share_follows_what_calls_take(pretend_device, monkeypatch):
    """Beside computing, each unit takes the calling thread 2 ms: the host can take less."""
    monkeypatch.setattr(_host_units, "_speed", lambda like, device: [1e-9] * len(_host_units.ROWS))
    model = nn.Sequential(*[m for _ in range(6) for m in (Slow(), Block())]).eval()
    x = torch.randn(1, WIDTH)
    with torch.no_grad():
        expected = model(x)
    total = sum(p.nbytes for p in model.parameters())
    placed = kerf.place(
        model,
        max_memory={0: int(total / 2.5)},
        link_bytes_per_second=3e7,
        no_split_module_classes=["Slow", "Block"],
    )
    planned = placed.placement.time_with_host
    for _ in range(9):
        assert torch.equal(placed(x), expected)
    assert placed.placement.time_with_host > planned + 0.005
    assert placed.placement.lower_bound_with_host <= placed.placement.time_with_host
    placed.remove()


@pytest.mark.filterwarnings("ignore:.*came into the model after it was placed")
@pytest.mark.filterwarnings("ignore:.*is read while the module does not run")
def test_units_that_run_with_other_weights_do_so_on_the_device(pretend_device):
    model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(8)]).eval()
    other = {name: torch.randn_like(p) for name, p in model.state_dict().items()}
    plain, x = copy.deepcopy(model), torch.randn(1, WIDTH)
    placed = place_part(model)
    assert uses_on_host(placed, x) > 0
    there = {name: t.to("pretend:0") for name, t in other.items()}
    with torch.no_grad():
        expected = torch.func.functional_call(plain, other, (x,))
        assert torch.equal(torch.func.functional_call(model, there, (x,)), expected)
        assert torch.equal(model(x), plain(x))
        model.load_state_dict(other, assign=True)
        assert uses_on_host(placed, x) == 0
        assert torch.equal(model(x), expected)
    placed.remove()


@pytest.mark.parametrize("by_map", [False, True])
def test_units_with_weights_that_stay_on_the_device_are_computed_there(pretend_device, by_map):
    model, x = stack(), torch.randn(1, WIDTH)
    plain = copy.deepcopy(model)
    if by_map:
        places = {"": "cpu", **{f"{i}.up.bias": 0 for i in range(8)}, "0.down": 0}
        placed = kerf.place(model, device_map=places, **HOST)
    else:
        for each in (model, plain):
            each[7].up.weight = each[6].up.weight
        placed = place_part(model, 3, no_split_module_classes=["Block"])
    for m in (model, plain):
        with torch.no_grad():
            m[2].up.weight.mul_(2)
    for _ in range(2):
        assert_same(placed(x), plain(x).detach())
    assert uses_on_host(placed, x) > 0
    placed.remove()
