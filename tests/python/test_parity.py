# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What FTPipe promises, case by case, and where each is held.

Where a case has tests of its own elsewhere, they are named here, and a test says that they are
there; the rest is here.
"""

import functools
import random
import re
from pathlib import Path

import emit_models
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from emitting import assert_as_model, load
from graphs import random_text

import kerf
from kerf import _core

TESTS = Path(__file__).parents[1]
METHODS = [name for name, _ in kerf.methods() if name != "aot"]

# case -> files and tests
HELD = {
    "2: state transparency": {
        "python/test_emit.py": [
            "test_stages_share_the_weights_of_the_model_under_their_names",
            "test_a_checkpoint_goes_into_stages_and_back",
            "test_moving_a_stage_moves_its_weights_and_constants",
        ],
    },
    "3: arguments": {
        "python/test_emit_calls.py": [
            "test_keyword_arguments_in_any_order",
            "test_the_same_tensor_twice",
            "test_nested_tuples_and_dictionaries_in_and_out",
            "test_texts_and_numbers_are_those_of_the_trace",
            "test_optional_inputs_are_there_or_not",
            "test_operators_with_several_results",
            "test_in_place_at_a_border",
            "test_packed_sequences_inside_of_a_module_that_runs_as_it_is",
            "test_views_indices_and_numbers_that_follow_the_batch",
        ],
    },
    "4: granularity": {
        "python/test_coarsen.py": [
            "test_depths_give_the_documented_blocks",
            "test_basic_blocks_are_named_in_every_way",
            "test_no_method_cuts_a_block",
        ],
        "python/test_emit.py": ["test_modules_run_as_they_are_where_no_trace_can_hold_them"],
    },
    "5: acyclic": {
        "partition/form_stages_test.cpp": [
            "FindsThePathThatLeavesEarlyAndComesBackLate",
            "PartsStagesThatWouldWaitForEachOtherThoughEachIsConvex",
            "IsAcyclicForEveryPlacementOfRandomGraphs",
        ],
        "partition/verified_methods_test.cpp": ["HasTheFiguresThatTheVerifierDerives"],
    },
    "6: virtual stages": {
        "partition/form_stages_test.cpp": [
            "CutsAChainWhereItsDeviceChanges",
            "JoinsHeadAndTailOfADiamondOnlyWhereNoPathLeavesThem",
        ],
    },
    "7: recomputation": {
        "python/test_pipe_model.py": [
            "test_the_last_stage_of_an_asynchronous_pipeline_computes_nothing_again",
            "test_backward_has_a_forward_where_it_recomputes_and_exempt_modules_do_not",
        ],
    },
    "8: memory": {
        "place/mixed_pipe_test.cpp": [
            "FitsWhereNoContiguousSplitDoesAndIsEvenInTimeAndMemory",
            "SaysNothingWhereNothingFits",
        ],
    },
    "10: shared weights": {
        "python/test_emit.py": ["test_a_tied_weight_has_one_owner_and_all_of_its_gradient"],
        "python/test_pipe_model.py": [
            "test_caches_are_used_while_nothing_changes",
            "test_a_cache_of_something_else_is_made_again",
        ],
    },
}


@pytest.mark.parametrize("case", HELD)
def test_the_tests_of_a_case_are_there(case):
    for file, names in HELD[case].items():
        text = (TESTS / file).read_text()
        for name in names:
            assert re.search(rf"\b{name}\b", text), f"{file} has no {name}"


# 1: stages in order are the model, whatever made them


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.Linear(16, 4)
        )

    def forward(self, x):
        return self.body(x)


class EncoderBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attn = emit_models.Attention(width, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = self.norms[0](x + self.drop(self.attn(x)))
        return self.norms[1](x + self.drop(self.mlp(x)))


class Bert(nn.Module):
    """An encoder with a mask, and a pooled result beside the sequence."""

    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(50, width)
        self.layers = nn.ModuleList(EncoderBlock(width) for _ in range(2))
        self.pool = nn.Linear(width, width)

    def forward(self, ids, mask=None):
        x = self.words(ids)
        if mask is not None:
            x = x * mask.unsqueeze(-1)
        for layer in self.layers:
            x = layer(x)
        return x, torch.tanh(self.pool(x[:, 0]))


class Cross(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.kv, self.out = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )

    def forward(self, x, memory):
        scores = self.q(x) @ self.kv(memory).transpose(1, 2)
        return x + self.out(F.softmax(scores, -1) @ memory)


class T5(nn.Module):
    """An encoder that all blocks of a decoder read, and one embedding for both and the head."""

    def __init__(self, width=32):
        super().__init__()
        self.shared = nn.Embedding(50, width)
        self.encoder = nn.ModuleList(EncoderBlock(width) for _ in range(2))
        self.decoder = nn.ModuleList(Cross(width) for _ in range(2))

    def forward(self, ids, targets):
        memory = self.shared(ids)
        for block in self.encoder:
            memory = block(memory)
        x = self.shared(targets)
        for block in self.decoder:
            x = block(x, memory)
        return F.linear(x, self.shared.weight)


def toys():
    ids = torch.randint(50, (2, 8))
    return {
        "mlp": (Mlp, (torch.randn(6, 8),), {}),
        "cnn": (emit_models.Cnn, (torch.randn(4, 3, 16, 16),), {}),
        "gpt": (emit_models.Decoder, (ids,), {"targets": ids.clone()}),
        "bert": (Bert, (ids,), {"mask": torch.ones(2, 8)}),
        "t5": (T5, (ids, torch.randint(50, (2, 5))), {}),
    }


@functools.cache
def toy(name):
    """A model, its call, and a plan of one device from which others are made."""
    torch.manual_seed(0)
    make, args, kwargs = toys()[name]
    model = make().train()
    plan = kerf.pipe_model(
        model, args, kwargs, nparts=1, profile="estimate", partitioning_method="single"
    )
    return model, args, kwargs, plan


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", toys())
def test_1_stages_are_the_model_for_every_method_and_number_of_devices(name, method, tmp_path):
    model, args, kwargs, traced = toy(name)
    seen = set()
    for nparts in (1, 2, 3, 4):
        plan = kerf.pipe_model(
            graph=traced, nparts=nparts, depth=None, partitioning_method=method, time_budget=0.05
        )
        assert kerf.verify(plan, plan.graph, plan.profile) == []
        split = tuple(tuple(stage.nodes) for stage in plan.stages)
        if split in seen:
            continue
        seen.add(split)
        path = tmp_path / f"stages_{nparts}.py"
        kerf.emit(plan, plan.graph, path, eval_graph=plan.eval_graph)
        stages = load(path)
        # Dropout on: random numbers are the model's where their order is.
        if not stages.DRAWS_IN_ORDER:
            stages.MODES = (False,)
        # Gradients of weights that several stages use are added up in another order.
        assert_as_model(stages, model, args, kwargs, exact=name not in ("cnn", "t5"))
        names = [n for s in stages.make_stages(model) for n in s.state_dict()]
        assert len(names) == len(set(names))


# 3: what has no test of its own elsewhere


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, *, bias, how="sum"):
        y = self.a(x)
        y = torch.where(y > 0, y, bias.expand_as(y))
        z = self.b(y[:, 1:3].repeat(1, 2))
        return F.mse_loss(z, y, reduction=how)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_3_where_expand_as_slices_and_texts(count, tmp_path):
    torch.manual_seed(0)
    model, args, kwargs = Odd(), (torch.randn(3, 4),), {"how": "sum", "bias": torch.randn(4)}
    kerf.pipe_model(
        model,
        args,
        kwargs,
        nparts=count,
        depth=None,
        profile="estimate",
        partitioning_method="even",
        output_file=tmp_path / "stages.py",
    )
    assert_as_model(load(tmp_path / "stages.py"), model, args, kwargs)


# 4: a basic block may look at its numbers


def test_4_python_that_looks_at_numbers_runs_in_a_block(tmp_path):
    model, args, kwargs = emit_models.make_mixed()
    with pytest.warns(kerf.KerfWarning, match="module 'router' runs as Python"):
        plan = kerf.pipe_model(
            model.train(),
            args,
            nparts=2,
            profile="estimate",
            output_file=tmp_path / "stages.py",
            partitioning_method="chain",
        )
    assert kerf.verify(plan, plan.graph) == []
    assert_as_model(load(tmp_path / "stages.py"), model, args, kwargs)


def test_4_special_blocks_stay_whole_unless_splitting_them_is_better():
    class Half(nn.Sequential):
        pass

    model = nn.Sequential(Half(*[nn.Linear(64, 64) for _ in range(6)]), nn.Linear(64, 64)).eval()
    traced = kerf.trace(model, (torch.randn(256, 64),))
    options = {"nparts": 2, "partitioning_method": "mpipe", "profile": "estimate"}

    def busiest(**more):
        plan = kerf.pipe_model(graph=traced, **options, **more)
        assert kerf.verify(plan, plan.graph) == []
        return plan.objective_value

    free = busiest()
    assert busiest(basic_blocks=["Half"]) > 1.2 * free  # six layers of seven on one device
    assert busiest(mpipe_opt={"special_blocks": ["Half"]}) == free


def test_4_special_blocks_are_where_a_search_starts():
    asked = []

    def noted(graph, *args, **kwargs):
        asked.append(graph.glued)
        return kerf.plan(graph, *args, **kwargs)

    graph = kerf.trace(nn.Sequential(Mlp(), nn.Linear(4, 8), Mlp()).eval(), (torch.randn(6, 8),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kerf._pipe_model.plan", noted)
        kerf.pipe_model(
            graph=graph,
            nparts=2,
            profile="estimate",
            partitioning_method="mpipe",
            mpipe_opt={"special_blocks": ["Mlp"]},
        )
    free, whole = asked
    assert len(whole) == 2 and free != whole


# 5: every method, random graphs, tensors that should not be cut


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("cost_aware", "kl")])
def test_5_stages_are_acyclic_and_dear_tensors_are_not_cut(method):
    cheapest = {"chain", "auto", "ideals", "refine", "exact"}
    for seed in range(100):
        rng = random.Random(seed)
        graph = _core.parse_graph(random_text(rng, rng.randint(6, 16)))
        names = [name for node in graph.nodes for name in node["outputs"]]
        dear = rng.choice(names)
        plan = kerf.plan(
            graph,
            ["cpu:0", "cpu:1"],
            method=method,
            transfer_times={name: 10.0 if name == dear else 1e-9 for name in names},
            time_budget=0.02,
            seed=seed,
        )
        stage_of = {node: s.index for s in plan.stages for node in s.nodes}
        assert stage_of.keys() == {node["name"] for node in graph.nodes}
        maker = {name: node["name"] for node in graph.nodes for name in node["outputs"]}
        for node in graph.nodes:
            for value in node["inputs"]:
                if value in maker:
                    assert stage_of[maker[value]] <= stage_of[node["name"]]
        if method in cheapest:  # everything on one device costs less than that tensor
            assert dear not in [c.tensor for c in plan.cuts if _crosses(plan, c)], (seed, method)


def _crosses(plan, cut):
    devices = {plan.stages[s].device for s in [cut.from_stage, *cut.to_stages]}
    return len(devices) > 1


# 8: contiguous methods say that nothing fits, with figures


def test_8_the_error_has_totals_when_memory_is_too_small():
    model, args, kwargs, traced = toy("t5")
    with pytest.raises(kerf.InfeasibleError, match="short|fits") as caught:
        kerf.pipe_model(graph=traced, devices=["cpu:0", "cpu:1"], max_memory={"cpu": "20KiB"})
    assert caught.value.infeasible.short_by > 0 and caught.value.infeasible.proved


# 9: the configuration


class Skip(nn.Module):
    """Stage 0 is read by stages 1 and 3; labels have one dimension, that of the samples."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x, labels):
        first = self.layers[0](x)
        y = self.layers[2](self.layers[1](first))
        return F.cross_entropy(self.layers[3](y + first), labels), y


