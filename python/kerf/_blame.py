# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Which construct of the user's code made an export fail, and in which module it stands."""

import dataclasses
import functools
import inspect
import linecache
import sys
import sysconfig
import traceback

import torch
import torch.overrides

from kerf._lower import short_path

_OWN = __file__.rpartition("/")[0]
_NOT_USER = (torch.__path__[0], _OWN, "<")
_OVERRIDES = torch.overrides.__file__
_MODULES = torch.__path__[0] + "/nn/"
_ENTRY = __file__.replace("_blame", "_export")  # where a trace calls the model
_STDLIB = sysconfig.get_paths()["stdlib"]


@dataclasses.dataclass
class Blame:
    """The innermost line of the user's code, and the smallest module around it ("" is the root)."""

    module: str
    location: str  # "model.py:12", or "" when no user code was running
    line: str  # its text
    reason: str
    data_dependent: bool = False
    advice: str = ""  # where it is known what would help


def find_blame(error, modules):
    """``modules`` maps id(module.__dict__) to the module's path."""
    for one in reversed(chain_of(error)):
        frames = list(traceback.walk_tb(one.__traceback__))
        user = [(f, line) for f, line in frames if is_user(f.f_code.co_filename)]
        if not user:
            continue
        frame, number = user[-1]
        file = frame.f_code.co_filename
        return Blame(
            module=_module(frames, modules),
            location=f"{short_path(file)}:{number}",
            line=linecache.getline(file, number).strip(),
            reason=reason_of(one),
            data_dependent=_is_data_dependent(one),
        )
    frames = list(traceback.walk_tb(error.__traceback__))  # a model of torch's modules alone
    return Blame(_module(frames, modules), "", "", reason_of(error), _is_data_dependent(error))


def user_location(frame=None):
    """The innermost line of the model's code that is running, as "file.py:12"; a line of torch's
    own modules where it has no other."""
    own = ""
    for one, line in traceback.walk_stack(frame or sys._getframe(1)):
        file = one.f_code.co_filename
        if is_user(file):
            return f"{short_path(file)}:{line}"
        if file == _ENTRY:
            break  # outside is who called for the trace
        if file.startswith(_MODULES) and not file.endswith("/module.py"):
            own = own or f"{short_path(file)}:{line}"
    return own


def blame_here(modules, reason, frame=None):
    """The Blame for what the model's code is doing right now, in ``frame`` or where this is."""
    frame = frame or sys._getframe(1)
    frames = []
    for one, line in traceback.walk_stack(frame):
        if one.f_code.co_filename == _ENTRY:
            break
        frames.insert(0, (one, line))
    user = [(f.f_code.co_filename, line) for f, line in frames if is_user(f.f_code.co_filename)]
    return Blame(
        module=_module(frames, modules),
        location=user_location(frame),
        line=linecache.getline(*user[-1]).strip() if user else "",
        reason=reason,
    )


def is_called_by_user():
    """Is it the user's code that called the function of torch which calls Kerf?"""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        file = frame.f_code.co_filename
        if not file.startswith(_OWN) and file != _OVERRIDES:
            return is_user(file)
    return False


def location_of(function):
    """Where a function is written, or an object's way to be called; "" when it is not Python."""
    function = function.func if isinstance(function, functools.partial) else function
    for found in (inspect.unwrap(function), vars(type(function)).get("__call__")):
        code = getattr(found, "__code__", None)
        if code is not None:
            return f"{short_path(code.co_filename)}:{code.co_firstlineno}"
    return ""


def chain_of(error):
    """From the exception that arrived to the one that began it."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def is_user(file):
    if file.startswith(_NOT_USER):
        return False
    return "site-packages" in file or not file.startswith(_STDLIB)


def _module(frames, modules):
    # While a trace runs, `self` may be a stand-in that shares the module's __dict__.
    found = ""
    for frame, _ in frames:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            found = modules.get(id(owner.__dict__), found)
    return found


def _is_data_dependent(error):
    return "DataDependent" in type(error).__name__ or "data-dependent" in str(error).lower()


def reason_of(error):
    if _is_data_dependent(error):
        return "a branch or a size depends on the values inside a tensor"
    name = type(error).__name__
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{name}: {first[:300]}" if first else name
