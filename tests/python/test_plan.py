# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Planning from Python: kerf.plan and the values it takes and gives."""

import ast
import inspect
import json
import pickle
import re
import subprocess
import sys
import threading

import pytest
from graphs import mlp_text

import kerf
from kerf import _core

TWO = ["cpu:0", "cpu:1"]


@pytest.fixture
def graph():
    return _core.parse_graph(mlp_text())


@pytest.fixture
def plan(graph):
    return kerf.plan(graph, TWO, {"cpu:0": "1GiB", "cpu:1": "1GiB"}, n_microbatches=4)


def test_importing_kerf_does_not_import_torch():
    code = "import kerf, sys; assert 'torch' not in sys.modules; kerf.load_graph; kerf.plan"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_public_names_exist():
    for name in kerf.__all__:
        assert getattr(kerf, name) is not None
    assert set(kerf.__all__) <= set(dir(kerf))
    with pytest.raises(AttributeError, match="frobnicate"):
        kerf.frobnicate  # noqa: B018


def test_plan_covers_every_node_once_and_is_sound(graph, plan):
    nodes = [name for stage in plan.stages for name in stage.nodes]
    assert nodes == [node["name"] for node in graph.nodes]
    assert [stage.device for stage in plan.stages] == TWO
    assert kerf.verify(plan, graph) == []


def test_plan_has_figures_in_seconds_and_bytes(plan):
    assert plan.n_microbatches == 4 and plan.batch == 8 and plan.micro_batch == 2
    assert 0 < plan.busiest <= plan.predicted_latency <= plan.predicted_step_time < 1
    assert plan.predicted_throughput == pytest.approx(8 / plan.predicted_step_time)
    assert 0 <= plan.bubble < 1
    assert 0 < plan.lower_bound.value <= plan.busiest
    (cut,) = plan.cuts
    assert cut.bytes == plan.cut_bytes == 2 * 512 * 4
    assert (cut.from_stage, cut.to_stages) == (0, [1])
    assert plan.stages[0].weight_bytes == 3 * 512 * 512 * 4
    assert plan.devices[0].limit == 2**30 > plan.devices[0].predicted_bytes > 3 * 2**20


def test_plan_prints_a_table_with_module_names(plan):
    text = str(plan)
    assert "layers.0 .. layers.2" in text and "layers.3 .. layers.5" in text
    assert "estimated on cpu, batch 2" in text
    assert not text.endswith("\n")
    assert "\n" not in repr(plan)


def test_plan_survives_files_and_pickles(plan, graph, tmp_path):
    plan.save(tmp_path / "plan.json")
    loaded = kerf.load_plan(tmp_path / "plan.json")
    assert loaded == plan and loaded.graph is None
    copy = pickle.loads(pickle.dumps(plan))
    assert copy == plan and copy.graph == graph
    assert json.loads(plan.report_json())["cut_bytes"] == plan.cut_bytes


def test_other_values_survive_files_and_pickles(plan, graph, tmp_path):
    profile = kerf.estimate(graph, "cpu", batch=3)
    profile.save(tmp_path / "profile.json", graph)
    assert kerf.load_profile(tmp_path / "profile.json", graph) == profile
    timeline = kerf.simulate(plan)
    timeline.save(tmp_path / "timeline.json")
    assert kerf.load_timeline(tmp_path / "timeline.json") == timeline
    cluster = kerf.make_cluster(TWO, {"cpu": "1GiB"}, speeds={"cpu:1": 0.5})
    cluster.save(tmp_path / "cluster.json")
    assert kerf.load_cluster(tmp_path / "cluster.json") == cluster
    graph.save(tmp_path / "model.graph")
    assert kerf.load_graph(tmp_path / "model.graph") == graph
    for value in (profile, timeline, cluster, graph):
        assert pickle.loads(pickle.dumps(value)) == value


def test_values_are_not_equal_to_other_things(plan, graph):
    for value in (plan, graph, plan.cluster, kerf.estimate(graph), kerf.simulate(plan)):
        assert value != 3 and value != "plan" and value is not None


