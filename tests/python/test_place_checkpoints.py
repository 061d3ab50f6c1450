# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that are another model's, and what else holds weights of models without any."""

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import nn

import kerf


def stack(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]).to(dtype).eval()


def half(model):
    return {"cpu": sum(p.nbytes for p in model.parameters()) // 2}


def saved(folder, tensors):
    save_file({name: t.clone() for name, t in tensors.items()}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("prefix", ["model.", "module.", "_orig_mod."])
@pytest.mark.parametrize("is_inner", [True, False])
def test_a_checkpoint_with_a_prefix_more_or_less_is_refused_with_both_names(
    tmp_path, prefix, is_inner
):
    model = stack()
    inner = {name: t + 1 for name, t in model.state_dict().items()}
    if is_inner:
        saved(tmp_path, {prefix + name: t for name, t in inner.items()})
        found = f"no tensor '0.weight' and 11 more, but '{prefix}0.weight'"
    else:
        saved(tmp_path, inner)
        model = nn.ModuleDict({prefix[:-1]: model})
        found = f"no tensor '{prefix}0.weight' and 11 more, but '0.weight'"
    before = {name: t.clone() for name, t in model.state_dict().items()}
    with pytest.raises(ValueError, match=found):
        kerf.place(model, max_memory=half(model), checkpoint=tmp_path)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_of_other_names_that_of_the_same_layer_is_said(tmp_path):
    model = stack()
    other = {name.replace(".", ".inner."): t for name, t in model.state_dict().items()}
    saved(tmp_path, {"z.weight": torch.zeros(1), **other})
    with pytest.raises(ValueError, match="no tensor '0.weight'.*but '0.inner.weight'"):
        kerf.place(model, max_memory=half(model), checkpoint=tmp_path)


def test_buffers_without_numbers_are_not_the_checkpoints_fault(tmp_path):
    with torch.device("meta"):
        model = stack()
        model[3].register_buffer("scale", torch.ones(64), persistent=False)
    saved(tmp_path, stack().state_dict())
    with pytest.raises(ValueError, match="'3.scale' is on the meta device.*kerf.empty_weights"):
        kerf.place(model, max_memory=half(model), checkpoint=tmp_path)


@pytest.mark.parametrize("scale", ["weight_scale_inv", "weight_scale", None])
def test_quantised_numbers_are_not_taken_for_the_weights(tmp_path, scale):
    model = stack(torch.bfloat16)
    tensors = dict(model.state_dict())
    tensors["2.weight"] = (100 * tensors["2.weight"]).to(torch.float8_e4m3fn)
    if scale is not None:
        tensors[f"2.{scale}"] = torch.tensor([0.01])
    saved(tmp_path, tensors)
    place = {"max_memory": {**half(model), "disk": tmp_path}, "checkpoint": tmp_path}
    if scale is not None:
        with pytest.raises(ValueError, match=f"'2.weight' as torch.float8.* beside it '2.{scale}'"):
            kerf.place(model, **place)
        return
    expected = tensors["2.weight"].to(torch.bfloat16)
    placed = kerf.place(model, **place)
    assert torch.equal(model[2].weight, expected)
    placed.remove()


class Tied(nn.Module):
    """One parameter that two modules are given; and a list of weights, beside the modules."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64, bias=False) for _ in range(6)])
        one = nn.Parameter(torch.randn(64, 64))
        self.layers[1].weight = one
        self.layers[4].weight = one

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Listed(Tied):
    def __init__(self):
        super().__init__()
        self.weights = [layer.weight for layer in self.layers]
        self.by_name = {"last": self.weights[-1]}

    def forward(self, x):
        for weight in self.weights:
            x = torch.tanh(nn.functional.linear(x, weight))
        return super().forward(x @ self.by_name["last"])


class Fixed(Listed):
    def __init__(self):
        super().__init__()
        self.weights = tuple(self.weights)


@pytest.mark.parametrize("make", [Tied, Listed, lambda: nn.Sequential(nn.LSTM(64, 64), Last())])
def test_an_empty_model_is_the_model_whatever_else_has_its_weights(tmp_path, make):
    torch.manual_seed(0)
    original, x = make().eval(), torch.randn(3, 64)
    save_model(original, str(tmp_path / "model.safetensors"))
    with kerf.empty_weights():
        model = make().eval()
    empty = list(model.parameters())
    assert all(p.is_meta for p in empty) and len(empty) == len(list(original.parameters()))
    limits = {"cpu": sum(p.nbytes for p in original.parameters())}
    with torch.no_grad():
        expected = original(x)
        for _ in range(2):  # what was removed may be placed again
            placed = kerf.place(model, max_memory=limits, checkpoint=tmp_path)
            assert torch.equal(model(x), expected) and torch.equal(model(x), expected)
            placed.remove()
            assert all(a is b for a, b in zip(model.parameters(), empty, strict=True))
            if isinstance(model, Listed):
                assert all(w is m.weight for w, m in zip(model.weights, model.layers, strict=True))


class Last(nn.Module):
    def forward(self, results):
        return results[0]


def test_weights_that_cannot_be_put_in_their_place_are_named(tmp_path):
    save_model(Tied(), str(tmp_path / "model.safetensors"))
    with kerf.empty_weights():
        model = Fixed()
    empty = list(model.parameters())
    with pytest.raises(ValueError, match="'weights.0' is a weight of the meta device in a tuple"):
        kerf.place(model, max_memory={"cpu": "1MiB"}, checkpoint=tmp_path)
    assert all(a is b for a, b in zip(model.parameters(), empty, strict=True))


def test_layers_that_have_no_shape_yet_are_named():
    with kerf.empty_weights():
        model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 3))
    with pytest.raises(ValueError, match="'0.weight' has no shape before the first call"):
        kerf.place(model, max_memory={"cpu": "1MiB"})
