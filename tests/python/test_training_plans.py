# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Plans of training steps: what the faces take, give and refuse."""

import pickle

import pytest
import torch

import kerf

DEVICES = ["cuda:0", "cuda:1"]


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(torch.nn.functional.gelu(self.up(self.norm(x)))))


class Model(torch.nn.Module):
    def __init__(self, width=64, depth=6):
        super().__init__()
        self.embed = torch.nn.Linear(16, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(depth))
        self.head = torch.nn.Linear(width, 16)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.fixture(scope="module")
def model():
    return Model().train()


@pytest.fixture(scope="module")
def graph(model):
    return kerf.trace(model, (torch.zeros(16, 8, 16),))


def train(graph, **changes):
    return kerf.plan(graph, DEVICES, n_microbatches=8, training=True, **changes)


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B", "interleaved_1f1b", "ZeroBubble"])
def test_a_plan_has_the_figures_of_training_and_holds_them_in_its_file(graph, schedule, tmp_path):
    plan = train(graph, schedule=schedule, optimizer="adam")
    assert plan.training and plan.optimizer == "adam" and plan.recomputed == []
    for number, stage in enumerate(plan.stages):
        assert stage.backward > stage.time > 0
        assert 0 < stage.weight_gradients <= stage.backward
        # Nobody waits for a gradient of the first stage: all of its backward can wait.
        assert (stage.weight_gradients == stage.backward) == (number == 0)
        assert stage.optimizer_bytes == 2 * stage.gradient_bytes == 2 * stage.weight_bytes
        assert stage.saved_bytes > 0
    assert plan.gradient_bytes == plan.cut_bytes > 0
    plan.save(tmp_path / "plan.json")
    loaded = kerf.load_plan(tmp_path / "plan.json")
    assert loaded == plan == pickle.loads(pickle.dumps(plan))
    assert kerf.verify(loaded, graph, kerf.estimate(graph, "cuda", 2, training=True)) == []
    text = str(plan)
    for word in ("backward", "saved", "optimizer", "gradients"):
        assert word in text


def test_schedules_differ_in_idle_time_and_memory(graph):
    plans = {name: train(graph, schedule=name) for name, *_ in kerf.schedules()}
    fullest = {n: max(d.predicted_bytes for d in p.devices) for n, p in plans.items()}
    assert plans["zero_bubble"].bubble < plans["1f1b"].bubble
    assert fullest["1f1b"] < fullest["fill_drain"]


def test_recomputation_makes_room_and_costs_time(graph):
    free = train(graph)
    limit = int(0.93 * max(device.predicted_bytes for device in free.devices))
    limits = {name: limit for name in DEVICES}
    fitted = train(graph, max_memory=limits)
    assert fitted.recomputed and set(fitted.recomputed) <= {f"blocks.{i}" for i in range(6)}
    assert max(device.predicted_bytes for device in fitted.devices) <= limit
    assert fitted.busiest > free.busiest
    assert any("computed again" in note for note in fitted.notes)
    with pytest.raises(kerf.InfeasibleError, match="what would fit: .*recompute='all'"):
        train(graph, max_memory=limits, recompute="none", method="even")


def test_modules_to_recompute_may_be_named(graph):
    plan = train(graph, recompute=["blocks.1", "blocks.4"])
    assert plan.recomputed == ["blocks.1", "blocks.4"]
    assert sum(stage.recompute for stage in plan.stages) > 0
    assert train(graph, recompute="all").recomputed == [f"blocks.{i}" for i in range(6)]


def test_checkpoints_of_the_model_are_honoured():
    class Checkpointed(Model):
        def forward(self, x):
            x = self.embed(x)
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            return self.head(x)

    graph = kerf.trace(Checkpointed().train(), (torch.zeros(16, 8, 16),))
    kept = train(graph, recompute="none")
    again = train(graph, recompute="as_traced")
    assert len(again.recomputed) == 6 and all(n.startswith("region:") for n in again.recomputed)
    saved = [sum(stage.saved_bytes for stage in plan.stages) for plan in (kept, again)]
    assert saved[1] < saved[0] / 3


