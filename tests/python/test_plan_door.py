# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Every plan goes through the verifier before it is run, replanned or reported: a file may say
anything. Numbers in files are bounded."""

import json
import subprocess
import time

import pytest
import torch
from test_cli import PROGRAM
from torch import nn

import kerf
from kerf import _core


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x


class Writes(nn.Module):
    """Two names of one memory, and a write through one of them."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        h = self.linear(x)
        h[:, :2].zero_()
        return h.relu()


@pytest.fixture(scope="module")
def chain():
    model = Chain().eval()
    return model, kerf.trace(model, torch.randn(4, 4))


def two_stages(graph, cut, n_microbatches=2):
    names = [node["name"] for node in graph.nodes]
    profile = kerf.estimate(graph)
    return _core.make_plan(
        graph,
        profile,
        kerf.make_cluster("cpu:0=1GiB,cpu:1=1GiB"),
        stages=[list(range(cut)), list(range(cut, len(names)))],
        devices=["cpu:0", "cpu:1"],
        n_microbatches=n_microbatches,
    )


def edited(plan, tmp_path, edit):
    """The plan as a file that somebody has changed."""
    path = tmp_path / "plan.json"
    plan.save(path)
    record = json.loads(path.read_text())
    edit(record)
    path.write_text(json.dumps(record))
    return kerf.load_plan(path)


def swap_nodes(record):
    a, b = (stage["nodes"] for stage in record["stages"])
    a[-1], b[0] = b[0], a[-1]


def drop_node(record):
    record["stages"][1]["nodes"].pop()


def shrink_memory(record):
    record["cluster"]["devices"][0]["memory"] = 64
    record["devices"][0]["limit"] = 64


def swap_stages(record):
    record["stages"].reverse()


def lie_about_step(record):
    record["predicted"]["step_ns"] /= 2


EDITS = {
    "acyclic": swap_nodes,
    "coverage": drop_node,
    "limit": shrink_memory,
    "step": lie_about_step,
}


@pytest.mark.parametrize("rule", EDITS)
def test_a_pipeline_refuses_a_plan_that_is_not_sound(chain, tmp_path, rule):
    model, graph = chain
    plan = edited(two_stages(graph, 4), tmp_path, EDITS[rule])
    with pytest.raises(ValueError, match=rf"^\[verify\.plan\] .*{rule}: .*; plan again$"):
        kerf.Pipeline(model, plan, graph=graph)


@pytest.mark.parametrize("rule", EDITS)
def test_replan_refuses_a_plan_that_is_not_sound(chain, tmp_path, rule):
    _, graph = chain
    plan = edited(two_stages(graph, 4), tmp_path, EDITS[rule])
    with pytest.raises(ValueError, match=rf"\[verify\.plan\] .*{rule}: "):
        kerf.replan(plan, graph, n_microbatches=4)


def split_last_node(record):
    (stage,) = record["stages"]
    *kept, last = stage["nodes"]
    record["stages"].append({**stage, "nodes": [last], "device": "cpu:1", "after": [0]})
    stage["nodes"] = kept


def test_a_pipeline_refuses_a_split_of_glued_nodes(tmp_path):
    model = Writes().eval()
    graph = kerf.trace(model, torch.randn(4, 4))
    with pytest.raises(ValueError, match=r"glue: nodes .* see each other's writes"):
        two_stages(graph, len(graph.nodes) - 1, n_microbatches=1)
    whole = kerf.plan(graph, "cpu:0=1GiB,cpu:1=1GiB", method="single")
    plan = edited(whole, tmp_path, split_last_node)
    with pytest.raises(ValueError, match=r"glue: nodes .* see each other's writes"):
        kerf.Pipeline(model, plan, graph=graph)


def test_a_sound_plan_from_a_file_runs(chain, tmp_path):
    model, graph = chain
    plan = edited(two_stages(graph, 4), tmp_path, lambda record: None)
    with kerf.Pipeline(model, plan, graph=graph) as pipe:
        assert pipe.check(torch.randn(4, 4)) < 1e-5


