# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The families of partitioners on odd problems, and with bad input, from the command line."""

import json
import subprocess

import pytest
from graphs import mlp_text
from test_cli import BAD_INPUT, NO, OK, PROGRAM, error_of, find_program

FAMILIES = ["mixed_pipe", "multilevel", "acyclic", "metis", "pipedream", "binpack2d"]
FX = ["size", "sparse_nn", "cost_aware", "kl"]
OTHERS = ["chain", "auto", "ideals", "refine", "exact", "even", "single"]
WIDTH = 64
WEIGHT = WIDTH * WIDTH * 4

pytestmark = pytest.mark.skipif(find_program() is None, reason="the program kerf is not built")


def layers_text(inputs):
    """A linear layer for each entry, which is the layer it reads; None: the graph's input."""
    lines = ["kerf-graph 1.0", 'graph "odd"', "batch 4", f'input %x: f32[B, {WIDTH}] = "args.0"']
    lines += [
        f'weight @w{i}: f32[{WIDTH}, {WIDTH}] = parameter "l{i}.weight"' for i in range(len(inputs))
    ]
    for i, source in enumerate(inputs):
        value = "%x" if source is None else f"%h{source}"
        lines.append(f"%h{i}: f32[B, {WIDTH}] = aten.linear.default({value}, @w{i})")
    ends = [i for i in range(len(inputs)) if i not in inputs]
    lines += [f'output "y{i}" = %h{i}' for i in ends]
    return "\n".join([*lines, "end", ""])


def chain(count):
    return [None, *range(count - 1)]


# inputs of the layers, their times in ns, devices
PROBLEMS = {
    "more devices than nodes": (chain(3), [100.0] * 3, "8x16GiB"),
    "one node": ([None], [100.0], "4x16GiB"),
    "one device": (chain(6), [100.0] * 6, "1x16GiB"),
    "several components": ([None, 0, 1, None, 3, 4, None, 6, 7], [100.0] * 9, "3x16GiB"),
    "nothing but components": ([None] * 9, [100.0] * 9, "4x16GiB"),
    "no time": (chain(12), [0.0] * 12, "3x16GiB"),
    "all time in one node": (chain(12), [0.0] * 7 + [5e6] + [0.0] * 4, "8x16GiB"),
    "most time in one node": (chain(12), [1.0] * 7 + [5e6] + [1.0] * 4, "5x16GiB"),
    "tight memory": (chain(12), [100.0] * 12, f"4x{3 * WEIGHT + 8192}B"),
    "no room": (chain(12), [100.0] * 12, f"4x{2 * WEIGHT}B"),
    "unlike devices": (chain(12), [100.0] * 12, f"2x16GiB,2x{4 * WEIGHT}B"),
}


