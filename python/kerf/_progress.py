# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A line that says how far long work has come: on a terminal alone, after a second."""

import contextlib
import sys
import time

_AFTER_SECONDS = 1.0
_WIDTH = 30


@contextlib.contextmanager
def progress_bar(what, stream=None):
    """``with progress_bar("profile") as told: told(done, total)``. Wiped out at the end."""
    stream = sys.stderr if stream is None else stream
    if stream is None or not stream.isatty():
        yield None
        return
    start = time.monotonic()
    drawn = 0

    def told(done, total):
        nonlocal drawn
        if time.monotonic() - start < _AFTER_SECONDS:
            return
        filled = _WIDTH * done // max(total, 1)
        line = f"{what} [{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{total}"
        stream.write("\r" + line.ljust(drawn))
        stream.flush()
        drawn = len(line)

    try:
        yield told
    finally:
        if drawn:
            stream.write("\r" + " " * drawn + "\r")
            stream.flush()
