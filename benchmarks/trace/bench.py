# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What does Kerf add to torch.export's time? See README.md."""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from real_models import MODELS
from timing import machine, table

from kerf._trace import trace_timed


def main():
    rows = []
    for name, make in MODELS.items():
        model, args, kwargs = make(2)
        trace_timed(model, args, kwargs)
        runs = [trace_timed(model, args, kwargs) for _ in range(5)]
        export = statistics.median(times.export_seconds for _, times in runs)
        own = statistics.median(times.kerf_seconds for _, times in runs)
        rows.append([name, runs[0][0].num_nodes, f"{export:.2f} s", f"{own * 1e3:.1f} ms"])
    print(machine())
    print(table(["model", "nodes", "torch.export", "Kerf's own share"], rows))


if __name__ == "__main__":
    main()
