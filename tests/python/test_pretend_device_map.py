# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.place by a device map, with an accelerator: a pretend one, see pretend.py."""

import copy
import json

import models
import pytest
import torch
from comparing import assert_same
from torch import nn

import kerf

DEVICE = "pretend:0"
MODELS = ["gpt2", "llama_tied", "llama_untied", "t5", "bart", "mixtral", "mamba", "vit", "xlnet"]


def total_bytes(model):
    return sum(p.nbytes for p in model.parameters())


def small_limit(model, share=3):
    return int(total_bytes(model) / share) + sum(b.nbytes for b in model.buffers())


def place_small(model, **more):
    for share in (3, 2.5, 2, 1.5, 1.1):
        try:
            return kerf.place(model, max_memory={0: small_limit(model, share), **more})
        except ValueError as error:
            assert "does not fit" in str(error)
    raise AssertionError("nothing fits")


def mlp(layers=6, width=64):
    torch.manual_seed(0)
    body = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
    model = nn.ModuleDict({"stem": nn.Linear(width, width), "body": body})
    model = nn.Sequential(model["stem"], model["body"], nn.Linear(width, 8)).eval()
    return model, torch.randn(4, width)


def where(placed, model):
    """Each parameter's residence by name, and the device that it is on outside of calls."""
    residence = {}
    for unit in placed.placement.units:
        prefix = f"{unit.path}." if unit.path and unit.path != "(tied)" else ""
        for name, _ in model.named_parameters():
            if name.startswith(prefix) and unit.path != "(tied)":
                residence.setdefault(name, unit.residence)
    return {n: (residence.get(n), p.device.type) for n, p in model.named_parameters()}


@pytest.mark.parametrize("make", [lambda: 0, lambda: DEVICE, lambda: torch.device("pretend")])
def test_a_map_says_what_stays_and_what_is_streamed(pretend_device, make):
    model, x = mlp()
    key = make()
    given = {"": "cpu", "0": key, "1.2": key}
    with torch.no_grad():
        expected = model(x)
        placed = kerf.place(model, device_map=given)
        streamed = [u.path for u in placed.placement.units if u.residence == "streamed"]
        assert streamed == ["1.0", "1.1", "1.3", "1.4", "1.5", "2"]
        assert placed.placement.slot_bytes == 16640  # of a layer, not of the body
        kept = 2 * 16640 + placed.placement.slots * 16640
        assert placed.placement.memory == placed.placement.device_bytes == kept
        for _ in range(3):
            assert torch.equal(model(x), expected)
        assert model[0].weight.device == model[1][2].weight.device == torch.device(DEVICE)
        assert model[1][0].weight.is_pinned() and model[2].weight.is_pinned()
    layers = {"1.0": "cpu", "1.1": "cpu", "1.3": "cpu", "1.4": "cpu", "1.5": "cpu", "2": "cpu"}
    assert placed.device_map == {"0": DEVICE, "1.2": DEVICE, **layers}
    assert list(placed.device_map)[:2] == ["0", "1.2"]
    placed.remove()
    assert all(p.device.type == "cpu" and not p.is_pinned() for p in model.parameters())


