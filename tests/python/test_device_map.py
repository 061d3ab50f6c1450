# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.place by a device map where the host computes: "cpu" stays, "disk" is streamed."""

import copy

import models
import pytest
import torch
from comparing import assert_same
from torch import nn

import kerf


def total_bytes(model):
    return sum(p.nbytes for p in model.parameters())


def mlp(layers=6, width=64):
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]).eval()


def test_disk_is_streamed_and_cpu_stays(tmp_path):
    model, x = mlp(), torch.randn(4, 64)
    with torch.no_grad():
        expected = model(x)
        given = {"": "disk", "0": "cpu", "3": torch.device("cpu")}
        placed = kerf.place(model, device_map=given, offload_folder=tmp_path)
        streamed = [u.path for u in placed.placement.units if u.residence == "streamed"]
        assert streamed == ["1", "2", "4", "5"]
        assert torch.equal(model(x), expected) and torch.equal(model(x), expected)
        assert list(placed.device_map.items())[:2] == [("0", "cpu"), ("3", "cpu")]
        placed.remove()
        whole = kerf.place(model, device_map="disk", offload_folder=tmp_path)
        assert whole.device_map == {"": "cpu", **{str(i): "disk" for i in range(6)}}
        assert torch.equal(model(x), expected)
        whole.remove()
    kept = kerf.place(model, device_map="cpu")
    assert kept.device_map == {"": "cpu"} and kept.placement.slots == 0


@pytest.mark.parametrize("name", ["gpt2", "llama_tied", "t5", "mixtral", "mamba", "xlnet", "clip"])
def test_a_map_that_came_out_gives_the_same_residences(name, tmp_path):
    model, args, kwargs = models.build(name)
    limit = int(total_bytes(model) / 1.2) + sum(b.nbytes for b in model.buffers())
    with torch.no_grad():
        expected = copy.deepcopy(model)(*args, **kwargs)
        first = kerf.place(model, max_memory={"cpu": limit, "disk": tmp_path})
        given = first.device_map
        assert "disk" in given.values()
        first.remove()
        again = kerf.place(model, device_map=given, offload_folder=tmp_path)
        assert again.device_map == model.hf_device_map == given
        assert_same(model(*args, **kwargs), expected)
        again.remove()
        last = kerf.place(
            model, device_map=given, offload_folder=tmp_path, max_memory={"cpu": limit}
        )
        assert last.device_map == given
        assert last.placement.device_bytes <= last.placement.memory < limit + 1
        last.remove()


def test_a_checkpoint_serves_what_is_on_disk(tmp_path):
    original, _, kwargs = models.build("llama_untied")
    original.save_pretrained(tmp_path)
    with kerf.empty_weights():
        model = type(original)(original.config).eval()
    given = {"model.embed_tokens": "cpu", "model": "disk", "lm_head": "cpu"}
    placed = kerf.place(model, device_map=given, checkpoint=tmp_path)
    with torch.no_grad():
        assert_same(model(**kwargs), original(**kwargs))
    assert {u.path: u.residence for u in placed.placement.units}["lm_head"] == "resident"


def test_limits_and_folders_that_disagree_are_refused(tmp_path):
    model = mlp()
    with pytest.raises(
        ValueError, match=r"what is to be on cpu does not fit: 40\.0 KiB.*8\.75 KiB"
    ):
        where = {"cpu": "40KiB", "disk": tmp_path}
        kerf.place(model, device_map={"": "disk", "0": "cpu", "1": "cpu"}, max_memory=where)
    (tmp_path / "other").mkdir()
    for folder, message in [
        (tmp_path / "other", "expected one folder"),
        (tmp_path / "none", "offload_folder is .*expected a folder that exists"),
        (5, "offload_folder is 5; expected the path of a folder"),
    ]:
        with pytest.raises(ValueError, match=message):
            kerf.place(model, max_memory={"cpu": "1MiB", "disk": tmp_path}, offload_folder=folder)
    with pytest.raises(ValueError, match="an accelerator that this machine has"):
        kerf.place(model, device_map={"": "cuda:99"})
    with pytest.raises(ValueError, match="has weights of '0' in 2 places"):
        kerf.place(
            nn.Sequential(model),
            device_map={"": "disk", "0.1": "cpu"},
            offload_folder=tmp_path,
            no_split_module_classes=["Sequential"],
        )
    assert kerf.place(model, max_memory={"cpu": "64KiB"}, offload_folder=tmp_path).device_map


def test_a_module_that_is_in_two_places_has_one_name_of_each(tmp_path):
    layer = nn.Linear(64, 64)
    model = nn.ModuleDict({"a": layer, "b": layer, "c": nn.Linear(64, 64)})
    with pytest.raises(ValueError, match="no place for 'b.weight' and 1 more"):
        kerf.place(model, device_map={"a": "cpu", "c": "disk"}, offload_folder=tmp_path)
    given = {"a": "cpu", "b": "disk", "c": "disk"}
    placed = kerf.place(model, device_map=given, offload_folder=tmp_path)
    assert placed.device_map == {"a": "cpu", "b": "cpu", "c": "disk"}


@pytest.mark.parametrize("kept", ["0", "5"])
def test_weights_that_share_memory_stay_together_whatever_the_map_says(kept, tmp_path):
    model, reference, x = mlp(), mlp(), torch.randn(4, 64)
    for each in (model, reference):
        each[5].weight.data = each[0].weight.data[:]
    given = {"": "disk", kept: "cpu"}
    placed = kerf.place(model, device_map=given, offload_folder=tmp_path)
    with torch.no_grad():
        for number in (0, 5):
            for each in (model, reference):
                each[number].weight.mul_(1.5)
            assert torch.equal(model(x), reference(x))
        placed.remove()
        assert model[0].weight.data_ptr() == model[5].weight.data_ptr()


def test_weights_that_overlap_go_on_doing_so(tmp_path):
    model, reference, x = mlp(), mlp(), torch.randn(4, 64)
    for each in (model, reference):
        torch.manual_seed(3)
        memory = torch.randn(96, 64)
        each[0].weight.data, each[5].weight.data = memory[:64], memory[32:]
    placed = kerf.place(model, max_memory={"cpu": "72KiB", "disk": tmp_path})
    assert {u.residence for u in placed.placement.units} == {"resident", "streamed"}
    with torch.no_grad():
        for each in (model, reference):
            each[0].weight.mul_(1.5)
        assert torch.equal(model(x), reference(x))
