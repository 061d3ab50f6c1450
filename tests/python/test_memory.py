# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.memory and `kerf memory`: figures, faces, and predictions against a recorded GPU."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import kerf
from kerf import _core

ROOT = Path(__file__).parents[2]

MODEL = """kerf-graph 1.1
graph "Small" training
batch 4
scope 0 "" "Small"
scope 1 "blocks.0" "Block"
scope 2 "blocks.1" "Block"
input %x: f32[B, 1024] = "args.0"
weight @a: f32[1024, 1024] grad = parameter "blocks.0.weight"
weight @b: f32[1024, 1024] grad = parameter "blocks.1.weight"
%h: f32[B, 1024] grad = aten.linear.default(%x, @a) ; scope=1
%t: f32[B, 1024] grad = aten.tanh.default(%h) ; scope=1
%u: f32[B, 1024] grad = aten.sigmoid.default(%t) ; scope=1
%y: f32[B, 1024] grad = aten.linear.default(%u, @b) ; scope=2
output "" = %y
"""
WEIGHT = 4 * 1024 * 1024


@pytest.fixture
def graph():
    return _core.parse_graph(MODEL)


def test_a_step_on_a_host_adds_up(graph):
    memory = kerf.memory(graph, batch=8, optimizer="sgd", device_kind="cpu")
    row = 8 * 1024 * 4
    assert memory.saved == 2 * row  # tanh and sigmoid keep their results; linear keeps one of them
    assert memory.added_by_forward == 3 * row  # and the model's result
    # In the backward of the first product: both gradients of weights are there.
    assert memory.phase == "backward"
    assert memory.at_peak["weights"] == 2 * WEIGHT
    assert memory.at_peak["gradients"] == 2 * WEIGHT
    assert memory.at_peak["inputs"] == row
    assert memory.peak == sum(memory.at_peak.values())
    assert memory.reserved == 0


def test_optimizers_hold_state(graph):
    peaks = {
        name: kerf.memory(graph, optimizer=name, device_kind="cpu")
        for name in ("sgd", "sgd_momentum", "adamw")
    }
    assert peaks["sgd_momentum"].peak - peaks["sgd"].peak == 2 * WEIGHT
    assert peaks["adamw"].at_peak["optimizer"] == 4 * WEIGHT
    assert peaks["adamw"].phase == "optimizer"


def test_recomputed_blocks_keep_their_inputs(graph):
    none = kerf.memory(graph, recompute="none", device_kind="cpu")
    some = kerf.memory(graph, recompute=["blocks.0"], device_kind="cpu")
    row = 4 * 1024 * 4
    assert none.saved == 2 * row
    assert some.saved == row  # what blocks.1 keeps
    both = kerf.memory(graph, recompute="all", device_kind="cpu")
    assert both.saved == row


def test_inference_keeps_nothing(graph):
    memory = kerf.memory(graph, training=False, device_kind="cpu")
    assert memory.saved == 0
    assert memory.at_peak["gradients"] == memory.at_peak["optimizer"] == 0
    assert memory.peak < 2 * WEIGHT + 5 * 4 * 1024 * 4


def test_the_allocator_reserves_more_than_is_used(graph):
    memory = kerf.memory(graph)
    assert memory.reserved >= memory.peak > 0
    assert memory.reserved % (2 << 20) == 0


def test_forward_adds_blocks_as_the_allocator_rounds_them(graph):
    memory = kerf.memory(graph, batch=33)
    row = 33 * 1024 * 4
    assert 3 * row <= memory.added_by_forward < 3 * row + 3 * 512 + 1
    assert kerf.memory(graph, batch=33, device_kind="cpu").added_by_forward == 3 * row


def test_kinds_add_up_to_the_peak_on_an_accelerator(graph):
    memory = kerf.memory(graph, batch=7)
    assert memory.at_peak["rounding"] >= 0
    assert sum(memory.at_peak.values()) == memory.peak
    odd = _core.parse_graph(MODEL.replace("1024", "1000"))
    memory = kerf.memory(odd, batch=7)
    assert memory.at_peak["rounding"] > 0
    assert sum(memory.at_peak.values()) == memory.peak


def test_the_table_names_what_there_is(graph):
    text = str(kerf.memory(graph, optimizer="adamw"))
    for word in ("peak", "reserved", "weights", "gradients", "optimizer", "inputs", "workspace"):
        assert word in text


