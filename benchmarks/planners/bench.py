# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""How good are Kerf's plans of published placement problems, and how soon? See README.md."""

import argparse
import dataclasses
import json
import math
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import exact
import generate
import measure
import problem as judge
from anchors import COSTLY, LATENCY, OPEN, THROUGHPUT
from timing import geomean, table

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("KERF_DATA", HERE.parents[2] / "shared" / "data")) / "dnn-partitioning"
CONTIGUOUS = ("--method", "ideals", "--contiguous", "--time-budget", "60")
ANY_SPLIT = ("--method", "auto", "--time-budget", "1")
PROVED = 1e-5


@dataclasses.dataclass
class Plan:
    """A plan that the judge has scored again, and what it took."""

    value: float  # the worst of the runs, where they differ
    luckiest: float
    bound: float
    gap: float
    device: list
    cpu: float  # median
    megabytes: float  # largest
    truncated: bool  # some run was stopped by its clock


class Bench:
    def __init__(self, program, folder, quick):
        # Others may build while this runs: every row is of one program.
        self.program = shutil.copy2(program, folder / "kerf")
        self.folder = folder
        self.quick = quick
        self.repeats = 1 if quick else 3
        self.missed = []
        self.plans = {}  # by arguments: a problem planned alike in two tables runs once

    def published(self, kind, name):
        return DATA / kind / f"{name}.json"

    def written(self, name, data):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(data))
        return path

    def plan(self, path, *options, contiguous=False):
        key = (str(path), options)
        if key not in self.plans:
            self.plans[key] = self.planned(path, options, contiguous)
        return self.plans[key]

    def planned(self, path, options, contiguous):
        command = [self.program, "plan", path, "--from", "dnn-partitioning", "--json", *options]
        runs = [measure.run(command)]
        while len(runs) < self.repeats and runs[0].cpu < 10:
            runs.append(measure.run(command))
        if runs[0].code != 0:
            raise judge.Mismatch(f"{' '.join(map(str, command))}: {runs[0].error}")
        problem = judge.load(path)
        plans = [json.loads(run.output) for run in runs]
        devices = [judge.checked(problem, plan, contiguous) for plan in plans]
        if len(set(map(tuple, devices))) > 1 and not any(plan["truncated"] for plan in plans):
            raise judge.Mismatch(f"{path}: another split on another run, and no clock to blame")
        # What the clock cuts short differs from run to run: the worst of them counts.
        worst = max(range(len(runs)), key=lambda i: plans[i]["objective"])
        value, bound = plans[worst]["objective"], plans[worst]["lower_bound"]
        return Plan(
            value,
            min(plan["objective"] for plan in plans),
            bound,
            value / bound - 1 if bound else math.inf,
            devices[worst],
            statistics.median(run.cpu for run in runs),
            max(run.megabytes for run in runs),
            any(plan["truncated"] for plan in plans),
        )

    def score(self, path, device):
        """The latency of a split by `kerf score`, the same as the judge's, and if it fits."""
        problem = judge.load(path)
        named = {str(i): "cpu" if d == judge.CPU else d for i, d in zip(problem.ids, device)}
        split = self.written("split", {"assignment": named})
        run = measure.run([self.program, "score", path, "--split", split])
        value = float(re.search(r"latency objective\s+(\S+) for", run.output).group(1))
        ours = judge.latency(problem, device)
        if not math.isclose(value, ours, rel_tol=judge.EQUAL):
            raise judge.Mismatch(f"{path}: kerf score says {value}, the judge {ours}")
        return value, run.code == 0

    def peer(self, name, path, seeds):
        """The best split of a partitioner's many runs; None and why if it is not to be had."""
        run = measure.run([sys.executable, HERE / "peers.py", name, path, str(seeds)], timeout=900)
        if run.code != 0:
            return None, run.error.strip().splitlines()[-1]
        report = json.loads(run.output)
        if "value" not in report:
            return None, "no split fits the memory"
        return report, ""

    def verdict(self, row, *failures):
        """'met', or what was missed; misses are listed again at the end."""
        failures = [failure for failure in failures if failure]
        if not failures:
            return "met"
        self.missed.append(f"{row}: {', '.join(failures)}")
        return f"MISSED: {', '.join(failures)}"


