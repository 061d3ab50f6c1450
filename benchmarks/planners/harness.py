# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Runs Kerf and its peers, has every plan scored again, and keeps what misses its target."""

import dataclasses
import json
import math
import re
import shutil
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import measure
import problem as judge
from targets import Verdicts, unless

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "tests" / "data" / "dnn-partitioning"
PROVED = 1e-5  # a gap that counts as none


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
    truncated: bool  # some run says that its clock stopped it
    same: bool  # all runs gave one split

    @property
    def fault(self):
        return unless(self.same or self.truncated, "another split on another run, not truncated")


class Bench(Verdicts):
    def __init__(self, program, folder, quick):
        # Others may build while this runs: every row is of one program.
        self.program = shutil.copy2(program, folder / "kerf")
        self.folder = folder
        self.quick = quick
        self.repeats = 1 if quick else 3
        self.table = ""
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
            len(set(map(tuple, devices))) == 1,
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


def number(value):
    return f"{value:.5f}"


def percent(value):
    return "proved" if value <= PROVED else f"{value * 100:.2f} %"


def times(value):
    return f"{value:,.0f}x" if value >= 10 else f"{value:.1f}x"


def ratio(theirs, ours):
    return times(theirs / max(ours, 1e-3))  # the clock cannot tell less than a millisecond
