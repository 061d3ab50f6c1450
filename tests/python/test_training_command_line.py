# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Training on the command line: the same words as in Python, written as options."""

import re
import subprocess

import pytest
from test_cli import PROGRAM
from test_memory import MODEL

import kerf

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the program kerf is not built")


@pytest.fixture
def run(tmp_path):
    (tmp_path / "model.graph").write_text(MODEL + "end\n")

    def call(*arguments, expect=0):
        done = subprocess.run([PROGRAM, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    return call


def test_modules_have_commas_between_them_for_every_verb(run, tmp_path):
    graph = kerf.load_graph(tmp_path / "model.graph")
    blocks = "blocks.0,blocks.1"
    done = run("memory", "--training", "--recompute", blocks, "model.graph")
    assert done.stdout == str(kerf.memory(graph, recompute=blocks.split(",")))
    words = ("--training", "--recompute", blocks)
    assert "2 blocks (list)" in run("plan", *words, "model.graph", "--devices", "cpu:0").stdout


def test_advice_is_given_as_options(run):
    limits = "cpu:0=11MB,cpu:1=11MB"
    words = ("--devices", limits, "--training", "--batch", "512", "--optimizer", "sgd")
    done = run("plan", "model.graph", *words, "--recompute", "none", expect=1)
    assert re.search(r"--(recompute all|schedule 1f1b|n-microbatches \d+)", done.stderr)
    assert "='" not in done.stderr and "n_microbatches" not in done.stderr


def test_a_profile_without_backward_is_refused_with_the_option(run):
    run("plan", "model.graph", "--devices", "cpu:0", "--training", "--out", "plan.json")
    run("estimate", "model.graph", "--out", "profile.json")
    words = ("--graph", "model.graph", "--profile", "profile.json")
    done = run("verify", "plan.json", *words, expect=2)
    assert "no backward times" in done.stderr and "kerf estimate --training" in done.stderr


def test_figures_of_schedules_say_when_they_hold(run):
    assert "m >= p" in run("schedules").stdout