@pytest.mark.parametrize(
    ("max_memory", "limits"),
    [
        ({"cpu:0": "2GiB", "cpu:1": 123456789}, [2 * 2**30, 123456789]),
        ({"cpu": "1GiB"}, [2**30, 2**30]),
        ({"cpu": "1GiB", "cpu:1": 1e9}, [2**30, 10**9]),
        (None, [None, None]),
    ],
)
def test_max_memory_is_understood(graph, max_memory, limits):
    assert [d.limit for d in kerf.plan(graph, TWO, max_memory).devices] == limits


def test_max_memory_takes_ordinals_of_accelerators():
    cluster = kerf.make_cluster(["cuda:0", "cuda:1", "cpu"], {0: "10GiB", "cpu": "30GiB"})
    assert [d.memory for d in cluster.devices][0::2] == [10 * 2**30, 30 * 2**30]


@pytest.mark.parametrize(
    ("max_memory", "error", "message"),
    [
        ({"cpu:0": "-2GiB"}, ValueError, "negative"),
        ({"cpu:0": -5}, ValueError, "cpu:0"),
        ({"cpu:0": "9999999TiB"}, ValueError, "absurdly large"),
        ({"cpu:0": "2 parsecs"}, ValueError, "parsecs"),
        ({"cpu:7": "2GiB"}, ValueError, "cpu:7"),
        ({"cpu:0": True}, TypeError, "True"),
        ({"cpu:0": 1.5}, TypeError, "1.5"),
        ({"cpu:0": float("inf")}, TypeError, "inf"),
        ({None: "2GiB"}, TypeError, "None"),
    ],
)
def test_bad_max_memory_is_refused(graph, max_memory, error, message):
    with pytest.raises(error, match=message):
        kerf.plan(graph, TWO, max_memory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"devices": ["gpu:0"]}, "gpu"),
        ({"devices": []}, "no device"),
        ({"devices": ["cpu:0", "cpu:0"]}, "twice"),
        ({"method": "magic"}, "chain"),
        ({"objective": "beauty"}, "throughput"),
        ({"schedule": "siesta"}, "fill_drain"),
        ({"comm_model": "pigeon"}, "link"),
        ({"n_microbatches": 0}, "micro"),
        ({"n_microbatches": 9, "batch": 8}, "9"),
        ({"batch": -1}, "batch"),
        ({"n_microbatches": 2, "chunks": 4}, "chunks"),
        ({"profile": "measure"}, "without a model"),
    ],
)
def test_bad_arguments_are_refused_by_name(graph, change, message):
    arguments = {"devices": TWO, **change}
    with pytest.raises(ValueError, match=message):
        kerf.plan(graph, **arguments)


def test_devices_may_be_a_text_or_a_cluster(graph):
    text = kerf.plan(graph, "cpu:0=1GiB,cpu:1=1GiB")
    cluster = kerf.plan(graph, kerf.make_cluster(TWO, {"cpu": "1GiB"}))
    assert text == cluster
    with pytest.raises(ValueError, match="Cluster"):
        kerf.plan(graph, text.cluster, {"cpu": "1GiB"})


def test_an_example_smaller_than_the_micro_batches_is_planned_with_a_sample_each(graph):
    plan = kerf.plan(graph, TWO, n_microbatches=12)
    assert plan.batch == 12 and plan.micro_batch == 1
    assert any("batch of 8" in note for note in plan.notes)


def test_chunks_is_another_name_of_n_microbatches(graph):
    assert kerf.plan(graph, TWO, chunks=4) == kerf.plan(graph, TWO, n_microbatches=4)


def test_infeasible_says_what_is_short(graph):
    with pytest.raises(kerf.InfeasibleError, match="no plan fits") as caught:
        kerf.plan(graph, TWO, {"cpu": "1MiB"})
    infeasible = caught.value.infeasible
    assert infeasible.device in TWO
    assert infeasible.limit == 2**20
    assert infeasible.short_by == infeasible.needed - infeasible.limit > 0
    assert infeasible.what_would_help
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)


