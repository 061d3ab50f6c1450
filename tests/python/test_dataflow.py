# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.DataFlow: layers on devices of the user's choice.

This machine need not have accelerators: ``Pretender`` gives tensors a pretended device, and
``one_device`` is a mode in which every operator checks that its operands are on one.
"""

import ast
import collections
import collections.abc
import contextlib
import copy
import dataclasses
import functools
import gc
import io
import pickle
import random
import re
import statistics
import threading
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy
import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import kerf
from kerf._transfer import Mover, _overlap

CPU, GPU0, GPU1 = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


# ---- pretended devices ---------------------------------------------------------------------------


class Pretender(Mover):
    """Two accelerators that are not there: the memory of a tensor carries the name of its device.

    ``room`` limits bytes by device, ``moved`` counts those that were moved.
    """

    def __init__(self, room=None, count=2):
        self.room = room or {}
        self.count = count
        self.moved = 0
        self._tags = {}  # memory -> (weak reference, device)

    def devices(self):
        return [torch.device("cuda", n) for n in range(self.count)] + [CPU]

    def tag_of(self, tensor):
        """None: it was made without others, and counts as being anywhere."""
        _, device = self._tags.get(tensor.untyped_storage()._cdata, (None, None))
        return device

    def tag(self, tensor, device):
        storage = tensor.untyped_storage()
        # A weak reference keeps the address from being given to other memory.
        self._tags[storage._cdata] = (StorageWeakRef(storage), device)

    def device_of(self, tensor):
        return self.tag_of(tensor) or CPU

    def to(self, tensor, device, copy=False):
        if self.device_of(tensor) == device and not copy:
            return tensor
        return Carried.apply(tensor, self, self.device_of(tensor), device)

    def write(self, tensor, source):
        room, self.room = self.room, {}  # takes none
        tensor.copy_(self.to(source, self.device_of(tensor)))
        self.room = room

    def carry(self, tensor, device):
        size = tensor.numel() * tensor.element_size()
        free = self.free_bytes(device)
        if free is not None and size > free:
            raise torch.OutOfMemoryError(f"pretended: {size} bytes")
        made = tensor.detach().clone()
        self.tag(made, device)
        self.moved += size
        return made

    def finish(self, devices):
        pass  # nothing runs late here

    def free_bytes(self, device):
        if device not in self.room:
            return None
        return self.room[device] - self.used(device)

    def used(self, device):
        self._tags = {k: v for k, v in self._tags.items() if not v[0].expired()}
        return sum(
            torch.UntypedStorage._new_with_weak_ptr(ref.cdata).nbytes()
            for ref, at in self._tags.values()
            if at == device
        )


class Carried(torch.autograd.Function):
    """A copy between devices; its gradient goes the other way."""

    @staticmethod
    def forward(ctx, tensor, mover, source, target):
        ctx.mover, ctx.source = mover, source
        return mover.carry(tensor, target)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.mover.carry(gradient, ctx.source), None, None, None


class OneDevice(TorchDispatchMode):
    def __init__(self, mover):
        super().__init__()
        self.mover = mover

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        at = {self.mover.tag_of(t) for t in given} - {None}
        # The exception is no operator: in inference mode, setting ``data`` asks it.
        assert len(at) <= 1 or "shallow_copy" in str(function), (
            f"{function}: operands on {sorted(map(str, at))}"
        )
        results = function(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, torch.Tensor) and at and self.mover.tag_of(result) is None:
                self.mover.tag(result, *at)
        return results


def wrap(model, mover=None, **options):
    mover = mover or Pretender()
    for tensor in [*model.parameters(), *model.buffers()]:
        mover.tag(tensor, CPU)
    return kerf.DataFlow(model, mover=mover, **options), mover


def tensors(value):
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def run(flow, mover, *args, **kwargs):
    """A call in which every operator checks its operands, and the result is where it should be."""
    for tensor in tensors((args, kwargs)):
        if mover.tag_of(tensor) is None:
            mover.tag(tensor, CPU)
    with OneDevice(mover):
        result = flow(*args, **kwargs)
    if isinstance(flow, kerf.DataFlow):
        expected = flow._device("", flow.output_device)
        assert {mover.device_of(t) for t in tensors(result)} <= {expected}
    return result


def seeded(function):
    @functools.wraps(function)
    def make(*args, **kwargs):
        torch.manual_seed(0)
        return function(*args, **kwargs)

    return make


# ---- models --------------------------------------------------------------------------------------


class Conv(nn.Module):
    def __init__(self, a, b, size):
        super().__init__()
        self.conv = nn.Conv2d(a, b, size, padding=size // 2, bias=False)
        self.bn = nn.BatchNorm2d(b)

    def forward(self, x):
        return nn.functional.relu(self.bn(self.conv(x)), inplace=True)


class Branches(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = Conv(width, 4, 1)
        self.three = nn.Sequential(Conv(width, 2, 1), Conv(2, 4, 3))
        self.pool = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), Conv(width, 4, 1))

    def forward(self, x):
        return torch.cat([self.one(x), self.three(x), self.pool(x)], 1)


class Inception(nn.Module):
    """Branches, and in training an auxiliary head: outputs as a named tuple."""

    class Outputs(NamedTuple):
        logits: torch.Tensor
        aux: torch.Tensor

    def __init__(self):
        super().__init__()
        self.stem = Conv(3, 8, 3)
        self.mixed1 = Branches(8)
        self.mixed2 = Branches(12)
        self.aux = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5))
        self.dropout = nn.Dropout(0.0)
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        x = self.mixed1(self.stem(x))
        aux = self.aux(x) if self.training else None
        x = self.fc(self.dropout(self.mixed2(x).mean((2, 3))))
        return Inception.Outputs(x, aux) if self.training else x


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.scale = nn.Parameter(torch.ones(width, 1, 1))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out)) * self.scale
        return self.relu(out + x)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.stages = nn.ModuleList([Residual(4), Residual(4)])
        self.shift = nn.Parameter(torch.randn(4, 1, 1))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))

    def forward(self, x):
        x = self.stem(x) + self.shift
        for stage in self.stages:
            x = stage(x)
        return self.head(x)


def nested():
    return nn.Sequential(
        nn.Linear(8, 8),
        nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Sequential(nn.Linear(8, 8))),
        nn.Linear(8, 8),
    )


def chain(count=4, width=8):
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(count)])


def gpt2():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2, use_cache=True
    )
    return transformers.GPT2LMHeadModel(config)


IMAGES = functools.partial(torch.randn, 2, 3, 8, 8)
ROWS = functools.partial(torch.randn, 3, 8)
MODELS = {
    "inception": (Inception, IMAGES),
    "resnet": (ResNet, IMAGES),
    "nested": (nested, ROWS),
    "gpt2": (gpt2, lambda: torch.randint(50, (2, 6))),
}


@seeded
def model_and_input(name):
    make, data = MODELS[name]
    return make().eval(), data()


def scatter(flow, seed):
    """A random map; layers that share a weight are together."""
    chance = random.Random(seed)
    for name in flow.layer_gpus:
        flow.layer_gpus[name] = chance.choice([0, 1])
    for (a, _), (b, _) in flow._placement.ties():
        flow.layer_gpus[b.name] = flow.layer_gpus[a.name]


def assert_alike(found, expected):
    assert type(found) is type(expected)
    found, expected = tensors(found), tensors(expected)
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def snapshot(model):
    """All that ``remove`` has to give back, by identity."""
    hooks = [n for n in vars(model) if "hooks" in n]
    return {
        "modules": [id(m) for m in model.modules()],
        "attributes": [sorted(vars(m)) for m in model.modules()],
        "hooks": [
            (id(vars(m)[n]), list(vars(m)[n].items()))
            for m in model.modules()
            for n in hooks
            if vars(m)[n] is not None
        ],
        "tensors": [
            (name, id(t), t.requires_grad, t.device, t.grad is None)
            for name, t in [*model.named_parameters(), *model.named_buffers()]
        ],
    }


# ---- case 1: outputs are the model's -------------------------------------------------------------


@pytest.mark.parametrize("fine_grained", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_twenty_random_maps_give_what_the_model_gives(name, fine_grained):
    model, x = model_and_input(name)
    with torch.no_grad():
        expected = model(x)
    flow, mover = wrap(model, fine_grained=fine_grained)
    for seed in range(20):
        scatter(flow, seed)
        flow.output_device = [0, 1, "cpu"][seed % 3]
        flow.update_flow()
        with torch.no_grad():
            assert_alike(run(flow, mover, x), expected)


def test_the_double_notices_operands_on_two_devices():
    mover = Pretender()
    a, b = torch.ones(2), torch.ones(2)
    mover.tag(a, GPU0)
    mover.tag(b, GPU1)
    with pytest.raises(AssertionError, match="operands on"), OneDevice(mover):
        a + b


def test_layers_run_on_the_devices_they_are_mapped_to():
    flow, mover = wrap(chain(3), output_device="cpu")
    at = {}
    for name, layer in flow.module.named_children():
        layer.register_forward_hook(
            lambda m, args, out, name=name: at.update({name: mover.device_of(out)})
        )
    flow.layer_gpus.update({"0": 1, "1": "cuda:0", "2": torch.device("cpu")})
    flow.update_flow()
    run(flow, mover, ROWS())
    assert at == {"1": GPU0, "0": GPU1, "2": CPU}
    assert mover.device_of(flow.module[0].weight) == GPU1


# ---- which layers there are ----------------------------------------------------------------------


def test_submodule_split_has_the_children_of_the_model():
    for name in MODELS:
        model, _ = model_and_input(name)
        flow, _ = wrap(model)
        assert list(flow.layer_gpus) == [n for n, _ in model.named_children()]
        assert set(flow.layer_gpus.values()) == {0}


def test_fine_grained_split_has_leaves_and_modules_with_parameters_of_their_own():
    flow, _ = wrap(ResNet(), fine_grained=True)
    parts = ["conv1", "bn1", "conv2", "bn2", "relu"]
    block = [[f"stages.{n}", *(f"stages.{n}.{part}" for part in parts)] for n in (0, 1)]
    assert list(flow.layer_gpus) == [
        "stem",
        *block[0],
        *block[1],
        *("head.0", "head.1", "head.2"),
    ]


class Odd(nn.Module):
    """Parameters in lists, in a module without a forward, and in a root."""

    def __init__(self):
        super().__init__()
        self.own = nn.Parameter(torch.randn(8))
        self.more = nn.ParameterList([nn.Parameter(torch.randn(8)) for _ in range(2)])
        self.mid = nn.Module()
        self.mid.weight = nn.Parameter(torch.randn(8))
        self.mid.block = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))

    def forward(self, x):
        x = self.mid.block(x * self.own) * self.mid.weight + self.more[0] * self.more[1]
        return self.normed(self.attention(x, x, x, need_weights=False)[0])


@pytest.mark.parametrize("fine_grained", [False, True])
@seeded
def test_what_a_module_reads_without_a_call_stays_with_it(fine_grained):
    model, x = Odd().eval(), torch.randn(2, 3, 8)
    with torch.no_grad():
        expected = model(x)
    flow, mover = wrap(model, fine_grained=fine_grained)
    names = ["mid.block" if fine_grained else "mid", "attention", "normed"]
    assert list(flow.layer_gpus) == names
    for seed in range(8):
        scatter(flow, seed)
        flow.update_flow()
        assert mover.device_of(model.own) == mover.device_of(model.mid.weight) == GPU0
        assert mover.device_of(model.more[1]) == GPU0
        with torch.no_grad():
            torch.testing.assert_close(run(flow, mover, x), expected)


@pytest.mark.parametrize("fine_grained", [False, True])
def test_a_model_without_parts_is_on_the_output_device(fine_grained):
    flow, mover = wrap(nn.Linear(8, 8), output_device=1, fine_grained=fine_grained)
    assert not flow.layer_gpus
    run(flow, mover, ROWS())
    assert mover.device_of(flow.module.weight) == GPU1


# ---- where data goes -----------------------------------------------------------------------------


def count_moves(flow, mover, x):
    run(flow, mover, x)
    before = mover.moved
    run(flow, mover, x)
    return (mover.moved - before) / (x.numel() * x.element_size())


def test_inside_a_sequential_results_go_straight_to_the_next_layer():
    flow, mover = wrap(nested(), output_device="cpu", fine_grained=True)
    assert list(flow.layer_gpus) == ["0", "1.0", "1.1", "1.2.0", "2"]
    flow.layer_gpus.update({"0": 0, "1.0": 0, "1.1": 0, "1.2.0": 1, "2": 1})
    flow.update_flow()
    assert count_moves(flow, mover, ROWS()) == 3  # to 0, from there to 1, and to the CPU


class Features(nn.Module):
    """Takes the layers of a Sequential one by one."""

    def __init__(self):
        super().__init__()
        self.layers = chain(3)

    def forward(self, x):
        found = []
        for layer in self.layers:
            x = layer(x)
            found.append(x)
        return torch.cat(found)


def test_layers_of_a_sequential_that_others_call_give_their_results_to_those():
    flow, mover = wrap(Features(), fine_grained=True)
    flow.layer_gpus.update({"layers.0": 1, "layers.1": 0, "layers.2": 1})
    x = ROWS()
    assert_alike(run(flow, mover, x), flow.module(x))


class Passing(nn.Module):
    """Calls a layer that it was given, not one of its own."""

    def forward(self, layer, x):
        return layer(x) + x


class Visitor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.passing = nn.Linear(8, 8), Passing()

    def forward(self, x):
        return self.passing(self.layer, x)


@pytest.mark.parametrize("to", [(0, 1), (1, 0), (1, 1)])
def test_a_result_goes_to_the_module_that_called(to):
    flow, mover = wrap(Visitor())
    flow.layer_gpus.update(zip(["layer", "passing"], to, strict=True))
    run(flow, mover, ROWS())


# ---- case 2: changes that wait -------------------------------------------------------------------


def test_a_change_without_update_flow_warns_once_and_the_old_flow_runs():
    flow, mover = wrap(chain(2))
    flow.update_flow()
    flow.layer_gpus["1"] = 1
    with pytest.warns(kerf.KerfWarning, match="update_flow") as caught:
        run(flow, mover, ROWS())
        run(flow, mover, ROWS())
    assert len(caught) == 1
    assert mover.device_of(flow.module[1].weight) == GPU0
    flow.update_flow()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(flow, mover, ROWS())
        flow.layer_gpus["1"] = "cuda:1"  # where it is
        run(flow, mover, ROWS())
    assert mover.device_of(flow.module[1].weight) == GPU1
    flow.output_device = "cpu"
    with pytest.warns(kerf.KerfWarning, match="update_flow"):
        flow(ROWS())


def test_a_wrong_entry_is_a_change_that_waits_too():
    flow, mover = wrap(chain(2))
    flow.update_flow()
    flow.layer_gpus["nobody"] = [1]
    with pytest.warns(kerf.KerfWarning, match="update_flow"):
        run(flow, mover, ROWS())


def test_the_first_call_updates_the_flow():
    flow, mover = wrap(chain(2))
    flow.layer_gpus["1"] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(flow, mover, ROWS())
    assert mover.device_of(flow.module[1].weight) == GPU1


def test_until_the_first_update_the_model_is_as_it_was():
    flow, mover = wrap(chain(2))
    x = ROWS()
    assert mover.moved == 0
    assert flow.module(x) is not None
    assert mover.moved == 0


def test_the_map_can_be_updated_by_operator_and_given_whole():
    flow, _ = wrap(chain(2))
    flow.layer_gpus |= {"1": 1}
    assert dict(flow.layer_gpus) == {"0": 0, "1": 1}
    flow.layer_gpus = flow.layer_gpus
    assert dict(flow.layer_gpus) == {"0": 0, "1": 1}
    with pytest.raises(TypeError, match=r"\[kerf.dataflow\] layer_gpus is None; expected a dict"):
        flow.layer_gpus = None
    assert dict(flow.layer_gpus) == {"0": 0, "1": 1}
    flow.layer_gpus = {"0": 1}
    assert dict(flow.layer_gpus) == {"0": 1}


def test_layers_without_an_entry_stay_where_they_are():
    flow, mover = wrap(chain(3))
    flow.layer_gpus = {"0": 1, "2": 1}
    flow.update_flow()
    assert mover.device_of(flow.module[1].weight) == CPU
    assert dict(flow.layer_gpus) == {"0": 1, "2": 1, "1": "cpu"}
    del flow.layer_gpus["0"]
    flow.layer_gpus.update({"1": 0})
    flow.update_flow()
    assert dict(flow.layer_gpus) == {"0": 1, "2": 1, "1": 0}
    run(flow, mover, ROWS())


@pytest.mark.parametrize(
    "name, device, message",
    [
        ("3", 0, "layer_gpus names '3', a str; expected a layer.*: 0, 1, 2;"),
        (3, 0, "layer_gpus names 3, an int; expected a layer"),
        ("1", 2, r"\['1'\] is 2.*expected a device there is: 0 \(cuda:0\), 1 \(cuda:1\), 'cpu'"),
        ("1", -1, "expected a device there is"),
        ("1", True, "is True; expected a device there is"),
        ("1", None, "is None; expected a device there is"),
        ("1", "cuda:2", "expected a device there is"),
        ("1", "gpu", "expected a device there is"),
        ("1", "meta", "expected a device there is"),
        ("1", {0: 1}, "expected a device there is"),
        ("1", 1.0, "is 1.0, a float; expected a device there is"),
        ("1", numpy.int64(2), "expected a device there is"),
        ("1", numpy.arange(2), "expected a device there is"),
    ],
)
def test_unknown_layers_and_devices_are_refused_and_the_old_flow_stays(name, device, message):
    flow, mover = wrap(chain(3))
    flow.layer_gpus["0"] = 1
    flow.update_flow()
    flow.layer_gpus["2"] = 1
    flow.layer_gpus[name] = device
    with pytest.raises(ValueError, match=message) as error:
        flow.update_flow()
    assert str(error.value).startswith("[kerf.dataflow] ")
    assert [mover.device_of(layer.weight) for layer in flow.module] == [GPU1, GPU0, GPU0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(flow, mover, ROWS())
    if name == "1":
        flow.layer_gpus["1"] = 0
    else:
        del flow.layer_gpus[name]
    flow.update_flow()
    assert [mover.device_of(layer.weight) for layer in flow.module] == [GPU1, GPU0, GPU1]


def test_the_model_itself_is_mapped_by_its_output_device():
    flow = kerf.DataFlow(torch.nn.Sequential(torch.nn.Linear(8, 8)))
    flow.layer_gpus[""] = "cpu"
    with pytest.raises(ValueError, match="names '', the model itself.*set output_device"):
        flow.update_flow()
    del flow.layer_gpus[""]
    flow.output_device = None
    flow.update_flow()
    assert flow.output_device == flow._devices[0]


NUMBERS = [0, numpy.int64(0), numpy.array(0), torch.tensor(0)]


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda"), GPU0, *NUMBERS])
def test_a_device_has_several_names(device):
    flow, mover = wrap(chain(1), output_device="cpu:0")
    flow.layer_gpus["0"] = device
    flow.update_flow()
    assert mover.device_of(flow.module[0].weight) == GPU0


def test_device_ids_are_the_devices_there_are():
    flow, _ = wrap(chain(1), Pretender(count=3))
    assert flow.device_ids == [0, 1, 2, "cpu"]
    if not torch.accelerator.is_available():
        real = kerf.DataFlow(chain(1))
        assert real.device_ids == ["cpu"]
        with pytest.raises(ValueError, match="output_device is 0.*expected a device there is: 'c"):
            kerf.DataFlow(chain(1), output_device=0)


def test_without_a_mover_tensors_really_move():
    model, x = chain(2), ROWS()
    expected = model(x)
    flow = kerf.DataFlow(model)
    flow.layer_gpus["1"] = "cpu"
    torch.testing.assert_close(flow(x).cpu(), expected)
    assert flow(x).device == model[0].weight.device


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": 3},
        {"fine_grained": 1},
        {"inference_only": "yes"},
        {"enable_clone": None},
        {"output_device": True},
    ],
)
def test_wrong_arguments_are_named(wrong):
    name = next(iter(wrong))
    with pytest.raises(TypeError, match=rf"\[kerf.dataflow\] {name} is"):
        kerf.DataFlow(**{"model": chain(1), **wrong})


# ---- moving --------------------------------------------------------------------------------------


def test_a_move_that_fails_is_undone_and_says_how_much_is_missing():
    size = 8 * 8 * 4 + 8 * 4
    mover = Pretender(room={GPU1: 2 * size + 100})
    flow, _ = wrap(chain(4), mover)
    flow.update_flow()
    data = [layer.weight.clone() for layer in flow.module]
    flow.layer_gpus.update(dict.fromkeys(["0", "1", "2"], 1))
    with pytest.raises(RuntimeError, match=rf"layer '2' cannot .* {size - 100} bytes short"):
        flow.update_flow()
    assert {mover.device_of(p) for p in flow.module.parameters()} == {GPU0}
    assert all(torch.equal(layer.weight, d) for layer, d in zip(flow.module, data, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(flow, mover, ROWS())
    flow.layer_gpus["2"] = 0
    flow.update_flow()
    assert mover.device_of(flow.module[1].weight) == GPU1


def test_a_first_move_that_fails_leaves_the_model_as_it_was():
    mover = Pretender(room={GPU0: 300})
    model = chain(3)
    flow, _ = wrap(model, mover)
    before, pointers = snapshot(model), [p.requires_grad for p in model.parameters()]
    with pytest.raises(RuntimeError, match=r"layer '1' .* bytes short"):
        flow(ROWS())
    assert snapshot(model) == before and pointers == [p.requires_grad for p in model.parameters()]
    assert {mover.device_of(p) for p in model.parameters()} == {CPU}
    x = ROWS()
    mover.tag(x, CPU)
    with OneDevice(mover):
        model(x)  # on the CPU, as before


def test_an_error_of_another_kind_is_undone_too_and_says_why():
    class Broken(Pretender):
        def to(self, tensor, device, copy=False):
            if device == GPU1:
                raise RuntimeError("no peer access")
            return super().to(tensor, device, copy)

    flow, mover = wrap(chain(2), Broken())
    flow.layer_gpus["1"] = 1
    with pytest.raises(RuntimeError, match="layer '1' cannot be moved.*288 bytes: no peer access"):
        flow.update_flow()
    assert {mover.device_of(p) for p in flow.module.parameters()} == {CPU}


def test_layers_change_places_where_one_has_to_leave_first():
    size = 288
    mover = Pretender(room={GPU0: 3 * size, GPU1: 2 * size})
    flow, _ = wrap(chain(4), mover)
    flow.layer_gpus.update({"0": 0, "1": 0, "2": 1, "3": 1})
    flow.update_flow()
    flow.layer_gpus.update({"0": 1, "2": 0})  # there is no room for the first before the second
    flow.update_flow()
    assert [mover.device_of(layer.weight) for layer in flow.module] == [GPU1, GPU0, GPU0, GPU1]


class Stateful(nn.Module):
    """A buffer, tensors in attributes and in an object that it holds."""

    class Cache:
        def __init__(self):
            self.keys = []

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(1))
        self.last = None
        self.cache = self.Cache()

    def forward(self, x):
        self.count += 1
        x = self.linear(x) * self.count
        if self.last is not None:
            x = x + self.last + sum(self.cache.keys)
        self.last = x.detach()
        self.cache.keys.append(self.last * 2)
        return x


@pytest.mark.parametrize("enable_clone", [False, True])
@seeded
def test_state_of_a_layer_moves_with_it(enable_clone):
    model = nn.Sequential(Stateful(), Stateful())
    twin = copy.deepcopy(model)
    flow, mover = wrap(model, enable_clone=enable_clone, inference_only=True)
    for turn in range(6):
        x = ROWS()
        flow.layer_gpus["0"] = turn % 2
        flow.layer_gpus["1"] = turn // 2 % 2
        flow.update_flow()
        with torch.no_grad():
            assert_alike(run(flow, mover, x), twin(x))
        assert mover.device_of(model[0].last) == mover.device_of(model[0].count)
    for found, expected in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(found, expected) and float(found) == 6
    flow.remove()
    assert {mover.device_of(t) for t in [*model.buffers(), model[0].last]} == {CPU}
    assert {mover.device_of(t) for t in model[1].cache.keys} == {CPU}


class Tied(nn.Module):
    def __init__(self, view=False):
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        if view:
            self.head.weight = nn.Parameter(self.embed.weight.detach()[:])
        else:
            self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.body(self.embed(x)))


@pytest.mark.parametrize("enable_clone", [False, True])
@pytest.mark.parametrize("view", [False, True])
def test_tied_weights_move_together_or_are_refused_with_both_names(view, enable_clone):
    model = Tied(view)
    flow, mover = wrap(model, enable_clone=enable_clone, inference_only=True)
    flow.layer_gpus["head"] = 1
    with pytest.raises(ValueError, match=r"'embed.weight' and 'head.weight' are one tensor"):
        flow.update_flow()
    assert mover.device_of(model.head.weight) == CPU
    flow.layer_gpus["embed"] = 1
    flow.update_flow()
    assert mover.device_of(model.head.bias) == mover.device_of(model.embed.weight) == GPU1
    assert model.head.weight.data_ptr() == model.embed.weight.data_ptr()
    run(flow, mover, torch.arange(4))
    flow.layer_gpus.update(embed=0, head=0)
    flow.update_flow()
    assert model.head.weight.data_ptr() == model.embed.weight.data_ptr()
    run(flow, mover, torch.arange(4))
    flow.remove()
    assert model.head.weight.data_ptr() == model.embed.weight.data_ptr()


def test_a_tensor_in_attributes_of_two_layers_is_tied_too():
    model = chain(2)
    model[0].table = model[1].table = torch.ones(8)
    flow, _ = wrap(model)
    flow.layer_gpus["1"] = 1
    with pytest.raises(ValueError, match=r"'0.table' and '1.table' are one tensor"):
        flow.update_flow()


# ---- case 3: clones ------------------------------------------------------------------------------


def test_a_thousand_new_maps_with_clones_move_no_weights(monkeypatch):
    model, x = chain(6), ROWS()
    expected = model(x).detach()
    flow, mover = wrap(model, inference_only=True, enable_clone=True)
    flow.update_flow()
    looked, place = [], flow._placement.place
    monkeypatch.setattr(flow._placement, "place", lambda c: looked.append(len(c)) or place(c))
    moved, chance = mover.moved, random.Random(0)
    for turn in range(1000):
        names = chance.sample(list(flow.layer_gpus), 2)
        before = dict(flow.layer_gpus)
        for name in names:
            flow.layer_gpus[name] = chance.choice([0, 1])
        changed = [n for n in names if flow.layer_gpus[n] != before[n]]
        flow.update_flow()
        assert looked[-1] == len(changed)
        assert mover.moved == moved
        if turn % 100 == 0:
            assert_alike(run(flow, mover, x), expected)
            moved = mover.moved
    for name, layer in model.named_children():
        assert mover.device_of(layer.weight).index == flow.layer_gpus[name]


def test_fifty_layers_are_mapped_anew_in_a_tenth_of_a_millisecond():
    flow, mover = wrap(chain(50), inference_only=True, enable_clone=True)
    flow.update_flow()
    times = []
    for turn in range(300):
        for name in flow.layer_gpus:
            flow.layer_gpus[name] = 1 - turn % 2
        begin = time.perf_counter()
        flow.update_flow()
        times.append(time.perf_counter() - begin)
    assert {mover.device_of(p) for p in flow.module.parameters()} == {GPU0}
    print(f"median {statistics.median(times) * 1e6:.0f} us, best {min(times) * 1e6:.0f} us")
    assert min(times) <= 100e-6


def test_clones_that_do_not_fit_are_refused_with_what_each_device_lacks():
    model = chain(2)
    before = snapshot(model)
    mover = Pretender(room={GPU0: 100, GPU1: 500})
    with pytest.raises(RuntimeError, match="cuda:0 is 476 bytes short.*cuda:1 is 76 bytes short"):
        wrap(model, mover, inference_only=True, enable_clone=True)
    assert snapshot(model) == before and mover.moved == 0
    wrap(model, Pretender(), enable_clone=True)


@pytest.mark.parametrize("assign", [False, True])
def test_weights_that_are_written_are_the_same_in_all_clones(assign):
    model, other, x = chain(2), chain(2), ROWS()
    flow, mover = wrap(model, inference_only=True, enable_clone=True)
    for turn in range(4):
        state = {name: t * (turn + 1) for name, t in other.state_dict().items()}
        flow.module.load_state_dict(state, assign=assign)
        other.load_state_dict(state)
        for p in model.parameters():
            if mover.tag_of(p) is None:
                mover.tag(p, CPU)
        flow.layer_gpus.update({"0": turn % 2, "1": 1 - turn % 2})
        flow.update_flow()
        assert_alike(run(flow, mover, x), other(x).detach())
    assert_same_state(flow.state_dict(), other.state_dict())
    flow.remove()
    assert_same_state(model.state_dict(), other.state_dict())
    assert {mover.device_of(p) for p in model.parameters()} == {CPU}


def test_running_statistics_follow_with_clones():
    model = nn.Sequential(nn.BatchNorm1d(8), nn.BatchNorm1d(8))
    twin = copy.deepcopy(model)
    flow, mover = wrap(model, inference_only=True, enable_clone=True)
    for turn in range(5):
        flow.layer_gpus["0"] = turn % 2
        flow.update_flow()
        x = ROWS()
        with torch.no_grad():
            assert_alike(run(flow, mover, x), twin(x))
    assert_same_state(model.state_dict(), twin.state_dict())


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("direct", [False, True])
def test_statistics_of_a_training_call_follow_when_training_is_over(inner, direct):
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), nn.Linear(8, 8)).eval()
    twin, x = copy.deepcopy(model), ROWS()
    flow, mover = wrap(model, inference_only=True, enable_clone=True)
    flow.update_flow()
    for net in (model, twin):
        (net[0][1] if inner else net).train()
    with torch.no_grad():
        run(model if direct else flow, mover, x)
        twin(x)
        model.eval()
        twin.eval()
        for device in (1, 0):
            flow.layer_gpus["0"] = device
            flow.update_flow()
            assert_alike(run(flow, mover, x), twin(x))
    assert_same_state(model.state_dict(), twin.state_dict())


def test_training_with_clones_is_refused():
    flow, mover = wrap(chain(2), enable_clone=True)
    flow.update_flow()
    for call in (flow, flow.module):
        with pytest.raises(RuntimeError, match="records gradients, with enable_clone=True"):
            call(ROWS())
    with torch.no_grad():
        run(flow, mover, ROWS())
    flow.inference_only = True
    run(flow, mover, ROWS())


def assert_same_state(found, expected):
    assert list(found) == list(expected)
    for name in found:
        assert torch.equal(found[name], expected[name]), name


# ---- case 4: constructed modules -----------------------------------------------------------------


@pytest.mark.parametrize("fine_grained", [False, True])
@pytest.mark.parametrize("name", ["inception", "nested", "gpt2"])
def test_modules_with_different_maps_run_from_two_threads(name, fine_grained):
    model, x = model_and_input(name)
    with torch.no_grad():
        expected = model(x)
    flow, mover = wrap(model, inference_only=True, enable_clone=True, fine_grained=fine_grained)
    mover.tag(x, CPU)
    maps = []
    for seed in (1, 2):
        scatter(flow, seed)
        maps.append(dict(flow.layer_gpus))
    made = [flow.construct_module(), flow.construct_module(maps[0])]
    flow.layer_gpus.update(maps[0])
    results, failures = [[], []], []

    def work(number):
        try:
            for _ in range(5):
                with OneDevice(mover):
                    results[number].append(made[number](x))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for turn in range(20):  # the flow changes beside them
        scatter(flow, turn)
        flow.update_flow()
    for thread in threads:
        thread.join()
    assert not failures
    for result in [*results[0], *results[1]]:
        assert_alike(result, expected)
        assert not any(t.requires_grad for t in tensors(result))
    assert made[0].state_dict().keys() == model.state_dict().keys()


def test_constructed_modules_share_weights_and_own_their_buffers():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval()
    flow, mover = wrap(model, inference_only=True, enable_clone=True)
    flow.layer_gpus.update({"0": 0, "1": 0})
    flow.update_flow()
    moved = mover.moved
    a, b = flow.construct_module(), flow.construct_module({"0": 1})
    buffers = sum(t.numel() * t.element_size() for t in model.buffers())
    assert mover.moved - moved == 2 * buffers
    assert a[0].weight.data_ptr() == model[0].weight.data_ptr() != b[0].weight.data_ptr()
    run(a.train(), mover, ROWS())
    assert int(a[1].num_batches_tracked) == 1
    assert int(b[1].num_batches_tracked) == int(model[1].num_batches_tracked) == 0
    flow.layer_gpus["0"] = 1
    flow.update_flow()
    assert mover.device_of(a[0].weight) == GPU0
    with torch.no_grad():
        model[0].weight.fill_(2)
    flow.update_flow()
    assert float(a[0].weight.min()) == float(b[0].weight.min()) == 2


def test_an_earlier_copy_saves_the_copy():
    model, x = chain(3), ROWS()
    flow, mover = wrap(model, inference_only=True, enable_clone=True)
    plain = copy.deepcopy(model)
    flow.layer_gpus["1"] = 1
    flow.update_flow()
    for given in (plain, copy.deepcopy(flow.module)):
        made = flow.construct_module({"2": 1}, module=given)
        assert made is given
        assert_alike(run(made, mover, x), run(flow, mover, x))
        assert [mover.device_of(layer.weight) for layer in made] == [GPU0, GPU1, GPU1]
        assert made[2].weight.data_ptr() != model[2].weight.data_ptr()
    for wrong in (chain(2), chain(3, 4), model):
        with pytest.raises(ValueError, match="module= .*expected a deep copy of the model"):
            flow.construct_module(module=wrong)
    with pytest.raises(ValueError, match="layer_gpus names 'x'"):
        flow.construct_module({"x": 0})
    with pytest.raises(ValueError, match="construct_module in a flow without clones"):
        wrap(chain(1))[0].construct_module()


def test_a_module_that_another_flow_runs_is_not_taken_for_a_copy():
    flow, mover = wrap(chain(3), enable_clone=True, inference_only=True)
    other, _ = wrap(chain(3), mover)
    x = ROWS()
    expected = run(other, mover, x)
    with pytest.raises(ValueError, match="module= is part of a DataFlow; expected a deep copy"):
        flow.construct_module(module=other.module)
    with pytest.raises(ValueError, match="module= is the model itself; expected a deep copy"):
        flow.construct_module(module=flow.module)
    assert_alike(run(other, mover, x), expected)
    copied = copy.deepcopy(flow.module)
    placed = kerf.place(copied, max_memory={"cpu": "1GiB"})
    with pytest.raises(ValueError, match="module= is placed by kerf.place; expected a deep"):
        flow.construct_module(module=copied)
    placed.remove()
    flow.construct_module(module=copied)


def test_constructed_modules_outlive_the_flow():
    model, x = chain(2), ROWS()
    expected = model(x).detach()
    flow, mover = wrap(model, inference_only=True, enable_clone=True)
    made = flow.construct_module({"1": 1})
    flow.remove()
    del flow
    gc.collect()
    assert_alike(run(made, mover, x), expected)


def test_recurrent_layers_keep_their_own_lists_of_weights():
    torch.manual_seed(0)

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.fc = nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, packed):
            out, (h, c) = self.rnn(packed)
            padded, lengths = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
            return self.fc(padded), h, c

    # Without requires_grad, as the flow has it: PyTorch's linear rounds otherwise.
    model = Recurrent().requires_grad_(False)
    packed = nn.utils.rnn.pack_padded_sequence(
        torch.randn(2, 4, 8), torch.tensor([4, 2]), batch_first=True
    )
    with torch.no_grad():
        expected = model(packed)
    for enable_clone in (False, True):
        flow, mover = wrap(model, inference_only=True, enable_clone=enable_clone)
        mover.tag(packed.data, CPU)
        for turn in range(3):
            flow.layer_gpus["rnn"] = turn % 2
            flow.update_flow()
            assert_alike(run(flow, mover, packed), expected)
        flow.remove()


# ---- case 5: inference only ----------------------------------------------------------------------


def test_inference_only_keeps_and_builds_no_autograd_state():
    model = chain(3)
    model[1].bias.requires_grad_(False)
    model(ROWS()).sum().backward()
    before = snapshot(model)
    gradients = [p.grad for p in model.parameters()]
    values = [g.clone() if g is not None else None for g in gradients]
    flow, mover = wrap(model, inference_only=True)
    flow.layer_gpus["1"] = 1
    flow.update_flow()
    x = ROWS().requires_grad_()
    for call in (flow, flow.module):
        assert not run(call, mover, x).requires_grad
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    gc.collect()
    assert mover.used(GPU0) + mover.used(GPU1) <= weights + x.numel() * 4  # the last result
    assert all(p.grad is None and not p.requires_grad for p in model.parameters())
    flow.inference_only = False
    assert run(flow, mover, x).requires_grad
    assert [p.requires_grad for p in model.parameters()] == [True] * 3 + [False] + [True] * 2
    flow.remove()
    assert snapshot(model) == before
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    for gradient, value in zip(gradients, values, strict=True):
        assert gradient is value is None or torch.equal(gradient, value)


# ---- case 6: what layers give and take -----------------------------------------------------------


@dataclasses.dataclass
class Record:
    x: torch.Tensor
    note: str = "a"


@dataclasses.dataclass(frozen=True)
class FrozenRecord:
    x: torch.Tensor
    inner: Record


class Pair(NamedTuple):
    x: torch.Tensor
    y: object


class Mixed(nn.Module):
    """Gives what the test asks for."""

    def __init__(self, build):
        super().__init__()
        self.linear, self.build = nn.Linear(8, 8), build

    def forward(self, x, *, scale=1.0, extra=None):
        x = self.linear(x) * scale
        if extra is not None:
            x = x + extra["a"][0]
        return self.build(x)


BUILDS = {
    "tensor": (lambda x: x, lambda v: v),
    "tuple": (lambda x: (x, None, 3), lambda v: v[0]),
    "list": (lambda x: [x, x], lambda v: v[1]),
    "dict": (lambda x: {"a": x, "b": "text"}, lambda v: v["a"]),
    "ordered": (lambda x: collections.OrderedDict(a=x), lambda v: v["a"]),
    "default": (lambda x: collections.defaultdict(list, a=[x]), lambda v: v["a"][0] + sum(v["z"])),
    "user dict": (lambda x: collections.UserDict(a=x), lambda v: v["a"]),
    "deque": (lambda x: collections.deque([x], maxlen=2), lambda v: v[0]),
    "dataclass": (lambda x: Record(x), lambda v: v.x),
    "frozen": (lambda x: FrozenRecord(x, Record(x, "b")), lambda v: v.x + v.inner.x),
    "named": (lambda x: Pair(x, [x, None]), lambda v: v.x + v.y[0]),
    "torch's": (lambda x: x.max(1), lambda v: v.values + v.indices),
    "none": (lambda x: None, lambda v: torch.zeros(3, 8)),
    "nested": (lambda x: {"a": [(x, {"b": Record(x)})]}, lambda v: v["a"][0][1]["b"].x),
}


class Uses(nn.Module):
    def __init__(self, kind):
        super().__init__()
        build, self.take = BUILDS[kind]
        self.layer = Mixed(build)
        self.never = nn.Linear(8, 8)
        self.gives = nn.Identity()

    def forward(self, x):
        first = self.layer(x)
        with torch.no_grad():
            second = self.layer(x, scale=0.5, extra={"a": [x]})
        value = self.take(first) + self.take(second)
        return self.gives({"value": value, "first": first, "none": None})


@pytest.mark.parametrize("kind", BUILDS)
@pytest.mark.parametrize("fine_grained", [False, True])
@seeded
def test_results_of_any_kind_of_layers_that_are_called_twice_or_never(kind, fine_grained):
    model, x = Uses(kind), ROWS()
    expected = model(x)
    flow, mover = wrap(model, fine_grained=fine_grained)
    for seed in range(4):
        scatter(flow, seed)
        flow.update_flow()
        result = run(flow, mover, x)
        assert list(result) == list(expected)
        assert type(result["first"]) is type(expected["first"])
        assert torch.equal(result["value"], expected["value"])
        assert result["value"].requires_grad == expected["value"].requires_grad


def test_arguments_that_are_there_already_are_passed_as_they_are():
    seen = []

    class Looks(nn.Module):
        def forward(self, x, items):
            seen.append((x, items))
            return items

    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.looks = Looks()

        def forward(self, x, items):
            result = self.looks(x, items)
            assert result is items  # also where it went to another device and came back
            return result

    flow, mover = wrap(Root())
    x, items = ROWS(), [ROWS()]
    for tensor in (x, *items):
        mover.tag(tensor, GPU0)
    assert run(flow, mover, x, items) is items
    assert seen[0][0] is x and seen[0][1] is items
    flow.layer_gpus["looks"] = 1
    flow.update_flow()
    assert run(flow, mover, x, items) is items
    assert seen[1][1] is not items and mover.device_of(seen[1][1][0]) == GPU1


class Writes(nn.Module):
    """Changes what it is given: a tensor in place, a list, a dictionary and an object."""

    def forward(self, x, items, table, record):
        x.mul_(2)
        items.append(x + 1)
        items[0] = items[0] - 1
        table["new"] = items[-1]
        del table["old"]
        record.x = x * 3


class Relies(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.writes, self.relu = nn.Linear(8, 8), Writes(), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.linear(x)
        keep, items, table, record = x[:], [x, x + 0], {"old": x + 1, "a": x}, Record(x)
        self.writes(x, items, table, record)
        self.relu(x)
        assert list(table) == ["a", "new"] and len(items) == 3
        return keep + sum(items) + sum(table.values()) + record.x


@pytest.mark.parametrize("inference", [contextlib.nullcontext, torch.inference_mode])
@pytest.mark.parametrize("to", [(0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 1)])
@seeded
def test_what_a_layer_writes_into_its_arguments_is_seen_by_its_caller(to, inference):
    model, x = Relies(), ROWS()
    with inference():
        expected = model(x)
        flow, mover = wrap(model)
        flow.layer_gpus.update(zip(["linear", "writes", "relu"], to, strict=True))
        assert_alike(run(flow, mover, x), expected)


class Gives(nn.Module):
    """Calls a function, which may read ``w``."""

    def __init__(self, call):
        super().__init__()
        self.call, self.w = call, nn.Parameter(torch.ones(8))

    def forward(self, *args):
        return self.call(self, *args)


class Around(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.pre, self.layer, self.post = nn.Linear(8, 8), Gives(inner), nn.Linear(8, 8)
        self.outer = outer

    def forward(self, x):
        return self.outer(self, self.pre(x))


def then_written(model, x):
    model.layer(x).mul_(2)
    return model.post(x)


def written_before_use(model, x):
    view = model.layer(x)
    x.mul_(2)
    return model.post(view.reshape(-1, 8))


VIEWS = {
    "view": lambda layer, x: x.view(2, 12)[:, :8],
    "chain": lambda layer, x: x.view(2, 12)[1:, :8].t(),
    "slice": lambda layer, x: x[1:3],
    "written": lambda layer, x: x.mul_(3)[:2],
    "expanded": lambda layer, x: x[:, None],
}


@pytest.mark.parametrize("to", [(0, 1, 0), (0, 1, 1), (1, "cpu", 0), ("cpu", 0, 1)])
@pytest.mark.parametrize("outer", [then_written, written_before_use])
@pytest.mark.parametrize("inner", VIEWS)
@pytest.mark.parametrize("grad", [False, True])
@seeded
def test_a_view_that_a_layer_gives_is_one_of_its_argument(inner, outer, to, grad):
    model, x = Around(VIEWS[inner], outer), ROWS()
    twin = copy.deepcopy(model)
    flow, mover = wrap(model)
    flow.layer_gpus.update(zip(["pre", "layer", "post"], to, strict=True))
    with torch.set_grad_enabled(grad):
        found, expected = run(flow, mover, x), twin(x)
    assert torch.equal(found, expected)
    if grad:
        with OneDevice(mover):
            found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(model.pre.weight.grad, twin.pre.weight.grad)


class Reversed(torch.autograd.Function):
    """The gradient changes its sign: a view, but not for gradients."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def test_a_view_keeps_the_gradient_of_the_function_that_made_it():
    model = Around(lambda layer, x: Reversed.apply(x)[:2], lambda m, x: m.post(m.layer(x)))
    twin, x = copy.deepcopy(model), ROWS()
    flow, mover = wrap(model)
    flow.layer_gpus["layer"] = 1
    with OneDevice(mover):
        run(flow, mover, x).sum().backward()
    twin(x).sum().backward()
    torch.testing.assert_close(model.pre.weight.grad, twin.pre.weight.grad)