BAD = {
    "optimizer": (dict(optimizer="admw"), "did you mean 'adamw'"),
    "scope": (dict(recompute=["block.0"]), "did you mean 'blocks.0'"),
    "kind": (dict(device_kind="toaster"), "unknown kind of device 'toaster'"),
    "batch": (dict(batch=-3), "batch is -3; expected"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_arguments_are_refused_with_the_fix(graph, name):
    arguments, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        kerf.memory(graph, **arguments)


def test_training_of_an_eval_graph_is_refused():
    graph = _core.parse_graph(MODEL.replace(" training", ""))
    with pytest.raises(ValueError, match=r"dropout .* batch norm .*kerf.trace\(model.train\(\)"):
        kerf.memory(graph)
    assert kerf.memory(graph, training=False).peak > 0


def test_a_frozen_graph_cannot_be_trained():
    graph = _core.parse_graph(MODEL.replace(" grad", ""))
    with pytest.raises(ValueError, match="unfreeze"):
        kerf.memory(graph)


def test_a_static_graph_has_one_batch():
    graph = _core.parse_graph(MODEL.replace("batch 4\n", "").replace("[B, ", "[4, "))
    assert kerf.memory(graph).peak > 0
    with pytest.raises(ValueError, match="static"):
        kerf.memory(graph, batch=8)


def test_the_command_line_gives_the_same_table(graph, tmp_path):
    path = tmp_path / "model.graph"
    graph.save(path)
    command = [str(Path(sys.executable).parent / "kerf"), "memory", str(path), "--batch", "8"]
    more = ["--training", "--optimizer", "sgd", "--recompute", "all", "--device-kind", "cpu"]
    done = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
    arguments = dict(batch=8, optimizer="sgd", recompute="all", device_kind="cpu")
    assert done.stdout == str(kerf.memory(graph, **arguments))
    done = subprocess.run([*command, "--optimizer", "sdg"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "did you mean 'sgd'" in done.stderr


def load_benchmark(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / "benchmarks" / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def benchmark():
    return load_benchmark("prediction/memory.py")


def assert_within(errors, limits):
    for figure, (median, worst) in limits.items():
        assert errors[figure][0] <= median, (figure, errors[figure])
        assert errors[figure][1] <= worst, (figure, errors[figure])


def test_predictions_hold_on_a_recorded_gpu(benchmark):
    table = list(benchmark.rows())
    assert len(table) == 76
    # Median and worst, as reached; the targets are 0.5, 1 and 5 %, at worst 2, 3 and 10 %.
    # benchmarks/prediction/README.md names the rows that are worst, and why.
    limits = {"saved": (0.0001, 0.013), "peak": (0.0015, 0.012), "reserved": (0.011, 0.071)}
    assert_within(benchmark.errors(table), limits)


def test_measured_workspaces_make_them_better(benchmark):
    table = list(benchmark.rows(measured=True))
    assert len(table) == 60
    limits = {"saved": (0.0001, 0.0001), "peak": (0.0015, 0.0165), "reserved": (0.006, 0.058)}
    assert_within(benchmark.errors(table), limits)


def test_predictions_hold_on_torchvisions_models():
    # What forward leaves, peaks and reserved bytes of 14 models; the README of the benchmark says
    # what is known of the two that miss their target of 5 %.
    recorded = load_benchmark("symbolic_profile/recorded.py")
    table = list(recorded.rows())
    assert len(table) == 14
    assert set(recorded.misses(table)) <= {("resnet18", "reserved"), ("regnet_y_400mf", "reserved")}
    limits = {"forward": 0.0025, "peak": 0.005, "reserved": 0.1}
    for name, figures in table:
        for figure, (ours, theirs) in figures.items():
            assert abs(ours / theirs - 1) <= limits[figure], (name, figure, ours, theirs)


@pytest.mark.parametrize("name", ["resnet18", "densenet121", "googlenet", "vit_b_16", "gpt2", "t5"])
def test_the_allocator_reserves_what_pytorchs_reserved(benchmark, name):
    figures = benchmark.replayed(name)
    for figure in ("reserved_before", "peak_reserved"):
        replayed, recorded = figures[figure]
        assert replayed == recorded, figure
    # Which of two blocks of one number and size was given up first decides what rests stay in
    # blocks that were not split.
    replayed, recorded = figures["peak_allocated"]
    assert abs(replayed - recorded) <= 0.002 * recorded


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [("gpt2", 0.012, 0.007), ("t5", 0.1, 0.001), ("vit_b_16", 0.19, 0.005)],
)
def test_predicted_blocks_are_blocks_that_were_recorded(benchmark, name, missing, extra):
    # Bytes, size by size. Missing are copies that backward makes of gradients whose strides its
    # kernels do not take, given up at once. Convolutions are left out: cuDNN's workspaces.
    found = benchmark.block_differences(name)
    assert found[0] <= missing
    assert found[1] <= extra


def test_a_profile_brings_its_workspaces(graph, tmp_path):
    profile = _core.estimate(graph, "h200", 8, True)
    path = tmp_path / "profile.json"
    profile.save(path, graph)
    content = json.loads(path.read_text())
    content["source"] = "measured"
    for node in content["nodes"]:
        node["backward_workspace"] = 1 << 30
    path.write_text(json.dumps(content))
    measured = _core.load_profile(path, graph)
    memory = kerf.memory(graph, batch=8, profile=measured)
    assert memory.at_peak["workspace"] >= 1 << 30
    assert memory.peak > kerf.memory(graph, batch=8).peak + (1 << 29)
    for arguments, message in (
        (dict(batch=4, profile=measured), "batch 8 for a step of batch 4"),
        (dict(batch=8, profile=profile), "not measured"),
        (dict(batch=8, profile=measured, device_kind="cpu"), "for a host"),
    ):
        with pytest.raises(ValueError, match=message):
            kerf.memory(graph, **arguments)


def test_blocks_add_up_to_the_peak(graph):
    memory = kerf.memory(graph, batch=8, optimizer="sgd", device_kind="cpu", blocks=True)
    assert kerf.memory(graph, batch=8).blocks == []
    live = peak = 0
    for is_made, _, size, _ in memory.blocks:
        live += size if is_made else -size
        peak = max(peak, live)
    assert live == 0  # what a step makes is given up at its end
    stays = memory.at_peak["weights"] + memory.at_peak["inputs"]
    assert peak + stays == memory.peak
