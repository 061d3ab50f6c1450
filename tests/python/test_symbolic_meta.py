# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors and models without data, and shapes across devices that are not there."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kerf.symbolic import (
    MetaTensor,
    MetaTensorMode,
    Registry,
    ShapeProp,
    register_shape_impl,
    shape_prop_pass,
    sim_env,
    symbolic_trace,
)


def on(device, *shape):
    return MetaTensor(torch.empty(*shape, device="meta"), device)


def test_a_meta_tensor_says_it_is_elsewhere():
    x = on("cuda:1", 3, 4)
    y = (x @ x.t()).relu()
    assert y.device == torch.device("cuda:1") and y.shape == (3, 3)
    assert x.to("cuda:0").device == torch.device("cuda:0") and x.device == torch.device("cuda:1")
    assert x.cpu().device.type == "cpu" and x.is_cuda and not x.is_meta
    assert MetaTensor(x) is x


def test_devices_that_do_not_go_together_are_refused():
    with pytest.raises(RuntimeError, match="same device.*cuda:0 and cuda:1"):
        on("cuda:0", 3) + on("cuda:1", 3)


def test_a_device_without_a_number_is_the_current_one():
    x = on("cuda", 3)
    assert x.device == torch.device("cuda:0") and x.get_device() == 0
    assert (x + on("cuda:1", 3).to("cuda")).device == torch.device("cuda:0")
    assert (x * torch.ones_like(x, device="cuda")).device == torch.device("cuda:0")
    assert on("cuda:1", 3).get_device() == 1 and x.cpu().get_device() == -1

    def forward(x):
        return x + torch.ones(3, device="cuda") * torch.zeros(3).to("cuda") - torch.ones(3).cuda()

    gm = symbolic_trace(forward, meta_args={"x": on("cuda:0", 3)})
    assert {n.meta["device"] for n in gm.graph.nodes if n.name in ("add", "sub")} == {x.device}


def test_gradients_flow_through_meta_tensors():
    weight = MetaTensor(nn.Linear(4, 2).weight, "cuda:2")
    assert isinstance(weight, nn.Parameter)
    F.linear(on("cuda:2", 1, 4), weight).sum().backward()
    assert weight.grad.device == torch.device("cuda:2") and weight.grad.shape == (2, 4)


def test_models_are_built_without_data_and_nothing_is_patched():
    zeros = torch.zeros
    with MetaTensorMode(), MetaTensorMode():
        model = nn.Sequential(nn.Linear(1 << 20, 1 << 20), nn.BatchNorm1d(1 << 20))
        table = torch.arange(4)
    assert torch.zeros is zeros and torch.zeros(2).device.type == "cpu"
    assert all(p.is_meta for p in model.parameters()) and table.tolist() == [0, 1, 2, 3]
    with MetaTensorMode("cuda:3"):
        assert nn.Linear(2, 2).weight.device == torch.device("cuda:3")


_LARGE = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from kerf.symbolic import MetaTensorMode, symbolic_trace
config = LlamaConfig(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
                     num_attention_heads=64, num_key_value_heads=8, vocab_size=128256)
with MetaTensorMode():
    model = LlamaForCausalLM(config)
assert sum(p.numel() for p in model.parameters()) > 70e9
ids = torch.zeros(1, 2048, dtype=torch.long)
gm = symbolic_trace(model.eval(), meta_args={"input_ids": ids}, trace_act_ckpt=True)
assert len(gm.graph.nodes) > 1000
# Its own: ru_maxrss begins with what the process that started it has taken.
print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024)
"""


def test_seventy_billion_parameters_are_traced_in_two_gigabytes():
    pytest.importorskip("transformers")
    ran = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout.split()[-1]) < 2048


def test_shapes_are_propagated_across_a_mesh_of_devices():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    gm = symbolic_trace(model, meta_args={"input": torch.empty(3, 4)})
    result = ShapeProp(gm).propagate(torch.empty(5, 4))
    assert result.shape == (5, 2)
    for module, device in ((gm.get_submodule("0"), "cuda:0"), (gm.get_submodule("2"), "cuda:1")):
        for name, parameter in list(module._parameters.items()):
            module._parameters[name] = MetaTensor(parameter, device)
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1|cuda:1 and cuda:0"):
        ShapeProp(gm).propagate(torch.empty(5, 4), device="cuda:0")
    relu = next(n for n in gm.graph.nodes if n.target == "1")
    with gm.graph.inserting_after(relu):
        moved = gm.graph.call_method("to", (relu, "cuda:1"))
    relu.replace_all_uses_with(moved, delete_user_cb=lambda user: user is not moved)
    gm.recompile()
    result = ShapeProp(gm).propagate(torch.empty(5, 4), device="cuda:0")
    assert result.device == torch.device("cuda:1")
    assert relu.meta["device"] == torch.device("cuda:0")
    assert moved.meta["device"] == torch.device("cuda:1")


def test_a_registered_rule_gives_the_shape():
    registry = Registry()

    @register_shape_impl(F.linear, registry=registry)
    def wide(x, weight, bias=None):
        return x.new_empty(*x.shape[:-1], 77)

    samples = {"x": on("cpu", 2, 3), "w": on("cpu", 4, 3)}
    gm = symbolic_trace(lambda x, w: F.linear(x, w), meta_args=samples)
    with registry.active():
        assert ShapeProp(gm).propagate(torch.ones(2, 3), torch.ones(4, 3)).shape == (2, 77)
    assert shape_prop_pass(gm, torch.ones(2, 3), torch.ones(4, 3)) is gm


def test_what_autograd_keeps_is_noted_without_the_weights():
    layer, x = nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)
    with sim_env(layer) as environment:
        torch.relu(layer(x)).sum()
    assert sorted(t.shape for t in environment.ctx.values()) == [(2, 4), (2, 4)]
    with pytest.raises(TypeError, match="expected the module"):
        sim_env(3)


def test_wrong_modules_and_inputs_of_shape_prop_are_named_in_a_line():
    gm = symbolic_trace(nn.Sequential(nn.Linear(4, 4)), meta_args={"input": torch.empty(2, 4)})
    with pytest.raises(TypeError, match=r"gm is Linear.*; expected a torch.fx.GraphModule"):
        ShapeProp(nn.Linear(2, 2))
    for inputs in ((), (torch.empty(2, 4), torch.empty(2))):
        with pytest.raises(TypeError, match=f"has {len(inputs)} inputs; the module takes input;"):
            ShapeProp(gm).propagate(*inputs)
    with pytest.raises(RuntimeError) as refused:
        ShapeProp(gm).propagate(torch.empty(2, 3))
    assert "\n" not in str(refused.value) and "at node '_0'" in refused.value.__notes__[0]
    assert ShapeProp(symbolic_trace(lambda *xs: sum(xs), meta_args={"xs": [torch.empty(2)] * 2}))