def written_and_read(layer, a, b):
    a.mul_(2)
    return torch.cat([a, b], -1)


@pytest.mark.parametrize("apart", [False, True])
def test_a_layer_that_writes_one_of_two_arguments_in_the_same_memory_is_refused(apart):
    model = Around(written_and_read, lambda m, x: m.layer(*(x.split(4, 1) if apart else (x, x[:]))))
    twin, x = copy.deepcopy(model), ROWS()
    flow, mover = wrap(model)
    flow.layer_gpus["layer"] = 1
    with torch.no_grad():
        if apart:
            assert torch.equal(run(flow, mover, x), twin(x))
        else:
            with pytest.raises(RuntimeError, match="shares memory with another of its arguments"):
                run(flow, mover, x)
        flow.layer_gpus["layer"] = 0
        flow.update_flow()
        assert torch.equal(run(flow, mover, x), twin(x))


def test_views_overlap_where_they_have_an_element_in_common():
    chance, seen, base = random.Random(0), set(), torch.arange(64)
    for _ in range(400):
        views = [
            base.as_strided(
                [chance.randrange(4), chance.randrange(4)],
                [chance.randrange(8), chance.randrange(8)],
                chance.randrange(16),
            )
            for _ in range(2)
        ]
        a, b = (set(view.flatten().tolist()) for view in views)
        assert _overlap(*views) == bool(a & b)
        seen.add(_overlap(*views))
    assert seen == {False, True}
    ints = torch.arange(16, dtype=torch.int32)
    tail = ints.view(torch.uint8)[32:]
    assert not _overlap(ints[:8], tail) and _overlap(ints[:9], tail)
    assert not _overlap(ints[::2], ints.view(torch.float32)[1::2])


