# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Errors and warnings of the Python package."""

import os
import sys
import warnings

_PACKAGE = os.path.join(os.path.dirname(__file__), "")


class ExportError(NotImplementedError):
    """Raised for a model, or a part of it, that cannot be captured as a graph.

    The message names the construct, its line in the user's code and its module, and says what
    to do. ``location`` ("file.py:12") and ``module`` ("decoder.layers.3") carry the same for tools.
    """

    def __init__(self, message, *, location="", module=""):
        super().__init__(message)
        self.location = location
        self.module = module


def is_of_run(error):
    """Does it say that a run failed: by Kerf, PyTorch, or a block, which Kerf leaves a note at?

    What a signal handler raises passes through the same calls, and so does the refusal of a call
    that a handler makes while another runs.
    """
    if str(error).startswith("[runtime.run]"):
        return False
    notes = map(str, getattr(error, "__notes__", ()))
    return isinstance(error, (RuntimeError, ValueError, TypeError, LookupError)) or any(
        note.startswith("[libtorch.") for note in notes
    )


class KerfWarning(UserWarning):
    """Something about a trace or a pipeline that you need to know; execution continues."""


def warn(text):
    """Shows a KerfWarning at the line of the user's code that called into Kerf."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, KerfWarning, stacklevel=level)