@pytest.fixture
def call(tmp_path):
    def run(*arguments):
        return subprocess.run(
            [PROGRAM, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )

    return run


def write_problem(folder, call, name):
    inputs, times, devices = PROBLEMS[name]
    (folder / "model.graph").write_text(layers_text(inputs))
    arguments = ("--device-kind", "cuda", "--out", "profile.json")
    assert call("estimate", "model.graph", *arguments).returncode == OK
    profile = json.loads((folder / "profile.json").read_text())
    for node, time in zip(profile["nodes"], times, strict=True):
        node["forward_ns"] = time
    (folder / "profile.json").write_text(json.dumps(profile))
    return ["model.graph", "--profile", "profile.json", "--devices", devices]


def expect_one_line_error(done):
    assert done.returncode in (NO, BAD_INPUT), done.stderr
    assert done.stdout == ""
    message = error_of(done)
    assert len(message.strip().splitlines()) == 1, message


def has_metis(call, problem):
    done = call("plan", *problem, "--method", "metis")
    return "built without METIS" not in done.stderr


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("method", FAMILIES + OTHERS + FX)
def test_every_method_plans_every_odd_problem_or_says_why_not(tmp_path, call, method, name):
    problem = write_problem(tmp_path, call, name)
    for more in ([], ["--no-mixed"]):
        done = call("plan", *problem, "--method", method, "--time-budget", "0.05", "--json", *more)
        if done.returncode == OK:
            plan = json.loads(done.stdout)  # nothing else on standard output
            assert plan["method"] == method
            used = [stage["device"] for stage in plan["stages"]]
            if more:
                assert len(set(used)) == len(used)
            assert done.stderr == ""
        else:
            expect_one_line_error(done)
            fits = name not in ("no room", "tight memory", "unlike devices")
            assert not fits or more or "METIS" in done.stderr, done.stderr
    if name == "no room":
        assert done.returncode != OK


@pytest.mark.parametrize("method", [*FAMILIES, "chain", "auto"])
def test_tight_memory_is_met_exactly(tmp_path, call, method):
    problem = write_problem(tmp_path, call, "tight memory")
    if method == "metis" and not has_metis(call, problem):
        pytest.skip("built without METIS")
    done = call("plan", *problem, "--method", method, "--time-budget", "0.1", "--json")
    assert done.returncode == OK, done.stderr
    stages = json.loads(done.stdout)["stages"]
    weights = {}
    for stage in stages:
        weights[stage["device"]] = weights.get(stage["device"], 0) + stage["weights"]
    assert list(weights.values()) == [3 * WEIGHT] * 4


# Where other nodes take time too, `auto` has a bound that is a little stronger, by a cut around h7.
@pytest.mark.parametrize("method", ["chain", *FAMILIES])
@pytest.mark.parametrize("name", ["all time in one node", "most time in one node"])
def test_the_bound_names_the_node_that_takes_all_time(tmp_path, call, name, method):
    problem = write_problem(tmp_path, call, name)
    done = call("plan", *problem, "--method", method, "--time-budget", "0.05")
    assert done.returncode == OK, done.stderr
    lines = done.stdout.splitlines()
    where = next(i for i, line in enumerate(lines) if line.startswith("lower bound"))
    assert "(unit)" in lines[where]
    assert "'h7'" in lines[where + 1], done.stdout


# The text, and the character (from 1) the caret points at.
BAD_DEVICES = {
    "8x": 3,
    "8y16GiB": 1,
    "8x16GiBB": 3,
    "x8": 1,
    ",": 1,
    "8x16GiB,,": 9,
    "8x16GiB,": 9,
    "0x16GiB": 1,
    "8xx16GiB": 3,
    "8x-16GiB": 3,
    "8x0GiB": 3,
    "99999999999x1GiB": 1,
    "2x16GiB,3xabacus": 11,
}


@pytest.mark.parametrize("text", BAD_DEVICES)
def test_devices_that_do_not_parse_get_a_caret_under_the_character(tmp_path, call, text):
    (tmp_path / "model.graph").write_text(mlp_text() + "end\n")
    done = call("plan", "model.graph", "--devices", text)
    assert done.returncode == BAD_INPUT
    assert done.stdout == ""
    message = error_of(done).splitlines()
    where = message.index("  " + text)
    assert message[where + 1] == "  " + " " * (BAD_DEVICES[text] - 1) + "^"
    assert f"at character {BAD_DEVICES[text]}" in message[where - 1]


BAD_OPTIONS = {
    "stages of another method": (["--method", "chain", "--stages", "4"], "mixed_pipe"),
    "negative stages": (["--method", "mixed_pipe", "--stages", "-1"], "stages"),
    "minimise nonsense": (
        ["--method", "multilevel", "--minimise", "nonsense"],
        "stage_time or edge_cut",
    ),
    "minimise with another method": (["--method", "chain", "--minimise", "edge_cut"], "multilevel"),
    "negative imbalance": (
        ["--method", "acyclic", "--minimise", "edge_cut", "--imbalance", "-1"],
        "imbalance",
    ),
    "imbalance is not a number": (
        ["--method", "acyclic", "--minimise", "edge_cut", "--imbalance", "nan"],
        "imbalance",
    ),
    "imbalance of nothing": (["--method", "acyclic", "--imbalance", "0.1"], "edge_cut"),
    "latency": (["--method", "mixed_pipe", "--objective", "latency"], "throughput"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_options_of_the_families_are_checked(tmp_path, call, case):
    problem = write_problem(tmp_path, call, "several components")
    options, word = BAD_OPTIONS[case]
    done = call("plan", *problem, *options)
    assert done.returncode == BAD_INPUT, done.stderr
    assert done.stdout == ""
    assert word in error_of(done)


@pytest.mark.parametrize("stages", ["1", "4", "1000000"])
def test_mixed_pipe_takes_a_number_of_stages(tmp_path, call, stages):
    problem = write_problem(tmp_path, call, "several components")
    done = call("plan", *problem, "--method", "mixed_pipe", "--stages", stages, "--json")
    assert done.returncode == OK, done.stderr
    devices = {stage["device"] for stage in json.loads(done.stdout)["stages"]}
    assert len(devices) <= int(stages)


@pytest.mark.parametrize("method", ["acyclic", "multilevel"])
def test_the_least_edge_cut_parts_components_where_balance_allows(tmp_path, call, method):
    problem = write_problem(tmp_path, call, "several components")
    arguments = ("--method", method, "--minimise", "edge_cut", "--imbalance", "0.05", "--json")
    done = call("plan", *problem, *arguments)
    assert done.returncode == OK, done.stderr
    plan = json.loads(done.stdout)
    assert plan["cuts"] == []
    assert len(plan["stages"]) == 3


@pytest.mark.parametrize("devices", ["2x16GiB", "1x16GiB", "8x16GiB"])
def test_compare_prints_a_row_for_every_method(tmp_path, call, devices):
    problem = write_problem(tmp_path, call, "several components")[:-1] + [devices]
    done = call("compare", *problem, "--methods", "all", "--time-budget", "0.05")
    assert done.returncode == OK, done.stderr
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    for method in FAMILIES + OTHERS + FX:
        assert rows.count(method) == 1, done.stdout
    done = call("compare", *problem, "--time-budget", "0.05", "--json")
    assert done.returncode == OK and json.loads(done.stdout)


def test_compare_refuses_a_method_it_does_not_know(tmp_path, call):
    problem = write_problem(tmp_path, call, "several components")
    done = call("compare", *problem, "--methods", "chain,magic")
    assert done.returncode == BAD_INPUT
    assert "magic" in error_of(done)


@pytest.mark.parametrize("method", ["mixed_pipe", "multilevel", "acyclic", "auto"])
def test_plans_are_the_same_on_any_number_of_threads(tmp_path, call, method):
    problem = write_problem(tmp_path, call, "several components")
    plans = []
    for threads in ("1", "2", "1"):
        arguments = ("--method", method, "--threads", threads, "--time-budget", "0.2", "--json")
        plans.append(json.loads(call("plan", *problem, *arguments).stdout)["stages"])
    assert plans[0] == plans[1] == plans[2]