def test_halves_of_a_large_tensor_are_told_apart_at_once():
    start = time.perf_counter()
    assert not _overlap(*torch.zeros(2048, 4096).chunk(2, 1))  # positions of each took seconds
    assert time.perf_counter() - start < 1.5


def test_a_layer_may_write_a_weight_without_gradients():
    def double(layer, weight):
        with torch.no_grad():
            weight.mul_(2)
        return weight * layer.w

    model = Around(double, lambda m, x: m.post(x) + m.layer(m.post.bias))
    twin, x = copy.deepcopy(model), ROWS()
    flow, mover = wrap(model)
    flow.layer_gpus["layer"] = 1
    assert_alike(run(flow, mover, x), twin(x))
    assert torch.equal(model.post.bias, twin.post.bias)


class OwnMapping(collections.abc.MutableMapping):
    """Its copies share its items."""

    def __init__(self, items):
        self.items_of_mine = items

    def __getitem__(self, key):
        return self.items_of_mine[key]

    def __setitem__(self, key, value):
        self.items_of_mine[key] = value

    def __delitem__(self, key):
        del self.items_of_mine[key]

    def __iter__(self):
        return iter(self.items_of_mine)

    def __len__(self):
        return len(self.items_of_mine)


class Uncopied(OwnMapping):
    def __deepcopy__(self, memo):
        return self


