# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``gm.to_folder``: a traced module as source that another process imports."""

import copy
import os
import pickle
import subprocess
import sys
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import kerf
from kerf.symbolic import symbolic_trace

CONSTANT = torch.arange(8.0)


class Two(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Many(nn.Module):
    """Of each kind of thing that generated source refers to one."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 8)
        self.head = nn.Linear(8, 8, bias=False)
        self.head.weight = self.table.weight
        self.norm = nn.BatchNorm1d(8)
        self.norm.bias.requires_grad_(False)
        self.register_buffer("scale", torch.rand(8))
        self.register_buffer("hidden", torch.rand(8), persistent=False)
        self.unused = nn.Linear(2, 2)

    def forward(self, ids, factor=2.0):
        x = self.norm(self.table(ids)) * self.scale + self.hidden
        if ids.shape[0] > 1:
            x = x + CONSTANT * factor
        x = checkpoint(lambda x: self.head(x).clamp(max=float("inf")), x, use_reentrant=False)
        return Two(Doubled.apply(x), torch.ones(2, device=torch.device("cpu")))


CHECK = """
import sys, torch
from written.module import Many
given, expected, names = torch.load(sys.argv[1])
model = Many()
assert model.training
assert list(model.state_dict()) == names
assert model.head.weight is model.table.weight
assert not model.norm.bias.requires_grad and model.norm.weight.requires_grad
result = model(given)
assert type(result).__name__ == "Two"
torch.testing.assert_close(tuple(result), expected)
result[0].sum().backward()
assert model.table.weight.grad is not None
try:
    model(given[:1])
except ValueError as error:
    assert "ids.shape[0] > 1 held" in str(error), error
else:
    raise AssertionError("no guard")
"""


def test_a_written_module_is_imported_in_another_process(tmp_path):
    model, ids = Many(), torch.randint(0, 8, (4,))
    gm = symbolic_trace(model, meta_args={"ids": ids}, trace_act_ckpt=True)
    gm.to_folder(tmp_path / "before", "Many")
    os.rename(tmp_path / "before", tmp_path / "written")  # nothing in it says where it is
    names = list(model.state_dict())
    assert list(torch.load(tmp_path / "written" / "state_dict.pt")) == names
    torch.save((ids, tuple(gm(ids)), names), tmp_path / "call.pt")
    path = os.pathsep.join([str(tmp_path), os.path.dirname(__file__), *sys.path])
    command = [sys.executable, "-c", CHECK, str(tmp_path / "call.pt")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})


SCRIPT = """
import dataclasses, sys, torch
from kerf.symbolic import symbolic_trace

@dataclasses.dataclass
class Out:
    last: torch.Tensor

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.__hidden = torch.nn.Linear(8, 8)

    def forward(self, x):
        return Out(self.__hidden(x))

given = torch.ones(2, 8)
gm = symbolic_trace(Net(), meta_args={"x": given})
gm.to_folder("from_script", "Net")
from from_script import Net as Written
assert torch.equal(Written()(given).last, gm(given).last)
"""


def test_a_module_of_a_script_is_written(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    env = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "script.py"], check=True, cwd=tmp_path, env=env)


class Hides(nn.Module):
    """Has parts that it has not registered, as frozen networks of losses are kept."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.parts = [nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.0)]
        self.factors = [nn.Parameter(torch.full((8,), 2.0))]

    def forward(self, x):
        x = self.layer(x)
        for part in self.parts:
            x = part(x)
        return x * self.factors[0]


@pytest.mark.parametrize("split", [False, True])
def test_parts_that_the_model_has_not_registered_are_no_part_of_its_state(tmp_path, split):
    model, given = Hides(), torch.randn(4, 8)
    gm = symbolic_trace(model, meta_args={"x": given}, bias_addition_split=split)
    gm.to_folder(tmp_path / f"hides_{split}", "Written")
    sys.path.insert(0, str(tmp_path))
    written = __import__(f"hides_{split}").Written()
    sys.path.remove(str(tmp_path))
    copies = (copy.copy(gm), copy.deepcopy(copy.deepcopy(gm)), pickle.loads(pickle.dumps(gm)))
    for made in (gm, *copies, written):
        torch.testing.assert_close(made(given), model(given))
        assert list(made.state_dict()) == list(model.state_dict())
        assert len(list(made.parameters())) == 2
    gm.eval()
    assert all(part.training for part in model.parts)
    kerf.symbolic_profile(gm.train(), given)
    assert (
        kerf.profile_table(gm).totals["param"]
        == sum(
            4 * p.numel()
            for p in (*model.parameters(), *model.factors, *model.parts[0].parameters())
        )
        + 4 * 16
    )


class Words(nn.Module):
    """Parts whose names are words of Python."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({name: nn.Linear(8, 8) for name in ("in", "is", "0", "inner")})
        self.parts["global"] = nn.ModuleDict({"for": nn.Linear(8, 8)})
        self.register_parameter("class", nn.Parameter(torch.ones(8)))
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        for name in ("in", "is", "0", "inner"):
            x = self.parts[name](x)
        x = x @ self.parts["in"].weight
        return checkpoint(self.parts["global"]["for"], x, use_reentrant=False) * getattr(
            self, "class"
        )


@pytest.mark.parametrize("options", [{}, {"trace_act_ckpt": True, "bias_addition_split": True}])
def test_names_of_parts_may_be_words_of_python(tmp_path, monkeypatch, options):
    model, given = Words(), torch.randn(2, 8)
    gm = symbolic_trace(model, meta_args={"x": given}, **options)
    folder = f"words_{len(options)}"
    gm.to_folder(tmp_path / folder, "Written")
    monkeypatch.syspath_prepend(tmp_path)
    written = __import__(folder).Written()
    plain = symbolic_trace(model, **options)
    for made in (gm, pickle.loads(pickle.dumps(gm)), copy.deepcopy(gm), written, plain):
        torch.testing.assert_close(made(given), model(given))
        assert list(made.state_dict()) == list(model.state_dict())
    gm.recompile()
    torch.testing.assert_close(gm(given), model(given))


def test_what_cannot_be_written_is_named(tmp_path):
    class Local(nn.Linear):
        pass

    gm = symbolic_trace(nn.Sequential(Local(8, 8)), meta_args={"input": torch.ones(2, 8)})
    gm.to_folder(tmp_path / "traced", "Traced")  # its forward was followed: nothing of it is left
    model = nn.Sequential(nn.Linear(8, 8))
    model[0].hook = lambda x: x
    gm = symbolic_trace(model, meta_args={"input": torch.ones(2, 8)})
    with pytest.raises(TypeError, match=r"\[symbolic.to_folder\] the module holds .*lambda"):
        gm.to_folder(tmp_path / "local")
    with pytest.raises(ValueError, match="module_name is 'my model'"):
        gm.to_folder(tmp_path / "named", "my model")
