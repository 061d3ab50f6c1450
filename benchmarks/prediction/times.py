#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured times, in one run: profiles by kerf.profile, then the same work timed.

    python benchmarks/prediction/times.py forward --out h200_predicted.json.gz     # a GPU
    python benchmarks/prediction/times.py training --out h200_training.json.gz     # a GPU
    python benchmarks/prediction/times.py cpu --out cpu_predicted.json             # no GPU needed

forward: 24 models at batch 1, 8 and 32, one stage that is run operator by operator, and eager.
training: 20 models at batch 8, forward and backward of each node against a step of eager PyTorch;
workspaces too. cpu: the cases of cpu_models.py, one device and two.
"""

import argparse
import concurrent.futures
import contextlib
import gzip
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import cpu_models
import record
import torch

import kerf

BATCHES = (1, 8, 32)
TURNS = 3


def leaf_call(inputs):
    """The arguments of a call, as positions and keywords."""
    return ((inputs["x"],), {}) if "x" in inputs else ((), inputs)


def trace_to_file(name, batch, training, path):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model, inputs = record.make(name, batch, training, device="cpu")
    if training and name == "opt":
        # `torch.rand([]) < layerdrop` asks a tensor, with layerdrop 0. The layers stay in training.
        model.model.decoder.training = False
    args, kwargs = leaf_call(inputs)
    kerf.trace(model, args, kwargs).save(path)
    return path


def trace_all(tasks, training, folder):
    """(name, batch) -> graph, traced on the CPU by several processes, and kept in `folder`. One
    graph serves the larger batches, too, where the model does not fix the size."""
    graphs, errors = trace_each([t for t in tasks if t[1] <= 8], training, folder)
    fixed = []
    for name, batch in tasks:
        serves = graphs.get((name, 8))
        if batch > 8 and serves is not None and not serves.is_static:
            graphs[name, batch] = serves
        elif batch > 8:
            fixed.append((name, batch))
    more, failed = trace_each(fixed, training, folder)
    return {**graphs, **more}, {**errors, **failed}


def trace_each(tasks, training, folder):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    graphs, errors, waiting = {}, {}, {}
    context = multiprocessing.get_context("spawn")
    workers = max(1, len(os.sched_getaffinity(0)) - 1)
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        for name, batch in tasks:
            path = pathlib.Path(folder, f"{name}_{batch}{'_train' if training else ''}.graph")
            if path.exists():
                graphs[name, batch] = kerf.load_graph(path)
            else:
                waiting[name, batch] = pool.submit(trace_to_file, name, batch, training, str(path))
        for task, future in waiting.items():
            try:
                graphs[task] = kerf.load_graph(future.result())
            except Exception as error:
                errors[task] = f"{type(error).__name__}: {error}"[:300]
    return graphs, errors


def wall_times(call, runs, warmup, wait=torch.cuda.synchronize):
    """Milliseconds of calls that find the device idle, until it is idle again."""
    for _ in range(warmup):
        call()
    out = []
    for _ in range(runs):
        wait()
        before = time.perf_counter()
        call()
        wait()
        out.append(1e3 * (time.perf_counter() - before))
    return out


def nanoseconds(profile, *fields):
    return {f: [round(1e9 * getattr(c, f)) for c in profile.nodes] for f in fields}


def forward_row(model, inputs, graph, batch):
    """Profiles and runs in turns, so that a host that is slower for a while is so for both."""
    args, kwargs = leaf_call(inputs)
    devices = ["cuda:0"]

    def profiled():
        return kerf.profile(
            model, graph, args, kwargs, batch=batch, devices=devices, budget_seconds=0.3
        )

    profiles = [profiled()]
    plan = kerf.plan(graph, devices, profile=profiles[0], n_microbatches=1)
    walls = []
    with (
        torch.no_grad(),
        kerf.Pipeline(model, plan, graph=graph, frozen=True, cuda_graphs=False) as pipeline,
    ):
        for turn in range(TURNS):
            if turn > 0:
                profiles.append(profiled())
            walls += wall_times(lambda: pipeline(*args, **kwargs), runs=12, warmup=3)
        eager = wall_times(lambda: record.call(model, inputs), runs=12, warmup=3)
    profile = sorted(profiles, key=lambda p: p.total_forward)[TURNS // 2]
    return {
        "predicted_ms": 1e3 * profile.total_forward,
        "measured_ms": record.quartiles(walls),
        "eager_ms": record.quartiles(eager),
        "notes": list(profile.notes),
        **nanoseconds(profile, "forward_issue", "forward_device"),
    }


def training_row(model, inputs, graph, batch):
    args, kwargs = leaf_call(inputs)
    profile = kerf.profile(
        model,
        graph,
        args,
        kwargs,
        batch=batch,
        devices=["cuda:0"],
        budget_seconds=2.0,
        training=True,
    )
    row = {
        "predicted_forward_ms": 1e3 * profile.total_forward,
        "predicted_backward_ms": 1e3 * profile.total_backward,
        "backward_weights_ms": 1e3 * sum(c.backward_weights for c in profile.nodes),
        "notes": list(profile.notes),
        **nanoseconds(profile, "forward_issue", "forward_device"),
        **nanoseconds(profile, "backward_issue", "backward_device"),
        "workspace": [
            c.peak_bytes - c.input_bytes - c.weight_bytes - c.output_bytes for c in profile.nodes
        ],
        "backward_workspace": [c.backward_workspace for c in profile.nodes],
        "node": [node["name"] for node in graph.nodes],
        "graph_hash": graph.hash,
    }
    forward = wall_times(lambda: record.call(model, inputs), runs=20, warmup=5)
    row["eager_forward_ms"] = record.quartiles(forward)
    seconds = []
    for _ in range(25):
        y = record.call(model, inputs)
        ones = torch.ones_like(y)
        torch.cuda.synchronize()
        before = time.perf_counter()
        y.backward(ones)
        torch.cuda.synchronize()
        seconds.append(1e3 * (time.perf_counter() - before))
        model.zero_grad(set_to_none=True)
    row["eager_backward_ms"] = record.quartiles(seconds[5:])
    return row


def hold_still():
    """Keeps the calling thread on one core: on some machines cores differ by half."""
    torch.cuda.init()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def on_gpu(options):
    training, only = options.what == "training", options.only
    names = [*record.IMAGES, *([] if training else record.MORE_IMAGES), *record.TEXTS]
    names = [n for n in names if not only or n in only]
    batches = (record.BATCH,) if training else BATCHES
    start = time.time()
    graphs, errors = trace_all([(n, b) for n in names for b in batches], training, options.graphs)
    print(f"{len(graphs)} graphs traced in {time.time() - start:.0f} s", flush=True)
    hold_still()
    rows = {f"{name} {batch}": {"error": text} for (name, batch), text in errors.items()}
    for name in names:
        model = None
        for batch in batches:
            if (name, batch) not in graphs:
                continue
            label = f"{name} {batch}"
            try:
                record.free()
                if model is None:
                    model, _ = record.make(name, batch, training)
                inputs = record.inputs_of(name, batch)
                if training and name == "opt":
                    model.model.decoder.training = False
                row = (training_row if training else forward_row)(
                    model, inputs, graphs[name, batch], batch
                )
            except Exception as error:  # recorded, and the exit status says so
                row = {"error": f"{type(error).__name__}: {error}"[:300]}
            rows[label] = row
            show(label, row)
            save(options.out, rows)
    return rows


def show(label, row):
    if "error" in row:
        print(f"{label:26} {row['error']}", flush=True)
        return
    text = ""
    for predicted, measured in (
        ("predicted_ms", "measured_ms"),
        ("predicted_forward_ms", "eager_forward_ms"),
        ("predicted_backward_ms", "eager_backward_ms"),
    ):
        if measured in row:
            a, b = row[predicted], row[measured]["median"]
            text += f"  {predicted[:-3]} {a:8.3f} {measured[:-3]} {b:8.3f} ms ({a / b:.3f})"
    if "without_load_ms" in row:
        text += f"  without load {row['without_load_ms'] / row['measured_ms']['median']:.3f}"
        text += f"  floor {100 * row['floor']:.1f} %"
    for kind in ("recorded", "eager"):
        if f"{kind}_ms" in row:
            text += f"  {kind} {row[f'{kind}_ms']['median']:8.3f}"
    for phase in ("forward", "backward"):
        if f"{phase}_issue" in row:
            issue, device = sum(row[f"{phase}_issue"]), sum(row[f"{phase}_device"])
            text += f"  issue {issue / 1e6:7.3f} device {device / 1e6:7.3f}"
    print(f"{label:26}{text}", flush=True)


def summary(rows):
    def line(what, ratios):
        if not ratios:
            return
        off = sorted(abs(r - 1) for r in ratios)
        print(
            f"{what}: {len(ratios)} rows, off by {100 * statistics.median(off):.1f} % in the "
            f"median, {100 * off[-1]:.1f} % at worst; median ratio {statistics.median(ratios):.3f}"
        )

    good = [r for r in rows.values() if "error" not in r]
    line(
        "step",
        [r["predicted_ms"] / r["measured_ms"]["median"] for r in good if "measured_ms" in r],
    )
    with_load = [r for r in good if "without_load_ms" in r]
    line(
        "step, load left out",
        [r["without_load_ms"] / r["measured_ms"]["median"] for r in with_load],
    )
    line("the same work measured twice", [1 + r["floor"] for r in with_load])
    for phase in ("forward", "backward"):
        ratios = [
            r[f"predicted_{phase}_ms"] / r[f"eager_{phase}_ms"]["median"]
            for r in good
            if f"eager_{phase}_ms" in r
        ]
        line(f"training {phase} against eager", ratios)


CPU_TURNS = 4


def cpu_forms(batch):
    """Devices and micro-batches: with one micro-batch no stage has a neighbour at work."""
    return ((1, 1), (2, 1 if batch < 4 else 4))


def alone(profile, graph):
    """The profile as if no device had neighbours: what a prediction without load goes by."""
    times = [c.forward for c in profile.nodes]
    return kerf.Profile.from_times(graph, times, batch=profile.batch, source="measured")


def kept_times(call, seconds, least=3):
    """Milliseconds of calls, each without what it takes to free its result."""
    kept, out = call(), []
    end = time.perf_counter() + seconds
    while len(out) < least or time.perf_counter() < end:
        before = time.perf_counter()
        result = call()
        out.append(1e3 * (time.perf_counter() - before))
        kept = result  # frees the one before, outside of the measured time
    del kept
    return out


def cpu_row(model, inputs, graph, batch, devices, n_microbatches):
    """Profiles and runs in turns of less than a second, one plan for all of them."""

    def profiled():
        return kerf.profile(
            model,
            graph,
            (),
            inputs,
            batch=batch // n_microbatches,
            devices=devices,
            budget_seconds=0.4,
        )

    plan = kerf.plan(graph, devices, profile=profiled(), n_microbatches=n_microbatches)
    predicted, ignoring_load, walls = [], [], []
    with torch.no_grad(), kerf.Pipeline(model, plan, graph=graph, frozen=True) as pipeline:
        for _ in range(CPU_TURNS):
            profile = profiled()
            for times, figures in (
                (profile, predicted),
                (alone(profile, graph), ignoring_load),
            ):
                again = kerf.replan(plan, graph, profile=times)
                figures.append(1e3 * again.predicted_step_time)
            walls.append(kept_times(lambda: pipeline(**inputs), seconds=0.4))
    medians = [statistics.median(turn) for turn in walls]
    return {
        "predicted_ms": statistics.median(predicted),
        "without_load_ms": statistics.median(ignoring_load),
        "measured_ms": record.quartiles(sum(walls, [])),
        "predicted_turns_ms": predicted,
        "measured_turns_ms": medians,
        "floor": noise_floor(medians),
        "stages": len(plan.stages),
        "n_microbatches": n_microbatches,
    }


def noise_floor(turns):
    """How far two medians of the same work are apart: those of odd and even turns."""
    return abs(statistics.median(turns[::2]) / statistics.median(turns[1::2]) - 1)


# Work that anything else goes before.
SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print(flush=True)
while True:
    pass
"""