def test_weights_come_from_a_file_where_the_map_has_them_on_disk(pretend_device, tmp_path):
    model, x = mlp()
    given = {"0": 0, "1": "disk", "2": "cpu"}
    with torch.no_grad():
        expected = model(x)
        with pytest.raises(ValueError, match="no file has them"):
            kerf.place(model, device_map=given)
        for more in ({"offload_folder": tmp_path}, {"max_memory": {"disk": tmp_path}}):
            placed = kerf.place(model, device_map=given, **more)
            assert placed.placement.source == "cpu and disk"
            assert model[2].weight.is_pinned() and not model[1][0].weight.is_pinned()
            assert torch.equal(model(x), expected) and torch.equal(model(x), expected)
            assert placed.device_map == {"0": DEVICE, "1": "disk", "2": "cpu"}
            placed.remove()
        placed = kerf.place(model, device_map="disk", max_memory={0: "60KiB", "disk": tmp_path})
        assert placed.device_map == {"": DEVICE, "0": "disk", "1": "disk", "2": "disk"}
        assert torch.equal(model(x), expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tiers", ["cpu", "cpu and disk"])
def test_a_map_that_came_out_gives_the_same_residences(pretend_device, name, tiers, tmp_path):
    model, args, kwargs = models.build(name)
    more = {"cpu": total_bytes(model) // 3, "disk": tmp_path} if "disk" in tiers else {}
    with torch.no_grad():
        expected = copy.deepcopy(model)(*args, **kwargs)
        first = place_small(model, **more)
        found, given = where(first, model), first.device_map
        assert model.hf_device_map == given
        assert {"cpu", DEVICE} <= set(given.values())
        first.remove()
        assert not hasattr(model, "hf_device_map")
        again = kerf.place(model, device_map=given, offload_folder=tmp_path)
        assert again.device_map == given
        assert where(again, model) == found
        assert_same(model(*args, **kwargs), expected, wherever=True)
        again.remove()
        # accelerate's files have them as JSON.
        limits = {0: first.placement.memory + sum(b.nbytes for b in model.buffers()), **more}
        last = kerf.place(model, device_map=json.loads(json.dumps(given)), max_memory=limits)
        assert last.device_map == given and where(last, model) == found
        assert last.placement.device_bytes <= first.placement.memory
        last.remove()


def test_auto_is_what_the_memory_gives(pretend_device):
    (model, _), (twin, _) = mlp(), mlp()
    limits = {0: small_limit(model)}
    plain = kerf.place(model, max_memory=limits)
    auto = kerf.place(twin, device_map="auto", max_memory=limits)
    assert plain.device_map == auto.device_map
    assert str(plain.placement) == str(auto.placement)
    with pytest.raises(ValueError, match="max_memory is None"):
        kerf.place(mlp()[0], device_map="auto")


def test_a_map_and_limits_that_disagree_are_refused_by_how_much(pretend_device, tmp_path):
    model, x = mlp()
    given = {"0": 0, "1.0": 0, "1": "cpu", "2": "disk"}
    with pytest.raises(
        ValueError, match=r"what is to be on pretend:0 does not fit: 40\.0 KiB.*48\.8"
    ):
        kerf.place(model, device_map=given, max_memory={0: "40KiB", "disk": tmp_path})
    with pytest.raises(ValueError, match="keeps 83200 bytes.*81920: 1280 fewer"):
        kerf.place(model, device_map=given, max_memory={"cpu": "80KiB", "disk": tmp_path})
    with pytest.raises(NotImplementedError, match="max_memory and device_map name 2 accelerators"):
        kerf.place(model, device_map=given, max_memory={1: "1GiB", "disk": tmp_path})
    placed = kerf.place(model, device_map=given, max_memory={0: "49KiB", "disk": tmp_path})
    assert placed.placement.slots == 1
    assert torch.equal(placed(x), copy.deepcopy(model).to("cpu")(x))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"": 0, "body": "cpu"}, ValueError, "names 'body', and the model has no such module"),
        ({"0": 0, "1": "cpu"}, ValueError, "no place for '2.weight' and 1 more"),
        ({"": 0, "1": 1}, NotImplementedError, "2 accelerators; expected one.*kerf.DataFlow"),
        ({"": 5}, ValueError, "device_map names 5; expected an accelerator that this machine has"),
        ({"": "the card"}, ValueError, "device_map names 'the card'; expected devices and 'disk'"),
        ({"": True}, ValueError, "device_map names True"),
        ({"": None}, ValueError, "device_map names None"),
        ({0: 0}, ValueError, "expected places by module"),
        ({}, ValueError, "expected places by module"),
        ("balanced", ValueError, "device_map is 'balanced', which spreads"),
    ],
)
def test_maps_that_say_nothing_sensible_are_refused(pretend_device, given, error, message):
    model, x = mlp()
    before = {k: v.data_ptr() for k, v in model.state_dict().items()}
    with pytest.raises(error, match=message):
        kerf.place(model, device_map=given)
    assert {k: v.data_ptr() for k, v in model.state_dict().items()} == before
    assert "hf_device_map" not in model.__dict__


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 64)
        self.body = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
        self.head = nn.Linear(64, 50)
        self.head.weight = self.table.weight
        self.register_buffer("scale", torch.full((1,), 0.5))

    def forward(self, ids):
        return self.head(self.body(self.table(ids))) * self.scale


def test_tied_weights_stay_together_on_the_device(pretend_device):
    torch.manual_seed(0)
    model, ids = Tied().eval(), torch.randint(0, 50, (2, 5))
    with torch.no_grad():
        expected = model(ids)
        for places in (("cpu", 0), (0, "cpu"), ("cpu", "cpu")):
            given = {"table": places[0], "head": places[1], "body": "cpu", "scale": 0}
            placed = kerf.place(model, device_map=given)
            assert model.head.weight is model.table.weight
            assert model.table.weight.device.type == "pretend"
            assert torch.equal(model(ids), expected)
            assert placed.device_map["table"] == DEVICE
            assert placed.device_map["scale"] == DEVICE
            placed.remove()


