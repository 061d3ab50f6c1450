# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of another dtype than the model's are converted where their weights go."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_model
from torch import nn

import kerf

DTYPES = [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)]


def stack(dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)], nn.BatchNorm1d(64))
    return model.to(dtype).eval()


def total_bytes(model):
    return sum(p.nbytes for p in model.parameters())


@pytest.mark.parametrize(("stored", "wanted"), DTYPES)
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_checkpoint_of_another_dtype_is_the_models_own(stored, wanted, is_empty, tmp_path):
    expected = stack(stored)
    save_model(expected, str(tmp_path / "model.safetensors"))
    expected.to(wanted)
    if is_empty:
        with kerf.empty_weights():
            model = stack(wanted)
    else:
        model = stack(wanted, seed=1)
    limit = total_bytes(expected) // 2
    x = torch.randn(4, 64, dtype=wanted)
    with torch.no_grad():
        with pytest.raises(ValueError, match="no file has them in the model's dtype"):
            kerf.place(model, max_memory={"cpu": limit}, checkpoint=tmp_path)
        where = {"cpu": limit, "disk": tmp_path}
        placed = kerf.place(model, max_memory=where, checkpoint=tmp_path)
        assert {u.residence for u in placed.placement.units} == {"resident", "streamed"}
        for _ in range(2):
            assert torch.equal(model(x), expected(x))
        assert all(torch.equal(v, expected.state_dict()[k]) for k, v in model.state_dict().items())
        placed.remove()
        if not is_empty:
            assert torch.equal(model(x), expected(x))
    assert [f.name for f in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_model_that_is_refused_has_the_weights_it_had(tmp_path):
    save_model(stack(torch.bfloat16), str(tmp_path / "model.safetensors"))
    model = stack(seed=1)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    own = [p.data_ptr() for p in model.parameters()]
    with pytest.raises(ValueError, match="does not fit"):
        kerf.place(model, max_memory={"cpu": "4KiB", "disk": tmp_path}, checkpoint=tmp_path)
    model[6].running_var = torch.ones(3)
    with pytest.raises(ValueError, match=r"has '6.running_var' with shape \[64\]"):
        kerf.place(model, max_memory={"cpu": "64KiB", "disk": tmp_path}, checkpoint=tmp_path)
    model[6].running_var = before["6.running_var"].clone()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert [p.data_ptr() for p in model.parameters()] == own


MEMORY = """
import sys
import torch
import kerf
from torch import nn

path, dtype, on_device = sys.argv[1], getattr(torch, sys.argv[2]), sys.argv[3] == "True"
if on_device:
    import pretend
    pretend.register()

def make():  # 24 of 4 MiB each, in float32
    with kerf.empty_weights():
        layers = [nn.Linear(1024, 1024, bias=False, dtype=dtype) for _ in range(24)]
        return nn.Sequential(*layers).eval()

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(s.split()[1]) / 1024 for s in lines if s.startswith(key + ":"))

def place_and_run(model):
    x = torch.randn(2, 1024, dtype=dtype)
    memory = {0: "20MiB"} if on_device else {"cpu": "20MiB"}
    placed = kerf.place(model, max_memory={**memory, "disk": path}, checkpoint=path)
    for _ in range(2):
        placed(x)
    return placed

# What PyTorch loads of itself the first time is not counted.
place_and_run(make()).remove()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak is measured from here on
before = status("VmRSS")
placed = place_and_run(make())
print(status("VmHWM") - before)
"""


@pytest.mark.parametrize(("stored", "wanted"), DTYPES)
@pytest.mark.parametrize("on_device", [False, True])
def test_converting_takes_no_more_memory_than_planned(stored, wanted, on_device, tmp_path):
    layers = [nn.Linear(1024, 1024, bias=False, dtype=stored) for _ in range(24)]
    save_model(nn.Sequential(*layers), str(tmp_path / "model.safetensors"))
    arguments = [str(tmp_path), str(wanted).removeprefix("torch."), str(on_device)]
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=child_environment(),
    )
    assert done.returncode == 0, done.stderr
    done_mib = float(done.stdout)
    total = 96 if wanted == torch.float32 else 48  # MiB
    pinned = total - 20 if on_device else 0
    unit = total / 24
    assert done_mib < 20 + pinned + unit + 16


def child_environment():
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}