@contextlib.contextmanager
def awake_cores(wanted):
    """Idle cores of a virtual machine are lent to others, and come back with cold caches: a stage
    that was waiting takes up to a tenth longer, and which one does is chance. Here none is idle."""
    cores = sorted(os.sched_getaffinity(0)) if wanted else []
    spinners = [
        subprocess.Popen([sys.executable, "-c", SPIN, str(core)], stdout=subprocess.PIPE)
        for core in cores
    ]
    for spinner in spinners:
        spinner.stdout.readline()  # it spins
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def cpu_graph(name, batch, size, folder):
    path = pathlib.Path(folder, f"{name}_{batch}_{size}.graph")
    if path.exists():
        return kerf.load_graph(path)
    graph = kerf.trace(cpu_models.make(name), (), cpu_models.inputs_of(name, batch, size))
    path.parent.mkdir(parents=True, exist_ok=True)
    graph.save(path)
    return graph


def on_cpu(options):
    rows = load_rows(options.out) if options.add else {}
    for name, batch, size in cpu_models.CASES:
        if options.only and cpu_models.label(name, batch, size) not in options.only:
            continue
        graph = cpu_graph(name, batch, size, options.graphs)
        model, inputs = cpu_models.make(name), cpu_models.inputs_of(name, batch, size)
        for count, n in cpu_forms(batch):
            label = f"{cpu_models.label(name, batch, size)}, {count} devices, {n} micro-batches"
            devices = [f"cpu:{i}" for i in range(count)]
            try:
                with awake_cores(not options.halting):
                    row = cpu_row(model, inputs, graph, batch, devices, n)
            except Exception as error:  # recorded, and the exit status says so
                row = {"error": f"{type(error).__name__}: {error}"[:300]}
            rows[label] = row
            show(label, row)
            save(options.out, rows)
    for form in sorted({label.partition(", ")[2] for label in rows}):
        print(f"{form}:")
        summary({label: row for label, row in rows.items() if label.endswith(form)})
    return rows


def load_rows(path):
    return json.loads(gzip.decompress(path.read_bytes()))["rows"] if path.exists() else {}


def save(path, rows):
    about = {**record.about(), "kerf": kerf.__version__, "processor": processor()}
    path.write_bytes(gzip.compress(json.dumps({**about, "rows": rows}).encode(), 5, mtime=0))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("forward", "training", "cpu"))
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="*", help="these models; cpu: these cases, as 'bert 8x128'")
    parser.add_argument("--add", action="store_true", help="cpu: to the rows that --out has")
    parser.add_argument("--halting", action="store_true", help="cpu: cores may halt when idle")
    parser.add_argument("--graphs", help="a folder of graphs: those that are there are not traced")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        options.graphs = options.graphs or folder
        rows = on_cpu(options) if options.what == "cpu" else on_gpu(options)
    summary(rows)
    failed = sum("error" in row for row in rows.values())
    print(f"{len(rows)} rows, {failed} failed: {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
