# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Where the model's code stands, for messages and for nodes."""

import contextlib
import inspect
import linecache
import sys
import sysconfig
import threading

import torch

from kerf._errors import ExportError
from kerf._lower import short_path

_TORCH = torch.__path__[0]
_OWN = __file__.rpartition("/symbolic/")[0] + "/"
_HIDDEN = (_TORCH, _OWN, "<frozen", "<__array")
_PYTHONS = sysconfig.get_path("stdlib") + "/"  # which may hold installed packages, too
_CALLS = (
    (_OWN + "symbolic/_trace.py", "_call"),
    (_OWN + "symbolic/_plain_trace.py", "plain_trace"),
)
_DISTRIBUTION = torch.distributions.distribution.__file__
_local = threading.local()


@contextlib.contextmanager
def results_of(line):
    """Within the block, what is refused is a result of the function that begins at ``line``."""
    _local.line = line
    try:
        yield
    finally:
        _local.line = ""


def user_frame():
    """The innermost frame of the model's code and its line; (None, 0) where torch alone runs, or
    where that code has returned."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        is_pythons = file.startswith(_PYTHONS) and "-packages/" not in file
        if not (is_pythons or file.startswith(_HIDDEN)):
            return frame, frame.f_lineno
        if (file, frame.f_code.co_name) in _CALLS:
            break
        frame = frame.f_back
    return None, 0


def location():
    """``model.py:12``: the line of the model's code that runs."""
    frame, line = user_frame()
    if frame is None:
        return getattr(_local, "line", "")
    return f"{short_path(frame.f_code.co_filename)}:{line}"


def line_of(function):
    """Where a function of the model's code begins; "" where Python does not know."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{short_path(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""


def is_pytorch(frame):
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)


def stack_line():
    """The same in the form in which PyTorch's tools expect it on nodes."""
    frame, line = user_frame()
    if frame is None:
        return ""
    code = frame.f_code
    return f'File "{code.co_filename}", line {line}, in {code.co_name}'


def asking_frame():
    """The frame that has called what a trace sees: the model's code, or PyTorch's."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame


def is_check_of_distributions():
    """Whether torch.distributions asks whether what it was given is valid."""
    frame = asking_frame()
    return frame is not None and frame.f_code.co_filename == _DISTRIBUTION


def refusal(found, expected, advice, module=""):
    """The error for what the model's code does at this moment and no trace can follow."""
    frame, line = user_frame()
    where, text = location(), ""
    if frame is not None:
        text = linecache.getline(frame.f_code.co_filename, line).strip()
    shown = f" ({where}: {text})" if text else f" ({where})" if where else ""
    inside = f" in module '{module}'" if module else ""
    return ExportError(
        f"[symbolic.trace] {found}{inside}{shown}; {expected}; {advice}",
        location=where,
        module=module,
    )
