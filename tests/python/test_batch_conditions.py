# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What a trace decided about its batch is part of the graph: other batches are refused by name.

A model is traced at one batch and called with others, in one piece and in micro-batches: each call
gives the model's answer, or is refused with the condition and the model's line.
"""

import math

import pytest
import torch
from small import Around

import kerf


def rows(batch):
    torch.manual_seed(batch)
    return torch.randn(batch, 4)


def answer(model, graph, x, parts=1):
    """What a pipeline gives, or the message of its refusal."""
    try:
        plan = kerf.plan(graph, devices="cpu:2", n_microbatches=parts, batch=len(x))
        return kerf.Pipeline(model, plan, graph=graph)(x)
    except ValueError as error:
        return str(error)


def eager(model, x):
    """What the model gives; None when it fails."""
    try:
        with torch.no_grad():
            return model(x)
    except (RuntimeError, IndexError):
        return None


def pipeline(model, graph, parts):
    """One that was planned for some batch; None when there is no plan with so many parts."""
    for batch in range(parts, 20):
        try:
            plan = kerf.plan(graph, devices="cpu:2", n_microbatches=parts, batch=batch)
            return kerf.Pipeline(model, plan, graph=graph)
        except (ValueError, NotImplementedError):
            continue
    return None


def holds_up(model, traced_at, batches=(1, 2, 3, 4, 5, 8, 16), parts=(1, 2)):
    """Every call is right or refused; the batches that ran in one piece."""
    graph = kerf.trace(model, rows(traced_at))
    ran = []
    for n in parts:
        # One pipeline for all batches: it has to refuse by itself.
        pipe = pipeline(model, graph, n)
        for batch in batches if pipe is not None else ():
            x = rows(batch)
            expected = eager(model, x)
            try:
                got = pipe(x)
            except (ValueError, NotImplementedError) as error:
                assert str(error).startswith("["), error
                continue
            assert expected is not None, "the model fails on this batch"
            assert got.shape == expected.shape
            torch.testing.assert_close(got, expected)
            if n == 1:
                ran.append(batch)
    assert traced_at in ran
    return ran


CASES = {
    "a loop over parts": (lambda f, x: torch.cat([f(c) for c in x.split(2)]), 4, [3, 4]),
    "a branch": (lambda f, x: f(x) if x.shape[0] > 2 else -f(x), 4, [3, 4, 5, 8, 16]),
    "the other branch": (lambda f, x: f(x) if x.shape[0] > 4 else -f(x), 3, [1, 2, 3, 4]),
    "a range": (lambda f, x: f(x) + sum(range(x.shape[0] // 2)), 4, [4, 5]),
    "elements": (lambda f, x: f(x) if x.numel() < 20 else -f(x), 4, [1, 2, 3, 4]),
    "a remainder": (lambda f, x: f(x) if x.size(0) % 3 == 1 else -f(x), 4, [1, 4, 16]),
    "not a number": (lambda f, x: -f(x) if x.shape[0] == 5 else f(x), 4, [1, 2, 3, 4, 8, 16]),
    "a table": (lambda f, x: f(x) + torch.ones(6, 4)[: x.shape[0]], 4, [1, 2, 3, 4, 5]),
    "a slice": (lambda f, x: f(x[:8]), 4, [1, 2, 3, 4, 5]),
    "an element": (lambda f, x: f(x) + x[3], 4, [4, 5, 8, 16]),
    "pairs": (lambda f, x: f(x).view(-1, 2, 4).sum(1), 4, [2, 4, 8, 16]),
    "an average": (lambda f, x: f(x) / 2 if x.shape[0] / 2 > 1.5 else f(x), 4, [4, 5, 8, 16]),
    "a check": (lambda f, x: (torch._check(x.shape[0] <= 8), f(x))[1], 4, [1, 2, 3, 4, 5, 8]),
    "a length": (lambda f, x: f(x) * len(x), 4, [4]),
    "an integer": (lambda f, x: f(x) * int(x.shape[0]), 4, [4]),
    "a float": (lambda f, x: f(x) / math.sqrt(x.shape[0]), 4, [4]),
    "a power": (lambda f, x: f(x) / x.shape[0] ** 0.5, 4, [4]),
    "a text": (lambda f, x: f(x) * len(f"{x.shape[0]}"), 4, [4]),
    "a key": (lambda f, x: f(x) * {4: 2.0}.get(x.shape[0], 1.0), 4, [4]),
    "a batch of one": (lambda f, x: -f(x) if x.shape[0] == 1 else f(x), 4, [2, 3, 4, 5, 8, 16]),
    "squeeze": (lambda f, x: f(x).squeeze(), 4, [2, 3, 4, 5, 8, 16]),
    "squeeze the batch": (lambda f, x: f(x).squeeze(0), 4, [2, 3, 4, 5, 8, 16]),
    "squeeze another": (
        lambda f, x: f(x).unsqueeze(1).squeeze(1),
        4,
        [1, 2, 3, 4, 5, 8, 16],
    ),
    "nothing": (lambda f, x: f(x).relu(), 4, [1, 2, 3, 4, 5, 8, 16]),
    "an order": (lambda f, x: f(x) * torch.arange(x.shape[0])[:, None], 4, None),
}


@pytest.mark.parametrize("name", CASES)
def test_every_batch_is_right_or_refused(name):
    function, traced_at, expected = CASES[name]
    ran = holds_up(Around(function), traced_at, parts=(1,) if expected is None else (1, 2))
    assert expected is None or ran == expected


@pytest.mark.parametrize("name", ["a batch of one", "squeeze", "squeeze the batch", "a branch"])
def test_an_example_of_one_row_gives_what_the_model_gives(name):
    function = CASES[name][0]
    assert 1 in holds_up(Around(function), 1, batches=(1, 2, 4), parts=(1,))


def test_a_model_without_branches_is_symbolic_for_an_example_of_one_row():
    graph = kerf.trace(Around(lambda f, x: f(x).relu()), rows(1))
    assert not graph.is_static
    assert graph.conditions == []


def test_a_refusal_names_the_condition_and_the_line_of_the_model():
    model = Around(lambda f, x: f(x) if x.shape[0] > 2 else -f(x))
    graph = kerf.trace(model, rows(4))
    (condition,) = graph.conditions
    assert condition["text"] == "2 < B"
    assert "test_batch_conditions.py" in condition["source"]
    assert "a batch of 2, but " in answer(model, graph, rows(2))
    assert "test_batch_conditions.py" in answer(model, graph, rows(2))
    assert "a micro-batch of 2" in answer(model, graph, rows(4), parts=2)
    assert isinstance(answer(model, graph, rows(6), parts=2), torch.Tensor)


def test_a_plan_whose_micro_batches_violate_a_condition_is_refused():
    graph = kerf.trace(Around(lambda f, x: f(x).squeeze()), rows(4))
    with pytest.raises(ValueError, match=r"\[plan.problem\] a micro-batch of 1, but"):
        kerf.plan(graph, devices="cpu:2", n_microbatches=4)
    assert kerf.plan(graph, devices="cpu:2", n_microbatches=2) is not None


def test_conditions_are_part_of_the_file(tmp_path):
    model = Around(lambda f, x: torch.cat([f(c) for c in x.split(2)]))
    graph = kerf.trace(model, rows(4))
    graph.save(tmp_path / "m.graph")
    loaded = kerf.load_graph(tmp_path / "m.graph")
    assert loaded.conditions == graph.conditions != []
    assert "a batch of 16" in answer(model, loaded, rows(16))


def test_a_condition_that_is_no_relation_of_whole_numbers_makes_the_batch_static():
    graph = kerf.trace(Around(lambda f, x: f(x) if x.shape[0] ** 0.5 < 5 else -f(x)), rows(4))
    assert graph.is_static
    assert "batch is static" in graph.notes[0] and "test_batch_conditions.py" in graph.notes[0]


def test_two_inputs_have_one_batch():
    class Two(torch.nn.Module):
        def forward(self, x, y):
            return x + y if y.shape[0] > 2 else x - y

    graph = kerf.trace(Two(), (rows(4), rows(4)))
    assert [c["text"] for c in graph.conditions] == ["2 < B"]
