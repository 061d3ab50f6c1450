# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What do measured blocks and pipe_model cost, and what are they worth? See README.md."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import blocks
import pipe_model
from targets import Verdicts
from timing import machine, table

TABLES = ("twins", "sums", "pipe_model", "stages")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar=f"{{{','.join(TABLES)}}}")
    parser.add_argument("--device", default="cpu:0", help="of twins and sums")
    parser.add_argument("--models", nargs="*", help="of sums", choices=blocks.SUMS)
    options = parser.parse_args()
    chosen = options.tables or TABLES
    if unknown := set(chosen) - set(TABLES):
        parser.error(f"no table {', '.join(unknown)}; expected {', '.join(TABLES)}")
    verdicts = Verdicts()
    verdicts.missed = []
    print(machine(), flush=True)
    if "twins" in chosen:
        times, head, rows = blocks.twins(verdicts, options.device)
        target = f">= {blocks.FASTER}"
        print(table(["blocks", "kinds", "every block s", "once s", "ratio", target], [times]))
        print()
        print(table(head, rows), flush=True)
    if "sums" in chosen:
        head = ["model", "forward, PyTorch alone", "memory kept", "as one stage", "sum", "error"]
        head += ["step, PyTorch alone", "memory kept", "sum", "error"]
        rows = [
            row + [""] * (len(head) - len(row))
            for row in blocks.sums(verdicts, options.device, options.models)
        ]
        print()
        print(table(head, rows), flush=True)
    if "pipe_model" in chosen:
        rows = []
        pipe_model.end_to_end(verdicts, rows)
        target = f"<= {pipe_model.COLD} / {pipe_model.WARM} s"
        print()
        print(table(["model, 2 CPU devices", "cold s", "warm s", target], rows), flush=True)
    if "stages" in chosen:
        head = ["micro-batches", "written stages", "C++ runtime", "ratio", "largest difference"]
        print()
        print(table(head, pipe_model.stages_against_the_runtime()))
    for missed in verdicts.missed:
        print(f"MISSED: {missed}")
    return 1 if verdicts.missed else 0


if __name__ == "__main__":
    sys.exit(main())
