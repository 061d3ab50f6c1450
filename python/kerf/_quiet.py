# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps what ``torch.export`` logs, warns and prints out of the user's sight.

It reports each dead end, even those with a way round. What the user has to know is in the graph's
notes or in the exception.
"""

import contextlib
import logging
import sys
import threading
import warnings

import torch

_TORCH = torch.__path__[0]


class _FromThread(logging.Filter):
    """Drops the records of one thread; other threads may have something to say."""

    def __init__(self):
        super().__init__()
        self.thread = threading.get_ident()

    def filter(self, record):
        return record.thread != self.thread


class _WithoutTorch:
    """A stream that swallows what torch prints in one thread; the model may print as it likes."""

    def __init__(self, stream):
        self._stream = stream
        self._thread = threading.get_ident()

    def write(self, text):
        if threading.get_ident() == self._thread:
            if sys._getframe(1).f_code.co_filename.startswith(_TORCH):
                return len(text)
        return self._stream.write(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet():
    with _quiet_logs(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(_WithoutTorch(sys.stderr)):
            yield


@contextlib.contextmanager
def _quiet_logs():
    loggers = [logging.getLogger()]
    loggers += [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if name.split(".")[0] == "torch" and isinstance(logger, logging.Logger)
    ]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    handlers.add(logging.lastResort)
    silence = _FromThread()
    for handler in handlers:
        handler.addFilter(silence)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(silence)
