# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps what ``torch.export`` logs and warns about out of the user's sight.

It reports each dead end it finds a way round. What the user has to know is in the graph's notes or
in the exception.
"""

import contextlib
import logging
import threading
import warnings


class _FromThread(logging.Filter):
    """Drops the records of one thread; other threads may have something to say."""

    def __init__(self):
        super().__init__()
        self.thread = threading.get_ident()

    def filter(self, record):
        return record.thread != self.thread


@contextlib.contextmanager
def quiet():
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(silence)
