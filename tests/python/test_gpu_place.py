# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.place and kerf.DataFlow on a real accelerator; more is tried on a pretend one."""

import copy

import models
import pytest
import torch
from comparing import assert_same
from torch import nn

import kerf

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
GENERATE = ["gpt2", "llama_tied", "qwen2", "mamba", "t5", "bart", "mixtral"]
ZOO = [name for name in (*models.FLOOR, *models.OTHERS) if name != "slice_writer"]


@pytest.fixture(autouse=True)
def exact():
    """The CPU's numbers, within rounding."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def place_small(model, **more):
    """In a third of its bytes, or in what its largest layers need at least."""
    total = sum(p.nbytes for p in model.parameters())
    for part in (3, 2.5, 2, 1.5, 1.1):
        limit = int(total / part) + sum(b.nbytes for b in model.buffers())
        try:
            return kerf.place(model, max_memory={0: limit}, **more)
        except ValueError as error:
            assert "does not fit" in str(error)
    raise AssertionError("nothing fits")


# The second: a slow link and a quick host, which computes what it may.
@pytest.mark.parametrize("options", [{}, {"link_bytes_per_second": 1e6, "host_computes": 1e12}])
@pytest.mark.parametrize("name", ZOO)
def test_a_model_of_the_zoo_gives_what_it_gives(name, options):
    model, args, kwargs = models.build(name)
    with torch.no_grad():
        expected = copy.deepcopy(model)(*args, **kwargs)
        placed = place_small(model, **options)
        for _ in range(3):
            assert_same(model(*args, **kwargs), expected, wherever=True)
    placed.remove()
    with torch.no_grad():
        assert_same(model(*args, **kwargs), expected)


@pytest.mark.parametrize("name", GENERATE)
def test_generate_gives_the_same_text(name):
    model, _, _ = models.build(name)
    ids = models.ids(2, 9)
    how = {"max_new_tokens": 7, "do_sample": False, "pad_token_id": 0}
    expected = copy.deepcopy(model).generate(ids, **how)
    placed = place_small(model)
    assert torch.equal(model.generate(ids, **how).cpu(), expected)
    placed.remove()


def mlp(layers, width):
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]).eval()


def test_weights_that_arrive_late_are_waited_for():
    model = mlp(12, 2048)
    x = torch.randn(4, 2048)
    with torch.no_grad():
        expected = model(x)
        placed = kerf.place(model, max_memory={0: 4 * 2048 * 2049 * 4}, host_computes=False)
        for _ in range(20):
            assert_same(placed(x), expected)
        assert placed.stats["misses"] == 1  # the first of all
        model[7].weight.mul_(2)
        edited = mlp(12, 2048)
        edited[7].weight.mul_(2)
        assert_same(placed(x), edited(x))
    placed.remove()


def test_three_tiers(tmp_path):
    model = mlp(12, 1024)
    x = torch.randn(4, 1024)
    unit = 1024 * 1025 * 4
    with torch.no_grad():
        expected = model(x)
        limits = {0: 4 * unit, "cpu": 4 * unit, "disk": tmp_path}
        placed = kerf.place(model, max_memory=limits)
        for _ in range(5):
            assert_same(placed(x), expected)
    placed.remove()


def test_peak_is_what_was_allowed():
    model = mlp(16, 2048)
    limit = 5 * 2048 * 2049 * 4
    before = torch.cuda.memory_allocated()
    placed = kerf.place(model, max_memory={0: limit}, host_computes=False)
    torch.cuda.reset_peak_memory_stats()
    x = torch.randn(1, 2048, device="cuda")
    for _ in range(5):
        placed(x)
    assert torch.cuda.max_memory_allocated() - before <= limit + (1 << 20)
    placed.remove()


@pytest.mark.parametrize("fine_grained", [False, True])
def test_a_flow_over_the_card_and_the_host(fine_grained):
    model, args, kwargs = models.build("gpt2")
    with torch.no_grad():
        expected = copy.deepcopy(model)(*args, **kwargs)
    flow = kerf.DataFlow(model, output_device="cpu", fine_grained=fine_grained, inference_only=True)
    for number, layer in enumerate(flow.layer_gpus):
        if "wte" not in layer and layer != "lm_head":  # they share a weight
            flow.layer_gpus[layer] = flow.device_ids[-1] if number % 2 else 0
    flow.update_flow()
    assert_same(flow(*args, **kwargs), expected, wherever=True)
    flow.remove()
