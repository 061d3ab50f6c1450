# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Modules in place of operators: what is a block, and that no method cuts one."""

import emit_models
import models
import pytest
import torch
from emitting import assert_as_model, emitted

import kerf
from kerf import _core


@pytest.fixture(scope="module")
def decoder():
    model, args, kwargs = emit_models.make_decoder()
    return model, args, kerf.trace(model, args, kwargs)


def groups(graph):
    return [set(group) for group in graph.glued]


def paths(graph, depth, *basic_blocks):
    return [path for path, _ in _core.find_blocks(graph, depth, list(basic_blocks))]


def test_depths_give_the_documented_blocks(decoder):
    _, _, graph = decoder
    nodes = [node["name"] for node in graph.nodes]
    assert _core.find_blocks(graph, 0, []) == [("", nodes)]
    assert groups(kerf.coarsen(graph, depth=0)) == [set(nodes)]
    assert paths(graph, 1) == ["", "wte", "wpe", "", "h.0", "h.1", "ln_f", "head"]
    second = paths(graph, 2)
    assert {"h.0.ln_1", "h.0.attn", "h.0.mlp"} <= {*second} and "h.0.attn.qkv" not in second
    leaves = paths(graph, -1)
    assert {"h.0.attn.qkv", "h.0.mlp.0", "h.1.attn.out"} <= {*leaves}
    assert leaves == paths(graph, 1000)


def test_basic_blocks_are_named_in_every_way(decoder):
    model, _, graph = decoder
    expected = groups(kerf.coarsen(graph, depth=1))
    for blocks in (
        ["Block"],
        [emit_models.Block],
        ["h.0", "h.1"],
        [lambda path, name: name == "Block"],
        [lambda path, name: path in ("h.0", "h.1")],
    ):
        assert groups(kerf.coarsen(graph, basic_blocks=blocks)) == expected
    one = kerf.coarsen(graph, basic_blocks=[model.h[1]], model=model)
    assert expected[1] in groups(one) and expected[0] not in groups(one)
    lists = kerf.coarsen(graph, basic_blocks=[torch.nn.ModuleList], model=model)
    assert expected[0] | expected[1] in groups(lists)


def test_the_model_itself_may_be_a_block(decoder):
    model, _, graph = decoder
    whole = groups(kerf.coarsen(graph, depth=0))
    for block in (type(model).__name__, type(model), model):
        assert groups(kerf.coarsen(graph, basic_blocks=[block], model=model)) == whole
    assert groups(kerf.coarsen(graph, basic_blocks=[torch.nn.Module], model=model)) != whole


def test_blocks_that_are_not_there_are_refused(decoder):
    _, _, graph = decoder
    with pytest.raises(ValueError, match="names 'Blok'; expected .* did you mean 'Block'"):
        kerf.coarsen(graph, basic_blocks=["Blok"])
    with pytest.raises(ValueError, match="which no module of the model is"):
        kerf.coarsen(graph, basic_blocks=[lambda path, name: False])
    with pytest.raises(ValueError, match="give model="):
        kerf.coarsen(graph, basic_blocks=[torch.nn.Linear(2, 2)])
    with pytest.raises(ValueError, match="depth is -1"):
        kerf.coarsen(graph, depth=-1)
    with pytest.raises(TypeError, match="basic_blocks is 'Block'"):
        kerf.coarsen(graph, basic_blocks="Block")


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("method", [name for name, _ in kerf.methods() if name != "aot"])
def test_no_method_cuts_a_block(method, training):
    model, args, kwargs = emit_models.make_decoder()
    graph = kerf.coarsen(
        kerf.trace(model.train(training), args, kwargs), basic_blocks=["Attention", "Sequential"]
    )
    blocks = [group for group in groups(graph) if len(group) > 2]
    assert len(blocks) == 4
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], method=method, training=training, time_budget=0.2)
    names = [node["name"] for node in graph.nodes]
    for stage in plan.stages:
        nodes = {names[n] if isinstance(n, int) else n for n in stage.nodes}
        for block in blocks:
            assert block <= nodes or not block & nodes, f"{method} cuts {block}"


def test_a_given_placement_that_cuts_a_block_is_refused(decoder):
    _, _, graph = decoder
    coarse = kerf.coarsen(graph, depth=1)
    half = {node["name"]: int(i > graph.num_nodes // 3) for i, node in enumerate(graph.nodes)}
    devices = {0: "cpu:0", 1: "cpu:1"}
    options = dict(method="aot", node_to_partition=half, partition_to_device=devices)
    assert len(kerf.plan(graph, ["cpu:0", "cpu:1"], **options).stages) == 2
    with pytest.raises(ValueError):
        kerf.plan(coarse, ["cpu:0", "cpu:1"], **options)


def test_stages_of_whole_modules_run(tmp_path):
    model, args, kwargs = models.build("gpt2")
    graph = kerf.coarsen(kerf.trace(model, args, kwargs), basic_blocks=["GPT2Block"])
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"])
    module = emitted(tmp_path, graph, plan)
    assert_as_model(module, model, args, kwargs)
    with kerf.Pipeline(model, plan, graph=graph) as pipe:
        assert pipe.check(*args, **kwargs) < 1e-4