def test_looped_placements(graph):
    plan = train(graph, schedule="interleaved_1f1b", stages_per_device=2)
    assert [stage.device for stage in plan.stages] == DEVICES * 2
    assert plan.stages_per_device == 2


def test_looped_placements_are_compared(graph):
    table = kerf.compare(
        graph,
        DEVICES,
        n_microbatches=8,
        methods=["chain", "metis"],
        training=True,
        schedule="interleaved_1f1b",
        stages_per_device=2,
    )
    looped, other = table.methods
    assert looped.plan.stages_per_device == 2
    assert other.plan is None and "chain or auto" in other.reason


@pytest.mark.parametrize("function", [kerf.plan, kerf.compare])
@pytest.mark.parametrize(
    "words", [{"optimizer": "adamn"}, {"recompute": "al"}, {"recompute": ["blocks.9"]}]
)
def test_words_for_training_are_checked_without_it(graph, function, words):
    with pytest.raises(ValueError, match="did you mean"):
        function(graph, DEVICES, **words)


@pytest.mark.parametrize("method", [name for name, _ in kerf.methods() if name != "aot"])
def test_every_method_plans_training(graph, method):
    plan = train(graph, method=method, schedule="1f1b", time_budget=0.2)
    assert plan.lower_bound.value <= plan.busiest * (1 + 1e-9)
    assert kerf.verify(plan, graph) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": "adamn"}, "did you mean 'adam'"),
        ({"schedule": "1f1bb"}, "did you mean '1f1b'"),
        ({"recompute": ["blocks.9"]}, "did you mean 'blocks.0'"),
        ({"recompute": "al"}, "did you mean 'all'"),
        ({"stages_per_device": 0}, "stages_per_device"),
        ({"stages_per_device": 2, "method": "metis"}, "chain or auto"),
    ],
)
def test_wrong_names_are_answered_with_the_nearest(graph, change, message):
    with pytest.raises(ValueError, match=message):
        train(graph, **change)


def test_what_training_needs_is_asked_for(graph):
    with pytest.raises(ValueError, match="no backward times.*training=True"):
        train(graph, profile=kerf.estimate(graph, "cuda"))
    evaluated = kerf.trace(Model().eval(), (torch.zeros(16, 8, 16),))
    with pytest.raises(ValueError, match="eval mode.*dropout.*model.train"):
        train(evaluated)


def test_a_simulated_step_has_phases_and_memory(graph):
    timeline = kerf.simulate(train(graph, schedule="zero_bubble"))
    assert {event.phase for event in timeline.events} == {"forward", "backward", "weight_gradient"}
    assert len(timeline.memory) == 2


def test_a_measured_profile_plans_training(model, graph):
    x = torch.zeros(16, 8, 16)
    profile = kerf.profile(model, graph, (x,), devices=["cpu:0", "cpu:1"], training=True)
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], n_microbatches=4, training=True, profile=profile)
    assert plan.profile_source == "measured" and all(stage.backward > 0 for stage in plan.stages)


class Branching(Model):
    """Takes a path that a single sample would not, as attention masks do."""

    def forward(self, x):
        return super().forward(x * 2 if x.shape[0] != 1 else x)


def test_advice_keeps_the_conditions_of_the_graph():
    graph = kerf.trace(Branching().train(), (torch.zeros(24, 8, 16),))
    words = dict(n_microbatches=4, training=True, schedule="1f1b", recompute="none")
    plan = kerf.plan(graph, DEVICES, **words)
    limits = {device.name: int(0.93 * device.predicted_bytes) for device in plan.devices}
    with pytest.raises(kerf.InfeasibleError, match="n_microbatches=8") as caught:
        kerf.plan(graph, DEVICES, limits, **words)
    assert "not proved impossible" in str(caught.value) and not caught.value.infeasible.proved
    assert kerf.plan(graph, DEVICES, limits, **{**words, "n_microbatches": 8}).training


