# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Symbolic traces without samples: what nothing is known of is in the graph, or refused."""

import copy
import random

import numpy
import pytest
import torch
import torch.nn.functional as F
from given_code import Model, x
from torch import nn

from kerf import ExportError
from kerf.symbolic import GuardError, symbolic_trace


def agrees(forward, **attributes):
    """The second call is as good as the first, and the model is as it was."""
    model = Model(forward, **attributes)
    twin, before = copy.deepcopy(model), vars(model).keys()
    gm = symbolic_trace(model)
    assert vars(model).keys() == before
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert list(gm.state_dict()) == list(twin.state_dict())
    for batch in (4, 4, 3):
        given, found = x(batch), []
        for module in (twin, gm):
            torch.manual_seed(0)
            found.append(module(given))
        torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    return gm


def writes_a_buffer(model, x):
    model.steps.add_(1)
    return model.linear(x) * model.steps


def writes_a_new_tensor(model, x):
    made = torch.zeros(8)
    made += x.sum()
    made.add_(1)
    return model.linear(x) + made


@pytest.mark.parametrize(
    "forward",
    [
        writes_a_buffer,
        writes_a_new_tensor,
        lambda model, x: model.linear(x) + torch.rand(8) * torch.arange(8),
        lambda model, x: model.linear(x) * model.outside * model.part.outside,
    ],
)
def test_what_no_input_goes_into_is_computed_at_each_call(forward):
    part = Model(forward, outside=torch.full((8,), 3.0))
    agrees(forward, steps=nn.Buffer(torch.ones(8)), outside=torch.full((8,), 2.0), part=part)


def counts(model, x):
    model.calls += 1
    return model.linear(x) * model.calls


def writes_outside(model, x):
    model.outside.add_(1)
    return model.linear(x) * model.outside


def catches(model, x):
    try:
        return x * int(x.sum())
    except Exception:
        return x


@pytest.mark.parametrize(
    "forward, said",
    [
        (counts, "attribute 'calls'"),
        (writes_outside, r"writes into a tensor .*test_symbolic_plain.py:\d+"),
        (lambda model, x: model.linear(x) * random.random(), "draws numbers from random"),
        (lambda model, x: model.linear(x) * numpy.random.rand(), "draws numbers from numpy.random"),
        (lambda model, x: model.linear(x) * float(model.steps), "reads numbers"),
        (lambda model, x: model.linear(x) * len(x), "reads numbers .*; pass meta_args"),
        (lambda model, x: nn.Dropout(0.5)(x), "has not registered"),
        (catches, "reads numbers"),
    ],
)
def test_what_a_graph_would_lose_is_refused(forward, said):
    outside = torch.ones(8)
    model = Model(forward, calls=0, steps=nn.Buffer(torch.ones(())), outside=outside)
    with pytest.raises(ExportError, match=said):
        symbolic_trace(model)
    assert model.calls == 0 and outside.sum() == 8


def test_the_mode_is_guarded_where_it_is_read():
    gm = agrees(lambda model, x: F.dropout(model.linear(x), 0.5, model.training))
    with pytest.raises(GuardError, match=r"traced in train mode.*test_symbolic_plain.py:\d+"):
        gm.eval()(x())


class Optional(nn.Module):
    def forward(self, x, mask=None, scale=2.0, mode="sum"):
        y = x if mask is None else x * mask
        return (y * scale).sum(0) if mode == "sum" else y * scale


def test_what_is_left_out_or_concrete_is_guarded():
    model, given = Optional(), x()
    gm = symbolic_trace(model, concrete_args={"mode": "none"})
    torch.testing.assert_close(gm(given, mode="none"), model(given, mode="none"))
    torch.testing.assert_close(gm(given, scale=3.0, mode="none"), given * 3)
    with pytest.raises(GuardError, match="mode is 'sum'"):
        gm(given)
    with pytest.raises(GuardError, match="mask is tensor"):
        gm(given, mask=given, mode="none")


def test_hooks_of_the_whole_model_ask_for_samples():
    model = Model(lambda model, x: model.linear(x))
    model.register_forward_hook(lambda module, given, out: out * 2)
    with pytest.raises(ExportError, match="has hooks, .*; pass meta_args"):
        symbolic_trace(model)
