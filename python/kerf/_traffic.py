# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Who waits for whom in a ``DataFlow``: calls, and changes of the flow."""

import contextlib
import threading


class Traffic:
    """Calls run side by side; a change of the flow waits until none is under way."""

    def __init__(self):
        self._changed = threading.Condition()
        self._running = 0
        self._stopped = False

    @contextlib.contextmanager
    def running(self):
        with self._changed:
            self._changed.wait_for(lambda: not self._stopped)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def stopped(self):
        with self._changed:
            self._changed.wait_for(lambda: not self._stopped)
            self._stopped = True
            try:
                self._changed.wait_for(lambda: not self._running)
                yield
            finally:
                self._stopped = False
                self._changed.notify_all()
