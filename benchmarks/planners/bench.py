# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""How good are Kerf's plans of published placement problems, and how soon? See README.md."""

import argparse
import math
import os
import platform
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import exact
import generate
import problem as judge
from anchors import THROUGHPUT
from harness import HERE, Bench
from tables import CONTIGUOUS, TABLES
from timing import table


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


def machine():
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if "model name" in line), model)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {load()}"


def load():
    """Others on the machine do not cost us cpu time, but they bring the clock forward."""
    return f"load average {os.getloadavg()[0]:.1f}"


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
    if not options.kerf.is_file():
        print(f"no program at {options.kerf}: build it first", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.kerf, Path(folder), options.quick)
        print(machine(), end="\n\n")
        check_answers(bench)
        for function in TABLES:
            if not options.tables or function.__name__ in options.tables:
                bench.table = function.__name__
                header, rows = function(bench)
                print(f"## {function.__name__}: {function.__doc__}\n")
                print(table(header, rows), end="\n\n", flush=True)
        print("Missed:" if bench.missed else "No target missed.")
        for row in bench.missed:
            print(f"- {row}")
        print(f"\nAt the end: {load()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