def test_a_mapping_of_the_users_keeps_its_items():
    def outer(model, x):
        mapping = model.kind({"x": x})
        return model.post(model.layer(mapping)["x"] + mapping["x"])

    model = Around(lambda layer, m: OwnMapping({"x": m["x"] * layer.w}), outer)
    model.kind = OwnMapping
    twin, x = copy.deepcopy(model), ROWS()
    flow, mover = wrap(model)
    flow.layer_gpus["layer"] = 1
    assert_alike(run(flow, mover, x), twin(x))
    model.kind = Uncopied
    with pytest.raises(TypeError, match="a copy of a Uncopied writes into the same items"):
        run(flow, mover, x)


def test_a_cache_of_transformers_is_one_object_for_all_layers():
    model, x = model_and_input("gpt2")
    with torch.no_grad():
        first = model(x)
        expected = model(x[:, :1], past_key_values=first.past_key_values)
        flow, mover = wrap(model, fine_grained=True)
        scatter(flow, 3)
        for tensor in (x, x[:, :1]):
            mover.tag(tensor, CPU)
        with OneDevice(mover):
            found = flow(x)
            found = flow(x[:, :1], past_key_values=found.past_key_values)
    assert torch.equal(found.logits, expected.logits)
    assert found.past_key_values.get_seq_length() == 7


