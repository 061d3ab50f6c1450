# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The examples run, and leave what they promise."""

import subprocess
import sys
from pathlib import Path

import pytest

import kerf

ROOT = Path(__file__).parents[2]
SMALL = ["--layers", "2", "--width", "128", "--batch", "4", "--length", "8", "--calls", "1"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    pytest.importorskip("transformers")
    out = tmp_path_factory.mktemp("demo") / "out"
    command = [sys.executable, str(ROOT / "examples/demo.py"), "--out", str(out), *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


def test_demo_prints_plan_difference_and_times(demo):
    _, text = demo
    for words in ("GPT2LMHeadModel: 2 stages", "lower bound", "largest difference", "measured"):
        assert words in text
    losses = [float(line.split()[1]) for line in text.splitlines() if line.startswith("  loss ")]
    assert len(losses) == 3 and losses[-1] < losses[0]


def test_demo_leaves_files_that_belong_together(demo):
    out, _ = demo
    graph = kerf.load_graph(out / "model.graph")
    plan = kerf.load_plan(out / "plan.json")
    profile = kerf.load_profile(out / "profile.json", graph)
    assert profile.source == "measured" and profile.batch == plan.micro_batch == 1
    assert kerf.verify(plan, graph, profile) == []
    assert kerf.load_timeline(out / "timeline.json").origin == "measured"


def test_cpp_example_plans_the_graph_of_the_demo(demo):
    program = Path(kerf.__file__).parents[2] / "examples" / "plan_graph"
    if not program.is_file():
        program = ROOT / "build/release/examples/plan_graph"
    if not program.is_file():
        pytest.skip("the C++ examples are not built")
    arguments = [str(demo[0] / "model.graph"), "cpu:0=2GiB,cpu:1=1GiB", "2"]
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "predicted step time" in done.stdout
