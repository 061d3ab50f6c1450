# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Symbolic profiles of torchvision's models against what the device in front of us takes."""

import importlib.util
from pathlib import Path

import pytest
import torch

import kerf

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def load_benchmark():
    path = Path(__file__).parents[2] / "benchmarks/symbolic_profile/gpu.py"
    spec = importlib.util.spec_from_file_location("symbolic_profile_gpu", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vit_b_16", "shufflenet_v2_x1_0"])
def test_forward_leaves_what_the_profile_says(name):
    pytest.importorskip("torchvision")
    gpu = load_benchmark()
    gpu.warm_up()
    figures, _, unknown = gpu.compare(name, batch=4)
    ours, theirs = figures["forward"]
    assert unknown == []
    assert abs(ours - theirs) <= gpu.TARGETS["forward"] * theirs


@pytest.mark.parametrize("name", ["resnet18", "vit_b_16"])
def test_a_trace_of_a_model_on_the_device_computes_the_same(name):
    pytest.importorskip("torchvision")
    model = load_benchmark().make(name).eval()
    x = torch.randn(2, 3, 224, 224, device="cuda")
    gm = kerf.symbolic_trace(model, meta_args={"x": x})
    kerf.symbolic_profile(gm, x)
    with torch.no_grad():
        torch.testing.assert_close(gm(x), model(x), rtol=1e-3, atol=1e-3)
