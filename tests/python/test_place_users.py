# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What users do with models that come from a file: compiled children, quantised layers, hooks."""

import copy
import warnings

import pytest
import torch
from torch import nn

import kerf


def total_bytes(model):
    return sum(p.nbytes for p in model.parameters())


def stack(layers=6, width=64):
    torch.manual_seed(0)
    body = [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)]
    return nn.Sequential(*body).eval(), torch.randn(4, width)


def place_small(model, folder, share=3):
    limit = int(total_bytes(model) / share) + sum(b.nbytes for b in model.buffers())
    return kerf.place(model, max_memory={"cpu": limit, "disk": folder})


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_compiled_child_gives_what_it_gives(when, tmp_path):
    model, x = stack()
    with torch.no_grad():
        expected = model(x)
        if when == "before":
            model[2] = torch.compile(model[2], backend="eager")
            model[4].compile(backend="eager")
        placed = place_small(model, tmp_path)
        if when == "after":
            model[2].compile(backend="eager")
            model[4][0].compile(backend="eager")
        for _ in range(3):
            assert torch.equal(model(x), expected)
        model[2][0].weight.mul_(2) if when == "after" else model[2]._orig_mod[0].weight.mul_(2)
        changed = model(x)
        assert not torch.equal(changed, expected)
        placed.remove()
        assert torch.equal(model(x), changed)


def quantised():
    """The layers of torch.ao hide their weights in packed objects: they stay where they are."""
    from torch.ao.quantization import quantize_dynamic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "x86" not in torch.backends.quantized.supported_engines:
            pytest.skip("no quantised kernels")
        model, x = stack()
        for number in range(3):
            model[number] = quantize_dynamic(model[number], {nn.Linear}, dtype=torch.qint8)
    return model, x


def test_quantised_layers_run_beside_streamed_ones(tmp_path):
    model, x = quantised()
    with torch.no_grad():
        expected = model(x)
        placed = kerf.place(model, max_memory={"cpu": "33KiB", "disk": tmp_path})
        streamed = [u.path for u in placed.placement.units if u.residence == "streamed"]
        assert streamed
        for _ in range(2):
            assert torch.equal(model(x), expected)
        placed.remove()
        assert torch.equal(model(x), expected)


def test_users_hooks_see_the_weights_of_their_module(tmp_path):
    model, x = stack()
    weights = [block[0].weight.clone() for block in model]
    seen = []

    def look(number):
        def hook(module, args, *out):
            seen.append(torch.equal(module[0].weight, weights[number]))

        return hook

    for number in range(6):
        model[number].register_forward_pre_hook(look(number))
        model[number].register_forward_hook(look(number))
    placed = place_small(model, tmp_path)
    with torch.no_grad():
        model(x)
        model(x)
    assert seen == [True] * 24
    placed.remove()


def test_copies_and_state_dicts_while_placed_run_anywhere(tmp_path):
    model, x = stack()
    placed = place_small(model, tmp_path)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    again, _ = stack()
    nn.init.zeros_(again[0][0].weight)
    again.load_state_dict(torch.load(tmp_path / "state.pt"))
    with torch.no_grad():
        assert torch.equal(again(x), model(x))
        assert torch.equal(copy.copy(model)(x), model(x))
    placed.remove()


def test_a_scripted_model_is_refused_and_a_scripted_layer_stays(tmp_path):
    model, x = stack()
    with pytest.raises(ValueError, match="the model is a TorchScript module"):
        place_small(torch.jit.trace(model, x), tmp_path)
    with torch.no_grad():
        expected = model(x)
        model[2] = torch.jit.trace(model[2], x)
        placed = kerf.place(model, max_memory={"cpu": "56KiB", "disk": tmp_path})
        assert {u.path: u.residence for u in placed.placement.units}["2"] == "resident"
        assert torch.equal(model(x), expected)
    placed.remove()


def test_a_placed_model_is_not_traced(tmp_path):
    model, x = stack()
    placed = place_small(model, tmp_path)
    for part in (model, nn.Sequential(model[0], nn.ReLU())):
        with pytest.raises(kerf.ExportError, match="placed by kerf.place.*remove"):
            kerf.trace(part, (x,))
    placed.remove()
    assert not kerf.trace(model, (x,)).notes
