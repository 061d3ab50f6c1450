# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The command line, as a user meets it: files in, files out, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from graphs import mlp_text

import kerf

OK, NO, BAD_INPUT = 0, 1, 2
DEVICES = "cpu:0=1GiB,cpu:1=1GiB"


def find_program():
    """KERF_BIN, or the program of the build tree the package comes from, or the installed one."""
    build_tree = Path(kerf.__file__).parents[2]
    places = [
        os.environ.get("KERF_BIN", ""),
        build_tree / "kerf",
        Path(sys.executable).parent / "kerf",
    ]
    return next((str(p) for p in places if p and Path(p).is_file()), None)


PROGRAM = find_program()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the program kerf is not built")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.graph").write_text(mlp_text() + "end\n")
    return tmp_path


@pytest.fixture
def run(folder):
    def call(*arguments, expect=OK):
        done = subprocess.run(
            [PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    return call


@pytest.fixture
def planned(run):
    run("estimate", "model.graph", "--batch", "2", "--out", "profile.json")
    run(
        *("plan", "model.graph", "--profile", "profile.json", "--devices", DEVICES),
        *("--n-microbatches", "4", "--out", "plan.json"),
    )
    return run


def error_of(done):
    assert done.stderr.startswith("kerf: error: ") or "\nkerf: error: " in done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_help_lists_verbs_methods_and_exit_codes(run):
    text = run("--help").stdout
    for word in ("estimate", "plan", "simulate", "verify", "report", "chain", "fill_drain", "Exit"):
        assert word in text
    for verb in ("estimate", "plan", "simulate", "verify", "report"):
        assert "Usage" in run(verb, "--help").stdout


def test_version_is_that_of_the_package(run):
    assert run("--version").stdout == f"kerf {kerf.__version__}\n"


def test_plan_prints_the_table_and_writes_the_file(planned, folder):
    plan = kerf.load_plan(folder / "plan.json")
    graph = kerf.load_graph(folder / "model.graph")
    assert kerf.verify(plan, graph, kerf.load_profile(folder / "profile.json", graph)) == []
    assert plan == kerf.plan(graph, DEVICES, n_microbatches=4)
    plan.graph = graph
    assert planned("report", "plan.json", "--graph", "model.graph").stdout.startswith(str(plan))


def test_plan_without_a_profile_says_so(run):
    done = run("plan", "model.graph", "--devices", DEVICES)
    assert "no --profile: costs are estimated" in done.stderr
    assert "layers.0 .. layers.2" in done.stdout


def test_plan_takes_a_cluster_file(run, folder):
    kerf.make_cluster(["cpu:0", "cpu:1"], speeds={"cpu:1": 0.2}).save(folder / "cluster.json")
    done = run("plan", "model.graph", "--cluster", "cluster.json", "--out", "plan.json")
    first, second = kerf.load_plan(folder / "plan.json").stages
    assert len(first.nodes) > len(second.nodes), done.stdout


def test_plan_that_does_not_fit_says_what_would(run, folder):
    done = run(
        "plan", "model.graph", "--devices", "cpu:0=1MiB,cpu:1=1MiB", "--out", "p.json", expect=NO
    )
    assert "no plan fits" in error_of(done) and "short" in done.stderr
    assert not (folder / "p.json").exists()


def test_plan_saturates_the_host_with_copies(run, folder):
    done = run(
        *("plan", "model.graph", "--devices", "3xcpu=1GiB", "--method", "single"),
        *("--saturate-host", "--out", "plan.json"),
    )
    assert "2 more copies: cpu:1; cpu:2" in done.stdout
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["replicas"] == [["cpu:1"], ["cpu:2"]]
    run("verify", "plan.json", "--graph", "model.graph")
    plan["replicas"][1] = ["cpu:1"]
    (folder / "plan.json").write_text(json.dumps(plan))
    assert "replicas" in error_of(run("report", "plan.json", expect=BAD_INPUT))


GOOD_NODES = '{"a": 0}'
GOOD_DEVICES = '{"0": "cpu:0"}'
BAD_ASSIGNMENTS = {
    "not JSON": ("{", "a.json:1:2"),
    "no nodes": (f'{{"devices": {GOOD_DEVICES}}}', "a.json: found no field 'nodes'"),
    "no devices": (f'{{"nodes": {GOOD_NODES}}}', "a.json: found no field 'devices'"),
    "nodes in a list": (f'{{"nodes": ["a"], "devices": {GOOD_DEVICES}}}', "a.json: nodes: found"),
    "nothing": (f'{{"nodes": {{}}, "devices": {GOOD_DEVICES}}}', "a.json: nodes: found nothing"),
    "a name": (f'{{"nodes": {{"a": "b"}}, "devices": {GOOD_DEVICES}}}', "a.json: nodes: a: found"),
    "negative": (f'{{"nodes": {{"a": -1}}, "devices": {GOOD_DEVICES}}}', "nodes: a: found -1"),
    "a key": (
        f'{{"nodes": {GOOD_NODES}, "devices": {{"x": "cpu"}}}}',
        "devices: found the key 'x'",
    ),
    "padded": (f'{{"nodes": {GOOD_NODES}, "devices": {{"00": "cpu"}}}}', "found the key '00'"),
    "a number": (f'{{"nodes": {GOOD_NODES}, "devices": {{"0": 0}}}}', "a.json: devices: 0: found"),
    "more": (f'{{"nodes": {GOOD_NODES}, "devices": {GOOD_DEVICES}, "x": 1}}', "the key 'x'"),
    "other method": (f'{{"nodes": {GOOD_NODES}, "devices": {GOOD_DEVICES}}}', "method 'chain'"),
}


@pytest.mark.parametrize("case", BAD_ASSIGNMENTS)
def test_bad_assignments_are_named_with_file_and_key(run, folder, case):
    text, message = BAD_ASSIGNMENTS[case]
    (folder / "a.json").write_text(text)
    done = run(
        "plan", "model.graph", "--devices", "cpu", "--assignment", "a.json", expect=BAD_INPUT
    )
    assert message in error_of(done)


def test_verify_accepts_its_own_plan(planned):
    assert "sound" in planned("verify", "plan.json", "--graph", "model.graph").stdout
    planned("verify", "plan.json", "--graph", "model.graph", "--profile", "profile.json")


def test_verify_names_what_was_tampered_with(planned, folder):
    plan = json.loads((folder / "plan.json").read_text())
    plan["stages"][0]["weights"] += 4096
    (folder / "plan.json").write_text(json.dumps(plan))
    done = planned("verify", "plan.json", "--graph", "model.graph", expect=NO)
    assert "not sound" in error_of(done)


def test_verify_names_both_graphs_when_they_differ(planned, folder):
    (folder / "other.graph").write_text(mlp_text(layers=5) + "end\n")
    done = planned("verify", "plan.json", "--graph", "other.graph", expect=NO)
    assert kerf.load_graph(folder / "other.graph").hash in error_of(done)
    assert kerf.load_graph(folder / "model.graph").hash in done.stderr


def test_report_has_json_timelines_and_traces(planned, folder):
    report = json.loads(planned("report", "plan.json", "--json").stdout)
    assert report["format"] == "kerf-report" and len(report["stages"]) == 2
    planned("simulate", "plan.json", "--out", "timeline.json")
    text = planned(
        "report", "plan.json", "--timeline", "timeline.json", "--trace", "trace.json"
    ).stdout
    assert "ratio" in text and "1.00" in text
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]


def test_report_analyses_a_split_as_predicted_and_as_measured(planned, folder):
    printed = planned("report", "plan.json", "--graph", "model.graph", "--analysis").stdout
    plan = kerf.load_plan(folder / "plan.json")
    plan.graph = kerf.load_graph(folder / "model.graph")
    assert printed == f"{plan.analysis()}\n" and "pipeline slowdown" in printed
    figures = json.loads(planned("report", "plan.json", "--analysis", "--json").stdout)
    assert figures["format"] == "kerf-analysis" and figures["stages"][0]["parameters"] is None
    planned("simulate", "plan.json", "--out", "timeline.json")
    again = planned(
        "report", "plan.json", "--analysis", "--json", "--timeline", "timeline.json"
    ).stdout
    assert json.loads(again)["measured"] is True


def test_plan_takes_transfer_times_and_keeps_a_last_stage(planned, folder):
    (folder / "times.json").write_text('{"h2": 5.0}')
    given = ("plan", "model.graph", "--devices", DEVICES, "--transfer-times", "times.json")
    planned(*given, "--out", "given.json")
    assert "h2" not in [cut.tensor for cut in kerf.load_plan(folder / "given.json").cuts]
    (folder / "times.json").write_text('{"H2": 5.0}')
    assert "did you mean 'h2'?" in error_of(planned(*given, expect=BAD_INPUT))
    (folder / "times.json").write_text('{"h2": -1}')
    assert "times.json" in error_of(planned(*given, expect=BAD_INPUT))
    (folder / "train.graph").write_text(mlp_text(training=True) + "end\n")
    asked = ("plan", "train.graph", "--devices", DEVICES, "--training", "--keep-last-stage")
    planned(*asked, "--recompute", "all", "--out", "kept.json")
    kept = kerf.load_plan(folder / "kept.json")
    assert kept.stages[1].recompute == 0 < kept.stages[0].recompute
    assert "expected training with the blocks" in error_of(planned(*asked, expect=BAD_INPUT))


def test_estimate_gives_backward_times_for_training(run, folder):
    (folder / "train.graph").write_text(mlp_text(training=True) + "end\n")
    text = run("estimate", "train.graph", "--training", "--out", "p.json").stdout
    assert "backward" in text
    profile = kerf.load_profile(folder / "p.json", kerf.load_graph(folder / "train.graph"))
    first, *others = profile.nodes
    assert profile.training
    assert first.backward_macs == first.macs and first.backward == first.backward_weights
    assert all(node.backward_macs == 2 * node.macs for node in others)
    assert all(node.saved_bytes == 8 * 512 * 4 for node in profile.nodes)  # each its input


def test_schedules_are_listed_with_their_idle_shares(run):
    lines = run("schedules").stdout.splitlines()
    assert lines[0].split() == ["schedule", "idle", "share"]
    for line, (name, summary, idle) in zip(lines[1:], kerf.schedules(), strict=False):
        assert line.startswith(name) and idle in line and line.endswith(summary)
    assert [line.split()[0] for line in lines[1:5]] == [
        "fill_drain",
        "1f1b",
        "interleaved_1f1b",
        "zero_bubble",
    ]


def test_simulate_writes_a_trace(planned, folder):
    planned("simulate", "plan.json", "--trace", "t.json")
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} >= {
        f"stage 0 micro-batch {m}" for m in range(4)
    }


