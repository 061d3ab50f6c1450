# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Any order the graph's edges allow gives the same numbers; without order edges it does not."""

import pytest
from comparing import (
    assert_same,
    eager,
    hand_plan,
    kept_state,
    random_stages,
)
from models import FLOOR, build

import kerf
from kerf import _core

ORDERS = 4


def run_reordered(model, args, kwargs, graph, seed, order_edges):
    order = _core.random_order(graph, seed, order_edges)
    shuffled = _core.reorder(graph, order)
    plan = hand_plan(shuffled, random_stages(shuffled, 3, seed), ["cpu:0", "cpu:1"])
    with kerf.Pipeline(model, plan, graph=shuffled) as pipe, kept_state(model):
        return pipe(*args, **kwargs)


@pytest.mark.parametrize("name", FLOOR)
def test_random_orders_cut_at_random_places_equal_the_model(name):
    model, args, kwargs = build(name)
    graph = kerf.trace(model, args, kwargs)
    expected = eager(model, args, kwargs)
    for seed in range(ORDERS):
        assert_same(run_reordered(model, args, kwargs, graph, seed, True), expected)


# In a plain ResNet every in-place operator is the only reader of what it overwrites, so that data
# edges alone keep it in place; these have other readers.
IN_PLACE = ["gated_resnet", "slice_writer", "view_writer"]


@pytest.mark.parametrize("name", IN_PLACE)
def test_without_order_edges_in_place_models_fail(name):
    model, args, kwargs = build(name)
    graph = kerf.trace(model, args, kwargs)
    assert graph.order_edges
    expected = eager(model, args, kwargs)
    wrong = 0
    for seed in range(12):
        try:
            assert_same(run_reordered(model, args, kwargs, graph, seed, False), expected)
        except (AssertionError, RuntimeError, ValueError):
            wrong += 1
    assert wrong, "the test of reordering could not fail"