@pytest.mark.skipif(PROGRAM is None, reason="the program kerf is not built")
def test_report_verifies_the_plan_where_it_has_the_graph(chain, tmp_path):
    _, graph = chain
    graph.save(tmp_path / "g.graph")
    plan = two_stages(graph, 4)
    edited(plan, tmp_path, lambda record: None)
    report = ["report", str(tmp_path / "plan.json"), "--graph", str(tmp_path / "g.graph")]
    assert run_kerf(*report).returncode == 0
    edited(plan, tmp_path, swap_nodes)
    done = run_kerf(*report)
    assert done.returncode != 0 and "[verify.plan]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def run_kerf(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("count", [10**9, 10**30, -5, 0])
def test_simulate_refuses_numbers_of_micro_batches_that_are_none(chain, count):
    plan = two_stages(chain[1], 4)
    with pytest.raises(ValueError, match=r"^\[kerf\.simulate\] n_microbatches is .*expected 1 to"):
        kerf.simulate(plan, count)
    with pytest.raises(TypeError, match="expected a whole number"):
        kerf.simulate(plan, "4")


def test_a_small_plan_cannot_ask_for_endless_work(chain, tmp_path):
    model, graph = chain

    def ask(record):
        record["n_microbatches"] = record["batch"] = 2**20
        record["micro_batch"] = 1
        stage = record["stages"].pop()
        for i, node in enumerate(stage["nodes"]):
            record["stages"].append({**stage, "nodes": [node], "after": [i]})

    plan = edited(two_stages(graph, 4), tmp_path, ask)
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"events; expected at most .*fewer micro-batches"):
        kerf.simulate(plan)
    with pytest.raises(ValueError, match=r"\[verify\.plan\] "):
        kerf.Pipeline(model, plan, graph=graph)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), 1e-320, 1e299])
def test_profiles_refuse_times_that_are_none(chain, bad):
    _, graph = chain
    times = [1e-6] * len(graph.nodes)
    kerf.Profile.from_times(graph, times)
    times[3] = bad
    with pytest.raises(ValueError, match=r"^\[profile\.profile\] node .* expected 0, or a number"):
        kerf.Profile.from_times(graph, times)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("cluster", "devices", 0, "speed"), 1e-310),
        (("cluster", "links", 0, 1, "bytes_per_second"), 1e301),
        (("cluster", "links", 0, 1, "latency_ns"), -1),
        (("stages", 0, "time_ns"), 1e305),
        (("predicted", "step_ns"), 1e-305),
    ],
)
def test_files_refuse_times_and_rates_that_arithmetic_would_lose(chain, tmp_path, place, value):
    def edit(record):
        *path, last = place
        for key in path:
            record = record[key]
        record[last] = value

    with pytest.raises(ValueError, match=r"1e-300 to 1e300"):
        edited(two_stages(chain[1], 4), tmp_path, edit)


def test_times_whose_sum_cannot_be_counted_are_refused(chain):
    _, graph = chain
    times = [9e290] * len(graph.nodes)
    profile = kerf.Profile.from_times(graph, times, batch=1)
    with pytest.raises(ValueError, match=r"too long to count; expected less than 1e300 ns"):
        kerf.plan(graph, ["cpu:0", "cpu:1"], profile=profile, batch=10**9)


@pytest.mark.parametrize(
    "load", [kerf.load_graph, kerf.load_plan, kerf.load_cluster, kerf.load_timeline]
)
def test_a_file_without_an_end_is_refused(load):
    with pytest.raises(OSError, match=r"\[base\.file\] '/dev/zero' holds a zero byte"):
        load("/dev/zero")


def test_bytes_that_are_no_text_are_refused_by_name(chain, tmp_path):
    path = tmp_path / "latin.graph"
    chain[1].save(path)
    path.write_bytes(path.read_bytes().replace(b'graph "Chain"', b'graph "Ch\xe9in"'))
    with pytest.raises(ValueError, match=r"latin\.graph:2:\d+: a byte that is not UTF-8"):
        kerf.load_graph(path)