def test_simulate_draws_another_number_of_micro_batches(planned, folder):
    text = planned("simulate", "plan.json", "--n-microbatches", "9", "--out", "t.json").stdout
    assert "9 micro-batches" in text and "8" in text
    assert kerf.load_timeline(folder / "t.json").n_microbatches == 9


BAD_CALLS = {
    "no verb": ([], "subcommand"),
    "unknown verb": (["frobnicate"], "frobnicate"),
    "unknown option": (["plan", "model.graph", "--devices", "cpu", "--colour", "red"], "colour"),
    "no devices": (["plan", "model.graph"], "--devices"),
    "missing graph": (["plan", "nothere.graph", "--devices", "cpu"], "nothere.graph"),
    "unknown device": (["plan", "model.graph", "--devices", "abacus:0"], "abacus"),
    "negative memory": (["plan", "model.graph", "--devices", "cpu:0=-1GiB"], "negative"),
    "unknown method": (["plan", "model.graph", "--devices", "cpu", "--method", "magic"], "chain"),
    "aot alone": (["plan", "model.graph", "--devices", "cpu", "--method", "aot"], "--assignment"),
    "no assignment": (
        ["plan", "model.graph", "--devices", "cpu", "--assignment", "nothere.json"],
        "nothere.json",
    ),
    "unknown schedule": (
        ["plan", "model.graph", "--devices", "cpu", "--schedule", "x"],
        "fill_drain",
    ),
    "no micro-batch": (["plan", "model.graph", "--devices", "cpu", "--n-microbatches", "0"], "0"),
    "too many": (
        ["plan", "model.graph", "--devices", "cpu", "--n-microbatches", "99", "--batch", "8"],
        "99",
    ),
    "unknown kind": (
        ["estimate", "model.graph", "--device-kind", "toaster", "--out", "p"],
        "toaster",
    ),
    "eval mode": (["estimate", "model.graph", "--training", "--out", "p"], "model.train()"),
    "not a plan": (["report", "model.graph"], "model.graph"),
    "not a graph": (["estimate", "junk", "--out", "p.json"], "junk:1:1"),
    "unwritable": (["estimate", "model.graph", "--out", "no/such/folder/p.json"], "no/such/folder"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_input_is_named_on_stderr(run, folder, case):
    arguments, word = BAD_CALLS[case]
    (folder / "junk").write_text("not a graph\n")
    before = sorted(folder.iterdir())
    done = run(*arguments, expect=BAD_INPUT)
    assert word in error_of(done)
    assert done.stdout == ""
    assert sorted(folder.iterdir()) == before  # nothing half-written


def test_newer_files_are_refused_with_both_versions(planned, folder):
    text = (folder / "plan.json").read_text().replace('"version": "1.5"', '"version": "1.7"', 1)
    (folder / "plan.json").write_text(text)
    message = error_of(planned("report", "plan.json", expect=BAD_INPUT))
    assert "1.7" in message and "1.5" in message


def test_cut_short_files_are_refused_with_line_and_column(planned, folder):
    text = (folder / "plan.json").read_text()
    for length in (0, 1, len(text) // 2, len(text) - 3):
        (folder / "plan.json").write_text(text[:length])
        message = error_of(planned("report", "plan.json", expect=BAD_INPUT))
        assert "plan.json:" in message


def test_emit_writes_stages_and_leaves_files_alone(planned, folder):
    done = planned("emit", "plan.json", "--graph", "model.graph", "--out", "stages.py")
    assert done.stdout.startswith("stages.py: 2 stages of ")
    text = (folder / "stages.py").read_text()
    assert "class Stage1(Stage):" in text
    done = planned(
        "emit", "plan.json", "--graph", "model.graph", "--out", "stages.py", expect=BAD_INPUT
    )
    assert "'stages.py' is there already; expected a new file" in error_of(done)
    planned("emit", "plan.json", "--graph", "model.graph", "--out", "stages.py", "--force")
    assert (folder / "stages.py").read_text() == text


def test_emit_refuses_an_unsound_plan_and_two_graphs_of_one_mode(planned, folder):
    plan = json.loads((folder / "plan.json").read_text())
    plan["stages"][0]["nodes"], plan["stages"][1]["nodes"] = (
        plan["stages"][1]["nodes"],
        plan["stages"][0]["nodes"],
    )
    (folder / "other.json").write_text(json.dumps(plan))
    out = ("--graph", "model.graph", "--out", "stages.py")
    error_of(planned("emit", "other.json", *out, expect=BAD_INPUT))
    done = planned("emit", "plan.json", *out, "--eval-graph", "model.graph", expect=BAD_INPUT)
    assert "[emit.both_modes] the graphs are not of both modes" in error_of(done)
    assert not (folder / "stages.py").exists()


CASES = """
import torch

class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(4, 8)
        self.drop = torch.nn.Dropout(0.5)
        self.down = torch.nn.Linear(8, 2)

    def forward(self, x, *, scale):
        return self.down(self.drop(self.up(x))) * scale

def make_case():
    return Cell().eval(), (torch.randn(3, 4),), {"scale": torch.randn(3, 2)}

def forgets():
    return Cell()

def fails():
    raise ValueError("of its own")

number = 3

class Skips(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        first = self.steps[0](x)
        return self.steps[2](self.steps[1](first) + first) * first

def make_skips():
    return Skips().eval(), (torch.randn(3, 4),), {}
"""


@pytest.fixture
def traced(folder, monkeypatch):
    (folder / "cases.py").write_text(CASES)
    monkeypatch.setenv("KERF_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(Path(kerf.__file__).parents[1]))
    return folder


def test_the_whole_path_from_a_model_to_checked_stages(run, traced):
    done = run("trace", "cases:make_case", "--mode", "train", "--out", "train.graph")
    assert done.stdout == "train.graph: Cell in train mode, 4 nodes, for every batch size\n"
    run("trace", "cases:make_case", "--out", "eval.graph")
    assert not kerf.load_graph(traced / "eval.graph").training
    run("estimate", "train.graph", "--out", "profile.json")
    run(
        *("plan", "train.graph", "--profile", "profile.json", "--devices", DEVICES),
        *("--method", "even", "--out", "plan.json"),
    )
    run(
        *("emit", "plan.json", "--graph", "train.graph", "--eval-graph", "eval.graph"),
        *("--out", "stages.py"),
    )
    done = subprocess.run(
        [sys.executable, "stages.py", "--check", "cases:make_case"],
        cwd=traced,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and "the stages are the model" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "flags, options",
    [
        (["--relay"], {"relay": True}),
        (["--no-explicit-del"], {"explicit_del": False}),
        (["--relay", "--no-explicit-del"], {"relay": True, "explicit_del": False}),
    ],
)
def test_emit_passes_its_options_on(run, traced, flags, options):
    run("trace", "cases:make_skips", "--out", "skips.graph")
    run("estimate", "skips.graph", "--out", "profile.json")
    run(
        *("plan", "skips.graph", "--profile", "profile.json", "--devices", "cpu:0,cpu:1,cpu:2"),
        *("--method", "even", "--out", "plan.json"),
    )
    emit = ("emit", "plan.json", "--graph", "skips.graph", "--out")
    run(*emit, "plain.py")
    run(*emit, "stages.py", *flags)
    graph, plan = kerf.load_graph(traced / "skips.graph"), kerf.load_plan(traced / "plan.json")
    kerf.emit(plan, graph, traced / "other.py", **options)
    text = (traced / "stages.py").read_text()
    assert text == (traced / "other.py").read_text() != (traced / "plain.py").read_text()


def test_trace_passes_its_options_on(run, traced):
    run("trace", "cases:make_case", "--static", "--out", "one.graph")
    assert kerf.load_graph(traced / "one.graph").is_static
    done = run("trace", "cases:make_case", "--basic-block", "up", "--out", "two.graph")
    assert kerf.load_graph(traced / "two.graph").nodes[0]["op"] == "opaque"
    assert "kerf: warning:" in done.stderr or not done.stderr


@pytest.mark.parametrize(
    "case, said",
    [
        ("nowhere:make_case", "'nowhere:make_case' cannot be imported"),
        (":make_case", "':make_case' names no module; expected package.module:function"),
        (".cases:make_case", "'.cases:make_case' names no module"),
        ("cases:nothing", "'cases:nothing' names no function of"),
        ("cases:number", "'cases:number' names no function of"),
        ("cases", "'cases' names no function of"),
        ("cases:forgets", "'cases:forgets' gives a Cell; expected package.module:function"),
    ],
)
def test_trace_says_what_is_wrong_with_a_case(run, traced, case, said):
    done = run("trace", case, "--out", "model2.graph", expect=BAD_INPUT)
    assert said in error_of(done)
    assert not (traced / "model2.graph").exists()


def test_errors_of_a_case_come_with_their_lines(run, traced):
    done = run("trace", "cases:fails", "--out", "model2.graph", expect=1)
    assert "in fails" in done.stderr and "ValueError: of its own" in done.stderr


def test_trace_looks_first_whether_it_can_write(run, traced):
    done = run("trace", "cases:fails", "--out", "no/model.graph", expect=BAD_INPUT)
    assert "cannot write 'no/model.graph'" in error_of(done)


def test_trace_names_a_python_that_is_not_there(run, traced, monkeypatch):
    monkeypatch.setenv("KERF_PYTHON", "/no/python")
    done = run("trace", "cases:make_case", "--out", "a.graph", expect=BAD_INPUT)
    assert "[kerf.trace] cannot run '/no/python'" in error_of(done)
