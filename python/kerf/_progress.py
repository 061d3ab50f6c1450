# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A line that says how far long work has come: on a terminal alone, after a second."""

import contextlib
import sys
import threading
import time

_AFTER_SECONDS = 1.0
_EVERY_SECONDS = 0.25
_WIDTH = 30


def _steps(done, total):
    return f"{done}/{total}"


def _seconds(done, total):
    return f"{done:.0f} s"


@contextlib.contextmanager
def progress_bar(what, stream=None, says=_steps):
    """``with progress_bar("profile") as told: told(done, total)``. Wiped out at the end."""
    stream = sys.stderr if stream is None else stream
    if stream is None or not stream.isatty():
        yield None
        return
    start = time.monotonic()
    last, drawn = None, 0
    drawing = threading.Lock()

    def draw():
        nonlocal drawn
        with drawing:
            done, total = last
            filled = int(_WIDTH * min(done / max(total, 1), 1))
            line = f"{what} [{'#' * filled}{'.' * (_WIDTH - filled)}] {says(done, total)}"
            stream.write("\r" + line.ljust(drawn))
            stream.flush()
            drawn = len(line)

    def told(done, total):
        nonlocal last
        last = (done, total)
        if time.monotonic() - start >= _AFTER_SECONDS:
            draw()

    # Steps may be long: what was told before is shown without waiting for the next.
    waiting = threading.Timer(_AFTER_SECONDS, lambda: last and draw())
    waiting.daemon = True
    waiting.start()
    try:
        yield told
    finally:
        waiting.cancel()
        waiting.join()
        if drawn:
            stream.write("\r" + " " * drawn + "\r")
            stream.flush()


@contextlib.contextmanager
def clock_bar(what, seconds, stream=None):
    """The same for work that tells nobody, and takes about ``seconds``: with the seconds so far."""
    with progress_bar(what, stream, _seconds) as told:
        if told is None:
            yield
            return
        start, done = time.monotonic(), threading.Event()

        def tick():
            while not done.wait(_EVERY_SECONDS):
                told(time.monotonic() - start, seconds)

        ticking = threading.Thread(target=tick, name=f"kerf {what} progress", daemon=True)
        ticking.start()
        try:
            yield
        finally:
            done.set()
            ticking.join()