def test_the_model_still_generates():
    model, x = model_and_input("gpt2")
    options = dict(max_new_tokens=5, do_sample=False, pad_token_id=0)
    expected = model.generate(x, **options)
    flow, mover = wrap(model, fine_grained=True, inference_only=True)
    scatter(flow, 5)
    flow.update_flow()
    mover.tag(x, CPU)
    assert torch.equal(flow.generate(x, **options), expected)


# ---- case 7: training ----------------------------------------------------------------------------


@pytest.mark.parametrize("fine_grained", [False, True])
@pytest.mark.parametrize("name", ["inception", "resnet", "nested"])
def test_gradients_are_those_of_the_model(name, fine_grained):
    model, x = model_and_input(name)
    model.train()
    twin = copy.deepcopy(model)
    flow, mover = wrap(model, fine_grained=fine_grained)
    for seed in range(3):
        scatter(flow, seed)
        flow.update_flow()  # gradients of the last turn move along
        found, expected = run(flow, mover, x), twin(x)
        assert_alike(found, expected)
        with OneDevice(mover):
            sum(t.square().sum() for t in tensors(found)).backward()
        sum(t.square().sum() for t in tensors(expected)).backward()
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
            assert mover.device_of(a.grad) == mover.device_of(a)
    assert_same_state(model.state_dict(), twin.state_dict())  # running statistics too
    flow.remove()
    assert {mover.device_of(p.grad) for p in model.parameters()} == {CPU}


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.w = nn.Parameter(torch.ones(8))

    def inner(self, x):
        return (self.a(x) + self.b(x)) * self.w

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)