def unless(met, what):
    return "" if met else what


def number(value):
    return f"{value:.5f}"


def seconds(value):
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def percent(value):
    return "proved" if value <= PROVED else f"{value * 100:.2f} %"


def times(value):
    return f"{value:,.0f}x" if value >= 10 else f"{value:.1f}x"


def ratio(theirs, ours):
    return times(theirs / max(ours, 1e-3))  # the clock cannot tell less than a millisecond


# ---- answers first


def check_answers(bench):
    """Small problems by enumeration, known values by the judge: or no figure is worth a thing."""
    for name, known in THROUGHPUT.items():
        problem = judge.load(bench.published("throughput", name))
        value = judge.max_load(problem, [0] * problem.num_nodes)
        if not math.isclose(value, known.one_device, abs_tol=6e-4):
            raise judge.Mismatch(f"{name} on one device: {value}, known as {known.one_device}")
    checked = len(THROUGHPUT)
    for seed in range(1 if bench.quick else 2):
        small = {
            "inception": generate.small_inception(seed),
            "gnmt": generate.gnmt(layers=1, seed=seed),
        }
        for family, builder in small.items():
            for training in (False, True):
                data = builder.problem(3, training)
                path = bench.written(f"small_{family}", data)
                bench.plans.clear()
                check_contiguous(bench, path, exact.contiguous_optimum(judge.from_json(data)))
                checked += 1
    for blocks, devices in ((3, 2), (6, 4), (8, 8)):
        data = generate.t5(4, blocks=blocks).problem(devices)
        path = bench.written("small_t5", data)
        bench.plans.clear()
        check_contiguous(bench, path, exact.chain_optimum(judge.from_json(data)))
        checked += 1
    bench.plans.clear()
    print(f"{checked} answers checked against enumeration and known values: all agree.\n")


def check_contiguous(bench, path, optimum):
    plan = bench.plan(path, *CONTIGUOUS, contiguous=True)
    if not math.isclose(plan.value, optimum, rel_tol=judge.EQUAL):
        raise judge.Mismatch(f"{path}: Kerf's {plan.value}, enumeration's {optimum}")


# ---- tables


def contiguous(bench):
    """Contiguous optimum of nine files: the published value, <= 0.25 s, <= 64 MB."""
    rows = []
    for name, known in THROUGHPUT.items():
        plan = bench.plan(bench.published("throughput", name), *CONTIGUOUS, contiguous=True)
        off = abs(plan.value / known.contiguous - 1)
        rows.append(
            [
                name,
                number(plan.value),
                known.contiguous,
                number(plan.bound),
                seconds(plan.cpu),
                known.dp_seconds,
                ratio(known.dp_seconds, plan.cpu) if known.dp_seconds else "",
                f"{plan.megabytes:.0f}",
                known.dp_megabytes,
                bench.verdict(
                    name,
                    unless(off <= 1e-4, "value"),
                    unless(plan.cpu <= 0.25, f"{plan.cpu:.2f} s"),
                    unless(plan.megabytes <= 64, f"{plan.megabytes:.0f} MB"),
                ),
            ]
        )
    header = ["problem", "Kerf", "published", "bound, any split", "cpu s", "dp.exe s*", "ratio*"]
    return header + ["MB", "dp.exe MB*", "target"], rows


def generated_problems():
    inception, gnmt = generate.inception(), generate.gnmt()
    for training in (False, True):
        kind = "training" if training else "inference"
        for cheap in (False, True):
            cost = 1e-3 if cheap else 1.0
            name = f"{kind}{', transfers / 1000' if cheap else ''}"
            yield f"Inception-v3 {name}", inception.problem(6, training, communication=cost)
            yield f"GNMT-like {name}", gnmt.problem(6, training, communication=cost)


