# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever is typed after ``kerf``: a line that says what is wrong, exit code 2, no file lost."""

import json
import subprocess

import pytest
from graphs import mlp_text
from test_cli import PROGRAM
from test_published import chain

import kerf
from kerf import _core

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the program kerf is not built")

CLI_GOOD = {
    "estimate": ["model.graph", "--out", "profile.json"],
    "plan": ["model.graph", "--devices", "cpu:0,cpu:1"],
    "compare": ["model.graph", "--devices", "cpu:0,cpu:1", "--methods", "chain"],
    "simulate": ["plan.json"],
    "verify": ["plan.json", "--graph", "model.graph"],
    "report": ["plan.json"],
    "score": ["problem.json", "--split", "split.json"],
    "bounds": ["problem.json"],
}
BAD_FILES = ["nothing", "folder", "empty", "binary", "deep", ""]
SEARCH = {
    "--profile": BAD_FILES,
    "--cluster": BAD_FILES,
    "--devices": ["", ",", "gpu:0", "cpu:-1", "cpu:x", "0xcpu", "9999xcpu", "cpu:0,cpu:0"]
    + ["cpu:0=", "cpu:0=-1GiB", "cpu:0=nan", "cpu:0=2 parsecs", "\x1b[2J", "a\nb"],
    "--objective": ["", "beauty", "\n"],
    "--n-microbatches": ["0", "-1", "x", "", "1.5", "9999999", "99999999999999999999", "nan"],
    "--batch": ["0", "-1", "x", "", "1.5", "99999999999999999999"],
    "--schedule": ["", "siesta"],
    "--comm-model": ["", "pigeon"],
    "--seed": ["-1", "x", "", "99999999999999999999999"],
    "--time-budget": ["0", "-1", "x", "", "nan", "inf", "1e400"],
    "--threads": ["0", "-1", "x", "", "99999"],
    "--work-limit": ["-1", "x", "", "99999999999999999999999"],
}
CLI_WRONG = {
    "estimate": {"": BAD_FILES, "--batch": ["-1", "x", "1.5"], "--device-kind": ["", "gpu"]},
    "plan": SEARCH
    | {
        "": BAD_FILES,
        "--method": ["", "magic", "aot"],
        "--stages": ["-1", "x", "99999999999"],
        "--minimise": ["", "x"],
        "--imbalance": ["-1", "x", "nan"],
        "--assignment": BAD_FILES,
        "--out": ["folder", "no/such/file"],
        "--from": ["", "x", "dnn-partitioning"],
        "--nothing": ["3"],
    },
    "compare": SEARCH | {"": BAD_FILES, "--methods": ["", "best", "chain,chain", ","]},
    "simulate": {"": BAD_FILES, "--n-microbatches": ["0", "-5", "x", "1000000000"]},
    "verify": {"": BAD_FILES, "--graph": BAD_FILES, "--profile": BAD_FILES},
    "report": {"": BAD_FILES, "--graph": BAD_FILES, "--timeline": BAD_FILES},
    "score": {"": BAD_FILES, "--split": BAD_FILES, "--from": ["", "x"]},
    "bounds": {"": BAD_FILES, "--from": ["", "x"]},
}


def cli_cases():
    for verb, options in CLI_WRONG.items():
        for option, values in options.items():
            for number, _ in enumerate(values):
                yield pytest.param(verb, option, number, id=f"{verb}{option}-{number}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli")
    graph = _core.parse_graph(mlp_text(layers=3, width=16))
    graph.save(path / "model.graph")
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], n_microbatches=2)
    plan.save(path / "plan.json")
    kerf.simulate(plan).save(path / "timeline.json")
    (path / "problem.json").write_text(json.dumps(chain()))
    (path / "folder").mkdir()
    (path / "empty").write_bytes(b"")
    (path / "binary").write_bytes(bytes(range(256)) * 20)
    (path / "deep").write_bytes(b"[" * 100_000)
    return path


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


@pytest.mark.parametrize(("verb", "option", "number"), list(cli_cases()))
def test_wrong_command_lines(folder, verb, option, number):
    value = CLI_WRONG[verb][option][number]
    words = [w for w in CLI_GOOD[verb]]
    if not option:
        words[0] = value
    elif option in words:
        words[words.index(option) + 1] = value
    else:
        words += [option, value]
    before = contents(folder)
    done = subprocess.run(
        [PROGRAM, verb, *words], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("kerf: error: "))
    assert all(line.startswith("  ") for line in lines[at + 1 :]), done.stderr
    assert "; " in lines[at], f"nothing about what to do: {done.stderr}"
    assert len(lines[at]) < 700
    assert done.stdout == ""
    assert contents(folder) == before


@pytest.mark.parametrize("words", [[], ["frobnicate"], ["plan"], ["--nothing"], ["verify", "x"]])
def test_command_lines_without_what_they_need(folder, words):
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("kerf: error: ") and done.stderr.count("\n") == 1