def test_checkpoints_are_computed_again_where_they_were():
    model = nn.Sequential(nn.Linear(8, 8), Checkpointed())
    twin, x = copy.deepcopy(model), ROWS()
    flow, mover = wrap(model, fine_grained=True)
    flow.layer_gpus.update({"0": 0, "1": 1, "1.a": 0, "1.b": 1})
    result = run(flow, mover, x)
    with OneDevice(mover):
        result.sum().backward()
    twin(x).sum().backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


# ---- what it must not do -------------------------------------------------------------------------


@pytest.mark.parametrize("enable_clone", [False, True])
@pytest.mark.parametrize("name", ["inception", "resnet", "gpt2"])
def test_remove_leaves_the_model_as_it_was(name, enable_clone):
    model, x = model_and_input(name)
    first = next(m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.LayerNorm)))
    calls = []
    first.register_forward_pre_hook(lambda *a: calls.append("pre"))
    first.register_forward_hook(lambda *a: calls.append("post"))
    next(model.parameters()).requires_grad_(False)
    with torch.no_grad():
        expected = model(x)
    before, state = snapshot(model), copy.deepcopy(model.state_dict())
    pointers = [p.data_ptr() for p in model.parameters()]
    flow, mover = wrap(model, fine_grained=True, inference_only=True, enable_clone=enable_clone)
    scatter(flow, 1)
    run(flow, mover, x)
    assert_same_state(flow.module.state_dict(), state)
    flow.remove()
    flow.remove()
    assert snapshot(model) == before
    assert_same_state(model.state_dict(), state)
    devices = {mover.device_of(t) for t in [*model.parameters(), *model.buffers()]}
    assert devices == {CPU}
    if enable_clone:
        assert pointers == [p.data_ptr() for p in model.parameters()]
    with torch.no_grad(), OneDevice(mover):
        assert_alike(model(x), expected)
    with pytest.raises(RuntimeError, match="this flow was removed"):
        flow(x)
    assert calls.count("pre") == calls.count("post") > 0


def test_parameters_that_took_the_place_of_others_get_their_flags_back():
    model = chain(3)
    model[1].bias.requires_grad_(False)
    flow, _ = wrap(model, inference_only=True)
    flow.update_flow()
    state = {name: t.clone() for name, t in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    model[2].weight = nn.Parameter(torch.ones(8, 8, dtype=torch.int8), requires_grad=False)
    flow.remove()
    flags = [p.requires_grad for p in model.parameters()]
    assert flags == [True, True, True, False, False, True]


def test_gradients_come_back_in_the_type_that_the_model_has_now():
    model = chain(2)
    model(ROWS()).sum().backward()
    expected = [p.grad.bfloat16() for p in model.parameters()]
    flow, _ = wrap(model, inference_only=True)
    flow.bfloat16()
    flow.remove()
    assert all(map(torch.equal, (p.grad for p in model.parameters()), expected))


def test_copies_and_models_whose_flow_was_lost_can_be_wrapped_anew():
    model, x = chain(2), ROWS()
    expected = model(x).detach()
    flow, mover = wrap(model)
    flow.layer_gpus["1"] = 1
    run(flow, mover, x)
    copied = copy.deepcopy(model)
    again, other = wrap(copied, output_device="cpu")
    assert_alike(run(again, other, x), expected)
    again.remove()
    assert not copied[0]._forward_hooks
    with pytest.raises(ValueError, match="part of a DataFlow already"):
        kerf.DataFlow(model, mover=mover)
    del flow
    flow = kerf.DataFlow(model, mover=mover)
    assert_alike(run(flow, mover, x), expected)
    flow.remove()
    assert not model[0]._forward_hooks


def test_a_flow_can_be_used_in_a_with_statement_and_wraps_a_model_once():
    model = chain(2)
    before = snapshot(model)
    with wrap(model)[0] as flow:
        flow.update_flow()
        with pytest.raises(ValueError, match="part of a DataFlow already"):
            kerf.DataFlow(model)
    assert snapshot(model) == before
    kerf.DataFlow(model)


def test_users_hooks_see_tensors_on_the_layers_device():
    model, seen = chain(2), []
    flow, mover = None, Pretender()
    model[1].register_forward_pre_hook(lambda m, args: seen.append(mover.device_of(args[0])))
    model[1].register_forward_hook(lambda m, args, out: seen.append(mover.device_of(out)))
    flow, _ = wrap(model, mover)
    flow.layer_gpus["1"] = 1
    run(flow, mover, ROWS())
    assert seen == [GPU1, GPU1]


@pytest.mark.parametrize("name", ["layer_gpu", "module", "enable_clone", "fine_grained", "config"])
def test_what_would_be_set_in_vain_is_refused(name):
    flow, _ = wrap(chain(2))
    with pytest.raises(AttributeError, match=f"{name} cannot be set in a DataFlow; .*flow.module"):
        setattr(flow, name, {})
    with pytest.raises(TypeError, match="inference_only is 'no', a str; expected"):
        flow.inference_only = "no"
    assert not flow.inference_only


def test_a_flow_shows_where_its_layers_are():
    flow, _ = wrap(chain(3))
    assert repr(flow) == "kerf.DataFlow(Sequential, 3 layers not moved yet)"
    flow.layer_gpus["1"] = 1
    flow.update_flow()
    assert repr(flow) == "kerf.DataFlow(Sequential, 2 layers on cuda:0, 1 layer on cuda:1)"
    flow.remove()
    assert repr(flow) == "kerf.DataFlow(Sequential, removed)"


def test_names_that_the_flow_does_not_have_are_the_models():
    flow, _ = wrap(chain(2))
    assert flow.state_dict().keys() == flow.module.state_dict().keys()
    assert flow.eval() is flow.module and not flow.training
    with pytest.raises(AttributeError, match="nonsense"):
        flow.nonsense  # noqa: B018


class Shared(Pretender):
    """One for all copies, as devices are."""

    def __reduce__(self):
        return shared, ()


def shared():
    return SHARED


SHARED = Shared()


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), "save"],
    ids=["deepcopy", "pickle", "save"],
)
@seeded
def test_copies_of_a_wrapped_module_run_by_themselves(copied):
    def saved(model):
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        return torch.load(file, weights_only=False)

    flow, mover = wrap(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), SHARED)
    flow.layer_gpus["2"] = 1
    x = ROWS()
    expected = run(flow, mover, x)
    made = (saved if copied == "save" else copied)(flow.module)
    for tensor, own in zip(made.parameters(), flow.module.parameters(), strict=True):
        mover.tag(tensor, mover.device_of(own))
    assert made.state_dict().keys() == flow.module.state_dict().keys()
    assert_alike(run(made, mover, x), expected)
    flow.layer_gpus["2"] = 0
    flow.update_flow()
    assert_alike(run(made, mover, x), expected)
    flow.remove()
    assert_alike(run(made, mover, x), expected)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(flow)


