# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a command and says what it took: user-mode cpu seconds and peak memory.

A process begins life as large as the one that started it, and its peak counts that. So this file
runs itself as a small process in between (about 9 MB, the least that can be told).
"""

import dataclasses
import json
import os
import subprocess
import sys


@dataclasses.dataclass
class Run:
    output: str
    error: str
    code: int
    cpu: float  # user mode, seconds
    megabytes: float  # peak resident


def run(command, timeout=600):
    reader, writer = os.pipe()
    helper = [sys.executable, "-I", "-S", __file__, str(writer), *map(str, command)]
    try:
        done = subprocess.run(
            helper, capture_output=True, text=True, timeout=timeout, pass_fds=[writer]
        )
    except subprocess.TimeoutExpired:
        os.close(reader)
        return Run("", f"stopped after {timeout} s", -1, float(timeout), 0.0)
    finally:
        os.close(writer)
    with os.fdopen(reader) as pipe:
        usage = json.load(pipe)
    return Run(done.stdout, done.stderr, usage["code"], usage["cpu"], usage["megabytes"])


def main(writer, command):
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    report = {
        "code": os.waitstatus_to_exitcode(status),
        "cpu": usage.ru_utime,
        "megabytes": usage.ru_maxrss / 1024,
    }
    os.write(int(writer), json.dumps(report).encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
