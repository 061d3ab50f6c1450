# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What crosses a cut or leaves a pipeline has the shape that the graph says, or the call fails."""

import pytest
import torch
import torch.nn as nn
from comparing import hand_plan

import kerf
from kerf import _core


class Squeezed(nn.Module):
    """At one sample its hidden value loses the batch, and broadcasts silently from there on."""

    def __init__(self):
        super().__init__()
        self.scale, self.bias = nn.Linear(8, 1), nn.Linear(8, 8)

    def forward(self, x):
        return self.bias(x) + self.scale(x).squeeze().unsqueeze(-1)


class Ends(Squeezed):
    def forward(self, x):
        return self.scale(x).squeeze()


class Odd(nn.Module):
    """An opaque block whose result loses its batch for some inputs."""

    def forward(self, x):
        return x[0] if float(x.sum()) < -1e6 else x * 2


def unconditional(graph):
    """The graph without the conditions on its batch: what is left to see is the shape."""
    lines = graph.text().splitlines(keepends=True)
    return _core.parse_graph("".join(n for n in lines if not n.startswith("require ")))


def pipeline(model, **options):
    graph = unconditional(kerf.trace(model.eval(), (torch.randn(4, 8),), **options))
    stages = [[i] for i in range(graph.num_nodes)]
    plan = hand_plan(graph, stages, ["cpu:0", "cpu:1"], batch=4)
    return kerf.Pipeline(model, plan, graph=graph)


@pytest.mark.parametrize("model", [Squeezed, Ends])
def test_a_shape_that_one_row_changes_is_refused(model):
    model, x = model(), torch.randn(4, 8)
    pipe = pipeline(model)
    torch.testing.assert_close(pipe(x), model(x))
    with pytest.raises(RuntimeError, match="squeeze"):
        pipe(x[:1])


def test_the_message_names_value_place_and_shapes():
    pipe = pipeline(Ends())
    with pytest.raises(RuntimeError) as caught:
        pipe(torch.randn(1, 8))
    text = str(caught.value)
    for part in ("squeeze", "test_border_shapes.py", "is f32[]", "expected f32[1]", "f32[B]"):
        assert part in text, text


def test_a_block_whose_result_has_another_shape_is_refused():
    model = nn.Sequential(nn.Linear(8, 8), Odd(), nn.Linear(8, 8)).eval()
    pipe = pipeline(model, basic_blocks=[Odd])
    x = torch.randn(4, 8)
    torch.testing.assert_close(pipe(x), model(x))
    with torch.no_grad():
        model[0].bias.fill_(-1e7)
    with pytest.raises(RuntimeError, match=r"is f32\[8\].*expected f32\[4, 8\]"):
        pipe(x)
