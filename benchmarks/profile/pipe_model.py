# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""How long does pipe_model take, cold and from its caches, and what do its stages cost to run?
See README.md."""

import statistics
import sys
import tempfile
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from real_models import gpt2_small
from targets import seconds, unless
from timing import timed

import kerf

DEVICES = ["cpu:0", "cpu:1"]
COLD, WARM = 60, 10  # seconds


def pipe(model, kwargs, folder, name):
    started = time.perf_counter()
    plan = kerf.pipe_model(
        model,
        (),
        kwargs,
        batch_dim=0,
        devices=DEVICES,
        basic_blocks=["GPT2Block"],
        trace_cache_name=folder / "gpt2.graph",
        profiles_cache_name=folder / "gpt2.profile.json",
        output_file=folder / name,
    )
    return plan, time.perf_counter() - started


def load(path):
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def end_to_end(verdicts, rows):
    verdicts.table = "end to end"
    for training in (True, False):
        model, _, kwargs = gpt2_small(4)
        model.train(training)
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            cold, first = pipe(model, kwargs, folder, "cold.py")
            warm, second = pipe(model, kwargs, folder, "warm.py")
            assert warm == cold, "the caches gave another plan"
            assert (folder / "cold.py").read_text() == (folder / "warm.py").read_text()
        name = "GPT-2 small, " + ("training" if training else "inference")
        verdict = verdicts.verdict(
            name,
            unless(first <= COLD, f"cold {first:.0f} s"),
            unless(second <= WARM, f"warm {second:.0f} s"),
        )
        rows.append([name, seconds(first), seconds(second), verdict])


def stages_against_the_runtime():
    """Written stages, one after the other, and the C++ runtime, on the same plan."""
    model, _, kwargs = gpt2_small(4)
    with tempfile.TemporaryDirectory() as folder:
        plan, _ = pipe(model, kwargs, Path(folder), "stages.py")
        module = load(Path(folder) / "stages.py")
    rows = []
    for n_microbatches in (1, 4):
        replanned = kerf.replan(plan, plan.graph, n_microbatches=n_microbatches, batch=4)
        runner = kerf.Pipeline(model, replanned)
        parts = module.make_stages(model)
        with torch.no_grad():
            ours = runner(**kwargs)
            written = module.run(parts, **kwargs)
            difference = (ours.logits - written.logits).abs().max().item()
            assert torch.allclose(ours.logits, written.logits, rtol=1e-4, atol=1e-4), difference
            times = {"runtime": [], "stages": []}
            for _ in range(9):
                times["runtime"].append(timed(lambda run=runner: run(**kwargs)))
                times["stages"].append(timed(lambda parts=parts: module.run(parts, **kwargs)))
        runtime, stages = (statistics.median(times[n][1:]) for n in ("runtime", "stages"))
        rows.append(
            [
                n_microbatches,
                f"{stages * 1e3:.0f} ms",
                f"{runtime * 1e3:.0f} ms",
                f"{stages / runtime:.2f}",
                f"{difference:.1e}",
            ]
        )
    return rows
