# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The units of a placed model: what modules take, found in one walk through the model."""

import gc
import random

import pytest
import torch
from torch import nn

import kerf
from kerf import _units


class Node(nn.Module):
    """Weights of its own, shared ones, and modules inside, some of them in several places."""

    def __init__(self, chance, depth, shared_weights, shared_modules):
        super().__init__()
        for number in range(chance.randrange(3)):
            own = nn.Parameter(torch.ones(chance.randrange(200)))
            if shared_weights and chance.random() < 0.3:
                own = chance.choice(shared_weights)
            shared_weights.append(own)
            self.register_parameter(f"own{number}", own)
        for number in range(chance.randrange(4) if depth else 0):
            module = Node(chance, depth - 1, shared_weights, shared_modules)
            if shared_modules and chance.random() < 0.2:
                module = chance.choice(shared_modules)
            shared_modules.append(module)
            self.add_module(f"child{number}", module)


@pytest.mark.parametrize("seed", range(30))
def test_sizes_are_those_of_each_modules_parameters(seed):
    model = Node(random.Random(seed), 5, [], [])
    sizes = _units.WeightSizes(model)
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), set()).add(name.rpartition(".")[0])
    assert set(sizes.ties) == {i for i, found in names.items() if len(found) > 1}
    for module in model.modules():
        parameters = list(module.parameters())
        assert sizes.bytes_of(module) == _units.unit_bytes(parameters)
        assert [id(p) for p in sizes.parameters(module)] == [id(p) for p in parameters]


@pytest.mark.parametrize("seed", range(30))
def test_units_have_all_parameters_and_none_is_too_large_that_could_be_opened(seed):
    model = Node(random.Random(seed), 5, [], [])
    total = _units.unit_bytes(list(model.parameters()))
    for largest in (0, total // 9, total // 3, total):
        units = _units.find_units(model, largest)
        assert {id(p) for u in units for p in u.parameters} == set(map(id, model.parameters()))
        for unit in units:
            assert unit.bytes == _units.unit_bytes(unit.parameters)
            is_leaf = not list(unit.module.children())
            assert unit.stays or is_leaf or unit.bytes <= largest


def test_a_model_is_gone_through_once_however_deep_it_is(monkeypatch):
    looks = []
    look = _units._own_parameters
    monkeypatch.setattr(_units, "_own_parameters", lambda m: looks.append(1) or look(m))
    model = nn.Linear(2, 2)
    for _ in range(100):
        model = nn.Sequential(model, nn.Linear(2, 2))
    sizes = _units.WeightSizes(model)
    for largest in (0, 1000, 10000):
        _units.find_units(model, largest, (), sizes)
    assert len(looks) == sum(1 for _ in model.modules())


def test_weights_that_overlap_are_tied_and_neighbours_in_one_memory_are_not():
    memory = torch.ones(100)
    model = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    model[0].bias.data, model[1].bias.data = memory[:2], memory[2:4]
    assert _units.WeightSizes(model).ties == {}
    model[2].bias.data, model[2].weight.data = memory[3:5], memory[:12].view(2, 6)[:, ::3]
    tied = (model[0].bias, model[1].bias, model[2].bias, model[2].weight)
    ties = _units.WeightSizes(model).ties
    assert set(ties) == set(map(id, tied)) and len(set(ties.values())) == 1


def test_sizes_that_give_the_same_units_are_left_out(monkeypatch):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)) for _ in range(50)])
    sizes = _units.WeightSizes(model)
    made = []
    part_of = _units.part_of
    monkeypatch.setattr(_units, "part_of", lambda *a: made.append(a[0]) or part_of(*a))
    largest = [sizes.bytes_of(model) // share for share in (1, 2, 3, 5, 10, 60, 70, 75, 80, 1000)]
    found = list(_units.units_by_size(model, largest, (), sizes))
    forms = [[unit.path for unit in units] for units in found]
    alone = [[u.path for u in _units.find_units(model, size, (), sizes)] for size in largest]
    assert forms == list(map(list, dict.fromkeys(map(tuple, alone))))
    assert len(forms) == 2 and len(made) == len(set(made)) == 150


def test_placing_looks_at_each_unit_once(tmp_path, monkeypatch):
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(500)])
    limits = {"cpu": 40_000, "disk": tmp_path}
    looks = []
    part_of = _units.part_of
    monkeypatch.setattr(_units, "part_of", lambda *a: looks.append(a[0]) or part_of(*a))
    kerf.place(model, max_memory=limits).remove()
    assert len(looks) == 500
    assert gc.isenabled()