def ideals(bench):
    """Contiguous optimum of generated problems of more than 30,000 ideals: <= 5 s, <= 64 MB."""
    rows = []
    known = {}
    for name, data in sorted(generated_problems(), key=lambda pair: pair[0]):
        problem = judge.from_json(data)
        family = name.split()[0]
        if family not in known:
            known[family] = len(exact.ideals_of(problem))
        if known[family] < 30_000:
            raise judge.Mismatch(f"{name}: only {known[family]} ideals")
        path = bench.written(re.sub(r"\W+", "_", name), data)
        plan = bench.plan(path, *CONTIGUOUS, contiguous=True)
        in_order = exact.chain_optimum(problem) if "inference" in name else math.inf
        if plan.value > in_order * (1 + judge.EQUAL):
            raise judge.Mismatch(f"{name}: cutting the file's order is better: {in_order}")
        rows.append(
            [
                name,
                problem.num_nodes,
                f"{known[family]:,}",
                number(plan.value),
                number(in_order) if math.isfinite(in_order) else "",
                number(plan.bound),
                percent(plan.gap),
                seconds(plan.cpu),
                f"{plan.megabytes:.0f}",
                bench.verdict(
                    name,
                    unless(plan.cpu <= 5, f"{plan.cpu:.2f} s"),
                    unless(plan.megabytes <= 64, f"{plan.megabytes:.0f} MB"),
                    unless(not plan.truncated, "truncated"),
                ),
            ]
        )
    header = ["problem, 6 accelerators", "nodes", "ideals", "Kerf", "file order, best cut"]
    return header + ["bound, any split", "gap", "cpu s", "MB", "target"], rows


def any_split(bench):
    """Any split of nine files, one second: the best known value + 0.1 %, <= 1 s."""
    rows, better = [], []
    for name, known in THROUGHPUT.items():
        plan = bench.plan(bench.published("throughput", name), *ANY_SPLIT)
        if plan.bound > known.best * (1 + PROVED):
            raise judge.Mismatch(f"{name}: a bound of {plan.bound} above a split of {known.best}")
        off = plan.value / known.best - 1
        if name in OPEN and off < -1e-6:
            better.append(name)
        rows.append(
            [
                name,
                number(plan.value),
                number(plan.luckiest) if plan.luckiest < plan.value else "",
                known.best,
                f"{off * 100:+.3f} %",
                number(plan.bound),
                percent(plan.gap),
                seconds(plan.cpu),
                "clock" if plan.truncated else "counted work",
                bench.verdict(
                    name,
                    unless(off <= 1e-3, "value"),
                    unless(plan.cpu <= 1, f"{plan.cpu:.2f} s"),
                ),
            ]
        )
    target = bench.verdict("one of three open", unless(better, "none better than known"))
    blank = [""] * 7
    rows.append(["open ones better than known", f"{len(better)} of {len(OPEN)}", *blank, target])
    header = ["problem", "Kerf, worst run", "best run", "best known*", "difference", "bound"]
    return header + ["gap", "cpu s", "stopped by", "target"], rows


