# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks that run as Python in graphs of train mode: gradients, what is kept, memory, plans."""

import gradients
import pytest
import reference
import torch
import torch.nn as nn

import kerf
from kerf import _core

WIDTH = 64


class Branch(nn.Module):
    """Looks at the values: no graph can hold it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else -self.linear(x)


class Embed(nn.Module):
    """Its input has no gradient, its results differ: one has a gradient, two have none."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, WIDTH)

    def forward(self, ids):
        found = self.table(ids)
        return found, found.detach() * 2, found.argmax(-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = Embed()
        self.blocks = nn.ModuleList(Branch() for _ in range(3))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, ids):
        x, apart, index = self.embed(ids)
        for block in self.blocks:
            x = block(x) + apart
        return self.head(x) + index[..., None]


IDS = torch.randint(0, 9, (4, 5))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model().train()


@pytest.fixture(scope="module")
def recording(model):
    return reference.record(model, IDS, basic_blocks=[Embed])


def test_branches_on_values_become_blocks_in_train_mode_too(recording):
    modules = [r["kwargs"]["module"] for r in recording.nodes if r["op"] == "opaque"]
    assert modules == ["embed", "blocks.0", "blocks.1", "blocks.2"]
    assert "blocks.0" in recording.graph.notes[0]


def test_gradients_are_the_models(model):
    gradients.check(model, IDS, basic_blocks=[Embed])


def test_results_say_whether_they_have_gradients(recording):
    graph = recording.graph
    lines = [line for line in str(graph).splitlines() if " = opaque(" in line]
    assert "%opaque.0: f32[B, 5, 64] grad, " in lines[0]
    assert "i64[B, 5] = opaque" in lines[0]  # of indices nobody says so
    assert all(" grad = opaque(" in line for line in lines[1:])
    # What the block detaches is detached in the graph.
    (cut,) = [line for line in str(graph).splitlines() if "aten.detach" in line]
    assert " grad" not in cut.partition("=")[0]


def test_frozen_blocks_without_gradients_have_none():
    torch.manual_seed(0)
    model = Model().train()
    model.embed.requires_grad_(False)
    recording = gradients.check(model, IDS, basic_blocks=[Embed])
    lines = [line for line in str(recording.graph).splitlines() if " = opaque(" in line]
    assert " grad" not in lines[0].partition("= opaque")[0]
    assert " grad = opaque(" in lines[1]


def test_a_block_that_writes_its_input_or_returns_it_is_traced():
    class Writes(nn.Module):
        def forward(self, x):
            return x.mul_(2) if x.dim() else x

    model = nn.Sequential(nn.Linear(4, 4), Writes(), nn.Linear(4, 4)).train()
    recording = gradients.check(model, torch.randn(3, 4), basic_blocks=[Writes])
    assert len(recording.nodes[1]["written"]) == 1


def test_a_block_with_statistics_writes_them():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    recording = gradients.check(model, torch.randn(6, 4), basic_blocks=[nn.BatchNorm1d, nn.Dropout])
    norm, drop = recording.nodes[1:]
    assert len(norm["written"]) == 3 and not norm["random"]
    assert drop["random"] and not drop["written"]


def test_a_block_is_taken_to_keep_what_it_sees(recording):
    graph = recording.graph
    saved = _core.saved_sets(graph, 4, accelerator=False)
    assert saved["ops_without_rule"] == ["opaque"]
    embed = {name for name, _, _ in saved["by_node"][0]}  # its indices, its table, three results
    assert embed == {"arg0", "embed.table.weight", "opaque.0", "opaque.1", "opaque.2"}


def test_estimates_say_that_blocks_are_not_known(recording):
    profile = kerf.estimate(recording.graph, "cpu", training=True)
    assert any("opaque keeps for its backward is not known" in note for note in profile.notes)


def test_weights_of_blocks_count_with_gradients_and_optimizer(model, recording):
    weights = sum(p.numel() * 4 for p in model.parameters())
    memory = kerf.memory(recording.graph, batch=4, optimizer="adam", device_kind="cpu")
    assert memory.at_peak["weights"] == weights
    assert memory.at_peak["gradients"] == weights
    assert memory.at_peak["optimizer"] == 2 * weights
    assert memory.ops_without_rule == ["opaque"]


@pytest.mark.parametrize("schedule", ["fill_drain", "1f1b", "zero_bubble"])
def test_plans_of_training_are_made_and_verified(model, recording, schedule):
    devices = ["cuda:0", "cuda:1"]
    plan = kerf.plan(
        recording.graph,
        devices,
        n_microbatches=2,
        training=True,
        optimizer="adam",
        schedule=schedule,
    )
    weights = sum(p.numel() * 4 for p in model.parameters())
    assert plan.training and len(plan.stages) == 2
    for bytes_of in ("weight_bytes", "gradient_bytes"):
        assert sum(getattr(stage, bytes_of) for stage in plan.stages) == weights
    assert sum(stage.optimizer_bytes for stage in plan.stages) == 2 * weights
    assert all(stage.backward > 0 for stage in plan.stages)


def test_inference_of_an_eval_graph_is_unchanged(model):
    graph = kerf.trace(model.eval(), (IDS,), basic_blocks=[Embed])
    try:
        assert not any(" grad = opaque(" in line for line in str(graph).splitlines()[:30])
        plan = kerf.plan(graph, ["cpu:0", "cpu:1"], n_microbatches=1)
        with torch.no_grad():
            assert torch.equal(kerf.Pipeline(model, plan)(IDS), model(IDS))
    finally:
        model.train()
