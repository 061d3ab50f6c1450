# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Every operator that has a rule, in many forms: what it keeps for backward, exactly."""

import contextlib
import gc
import weakref

import pytest
import torch
from saved_forms import FORMS
from torch import nn

import kerf
from kerf import _core


class Form(nn.Module):
    def __init__(self, function, trainable, dtype):
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList((torch.rand(16, 8) + 0.5).to(dtype) for _ in range(3))
        for weight, flag in zip(self.weights, trainable, strict=True):
            weight.requires_grad_(flag)

    def forward(self, x):
        # Results of operators, so that what is kept is no parameter.
        return self.function(*[x + weight for weight in self.weights])


class Forms(nn.Module):
    """Each with tensors of its own, so that one trace serves them all."""

    def __init__(self, forms):
        super().__init__()
        self.forms = nn.ModuleList(forms)

    def forward(self, x):
        return [form(x) for form in self.forms]


class _Kept:
    def __init__(self, tensor):
        self.tensor = tensor.detach()


def kept_by_form(model, x):
    own = {t.untyped_storage().data_ptr() for t in model.parameters()}
    kept = []

    def pack(tensor):
        entry = _Kept(tensor)
        kept.append((len(results), weakref.ref(entry)))
        return entry

    results = []
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda entry: entry.tensor):
        for form in model.forms:
            results.append(form(x))
    gc.collect()
    storages = [{} for _ in model.forms]
    for form, entry in kept:
        if entry() is not None:
            storage = entry().tensor.untyped_storage()
            storages[form][storage.data_ptr()] = storage.nbytes()
    return [sum(size for place, size in row.items() if place not in own) for row in storages]


def predicted_by_form(graph, number):
    saved = _core.saved_sets(graph, accelerator=False)
    assert saved["ops_without_rule"] == []
    kinds = {weight["storage"]: weight["kind"] for weight in graph.weights}
    own = [0] * number
    storages = [{} for _ in range(number)]
    for node, row in zip(graph.nodes, saved["by_node"], strict=True):
        form = int(node["scope"].split(".")[1])
        for name, storage, size in row:
            if name is None:
                own[form] += size
            elif kinds.get(storage, "constant") == "constant":
                storages[form][storage] = size
    return [bytes + sum(row.values()) for bytes, row in zip(own, storages, strict=True)]


def _runs(function, trainable, dtype):
    """Some have no kernel for a dtype, or no gradient for one of their arguments."""
    with contextlib.suppress(RuntimeError, NotImplementedError):
        Form(function, trainable, dtype)(torch.rand(16, 8).to(dtype))
        return True
    return False


@pytest.mark.parametrize(
    ("dtype", "trainable"),
    [
        (torch.float32, (True, True, True)),
        (torch.float32, (True, False, False)),
        (torch.float32, (False, True, False)),
        (torch.float64, (True, True, True)),
        (torch.bfloat16, (True, True, False)),
    ],
)
def test_forms_of_operators_keep_what_pytorch_keeps(dtype, trainable):
    torch.manual_seed(0)
    names = [name for name, function in FORMS.items() if _runs(function, trainable, dtype)]
    assert len(names) > 0.9 * len(FORMS)
    model = Forms([Form(FORMS[name], trainable, dtype) for name in names]).train()
    x = torch.rand(16, 8).to(dtype)
    kept = kept_by_form(model, x)
    predicted = predicted_by_form(kerf.trace(model, (x,)), len(names))
    wrong = {n: (k, p) for n, k, p in zip(names, kept, predicted, strict=True) if k != p}
    # What PyTorch keeps, and what the rules say.
    assert not wrong, "\n".join(f"{name}: {bytes}" for name, bytes in wrong.items())
