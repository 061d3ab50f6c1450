# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Symbolic profiles of whole models against what PyTorch's own counters and hooks see."""

import inspect
import json
import subprocess
import sys

import cnn_zoo
import models
import pytest
import torch
from saving import kept_bytes
from test_symbolic_zoo import TRANSFORMERS, tensors
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import kerf

# Code of theirs reads numbers of random tensors in train mode.
EVAL_ALONE = {"wav2vec2"}


def counted(model, call):
    """Flops by PyTorch's counter, forward and backward. It does not know the host's fused
    attention, whose plain form has the same products forward."""
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            result = model(**call)
        loss = sum(t.float().mean() for t in tensors(result) if t.requires_grad)
        with FlopCounterMode(display=False) as backward:
            loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def has_attention(gm):
    return any("scaled_dot_product" in node["op"] for node in kerf.graph_of(gm).nodes)


def is_grouped(model):
    """PyTorch's counter does not divide the gradient of such a weight by its groups."""
    return any(getattr(module, "groups", 1) > 1 for module in model.modules())


def check(model, call, samples, plain):
    gm = kerf.symbolic_trace(model, meta_args=samples, concrete_args=plain)
    kerf.symbolic_profile(gm, kwargs=call, device_kind="cpu", strict=True)
    table = kerf.profile_table(gm)
    assert table.ops_without_rule == []
    assert table.totals["saved"] == kept_bytes(gm, (), call)
    forward, backward = counted(model, call)
    experts = [n for n in gm.graph.nodes if n.target is torch._grouped_mm]  # it does not see these
    unseen = sum(2 * kerf.MetaInfo(node).fwd_mac for node in experts)
    assert 2 * table.totals["fwd_mac"] == forward + unseen
    if not experts and not is_grouped(model) and not has_attention(gm):
        assert 2 * table.totals["bwd_mac"] == backward
    infos = [kerf.MetaInfo(node) for node in gm.graph.nodes]
    assert sum(info.fwd_flop for info in infos) == table.totals["fwd_flop"]
    assert all(low <= high for low, high in zip(*growing(infos), strict=True))
    assert infos[-1].accumulate_size == table.totals["saved"]


def growing(infos):
    sizes = [info.accumulate_size for info in infos]
    return sizes[:-1], sizes[1:]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", cnn_zoo.FAMILIES)
def test_a_convolutional_network_keeps_and_computes_what_pytorch_says(name, training):
    torch.manual_seed(0)
    model = cnn_zoo.FAMILIES[name]().train(training)
    argument = next(iter(inspect.signature(model.forward).parameters))
    call = {argument: torch.randn(2, 3, 32, 32)}
    check(model, call, {argument: torch.empty(2, 3, 32, 32, device="meta")}, {})


@pytest.mark.parametrize("name", cnn_zoo.FAMILIES)
def test_a_network_with_channels_last_keeps_what_pytorch_keeps(name):
    torch.manual_seed(0)
    last = torch.channels_last
    model = cnn_zoo.FAMILIES[name]().train().to(memory_format=last)
    argument = next(iter(inspect.signature(model.forward).parameters))
    call = {argument: torch.randn(2, 3, 32, 32).contiguous(memory_format=last)}
    gm = kerf.symbolic_trace(model, meta_args=call)
    kerf.symbolic_profile(gm, kwargs=call, device_kind="cpu")
    assert kerf.profile_table(gm).totals["saved"] == kept_bytes(gm, (), call)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_an_architecture_of_transformers_keeps_and_computes_what_pytorch_says(name, training):
    pytest.importorskip("transformers")
    if training and name in EVAL_ALONE:
        pytest.skip("its code reads random numbers in train mode")
    torch.manual_seed(0)
    model, args, kwargs = getattr(models, name)()
    names = list(inspect.signature(model.forward).parameters)
    call = dict(zip(names, args, strict=False)) | kwargs
    samples = {key: value for key, value in call.items() if tensors(value)}
    plain = {key: value for key, value in call.items() if key not in samples}
    check(model.train(training), call, samples, plain)


LARGE = """
import json, time
start = time.perf_counter()
import torch, kerf
from transformers import LlamaConfig, LlamaForCausalLM

sizes = dict(hidden_size=8192, intermediate_size=28672, vocab_size=128256)
heads = dict(num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8)
config = LlamaConfig(**sizes, **heads, max_position_embeddings=8192, use_cache=False)
with kerf.MetaTensorMode():
    model = LlamaForCausalLM(config).to(torch.bfloat16).train()
ids = torch.empty(1, 4096, dtype=torch.long, device="meta")
gm = kerf.symbolic_trace(model, meta_args={"input_ids": ids})
kerf.symbolic_profile(gm, kwargs={"input_ids": ids}, strict=True)
totals = kerf.profile_table(gm).totals
seconds = time.perf_counter() - start
# Its own: ru_maxrss begins with what the process that started it has taken.
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps({"seconds": seconds, "peak": peak, **totals}))
"""


def test_a_model_of_70_billion_parameters_is_known_on_a_small_machine():
    pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["seconds"] <= 60 and found["peak"] <= 2 << 30
    layer = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
    weights = 80 * layer + 8192 * 128256
    assert found["param"] == 2 * (weights + 8192 * 128256 + 161 * 8192)
    # Products with weights, and half of all pairs of 4096 tokens: a query sees those before it.
    pairs = 80 * 64 * 4096 * 4096 * 128
    assert 4096 * weights + pairs <= found["fwd_mac"] <= 4096 * weights + 1.03 * pairs
    assert found["bwd_mac"] > 1.99 * found["fwd_mac"]