@pytest.mark.parametrize("method", ["chain", "auto", "multilevel"])
def test_auto_is_never_worse_than_what_one_could_say(graph, method):
    limit = 0.75 * max(device.predicted_bytes for device in train(graph).devices)
    words = dict(max_memory=dict.fromkeys(DEVICES, int(limit)), method=method, time_budget=0.3)
    found = train(graph, **words)
    for recompute in ("none", "all", found.recomputed):
        try:
            other = train(graph, recompute=recompute, **words)
        except kerf.InfeasibleError:
            continue
        assert found.busiest <= other.busiest * (1 + 1e-6), recompute


def test_a_profile_without_backward_verifies_no_training(graph):
    plan = train(graph, recompute="none")
    with pytest.raises(ValueError, match="no backward times.*training=True"):
        kerf.verify(plan, graph, kerf.estimate(graph, "cuda", 2))
    assert kerf.verify(plan, graph, kerf.estimate(graph, "cuda", 2, training=True)) == []


@pytest.mark.parametrize(
    "verb",
    [
        lambda graph: kerf.plan(graph, DEVICES, batch=1, training=True),
        lambda graph: kerf.memory(graph, batch=1),
        lambda graph: kerf.estimate(graph, batch=1, training=True),
    ],
)
def test_a_batch_that_the_graph_forbids_is_refused_by_every_verb(verb):
    graph = kerf.trace(Branching().train(), (torch.zeros(24, 8, 16),))
    with pytest.raises(ValueError, match="batch of 1.*B != 1"):
        verb(graph)


MODES = "expected one of auto, none, all, as_traced, or a list of modules"
WRONG_RECOMPUTE = {
    "no mode": ("list", f"unknown mode 'list'; {MODES}$"),
    "a module": ("blocks.1", rf"unknown mode 'blocks.1'; {MODES}; .*write \['blocks.1'\]"),
    "a slip": ("non", "did you mean 'none'"),
    "a mode in a list": (["all"], "no module 'all'.*for the mode write 'all' without a list"),
    "nothing near": (["l.99"], "no module 'l.99'.*such as blocks.0, blocks.1, blocks.2"),
    "no name": ([""], "an empty name.*such as blocks.0"),
}


@pytest.mark.parametrize("case", WRONG_RECOMPUTE)
@pytest.mark.parametrize("verb", [train, kerf.memory])
def test_plans_and_memory_take_the_same_words(graph, verb, case):
    recompute, message = WRONG_RECOMPUTE[case]
    with pytest.raises(ValueError, match=message):
        verb(graph, recompute=recompute)


def test_memory_leaves_auto_to_the_planner(graph):
    with pytest.raises(ValueError, match="recompute 'auto'.*planner"):
        kerf.memory(graph, recompute="auto")


def test_a_block_is_listed_once(graph):
    assert train(graph, recompute=["blocks.1", "blocks.1"]).recomputed == ["blocks.1"]
    assert train(graph, recompute=["blocks.1", "blocks.1.up"]).recomputed == ["blocks.1"]
    assert train(graph, recompute=["blocks.1.up", "blocks.1"]).recomputed == [
        "blocks.1.up",
        "blocks.1",
    ]


def test_stages_per_device_need_mixed_placement(graph):
    with pytest.raises(ValueError, match="stages_per_device=1.*omit mixed=False"):
        train(graph, stages_per_device=2, mixed=False)


@pytest.mark.parametrize("verb", [train, kerf.memory])
def test_a_frozen_model_is_not_trained(verb):
    frozen = kerf.trace(Model().train().requires_grad_(False), (torch.zeros(16, 8, 16),))
    with pytest.raises(ValueError, match="none of whose results requires a gradient.*unfreeze"):
        verb(frozen)
