# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What the program ``kerf`` needs Python for: ``kerf trace``. It starts this file in its place."""

import contextlib
import importlib
import json
import sys
import warnings

import torch

from kerf import _core
from kerf._errors import KerfWarning
from kerf._trace import trace

_BAD_INPUT = 2  # as the program's other verbs


def main(request):
    """Does what the program was asked for; the options come as JSON."""
    warnings.showwarning = _show
    options = json.loads(request)
    with _errors_in_a_line():
        make_case = _function(options["make_case"])
        _core.check_writable(options["out"], True)
    case = make_case()  # has errors of its own, which come with their lines
    with _errors_in_a_line():
        _trace(case, **options)


@contextlib.contextmanager
def _errors_in_a_line():
    try:
        yield
    except (ValueError, TypeError, NotImplementedError, OSError) as error:
        sys.stderr.write(f"kerf: error: {error}\n")
        sys.exit(_BAD_INPUT)


def _trace(case, make_case, out, mode, **options):
    if not (isinstance(case, tuple) and len(case) == 3 and isinstance(case[0], torch.nn.Module)):
        raise _refusal(make_case, f"gives a {type(case).__name__}")
    model, args, kwargs = case
    if mode:
        model.train(mode == "train")
    graph = trace(model, args, kwargs, **options)
    graph.save(out)
    batch = "of one batch size" if graph.is_static else "for every batch size"
    mode = "train" if graph.training else "eval"
    print(f"{out}: {graph.name} in {mode} mode, {graph.num_nodes} nodes, {batch}")


def _function(name):
    """The user's function of that name."""
    module_name, _, function_name = name.partition(":")
    if not module_name or module_name.startswith("."):
        raise _refusal(name, "names no module")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise _refusal(name, f"cannot be imported ({error})") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise _refusal(name, f"names no function of {module.__file__}")
    return function


def _refusal(name, found):
    return ValueError(
        f"[kerf.trace] {name!r} {found}; expected package.module:function, a function that gives "
        "the model, its positional and its named arguments; see kerf trace --help"
    )


def _show(message, category, filename, line, file=None, text=None):
    place = "" if category is KerfWarning else f"{filename}:{line}: "
    sys.stderr.write(f"kerf: warning: {place}{message}\n")