def test_pickles_of_a_real_flow_need_nothing_else():
    flow = kerf.DataFlow(chain(2))
    x = ROWS().to(flow.module[0].weight.device)
    expected = flow(x)
    assert torch.equal(pickle.loads(pickle.dumps(flow.module))(x), expected)


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.fail = None

    def forward(self, x):
        y = self.a(x)
        if self.fail is not None:
            self.b.register_forward_pre_hook(self.raises)
        return self.b(y) + y

    def raises(self, *args):
        error, self.fail = self.fail, None
        self.b._forward_pre_hooks.popitem()
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [ValueError("stop"), KeyboardInterrupt()])
@pytest.mark.parametrize("direct", [False, True])
def test_an_exception_in_the_model_breaks_nothing(error, direct):
    model, x = nn.Sequential(Fails(), nn.Linear(8, 8)), ROWS()
    expected = model(x)
    flow, mover = wrap(model, fine_grained=True, output_device="cpu")
    flow.layer_gpus.update({"0.a": 0, "0.b": 1, "1": 0})
    flow.update_flow()
    for _ in range(3):
        model[0].fail = error
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(type(error)):
                run(model if direct else flow, mover, x)
        if not direct:
            assert flow._calls.stack == []
        found = run(model if direct else flow, mover, x)
        assert_alike(found, expected)
        assert mover.device_of(found) == CPU
    flow.update_flow()
    flow.remove()
    assert not model[0]._forward_pre_hooks and not model[0]._forward_hooks