@pytest.mark.parametrize("relay", [False, True])
def test_9_a_tensor_that_skips_stages_is_consistent_and_follows_the_batch(tmp_path, relay):
    model, args = Skip(), (torch.randn(6, 4), torch.randint(4, (6,)))
    kerf.pipe_model(
        model,
        args,
        nparts=4,
        profile="estimate",
        node_weight_function=lambda node: 1.0 if ".linear." in node.op else 0.0,
        partitioning_method="chain",
        generate_activation_propagation=relay,
        output_file=tmp_path / "stages.py",
    )
    stages = load(tmp_path / "stages.py")
    assert_as_model(stages, model, args, {})
    small, large = stages.config(6), stages.config(10)
    first = small["stages"][0]["outputs"]
    if relay:  # 0 to 1, 1 to 3
        (name,) = first
        assert first[name]["used_by"] == [1]
        assert small["stages"][1]["outputs"][name]["used_by"] == [3]
        assert small["stages"][3]["inputs"][name]["created_by"] == 1
    else:
        assert [1, 3] in [row["used_by"] for row in first.values()]
    for number, stage in small["stages"].items():
        for name, row in stage["inputs"].items():
            source = row["created_by"]
            made = small["model_inputs"] if source == -1 else small["stages"][source]["outputs"]
            assert number in made[name]["used_by"]
            assert all(made[name][k] == row[k] for k in ("shape", "dtype", "is_batched"))
            assert source == -1 or made[name]["req_grad"] == row["req_grad"]
    assert small["model_inputs"]["labels"]["shape"] == [6]
    assert large["model_inputs"]["labels"]["shape"] == [10]
    for number, stage in small["stages"].items():
        for kind in ("inputs", "outputs"):
            for name, row in stage[kind].items():
                other = large["stages"][number][kind][name]["shape"]
                assert (other != row["shape"]) == row["is_batched"], name


# 10: the same graph, the same partition


def test_10_a_saved_graph_gives_the_same_partition(tmp_path):
    _, _, _, traced = toy("t5")
    traced.graph.save(tmp_path / "t5.graph")
    again = kerf.load_graph(tmp_path / "t5.graph")
    for method in ("mpipe", "acyclic", "auto"):
        options = {"nparts": 3, "partitioning_method": method, "profile": traced.profile}
        one = kerf.pipe_model(graph=traced, **options)
        other = kerf.pipe_model(graph=again, **options)
        assert one == other