def test_profile_may_be_a_file(graph, plan, tmp_path):
    kerf.estimate(graph, batch=2).save(tmp_path / "p.json", graph)
    again = kerf.plan(graph, TWO, {"cpu": "1GiB"}, n_microbatches=4, profile=tmp_path / "p.json")
    assert again == plan


def test_profile_of_another_graph_is_refused_with_both_hashes(graph):
    other = _core.parse_graph(mlp_text(layers=5))
    with pytest.raises(ValueError) as caught:
        kerf.plan(graph, TWO, profile=kerf.estimate(other))
    assert graph.hash in str(caught.value) and other.hash in str(caught.value)


def test_given_times_decide_the_cut(graph):
    profile = kerf.Profile.from_times(graph, [5e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3])
    plan = kerf.plan(graph, TWO, profile=profile)
    assert [len(stage.nodes) for stage in plan.stages] == [1, 5]
    assert plan.profile_source == "given"


def test_replanning_keeps_the_stages(graph, plan):
    again = kerf.replan(plan, graph, n_microbatches=8)
    assert again.n_microbatches == 8 and again.micro_batch == 1
    assert [s.nodes for s in again.stages] == [s.nodes for s in plan.stages]
    assert kerf.verify(again, graph) == []


def test_replanning_a_measured_plan_keeps_its_stage_times(graph):
    times = [5e-3, 1e-3, 1e-3, 2e-3, 1e-3, 1e-3]
    profile = kerf.Profile.from_times(graph, times, batch=4, source="measured")
    plan = kerf.plan(graph, TWO, n_microbatches=2, profile=profile)
    again = kerf.replan(plan, graph, n_microbatches=4)
    for before, after in zip(plan.stages, again.stages, strict=True):
        assert after.time == pytest.approx(before.time / 2)
    assert again.profile_source == "measured"
    assert any("without its profile" in note for note in again.notes)


def test_replanning_says_when_the_batch_is_another(graph, plan):
    again = kerf.replan(plan, graph, n_microbatches=plan.batch + 1)
    assert again.batch == plan.batch + 1
    assert f"replanned for a batch of {again.batch} instead of {plan.batch}" in again.notes[-1]
    assert kerf.replan(plan, graph, n_microbatches=2).batch == plan.batch


def test_replanning_refuses_a_profile_of_another_kind(graph, plan):
    with pytest.raises(ValueError, match="the profile is for 'h100'.*expected a profile for 'cpu'"):
        kerf.replan(plan, graph, profile=kerf.estimate(graph, "h100", 4))


def test_replanning_checks_memory_again(graph):
    plan = kerf.plan(graph, TWO, {"cpu": "4MiB"}, n_microbatches=8, batch=8)
    with pytest.raises(kerf.InfeasibleError):
        kerf.replan(plan, graph, n_microbatches=1, batch=4096)


FOUR = ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]


def test_saturate_host_fills_idle_devices_with_copies(graph, tmp_path):
    assert kerf.plan(graph, FOUR, method="single").replicas == []
    limits = {"cpu": "1GiB", "cpu:2": "1MiB"}
    plan = kerf.plan(graph, FOUR, limits, method="single", saturate_host=True)
    assert plan.replicas == [["cpu:1"], ["cpu:3"]]
    assert kerf.verify(plan, graph) == []
    used = [device.predicted_bytes for device in plan.devices]
    assert used[0] == used[1] == used[3] > 0 == used[2]
    assert "2 more copies: cpu:1; cpu:3" in str(plan)
    assert json.loads(plan.report_json())["replicas"] == plan.replicas
    plan.save(tmp_path / "plan.json")
    assert kerf.load_plan(tmp_path / "plan.json") == plan == pickle.loads(pickle.dumps(plan))
    assert kerf.replan(plan, graph, n_microbatches=2).replicas == plan.replicas