class Recovers(nn.Module):
    """Has another way where a layer fails."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(9, 8), nn.Linear(8, 8)

    def forward(self, x):
        try:
            return self.a(x)
        except RuntimeError:
            return self.b(x) + x


def test_a_model_may_catch_what_a_layer_raises():
    model, x = nn.Sequential(Recovers(), nn.Linear(8, 8)), ROWS()
    expected = model(x)
    flow, mover = wrap(model, fine_grained=True)
    flow.layer_gpus.update({"0.a": 1, "0.b": 1})
    assert_alike(run(flow, mover, x), expected)


def test_a_switch_of_clones_that_fails_is_undone():
    model = nn.Sequential(nn.Linear(8, 8), Stateful())
    flow, mover = wrap(model, inference_only=True, enable_clone=True)
    run(flow, mover, ROWS())
    mover.room[GPU1] = mover.used(GPU1)  # weights are there already, the cache is not
    flow.layer_gpus.update({"0": 1, "1": 1})
    with pytest.raises(RuntimeError, match=r"layer '1' cannot be moved .* 192 bytes short"):
        flow.update_flow()
    held = [*model.parameters(), *model.buffers(), model[1].last]
    assert {mover.device_of(t) for t in held} == {GPU0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(flow, mover, ROWS())
    del mover.room[GPU1]
    flow.update_flow()
    run(flow, mover, ROWS())


def test_what_does_not_meet_is_explained():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(8, 8)

        def forward(self, x):
            raise RuntimeError("Expected all tensors to be on the same device, but ...")

    flow, _ = wrap(Reads())
    with pytest.raises(RuntimeError) as error:
        flow(ROWS())
    assert "whose weights another one reads" in error.value.__notes__[0]


# ---- threads -------------------------------------------------------------------------------------


def test_calls_from_several_threads_and_changes_beside_them():
    model, x = model_and_input("inception")
    with torch.no_grad():
        expected = model(x)
    flow, mover = wrap(model, fine_grained=True, inference_only=True)
    flow.update_flow()
    mover.tag(x, CPU)
    failures, done = [], threading.Event()

    def work():
        try:
            while not done.is_set():
                with OneDevice(mover), warnings.catch_warnings():
                    assert torch.equal(flow(x), expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thread in threads:
            thread.start()
        for seed in range(8):
            scatter(flow, seed)
            flow.update_flow()
        done.set()
        for thread in threads:
            thread.join()
    assert not failures


class Nested(nn.Module):
    """Calls its own flow once more, while another thread waits to change it."""

    def __init__(self):
        super().__init__()
        self.layer, self.flow = nn.Linear(8, 8), None

    def forward(self, x, again=True):
        if again:
            self.waiting.start()
            time.sleep(0.05)
            x = self.flow(x, again=False)
        return self.layer(x)


def test_a_call_inside_a_call_does_not_wait_for_a_change():
    model = Nested()
    flow, mover = wrap(model)
    flow.update_flow()
    model.flow, model.waiting = flow, threading.Thread(target=flow.update_flow, daemon=True)
    caller = threading.Thread(target=run, args=(flow, mover, ROWS()), daemon=True)
    caller.start()
    caller.join(10)
    model.waiting.join(10)
    assert not caller.is_alive() and not model.waiting.is_alive()


@pytest.mark.parametrize("enable_clone", [False, True])
@pytest.mark.parametrize("kind", ["script", "compile"])
def test_compiled_parts_are_layers_and_scripts_stay_with_their_parents(kind, enable_clone):
    body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    made = torch.jit.script(body) if kind == "script" else torch.compile(body, backend="eager")
    model, x = nn.Sequential(nn.Linear(8, 8), made, nn.Linear(8, 8)), ROWS()
    expected = model(x).detach()
    flow, mover = wrap(model, fine_grained=True, enable_clone=enable_clone, inference_only=True)
    assert list(flow.layer_gpus) == (["0", "2"] if kind == "script" else ["0", "1", "2"])
    flow.layer_gpus.update(dict.fromkeys(list(flow.layer_gpus)[1:], 1))
    assert torch.equal(flow(x), expected)
    at = GPU0 if kind == "script" else GPU1
    assert {mover.device_of(p) for p in made.parameters()} == {at}
    flow.output_device = 1
    flow.update_flow()
    assert torch.equal(flow(x), expected)
    assert {mover.device_of(p) for p in made.parameters()} == {GPU1}
    flow.remove()
    assert {mover.device_of(p) for p in model.parameters()} == {CPU}
    if kind == "script":
        with pytest.raises(ValueError, match="takes no hooks"):
            kerf.DataFlow(made)


def test_a_change_inside_a_call_is_refused():
    model = chain(2)
    flow, mover = wrap(model)
    flow.update_flow()
    model[0].register_forward_hook(lambda *a: flow.update_flow())
    with pytest.raises(RuntimeError, match="update_flow inside a call"):
        run(flow, mover, ROWS())


# ---- streams -------------------------------------------------------------------------------------


def test_batches_come_back_in_order():
    flow, mover = wrap(chain(3), inference_only=True)
    flow.layer_gpus["1"] = 1
    batches = [ROWS() for _ in range(7)]
    for batch in batches:
        mover.tag(batch, CPU)
    for window in (None, 1, 2, 20):
        found = list(flow.stream(iter(batches), window=window))
        assert len(found) == 7
        assert all(torch.equal(y, flow(x)) for x, y in zip(batches, found, strict=True))
    assert list(flow.stream([])) == []


def test_batches_are_given_as_the_model_is_called():
    flow, mover = wrap(Mixed(lambda x: x))
    x = ROWS()
    given = [x, (x,), [x], {"x": x}]
    for found in flow.stream(given):
        assert torch.equal(found, flow(x))
    scaled = next(flow.stream([{"x": x, "scale": 2.0}]))
    assert torch.equal(scaled, flow(x, scale=2.0))


def test_a_stream_is_ahead_by_its_window_and_no_more():
    flow, _ = wrap(chain(2), inference_only=True)
    flow.layer_gpus["1"] = 1
    asked = []

    def source():
        for number in range(10):
            asked.append(number)
            yield ROWS()

    for done, _ in enumerate(flow.stream(source(), window=3), 1):
        assert len(asked) == min(done + 2, 10)


def test_an_error_comes_at_its_turn_and_closing_stops():
    flow, _ = wrap(chain(2), inference_only=True)
    batches = [ROWS() for _ in range(6)]
    batches[3] = torch.randn(3, 9)
    found = []
    with pytest.raises(RuntimeError, match="shapes"):
        for y in flow.stream(batches, window=3):
            found.append(y)
    assert len(found) == 3
    asked = []
    stream = flow.stream((asked.append(0) or ROWS() for _ in range(10)), window=2)
    next(stream)
    stream.close()
    assert len(asked) == 2
    with pytest.raises(TypeError, match=r"\[kerf.dataflow\] batches is"):
        flow.stream(ROWS())


# ---- plans ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("fine_grained", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_auto_follows_a_plan(name, fine_grained):
    model, x = model_and_input(name)
    with torch.no_grad():
        expected = model(x)
    mover = Pretender()
    for tensor in [*model.parameters(), *model.buffers(), x]:
        mover.tag(tensor, CPU)
    flow = kerf.DataFlow.auto(
        model, (x,), devices=["cuda:0", "cuda:1"], method="even", mover=mover,
        fine_grained=fine_grained, inference_only=True,
    )  # fmt: skip
    if fine_grained:
        assert set(flow.layer_gpus.values()) == {GPU0, GPU1}
    assert_alike(run(flow, mover, x), expected)


class Bare(nn.Module):
    """A block without weights of its own, around layers without weights, too."""

    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(self.act(self.up(x))))


class HoldsAScale(Bare):
    def __init__(self):
        super().__init__()
        self.scales = [torch.ones(8)]

    def forward(self, x):
        return super().forward(x) * self.scales[0]


@pytest.mark.parametrize(("block", "copies"), [(Bare, 3), (HoldsAScale, None)])
def test_blocks_of_a_planned_flow_compute_where_their_layers_are(block, copies):
    torch.manual_seed(0)
    model, x = nn.Sequential(*[block() for _ in range(4)]).eval(), ROWS()
    with torch.no_grad():
        expected = model(x)
    mover = Pretender()
    for tensor in [*model.parameters(), x]:
        mover.tag(tensor, CPU)
    flow = kerf.DataFlow.auto(
        model, (x,), method="even", mover=mover, inference_only=True, output_device=0
    )
    for b in range(4):
        names = [f"{b}.{name}" for name in ("up", "act", "down", "drop")]
        flow.layer_gpus.update(dict.fromkeys(names, GPU0 if b < 2 else GPU1))
    flow.update_flow()
    before, count = mover.to, []

    def to(tensor, device, copy=False):
        count.append(mover.device_of(tensor) != device)
        return before(tensor, device, copy)

    mover.to = to
    assert_alike(run(flow, mover, x), expected)
    if copies is not None:
        assert sum(count) == copies  # to the first, to the second half, and the result
        flow.layer_gpus["2.up"] = 0  # a block on two devices is on the output device
        flow.update_flow()
        assert_alike(run(flow, mover, x), expected)


@pytest.mark.parametrize("devices", ["4xh100", ["cuda:2"], ["cuda:0", "cuda:7"]])
def test_auto_refuses_devices_that_are_not_there(devices):
    model, x = chain(4), ROWS()
    before = snapshot(model)
    with pytest.raises(ValueError, match="stage on .*; expected devices .*: cuda:0, cuda:1, cpu;"):
        kerf.DataFlow.auto(model, (x,), devices=devices, mover=Pretender(), method="even")
    assert snapshot(model) == before


class Compares(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        x = self.layer(x)
        return x @ x.t()


@pytest.mark.filterwarnings("ignore:kerf.plan")
def test_a_plan_that_cannot_cut_batches_is_streamed_batch_by_batch():
    model, batches = Compares().eval(), [ROWS() for _ in range(3)]
    flow = kerf.DataFlow.auto(
        model, (ROWS(),), devices=["cpu:0", "cpu:1"], output_device="cpu", n_microbatches=2
    )
    with pytest.warns(kerf.KerfWarning, match="one after the other.* mixes samples"):
        found = list(flow.stream(batches))
    assert_alike(found, [model(x) for x in batches])


def test_auto_puts_layers_where_the_plan_has_their_weights():
    model = chain(6)
    flow = kerf.DataFlow.auto(model, (ROWS(),), mover=Pretender(), method="even")
    devices = list(flow.layer_gpus.values())
    assert devices == [GPU0] * 3 + [GPU1] * 3


def test_a_planned_flow_streams_through_a_pipeline(monkeypatch):
    torch.manual_seed(0)
    model = chain(4).eval()
    before = snapshot(model)
    flow = kerf.DataFlow.auto(
        model, (ROWS(),), devices=["cpu:0", "cpu:1"], output_device="cpu", inference_only=True,
        method="even",
    )  # fmt: skip
    used = []
    stream = kerf.Pipeline.stream
    monkeypatch.setattr(kerf.Pipeline, "stream", lambda *a, **k: used.append(0) or stream(*a, **k))
    batches = [ROWS() for _ in range(6)]
    found = list(flow.stream(batches))
    assert used and len(found) == 6
    for x, y in zip(batches, found, strict=True):
        torch.testing.assert_close(y, flow(x))
    with torch.no_grad():
        model[0].weight.mul_(2)  # the pipeline has the model's own tensors
    torch.testing.assert_close(next(flow.stream(batches)), flow(batches[0]))
    batches[2] = torch.randn(3, 9)
    found = []
    with pytest.raises(ValueError, match="expected 8"):
        for y in flow.stream(batches, window=2):
            found.append(y)
    assert len(found) == 2
    flow.remove()
    assert snapshot(model) == before


def test_another_map_than_the_planned_one_streams_without_a_pipeline(monkeypatch):
    mover = Pretender()
    model = chain(4).eval()
    flow = kerf.DataFlow.auto(
        model, (ROWS(),), mover=mover, devices=["cuda:0", "cuda:1"], method="even"
    )
    assert flow.layer_gpus["0"] == GPU0
    flow.layer_gpus["0"] = 1
    flow.update_flow()
    monkeypatch.setattr(kerf, "Pipeline", None)
    batches = [ROWS() for _ in range(3)]
    with torch.no_grad():
        found = list(flow.stream(batches))
    assert all(torch.equal(y, flow(x)) for x, y in zip(batches, found, strict=True))


def planned(model):
    return kerf.DataFlow.auto(
        model, (ROWS(),), devices=["cpu:0", "cpu:1"], output_device="cpu", method="even",
        mover=Pretender(),
    )  # fmt: skip


@pytest.mark.parametrize("change", ["update_flow", "remove"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_stream_by_the_plan_ends_before_layers_move(change, begun):
    model, x = chain(4).eval(), ROWS()
    flow = planned(model)
    flow.update_flow()
    with torch.no_grad():
        expected = model(x)
        results = flow.stream([x] * 6, window=3)
        if begun:
            torch.testing.assert_close(next(results), expected)
        flow.layer_gpus["1"] = 1
        getattr(flow, change)()
        with pytest.raises(RuntimeError, match="while a stream had batches under way; .* again"):
            next(results)
        assert next(results, None) is None
        if change == "update_flow":
            assert all(torch.equal(y, expected) for y in flow.stream([x] * 3))
        torch.testing.assert_close(model(x), expected)


@pytest.mark.filterwarnings("ignore::kerf.KerfWarning")  # of the change that waits
def test_changes_from_another_thread_wait_for_a_stream_by_the_plan():
    model, x = chain(4).eval(), ROWS()
    flow = planned(model)
    flow.update_flow()
    entered, waits = threading.Event(), []

    def batches():
        entered.set()
        while not waits:
            time.sleep(0.001)
        thread.join(0.1)
        waits.append(thread.is_alive())
        list(flow.stream([x]))  # has its turn already
        yield x

    def change():
        entered.wait()
        waits.append(0)
        flow.layer_gpus["1"] = 1
        flow.update_flow()

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    with contextlib.suppress(RuntimeError):  # the change came after the first batch
        list(flow.stream(batches()))
    thread.join(20)
    assert not thread.is_alive() and waits[1:] == [True]


@pytest.mark.parametrize("change", ["mode", "hook"])
def test_a_model_that_is_not_as_planned_is_streamed_batch_by_batch(change):
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)).eval()
    flow = planned(model)
    if change == "mode":
        flow.train()
    else:
        model[0].register_forward_hook(lambda module, args, result: 2 * result)
    twin, batches = copy.deepcopy(model), [ROWS() for _ in range(3)]
    with pytest.warns(kerf.KerfWarning, match="one after the other.* when the model was traced"):
        found = list(flow.stream(batches))
    expected = [twin(x) for x in batches]
    torch.testing.assert_close(found, expected)
    for y in (*found, *expected):
        y.square().sum().backward()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b)


# ---- the page and the stub -----------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


@pytest.mark.filterwarnings("ignore:kerf")
def test_the_examples_of_the_page_run_one_after_the_other(capsys):
    page = (ROOT / "docs/dataflow.md").read_text()
    names = {"__name__": "example"}
    snippets = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert len(snippets) == 3
    for snippet in snippets:
        exec(compile(snippet, "docs/dataflow.md", "exec"), names)
    assert "['left', 'right', 'fc']" in capsys.readouterr().out


def parameters(path):
    """Names of parameters of public methods, by class and method."""
    return {
        (cls.name, f.name): [a.arg for a in (*f.args.args, *f.args.kwonlyargs)]
        for cls in ast.parse(path.read_text()).body
        if isinstance(cls, ast.ClassDef) and cls.name in ("DataFlow", "Mover")
        for f in cls.body
        if isinstance(f, ast.FunctionDef) and (f.name[0] != "_" or f.name == "__init__")
    }


@pytest.mark.parametrize(("module", "least"), [("_dataflow", 7), ("_transfer", 5)])
def test_the_stub_has_the_parameters_of_the_methods(module, least):
    stub = parameters(ROOT / f"python/kerf/{module}.pyi")
    code = parameters(ROOT / f"python/kerf/{module}.py")
    assert len(stub) >= least
    for name, found in stub.items():
        assert code[name] == found, name