def test_parts_of_a_layer_may_stay_while_others_come(pretend_device):
    model, x = mlp()
    given = {"": "cpu", "0.bias": 0, "1.1.weight": 0}
    with torch.no_grad():
        expected = model(x)
        placed = kerf.place(model, device_map=given)
        assert model[0].bias.device.type == model[1][1].weight.device.type == "pretend"
        assert model[0].weight.is_pinned() and model[1][1].bias.is_pinned()
        assert torch.equal(model(x), expected) and torch.equal(model(x), expected)
        assert placed.device_map["0.bias"] == DEVICE and placed.device_map["0.weight"] == "cpu"


def test_the_models_device_is_the_one_that_computes(pretend_device):
    model, _, kwargs = models.build("llama_untied")
    own = type(model).__mro__
    before = [vars(cls).get("device") for cls in own]
    device = torch.device(DEVICE)
    other, _, _ = models.build("gpt2")
    placed = kerf.place(model, device_map={"": "cpu", "lm_head": 0})
    assert model.model.embed_tokens.weight.device.type == "cpu"
    assert model.device == model.model.device == placed.device == device
    assert other.device == copy.deepcopy(other).device == torch.device("cpu")
    assert copy.deepcopy(model).device == torch.device("cpu")
    second = kerf.place(other, device_map={"": "cpu", "transformer.h.0": 0})
    placed.remove()
    assert model.device == torch.device("cpu") and other.device == device
    second.remove()
    assert [vars(cls).get("device") for cls in own] == before
    assert not any("_hf_hook" in m.__dict__ for m in model.modules())


@pytest.mark.parametrize("name", ["llama_tied", "t5", "bart"])
def test_transformers_own_code_reads_the_map(pretend_device, name, tmp_path):
    """generate, save_pretrained, copies."""
    model, _, kwargs = models.build(name)
    ids = models.ids(2, 9)
    how = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    expected = copy.deepcopy(model).generate(ids, **how)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    placed = kerf.place(model, device_map={"": "disk", "lm_head": 0}, offload_folder=tmp_path)
    assert torch.equal(model.generate(ids, **how).cpu(), expected)
    assert torch.equal(model.generate(ids.to(DEVICE), **how).cpu(), expected)
    (tmp_path / "saved").mkdir()
    with pytest.warns(UserWarning, match="offloaded modules"):
        model.save_pretrained(tmp_path / "saved")
    again = type(model).from_pretrained(tmp_path / "saved").eval()
    assert all(torch.equal(v, state[k]) for k, v in again.state_dict().items())
    twin = copy.deepcopy(model)
    assert type(twin.hf_device_map) is dict and "disk" not in twin.hf_device_map.values()
    assert torch.equal(twin.cpu().generate(ids, **how), expected)
    placed.remove()
    assert torch.equal(model.generate(ids, **how), expected)


def test_a_map_that_was_there_before_comes_back(pretend_device):
    model, x = mlp()
    model.hf_device_map = {"": "cpu"}
    placed = kerf.place(model, device_map={"": "cpu", "0": 0})
    assert model.hf_device_map == placed.device_map
    placed.remove()
    assert model.hf_device_map == {"": "cpu"}


def test_other_views_of_one_memory_are_refused_and_the_same_one_is_shared(pretend_device):
    model, x = mlp()
    model[1][3].weight.data = model[1][0].weight.data.t()
    own = [p.data_ptr() for p in model.parameters()]
    with pytest.raises(ValueError, match=r"'1.0.weight' and '1.3.weight' are other views of one"):
        kerf.place(model, device_map={"": "cpu", "0": 0})
    assert [p.data_ptr() for p in model.parameters()] == own
    model[1][3].weight.data = model[1][0].weight.data[:]
    reference, _ = mlp()
    reference[1][3].weight = reference[1][0].weight
    placed = kerf.place(model, device_map={"": "cpu", "0": 0})
    with torch.no_grad():
        for each in (model, reference):
            each[1][0].weight.mul_(1.5)
        assert torch.equal(model(x), reference(x))
    placed.remove()
    assert model[1][0].weight.data_ptr() == model[1][3].weight.data_ptr()


@pytest.mark.parametrize("view", ["the same", "another"])
def test_a_buffer_in_the_memory_of_a_weight_is_moved_with_it_or_refused(pretend_device, view):
    model, x = mlp()
    model[0].register_buffer("seen", model[0].weight.detach())
    if view == "another":
        model[0].seen = model[0].weight.detach().T
        with pytest.raises(ValueError, match="'0.weight' and '0.seen' are other views of one"):
            kerf.place(model, device_map={"": "cpu", "1": 0})
        return
    placed = kerf.place(model, device_map={"": "cpu", "1": 0})
    with torch.no_grad():
        model(x)
        for end in (placed.remove, lambda: None):
            model[0].weight.mul_(2)
            assert torch.equal(model[0].seen, model[0].weight)
            end()
