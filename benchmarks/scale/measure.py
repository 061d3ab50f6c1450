# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a command and says what it took: cpu seconds, wall seconds and peak memory.

A process begins life as large as the one that started it, and its peak counts that. So this file
runs itself as a small process in between (about 9 MB, the least that can be told).
"""

import dataclasses
import json
import os
import subprocess
import sys
import time


@dataclasses.dataclass
class Run:
    output: str
    error: str
    code: int
    cpu: float  # user and system, seconds
    wall: float
    megabytes: float  # peak resident


def run(command, timeout=600):
    reader, writer = os.pipe()
    helper = [sys.executable, "-I", "-S", __file__, str(writer), str(timeout), *map(str, command)]
    done = subprocess.run(helper, capture_output=True, text=True, pass_fds=[writer])
    os.close(writer)
    with os.fdopen(reader) as pipe:
        usage = json.load(pipe)
    return Run(done.stdout, done.stderr, **usage)


def main(writer, timeout, command):
    start = time.monotonic()
    # The limit is one of cpu time, so that a busy machine does not fail a run.
    limit = ["/bin/sh", "-c", f'ulimit -t {timeout}; exec "$@"', "limit", *command]
    child = os.posix_spawn(limit[0], limit, os.environ)
    _, status, usage = os.wait4(child, 0)
    report = {
        "code": os.waitstatus_to_exitcode(status),
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": time.monotonic() - start,
        "megabytes": usage.ru_maxrss / 1024,
    }
    os.write(int(writer), json.dumps(report).encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