def proof(bench):
    """Optimum and proof: gap <= 1e-5, <= 2 s each."""
    rows = []
    for method in ("auto", "exact"):
        options = ("--method", method, "--time-budget", "10")
        ours, theirs = [], []
        for name, known in THROUGHPUT.items():
            if known.proof_seconds is None and name != "layer_bert24_training":
                continue
            plan = bench.plan(bench.published("throughput", name), *options)
            if known.proof_seconds:
                ours.append(max(plan.cpu, 1e-3))
                theirs.append(known.proof_seconds)
            rows.append(
                [
                    method,
                    name,
                    number(plan.value),
                    number(plan.bound),
                    f"{plan.gap:.1e}",
                    seconds(plan.cpu),
                    known.proof_seconds or "",
                    ratio(known.proof_seconds, plan.cpu) if known.proof_seconds else "",
                    bench.verdict(
                        f"{method} {name}",
                        unless(plan.gap <= PROVED, "not proved"),
                        unless(plan.value <= known.best * (1 + PROVED), "value"),
                        unless(plan.cpu <= 2, f"{plan.cpu:.2f} s"),
                    ),
                ]
            )
        mean, known_mean = geomean(ours), geomean(theirs)
        rows.append(
            [method, "geometric mean of five", "", "", "", seconds(mean), seconds(known_mean)]
            + [ratio(known_mean, mean)]
            + [bench.verdict(f"{method}, mean", unless(mean <= known_mean, f"{mean:.2f} s"))]
        )
    header = ["method", "problem", "Kerf", "bound", "gap", "cpu s", "known s*", "ratio*", "target"]
    return header, rows


def partitioners(bench):
    """Beside Mt-KaHyPar and METIS: never worse, at a fifth of the cpu time or less."""
    rows = []
    for name, known in THROUGHPUT.items():
        path = bench.published("throughput", name)
        plan = bench.plan(path, *ANY_SPLIT)
        hyper, why = bench.peer("mtkahypar", path, 1 if bench.quick else 4)
        metis, why_not = bench.peer("metis", path, 3)
        row = [name, number(plan.value), number(plan.bound), seconds(plan.cpu)]
        for peer, reason in ((hyper, why), (metis, why_not)):
            if peer and peer["value"] < plan.bound * (1 - judge.EQUAL):
                raise judge.Mismatch(f"{name}: a bound of {plan.bound} above {peer['value']}")
            row += (
                [number(peer["value"]), peer["runs"], seconds(peer["cpu"])]
                if peer
                else [reason, "", ""]
            )
        values = [peer["value"] for peer in (hyper, metis) if peer]
        worst = max((plan.value / value - 1 for value in values), default=0.0)
        verdict = bench.verdict(
            name,
            unless(worst <= 1e-9, f"{worst * 100:.3f} % worse"),
            unless(bench.quick or not hyper or 5 * plan.cpu <= hyper["cpu"], "over a fifth"),
            unless(hyper, "no Mt-KaHyPar"),
        )
        gain = f"{(hyper['value'] / plan.value - 1) * 100:.2f} %" if hyper else ""
        row += [gain, ratio(hyper["cpu"], plan.cpu) if hyper else "", known.multistart, verdict]
        rows.append(row)
    header = ["problem", "Kerf", "bound", "cpu s", "Mt-KaHyPar", "runs", "cpu s ", "METIS"]
    return header + ["runs ", "cpu s  ", "gain", "ratio", "Mt-KaHyPar*", "target"], rows


def costly(bench):
    """Every transfer of the layer graphs x 1000, any split: <= the contiguous optimum."""
    rows = []
    for name, known in COSTLY.items():
        data = json.loads(bench.published("throughput", name).read_text())
        for edge in data["edges"]:
            edge["cost"] *= 1000
        path = bench.written(f"costly_{name}", data)
        within = bench.plan(path, *CONTIGUOUS, contiguous=True)
        plan = bench.plan(path, *ANY_SPLIT)
        rows.append(
            [
                name,
                number(plan.value),
                number(within.value),
                known,
                number(plan.bound),
                percent(plan.gap),
                seconds(plan.cpu),
                seconds(within.cpu),
                bench.verdict(
                    f"{name} x 1000",
                    unless(plan.value <= within.value * (1 + 1e-9), "worse than contiguous"),
                    unless(abs(within.value / known - 1) <= 1e-4, "contiguous value"),
                ),
            ]
        )
    header = ["problem", "Kerf", "Kerf, contiguous", "contiguous*", "bound", "gap", "cpu s"]
    return header + ["cpu s, contiguous", "target"], rows