def test_replanning_checks_the_memory_of_copies(graph):
    limits = {"cpu:0": "1GiB", "cpu:1": "7MiB"}
    plan = kerf.plan(graph, TWO, limits, method="single", saturate_host=True)
    assert plan.replicas == [["cpu:1"]]
    with pytest.raises(kerf.InfeasibleError, match="cpu:1"):
        kerf.replan(plan, graph, batch=4096)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "aot"}, ValueError, "without an assignment"),
        ({"method": "aot", "node_to_partition": {"a": 0}}, ValueError, "without an assignment"),
        ({"node_to_partition": {"a": 0}}, ValueError, "for method 'chain'"),
        ({"partition_to_device": {0: "cpu:0"}}, ValueError, "for method 'chain'"),
        ({"node_to_partition": ["a"]}, TypeError, "expected a dictionary"),
        ({"node_to_partition": {3: 0}}, TypeError, "the name of a node"),
        ({"node_to_partition": {"a": "b"}}, TypeError, "node_to_partition of 'a' is 'b'"),
        ({"node_to_partition": {"a": -1}}, ValueError, "node_to_partition of 'a' is -1"),
        ({"partition_to_device": {"0": "cpu:0"}}, TypeError, "key of partition_to_device is '0'"),
    ],
)
def test_bad_assignments_are_refused(graph, change, error, message):
    with pytest.raises(error, match=message):
        kerf.plan(graph, TWO, **change)


def test_the_micro_batch_and_the_profiled_kind_have_one_place(graph):
    assert _core.micro_batch_size(graph, 9, 4) == 3
    assert _core.micro_batch_size(graph, 0, 12) == 1
    with pytest.raises(ValueError, match="n_microbatches is 0"):
        _core.micro_batch_size(graph, 9, 0)
    assert _core.profiled_kind(kerf.make_cluster(["cpu:0", "h200:0"])) == "h200"
    assert kerf.plan(graph, ["cpu:0", "h200:0"]).profile_kind == "h200"


@pytest.mark.parametrize("verb", ["plan", "compare"])
def test_defaults_are_those_of_the_library(verb):
    """The signature of the package shows them again, for readers; it must not choose others."""
    signature = getattr(_core, verb).__doc__.splitlines()[0]
    library = dict(re.findall(r"(\w+): [^=,()]+ = ('\w*'|[\w.]+)", signature))
    shown = inspect.signature(getattr(kerf, verb)).parameters
    same = [name for name in library if name in shown and shown[name].default is not None]
    assert len(same) >= 8
    for name in same:
        assert shown[name].default == ast.literal_eval(library[name]), name


def test_plans_by_hand(graph):
    profile = kerf.estimate(graph, batch=4)
    cluster = kerf.make_cluster(TWO)
    stages = [[0, 1], [2, 3], [4, 5]]
    plan = _core.make_plan(
        graph, profile, cluster, stages, ["cpu:0", "cpu:1", "cpu:0"], n_microbatches=2
    )
    assert [s.node_indices for s in plan.stages] == stages
    assert kerf.verify(plan, graph, profile) == []
    for bad in ([[0, 1], [2, 3]], [[0, 1, 2, 3, 4, 5], [5]], [[0, 1, 2, 3, 4, 99]]):
        with pytest.raises(ValueError):
            _core.make_plan(graph, profile, cluster, bad, ["cpu:0"] * len(bad))


def test_timelines_add_up(plan):
    timeline = kerf.simulate(plan)
    assert timeline.origin == "simulated"
    assert timeline.step_time == pytest.approx(plan.predicted_step_time)
    assert timeline.bubble == pytest.approx(plan.bubble)
    computed = [e for e in timeline.events if e.kind == "compute"]
    assert len(computed) == 2 * 4
    assert sum(e.end - e.start for e in computed if e.device == "cpu:0") == pytest.approx(
        timeline.busy("cpu:0")
    )
    assert "cpu:1" in str(timeline)
    assert kerf.simulate(plan, 1).step_time == pytest.approx(plan.predicted_latency)
    with pytest.raises(ValueError, match="cpu:9"):
        timeline.busy("cpu:9")


def test_traces_are_for_the_usual_viewers(plan, tmp_path):
    kerf.simulate(plan).save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"M", "X"}


def test_planning_lets_other_threads_run(graph):
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(kerf.plan(graph, TWO))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8 and all(answer == answers[0] for answer in answers)
