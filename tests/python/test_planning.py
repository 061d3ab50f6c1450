# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Searching methods, objectives and communication models on traced models."""

import json
import subprocess

import pytest
import torch
from test_cli import PROGRAM
from torch import nn

import kerf

DEVICES = ["cpu:0", "cpu:1", "cpu:2"]
SEARCHING = ["auto", "ideals", "refine", "exact"]


class Branches(nn.Module):
    """Inception-like: branches that start together and are joined, twice."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.branches = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(4)
            )
            for _ in range(2)
        )
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        x = self.stem(x)
        for module in self.branches:
            x = torch.cat([branch(x) for branch in module], dim=1)
        return self.head(x), x.sum(dim=1)


@pytest.fixture(scope="module")
def traced():
    torch.manual_seed(0)
    model = Branches().eval()
    x = torch.randn(8, 16)
    return model, x, kerf.trace(model, (x,))


@pytest.mark.parametrize("comm_model", ["link", "host_staged", "overlapped"])
@pytest.mark.parametrize("method", ["chain", *SEARCHING])
def test_every_method_runs_and_gives_the_models_outputs(traced, method, comm_model):
    model, x, graph = traced
    plan = kerf.plan(
        graph, DEVICES, n_microbatches=2, method=method, comm_model=comm_model, time_budget=0.2
    )
    assert kerf.verify(plan, graph) == []
    assert plan.lower_bound.value <= plan.objective_value * (1 + 1e-9)
    assert plan.comm_model == comm_model
    pipe = kerf.Pipeline(model, plan)
    with torch.no_grad():
        for got, expected in zip(pipe(x), model(x), strict=True):
            torch.testing.assert_close(got, expected)


def test_searching_methods_are_never_worse_than_chain(traced):
    _, _, graph = traced
    chain = kerf.plan(graph, DEVICES, n_microbatches=2)
    for method in SEARCHING:
        plan = kerf.plan(graph, DEVICES, n_microbatches=2, method=method, time_budget=0.2)
        assert plan.objective_value <= chain.objective_value * (1 + 1e-9)


@pytest.mark.parametrize("objective", ["latency", "step", "memory"])
def test_objectives_are_minimised_saved_and_loaded(traced, objective, tmp_path):
    _, _, graph = traced
    chain = kerf.plan(graph, DEVICES, n_microbatches=4)
    plan = kerf.plan(
        graph, DEVICES, n_microbatches=4, method="auto", objective=objective, time_budget=0.3
    )
    assert plan.objective == objective
    assert kerf.verify(plan, graph) == []
    value = {
        "latency": lambda p: p.predicted_latency,
        "step": lambda p: p.predicted_step_time,
        "memory": lambda p: max(device.predicted_bytes for device in p.devices),
    }[objective]
    assert plan.objective_value == pytest.approx(value(plan))
    assert value(plan) <= value(chain) * (1 + 1e-9)
    assert plan.gap >= 0
    plan.save(str(tmp_path / "plan.json"))
    assert kerf.load_plan(str(tmp_path / "plan.json")).objective_value == plan.objective_value
    assert objective in str(plan)


def test_the_same_plan_on_one_and_two_threads(traced):
    _, _, graph = traced
    compared = 0
    for method in SEARCHING:
        one = kerf.plan(graph, DEVICES, method=method, time_budget=0.3, seed=5)
        two = kerf.plan(graph, DEVICES, method=method, time_budget=0.3, seed=5, threads=2)
        if one.timed_out or two.timed_out:
            continue
        assert [stage.nodes for stage in one.stages] == [stage.nodes for stage in two.stages]
        compared += 1
    assert compared > 0


def test_methods_are_compared_under_one_bound(traced):
    _, _, graph = traced
    comparison = kerf.compare(graph, DEVICES, n_microbatches=2, time_budget=0.1)
    names = [row.method for row in comparison.methods]
    assert names == [name for name, _ in kerf.methods() if name != "aot"]
    bounds = {row.plan.lower_bound.value for row in comparison.methods if row.plan is not None}
    assert len(bounds) == 1
    assert "lower bound" in str(comparison)
    assert json.loads(comparison.to_json())["format"] == "kerf-comparison"
    impossible = kerf.compare(graph, DEVICES, {"cpu": 100}, methods="auto", time_budget=0.1)
    assert impossible.methods[0].plan is None
    assert "memory" in impossible.methods[0].reason


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"time_budget": 0}, ValueError, "time budget"),
        ({"time_budget": float("nan")}, ValueError, "time budget"),
        ({"time_budget": "fast"}, TypeError, "time_budget"),
        ({"threads": 0}, ValueError, "threads"),
        ({"objective": "cost"}, ValueError, "throughput, latency, step or memory"),
        ({"comm_model": "telepathy"}, ValueError, "link, host_staged, overlapped"),
        ({"method": "chain", "objective": "latency"}, ValueError, "auto, refine, exact"),
    ],
)
def test_wrong_requests_are_refused_with_what_to_do(traced, wrong, error, words):
    _, _, graph = traced
    with pytest.raises(error, match=words):
        kerf.plan(graph, DEVICES, **{"method": "auto", **wrong})


@pytest.mark.parametrize("methods", [["best"], ["chain", "chain"], "aot", []])
def test_wrong_methods_are_not_compared(traced, methods):
    _, _, graph = traced
    with pytest.raises(ValueError, match="expected"):
        kerf.compare(graph, DEVICES, methods=methods)


@pytest.mark.skipif(PROGRAM is None, reason="the program kerf is not built")
def test_the_program_compares(traced, tmp_path):
    _, _, graph = traced
    graph.save(str(tmp_path / "model.graph"))

    def run(*arguments):
        return subprocess.run(
            [PROGRAM, "compare", "model.graph", "--devices", "cpu:0,cpu:1", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    table = run("--methods", "all", "--time-budget", "0.05")
    assert table.returncode == 0, table.stderr
    assert table.stdout.split()[:3] == ["method", "throughput", "bound"]
    rows = json.loads(run("--methods", "chain,auto", "--time-budget", "0.05", "--json").stdout)
    assert [row["method"] for row in rows["methods"]] == ["chain", "auto"]
    wrong = run("--methods", "chain,best")
    assert wrong.returncode == 2
    assert "'best'" in wrong.stderr
    assert wrong.stdout == ""