def latency(bench):
    """One sample alone: the best known value + 0.5 %, <= 2 s."""
    rows = []
    options = ("--objective", "latency", "--time-budget", "2")
    for name, known in LATENCY.items():
        path = bench.published("latency", name)
        plan = bench.plan(path, *options)
        greedy, greedy_fits = bench.score(path, exact.greedy_split(judge.load(path)))
        balanced, fits = bench.score(path, bench.plan(path, *CONTIGUOUS, contiguous=True).device)
        off = plan.value / known.best - 1
        rows.append(
            [
                name,
                number(plan.value),
                known.best,
                f"{off * 100:+.3f} %",
                number(plan.bound),
                seconds(plan.cpu),
                f"{greedy:.3f}{'' if greedy_fits else ', over memory'}",
                known.greedy,
                known.expert,
                f"{balanced:.3f}{'' if fits else ', over memory'}",
                known.dp_split,
                bench.verdict(
                    f"latency {name}",
                    unless(off <= 5e-3, "value"),
                    unless(plan.cpu <= 2, f"{plan.cpu:.2f} s"),
                ),
            ]
        )
    header = ["problem", "Kerf", "best known*", "difference", "bound", "cpu s", "greedy"]
    header += ["greedy*", "expert*", "max-load split", "max-load split*", "target"]
    return header, rows


def chain(bench):
    """A T5-like graph of 6,150 nodes on 8 accelerators, contiguous: <= 0.5 s."""
    rows = []
    for branched in (False, True):
        name = "decoder beside the encoder" if branched else "chain"
        data = generate.t5(branched=branched).problem(8)
        problem = judge.from_json(data)
        plan = bench.plan(bench.written(f"t5_{branched}", data), *CONTIGUOUS, contiguous=True)
        in_order = exact.chain_optimum(problem)
        if plan.value > in_order * (1 + judge.EQUAL):
            raise judge.Mismatch(f"t5, {name}: cutting the file's order is better: {in_order}")
        if not branched and plan.value < in_order * (1 - judge.EQUAL):
            raise judge.Mismatch(f"t5, {name}: no cut is as good as {plan.value}")
        mean = sum(problem.accelerator_time) / 8
        rows.append(
            [
                f"T5-like, {name}",
                problem.num_nodes,
                number(plan.value),
                number(in_order),
                number(plan.bound),
                f"{plan.value / mean:.3f}",
                seconds(plan.cpu),
                f"{plan.megabytes:.0f}",
                ""
                if branched
                else bench.verdict("chain", unless(plan.cpu <= 0.5, f"{plan.cpu:.2f} s")),
            ]
        )
    header = ["problem", "nodes", "Kerf", "file order, best cut", "bound, any split"]
    return header + ["busiest / mean compute", "cpu s", "MB", "target"], rows


TABLES = (contiguous, ideals, any_split, proof, partitioners, costly, latency, chain)


def machine():
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if "model name" in line), model)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main():
    names = [function.__name__ for function in TABLES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="table", help=f"of {', '.join(names)}")
    parser.add_argument(
        "--quick", action="store_true", help="one run a row, a quarter of the peers'"
    )
    parser.add_argument(
        "--kerf", type=Path, default=HERE.parents[1] / "build" / "release" / "kerf", help="program"
    )
    options = parser.parse_args()
    if unknown := set(options.tables) - set(names):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if not DATA.is_dir():
        print(
            f"no published problems at {DATA}: get msr-fiddle/dnn-partitioning and set KERF_DATA",
            file=sys.stderr,
        )
        return 2
    if not options.kerf.is_file():
        print(f"no program at {options.kerf}: build it first", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.kerf, Path(folder), options.quick)
        print(machine(), end="\n\n")
        check_answers(bench)
        for function in TABLES:
            if not options.tables or function.__name__ in options.tables:
                header, rows = function(bench)
                print(f"## {function.__name__}: {function.__doc__}\n")
                print(table(header, rows), end="\n\n", flush=True)
        print("Missed:" if bench.missed else "No target missed.")
        for row in bench.missed:
            print(f"- {row}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
