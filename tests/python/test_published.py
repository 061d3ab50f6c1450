# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Published placement problems on the command line: plan --from, score, bounds."""

import json
from pathlib import Path

import pytest
from test_cli import BAD_INPUT, NO, PROGRAM, folder, run  # noqa: F401  (fixtures)

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the program kerf is not built")
FILES = Path(__file__).parents[1] / "data" / "dnn-partitioning"

# Best known values of the literature and their proofs; contiguous optima.
OPTIMA = {
    "layer_bert24_training": 39.78954,
    "operator_bert_l-3_inference": 21.90838,
    "operator_bert_l-3_training": 54.20740,
    "operator_resnet50_inference": 124.34885,
}
CONTIGUOUS = {
    "layer_bert24_inference": 17.7899,
    "layer_resnet50_training": 78.6318,
    "operator_bert_l-6_inference": 29.5795,
}


def chain(n=6, accelerators=2, memory=100.0):
    nodes = [{"id": i, "cpuLatency": 10.0, "fpgaLatency": 1.0, "size": 10.0} for i in range(n)]
    edges = [{"sourceId": i, "destId": i + 1, "cost": 0.25} for i in range(n - 1)]
    return {
        "maxFPGAs": accelerators,
        "maxCPUs": 1,
        "maxSizePerFPGA": memory,
        "nodes": nodes,
        "edges": edges,
    }


@pytest.fixture
def problem(folder):  # noqa: F811
    (folder / "chain.json").write_text(json.dumps(chain()))
    return "chain.json"


def plan(run, *arguments):  # noqa: F811
    return json.loads(run("plan", *arguments, "--from", "dnn-partitioning", "--json").stdout)


def test_a_chain_is_halved_and_proved(run, problem):  # noqa: F811
    answer = plan(run, problem)
    assert answer["objective"] == pytest.approx(3.25)
    assert answer["gap"] <= 1e-5
    assert answer["contiguous"] and not answer["truncated"]
    devices = [answer["assignment"][str(i)] for i in range(6)]
    assert devices[:3] == [devices[0]] * 3 and devices[3:] == [devices[5]] * 3


def test_what_plan_writes_is_what_score_reads(run, folder, problem):  # noqa: F811
    run("plan", problem, "--from", "dnn-partitioning", "--out", "plan.json")
    assert json.loads((folder / "plan.json").read_text())["format"] == "kerf-load-plan"
    assert "3.250000 per sample" in run("score", problem, "--split", "plan.json").stdout


def test_score_says_that_a_plan_is_another_problems(run, folder, problem):  # noqa: F811
    run("plan", problem, "--from", "dnn-partitioning", "--out", "plan.json")
    other = chain()
    other["nodes"][0]["fpgaLatency"] *= 2
    (folder / "other.json").write_text(json.dumps(other))
    scored = run("score", "other.json", "--split", "plan.json", expect=NO)
    assert "not this problem's" in scored.stdout and "3.25" in scored.stdout


def test_bounds_names_the_tightest(run, problem):  # noqa: F811
    lines = run("bounds", problem).stdout.splitlines()
    assert sum("<- tightest" in line for line in lines) == 1
    assert {"work", "unit", "packing", "memory", "cut", "pair"} <= {
        line.split()[0] for line in lines
    }


def test_memory_that_holds_nothing_is_a_no(run, folder):  # noqa: F811
    small = chain(memory=5.0) | {"maxCPUs": 0}
    (folder / "small.json").write_text(json.dumps(small))
    done = run("plan", "small.json", "--from", "dnn-partitioning", expect=NO)
    assert "memory" in done.stderr


def test_wrong_words_are_refused(run, problem):  # noqa: F811
    for arguments in (
        ["--method", "tarot"],
        ["--devices", "cpu:0"],
        ["--objective", "memory"],
        ["--time-budget", "0"],
    ):
        run("plan", problem, "--from", "dnn-partitioning", *arguments, expect=BAD_INPUT)


@pytest.mark.parametrize("name", OPTIMA)
def test_published_problems_are_solved_and_proved(run, name):  # noqa: F811
    answer = plan(run, str(FILES / "throughput" / f"{name}.json"), "--time-budget", "10")
    assert answer["objective"] == pytest.approx(OPTIMA[name], rel=1e-5)
    assert answer["gap"] <= 1e-5


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_contiguous_optima_are_the_published_ones(run, name):  # noqa: F811
    path = str(FILES / "throughput" / f"{name}.json")
    answer = plan(run, path, "--method", "ideals", "--contiguous", "--time-budget", "10")
    assert answer["objective"] == pytest.approx(CONTIGUOUS[name], rel=1e-4)
    assert answer["contiguous"]
