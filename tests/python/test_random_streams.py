# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers in a pipeline follow the seed, never the cut or the order of stages."""

import pytest
import torch
import torch.nn as nn
from comparing import hand_plan, random_stages

import kerf


class Draws(nn.Module):
    """Operators that take a generator, and operators that do not."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        kept = torch.bernoulli(torch.sigmoid(self.a(x)))
        noise = torch.rand_like(x) + torch.empty_like(x).uniform_()
        dropped = nn.functional.dropout(self.b(x), 0.5, training=True)
        return kept + noise + dropped + torch.multinomial(torch.softmax(x, -1), 1)


@pytest.fixture(scope="module")
def drawing():
    model = Draws().eval()
    return model, kerf.trace(model, (torch.randn(4, 8),))


def run(drawing, count, devices, seed):
    model, graph = drawing
    plan = hand_plan(graph, random_stages(graph, count, seed=count), devices, 1, batch=4)
    pipe = kerf.Pipeline(model, plan, graph=graph)
    torch.manual_seed(seed)
    return pipe(torch.ones(4, 8))


def test_numbers_follow_the_seed_and_not_the_cut(drawing):
    assert sum(n["random"] for n in drawing[1].nodes) >= 4
    expected = run(drawing, 1, ["cpu:0"], seed=3)
    for count in 2, 3, 4:
        assert torch.equal(run(drawing, count, ["cpu:0", "cpu:1"], seed=3), expected)
    assert not torch.equal(run(drawing, 2, ["cpu:0", "cpu:1"], seed=4), expected)


def test_a_call_leaves_the_callers_stream_one_number_on(drawing):
    model, graph = drawing
    plan = hand_plan(graph, random_stages(graph, 3, seed=1), ["cpu:0", "cpu:1"])
    pipe = kerf.Pipeline(model, plan, graph=graph)
    torch.manual_seed(5)
    first = pipe(torch.ones(4, 8))
    after = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(pipe(torch.ones(4, 8)), first)
    assert torch.equal(torch.rand(3), after)
