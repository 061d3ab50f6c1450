# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Makes problems, plans them, has plans scored again, and keeps what misses its target."""

import dataclasses
import json
import re
import shutil
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import judge
import measure
from targets import Verdicts

JUDGED = 100_000  # nodes up to which the judge, which is in Python, scores plans again


@dataclasses.dataclass
class Plan:
    """A plan and what it took; `reason` says why there is none."""

    run: measure.Run
    reason: str = ""
    data: dict = dataclasses.field(default_factory=dict)

    def __bool__(self):
        return not self.reason

    @property
    def value(self):
        return self.data["predicted"]["busiest_ns"]

    @property
    def bound(self):
        return self.data["lower_bound"]["value_ns"]

    @property
    def gap(self):
        return self.value / self.bound - 1

    @property
    def stages(self):
        return len(self.data["stages"])

    @property
    def memory(self):
        return [device["predicted"] for device in self.data["devices"]]


class Bench(Verdicts):
    def __init__(self, program, generator, folder, options):
        # Others may build while this runs: every row is of one program.
        self.program = shutil.copy2(program, folder / "kerf")
        self.generator = shutil.copy2(generator, folder / "kerf_generate")
        self.folder = folder
        self.sizes = options.sizes
        self.families = options.families
        self.repeats = 1 if options.quick else 3
        self.table = ""
        self.missed = []
        self.problems = {}

    def problem(self, family, nodes):
        """The prefix of the problem's files; they are made once."""
        path = self.folder / f"{family}_{nodes}"
        if not path.with_suffix(".graph").exists():
            made = measure.run([self.generator, family, nodes, "--out", self.folder], 300)
            if made.code != 0:
                raise judge.Mismatch(f"kerf_generate {family} {nodes}: {made.error}")
        return path

    def drop(self, path):
        """Files of a million nodes are large."""
        for suffix in (".graph", ".profile.json"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        self.problems.pop(path, None)

    def judged(self, path):
        if path not in self.problems:
            self.problems[path] = judge.load(path)
        return self.problems[path]

    def plan(self, path, devices, method, *options, timeout=600, score=True):
        """The plan of the last of some runs, with the median of their times."""
        out = self.folder / "plan.json"
        out.unlink(missing_ok=True)
        command = [self.program, "plan", f"{path}.graph", "--profile", f"{path}.profile.json"]
        command += ["--devices", devices, "--method", method, "--out", out, *options]
        runs, splits = [], set()
        while not runs or (runs[0].code == 0 and len(runs) < self.repeats and runs[0].cpu < 5):
            runs.append(measure.run(command, timeout))
            splits.add(out.read_text() if out.exists() else "")
        run = dataclasses.replace(
            runs[-1],
            cpu=statistics.median(run.cpu for run in runs),
            wall=statistics.median(run.wall for run in runs),
            megabytes=max(run.megabytes for run in runs),
        )
        if run.code != 0:
            return Plan(run, why_not(run))
        plan = Plan(run, data=json.loads(out.read_text()))
        if len(splits) > 1 and not plan.data["truncated"]:
            raise judge.Mismatch(f"{path}, {method}: another plan on another run, not truncated")
        if score and len(plan.data["nodes"]) <= JUDGED * 1.1:
            judge.check(self.judged(path), plan.data)
        return plan


def why_not(run):
    if run.code < 0:
        return f"stopped after {run.cpu:.0f} s"
    if "unknown method" in run.error:
        return "no such method"
    if "not expected" in run.error:
        return "no such option"
    if "no plan fits" in run.error:
        short = re.search(r"([\d.]+ \w+) \(\d+ bytes\) short", run.error)
        return f"does not fit{f', {short.group(1)} short' if short else ''}"
    return (run.error.strip().splitlines() or ["failed"])[-1][:80]


def milliseconds(nanoseconds):
    return f"{nanoseconds / 1e6:,.3f}"


def percent(value):
    return "proved" if value <= 1e-5 else f"{value * 100:.2f} %"
