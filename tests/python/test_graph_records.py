# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Conditions and attributes of a graph, as Python sees and makes them."""

import pytest

from kerf import _core


def build(conditions=(), attributes=()):
    builder = _core.Capture("m", False)
    builder.set_batch(4)
    for condition in conditions:
        builder.add_condition(*condition)
    for attribute in attributes:
        builder.add_attribute(*attribute)
    return builder.finish()


def test_a_graph_says_its_conditions_and_which_a_batch_violates():
    graph = build([("B % 2", "==", 0, "m.py:3"), ("B", "<=", 8), ("B%2", "==", 0, "m.py:9")])
    assert [c["text"] for c in graph.conditions] == ["(B%2) == 0", "B <= 8"], "each once"
    assert graph.conditions[0]["source"] == "m.py:3"
    assert graph.violation(6) is None
    assert "m.py:3" in graph.violation(5)
    assert "B <= 8" in graph.violation(10)
    again = _core.parse_graph(graph.text())
    assert again == graph and again.hash == graph.hash
    assert again.hash != build().hash


def test_a_graph_says_the_attributes_that_were_read():
    values = [None, True, 3, 1e-5, "gelu", [1, [2.5, "x"]]]
    graph = build(attributes=[("encoder.0", f"a{i}", v) for i, v in enumerate(values)])
    assert [a["value"] for a in graph.attributes] == values
    assert {a["path"] for a in graph.attributes} == {"encoder.0"}
    assert _core.parse_graph(graph.text()) == graph
    assert graph.hash == build().hash


def test_a_condition_needs_a_relation_that_is_known():
    with pytest.raises(ValueError, match="relation '>'"):
        build([("B", ">", 2)])
