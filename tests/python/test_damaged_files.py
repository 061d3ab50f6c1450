# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Pipelines on damaged graphs and plans: each runs or is refused with one line. Never a crash, a
hang, or an error of Python's own. Longer with KERF_FUZZ_SECONDS, as ``make fuzz`` runs it."""

import os
import subprocess
import sys

import damage

SECONDS = float(os.environ.get("KERF_FUZZ_SECONDS", "8"))
SEED = int(os.environ.get("KERF_FUZZ_SEED", "12"))


def run(tmp_path, seed, count, seconds):
    """The log of a process of its own, and how it ended."""
    log = tmp_path / f"{seed}.log"
    done = subprocess.run(
        [sys.executable, damage.__file__, str(seed), str(count), str(seconds), str(log)],
        capture_output=True,
        text=True,
        timeout=seconds + 300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return log.read_text().splitlines() if log.exists() else [], done


def test_pipelines_on_damaged_files_run_or_are_refused(tmp_path):
    lines, done = run(tmp_path, SEED, 1_000_000, SECONDS)
    last = next((line for line in reversed(lines) if line.startswith("case")), "no case")
    assert done.returncode == 0, f"seed {SEED}, ended at {last}\n{done.stderr[-3000:]}"
    bad = [f"{lines[i - 1]}\n  {line}" for i, line in enumerate(lines) if line.startswith("bad")]
    assert not bad, f"seed {SEED}\n" + "\n".join(bad[:10])
    assert lines.count("refused") > lines.count("ran") > 0  # the damage is neither nothing nor all
