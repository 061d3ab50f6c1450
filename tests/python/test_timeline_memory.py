# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What is in memory through a step: recorded on the CPU, and held to the plan's figures."""

import json

import pytest
import torch
from comparing import hand_plan
from models import batch_of, build
from torch import nn

import kerf

CPUS = ["cpu:0", "cpu:1"]
ROW = 1024 * 4  # a sample of 1024 floats


class Doubling(nn.Module):
    """Two stages by hand: what each of them allocates is plain to see."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1024))

    def forward(self, x):
        a = x * self.scale
        b = torch.relu(a)
        return torch.cat([b, b], 1)


@pytest.fixture
def recorded():
    model = Doubling().eval()
    x = torch.randn(8, 1024)
    graph = kerf.trace(model, (torch.randn(2, 1024),))
    assert graph.num_nodes == 3
    plan = hand_plan(graph, [[0], [1, 2]], CPUS, 4, batch=8)
    with kerf.Pipeline(model, plan, graph=graph) as pipe:
        pipe(x)
        assert pipe.timeline is None
        pipe.record = True
        pipe(x)
        return plan, pipe.timeline


def in_step(timeline, device):
    """Points before results are joined."""
    return [p for p in timeline.memory[device] if p.time <= timeline.step_time]


def test_a_recorded_call_knows_what_its_devices_hold(recorded):
    _, timeline = recorded
    assert set(timeline.memory) == set(CPUS)
    first, second = timeline.memory["cpu:0"], timeline.memory["cpu:1"]
    assert first[0].time == 0
    assert first[0].by_category == {"weights": ROW}
    assert second[0].by_category.get("weights", 0) == 0
    # Of four micro-batches of two samples as many are under way as the second device is behind.
    held = {p.by_category.get("temporaries", 0) for p in first}
    assert held <= {2 * ROW * n for n in range(5)}
    assert 2 * ROW in held
    assert first[-1].bytes == ROW  # the other device frees what this one made
    assert max(p.by_category.get("temporaries", 0) for p in in_step(timeline, "cpu:1")) >= 4 * ROW
    # All four results, and then all of them joined.
    assert in_step(timeline, "cpu:1")[-1].bytes == 16 * ROW
    assert second[-1].by_category == {"results": 32 * ROW}
    assert timeline.peak("cpu:1") == 32 * ROW


def test_points_are_in_order_and_add_up(recorded):
    plan, timeline = recorded
    for each in (timeline, kerf.simulate(plan)):
        for device, points in each.memory.items():
            assert [p.time for p in points] == sorted(p.time for p in points)
            assert all(sum(p.by_category.values()) == p.bytes for p in points)
            assert each.peak(device) == max(p.bytes for p in points)


def test_memory_survives_its_file_and_reaches_the_trace(recorded, tmp_path):
    _, timeline = recorded
    timeline.save(tmp_path / "t.json")
    assert kerf.load_timeline(tmp_path / "t.json") == timeline
    old = json.loads((tmp_path / "t.json").read_text())
    old["version"] = "1.0"
    for curve in old["memory"]:
        del curve["kinds"]
    (tmp_path / "old.json").write_text(json.dumps(old))
    loaded = kerf.load_timeline(tmp_path / "old.json")
    assert loaded.peak("cpu:1") == timeline.peak("cpu:1")
    assert loaded.memory["cpu:1"][-1].by_category == {}
    timeline.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    counters = [e for e in events if e["ph"] == "C" and e["name"] == "memory cpu:1"]
    assert counters[-1]["args"] == {"temporaries": 0, "results": 32 * ROW}


def test_a_comparison_has_peaks_of_both(recorded):
    plan, timeline = recorded
    table = kerf.compare_timelines(kerf.simulate(plan), timeline)
    rows = [line for line in table.splitlines() if "peak memory" in line]
    assert [row.split()[0] for row in rows] == CPUS


def test_peak_refuses_a_device_that_is_not_there(recorded):
    with pytest.raises(ValueError, match="no device 'cpu:7'"):
        recorded[1].peak("cpu:7")


def test_a_profiler_keeps_its_memory_reports():
    model, args, kwargs = build("resnet")
    graph = kerf.trace(model, args, kwargs)
    plan = kerf.plan(graph, ["cpu:0"], method="single")
    with kerf.Pipeline(model, plan, graph=graph) as pipe:
        pipe.record = True
        with torch.profiler.profile(profile_memory=True) as profiler:
            pipe(*args, **kwargs)
        assert pipe.timeline.memory == {}
        assert pipe.timeline.peak("cpu:0") is None
        assert any(event.cpu_memory_usage > 0 for event in profiler.key_averages())
        pipe(*args, **kwargs)
        assert pipe.timeline.peak("cpu:0") > 0
    with torch.profiler.profile(profile_memory=True):
        costs = kerf.profile(model, graph, args, kwargs, budget_seconds=0.1)
    assert any("a profiler listens" in note for note in costs.notes)


# Convolutions and LSTMs have buffers of their own; attention keeps a little for each thread.
@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "resnet", "unet", "lstm"])
def test_a_plan_with_measured_costs_predicts_no_less_than_a_run_takes(name):
    model, args, kwargs = build(name)
    graph = kerf.trace(model, args, kwargs)
    args, kwargs = batch_of(8, args, kwargs)
    costs = kerf.profile(model, graph, args, kwargs, batch=2, devices=CPUS, budget_seconds=0.2)
    plan = kerf.plan(graph, CPUS, n_microbatches=4, batch=8, profile=costs, method="even")
    with kerf.Pipeline(model, plan, graph=graph) as pipe:
        pipe(*args, **kwargs)
        pipe.record = True
        pipe(*args, **kwargs)
    simulated = kerf.simulate(plan)
    for device in plan.devices:
        measured = max(p.bytes for p in in_step(pipe.timeline, device.name))
        weights = pipe.timeline.memory[device.name][0].by_category["weights"]
        assert weights == device.weight_bytes
        assert simulated.peak(device.name) <= device.predicted_bytes
        # No timing exceeds the figure; how far below this one stays depends on who waited for whom.
        assert 0.4 * device.activation_bytes <= measured - weights <= device.activation_bytes
