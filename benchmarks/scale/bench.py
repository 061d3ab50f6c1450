# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""How does planning grow with the model, up to a million nodes? See README.md."""

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import Bench
from tables import TABLES
from timing import table

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "release"
FAMILIES = "chain transformer encoder_decoder unet inception mixture_of_experts random".split()


def machine():
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if "model name" in line), model)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {load()}"


def load():
    return f"load average {os.getloadavg()[0]:.1f}"


def arguments():
    names = [function.__name__ for function in TABLES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="table", help=f"of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="one run a row")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--kerf", type=Path, default=BUILD / "kerf", help="program")
    parser.add_argument("--generate", type=Path, default=BUILD / "kerf_generate", help="program")
    parser.add_argument("--folder", type=Path, help="to keep problems in; else they are removed")
    options = parser.parse_args()
    if unknown := set(options.tables) - set(names):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    for program in (options.kerf, options.generate):
        if not program.is_file():
            parser.error(f"no program at {program}: build it first")
    return options


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(options.kerf, options.generate, folder, options)
        print(machine(), end="\n\n")
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
