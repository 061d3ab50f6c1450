# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The batch as a symbol: found, named, or given up with a reason."""

import pytest
import reference
import torch
import torch.nn as nn

from kerf._batch import find_batch
from kerf._symbols import evaluate


class Call(nn.Module):
    """A module around a function of (module, inputs...)."""

    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function
        self.eval()

    def forward(self, *args):
        return self.function(self, *args)


def shapes(function, *args, **options):
    graph = reference.record(Call(function), args, **options).graph
    return [i["shape"] for i in graph.inputs], graph


def test_inputs_that_share_their_first_dimension_share_the_symbol():
    sizes, graph = shapes(
        lambda m, x, y: (m.linear(x), y.sum(1)), torch.zeros(3, 4), torch.zeros(3, 9)
    )
    assert sizes == [["B", 4], ["B", 9]]
    assert graph.example_batch == 3
    assert not graph.notes


def test_an_input_of_another_size_is_not_batched():
    x, table = torch.zeros(3, 4), torch.zeros(7, 4)
    sizes, _ = shapes(lambda m, x, t: m.linear(x) + t.sum(0), x, table)
    assert sizes == [["B", 4], [7, 4]]


def test_example_of_one_sample_has_a_batch():
    sizes, graph = shapes(lambda m, x: m.linear(x), torch.zeros(1, 4))
    assert sizes == [["B", 4]]
    assert graph.example_batch == 1


def test_a_slice_of_a_larger_tensor_is_an_ordinary_example():
    sizes, graph = shapes(lambda m, x: m.linear(x), torch.zeros(3, 8)[:, :4])
    assert sizes == [["B", 4]]
    assert graph.inputs[0]["strides"] == [4, 1]


def test_comparison_with_a_number_makes_the_graph_static_and_says_where():
    def fixed(m, x):
        return m.linear(x) if x.shape[0] == 2 else x

    sizes, graph = shapes(fixed, torch.zeros(2, 4))
    assert sizes == [[2, 4]]
    assert graph.is_static
    line = fixed.__code__.co_firstlineno + 1
    assert f"dim 0 of args.0 is fixed to 2 at test_trace_batch.py:{line}" in graph.notes[0].replace(
        __file__, "test_trace_batch.py"
    ).replace("tests/python/", "")


def test_what_is_fixed_for_an_example_of_one_sample_is_fixed_to_one():
    """One sample is traced as two; a graph of a fixed size has to be one of the example's."""
    sizes, graph = shapes(lambda m, x: m.linear(x) if x.shape[0] == 2 else x, torch.zeros(1, 4))
    assert sizes == [[1, 4]]
    assert graph.num_nodes == 0
    assert graph.notes[0].startswith("batch is static: dim 0 of args.0 is fixed to 2 at ")


def test_an_input_that_is_fixed_alone_leaves_the_others_their_batch():
    def forward(m, x, mask):
        return m.linear(x) * mask.view(2, 2, 2).sum()

    sizes, graph = shapes(forward, torch.zeros(2, 4), torch.zeros(2, 4))
    assert sizes == [["B", 4], [2, 4]]
    assert "dim 0 of args.1 is fixed to 2" in graph.notes[0]


def test_limits_of_the_batch_are_conditions():
    _, graph = shapes(lambda m, x: m.linear(x).view(-1, 2, 4), torch.zeros(4, 4))
    assert graph.violation(3) is not None and graph.violation(6) is None
    model = Call(lambda m, x: x + m.table[: x.shape[0]])
    model.register_buffer("table", torch.zeros(16, 4))
    graph = reference.record(model, torch.zeros(4, 4)).graph
    assert [c["text"] for c in graph.conditions] == ["B <= 16"]


def test_batch_dims_override_the_guess():
    x = torch.zeros(7, 2, 4)
    sizes, _ = shapes(lambda m, x: m.linear(x), x, batch_dims=1)
    assert sizes == [[7, "B", 4]]
    sizes, graph = shapes(lambda m, x: m.linear(x), x, batch_dims={})
    assert sizes == [[7, 2, 4]]
    assert graph.is_static
    pair = (torch.zeros(2, 4), torch.zeros(2, 4))
    sizes, _ = shapes(lambda m, x, y: m.linear(x) + y.sum(0), *pair, batch_dims={"0": 0})
    assert sizes == [["B", 4], [2, 4]]


@pytest.mark.parametrize(
    ("batch_dims", "message"),
    [
        ({"nothing": 0}, "names 'nothing'"),
        ({"x": 2}, "dimension 2"),
        ({"x": 0, "y": 1}, "sizes that differ"),
    ],
)
def test_wrong_batch_dims_are_refused_by_name(batch_dims, message):
    tensors = [torch.zeros(2, 3), torch.zeros(2, 3)]
    with pytest.raises(ValueError, match=message):
        find_batch(tensors, ["kwargs.x", "kwargs.y"], batch_dims)


def test_contrastive_logits_carry_the_batch_twice():
    import models

    model, args, kwargs = models.build("clip")
    graph = reference.record(model, args, kwargs).graph
    logits = next(o for o in graph.outputs if o["path"] == "logits_per_image")
    assert logits["value"]["shape"] == ["B", "B"]


def test_recurrent_state_carries_the_batch_in_dimension_one():
    import models

    model, args, kwargs = models.build("lstm")
    graph = reference.record(model, args, kwargs).graph
    sizes = {o["path"]: o["value"]["shape"] for o in graph.outputs}
    assert sizes == {"logits": ["B", 8, 99], "state.0": [2, "B", 24], "state.1": [2, "B", 24]}


def test_sizes_in_the_result_follow_the_batch():
    recording = reference.record(
        Call(lambda m, x: {"y": m.linear(x), "rows": 2 * x.shape[0]}), torch.zeros(2, 4)
    )
    assert recording.run(torch.zeros(5, 4))["rows"] == 10


@pytest.mark.parametrize(
    "text", ["__import__('os')", "B.real", "B**9**9", "2**B**60", "max(B)", "1.5"]
)
def test_expressions_in_files_are_arithmetic_only(text):
    with pytest.raises(ValueError):
        evaluate(text, 3)


def test_expressions_are_evaluated_as_python_does():
    assert evaluate("max(2*B+1, (B-7)//2)", 3) == 7
    assert evaluate("-7//2 + B**2 % 4", 3) == -3
