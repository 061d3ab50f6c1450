# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What the program ``kerf`` needs Python for: ``kerf trace``. It starts this file in its place."""

import importlib
import json
import sys
import warnings

import torch

from kerf._errors import KerfWarning
from kerf._trace import trace

_BAD_INPUT = 2  # as the program's other verbs


def main(request):
    """Does what the program was asked for; the options come as JSON."""
    warnings.showwarning = _show
    try:
        _trace(**json.loads(request))
    except (ValueError, TypeError, NotImplementedError, OSError) as error:
        sys.stderr.write(f"kerf: error: {error}\n")
        sys.exit(_BAD_INPUT)


def _trace(make_case, out, mode, **options):
    model, args, kwargs = _case(make_case)
    if mode:
        model.train(mode == "train")
    graph = trace(model, args, kwargs, **options)
    graph.save(out)
    batch = "of one batch size" if graph.is_static else "for every batch size"
    mode = "train" if graph.training else "eval"
    print(f"{out}: {graph.name} in {mode} mode, {graph.num_nodes} nodes, {batch}")


def _case(name):
    """The model and the call that a user's function gives."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise _refusal(name, f"cannot be imported ({error})") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise _refusal(name, f"names no function of {module.__file__}")
    case = function()
    if not (isinstance(case, tuple) and len(case) == 3 and isinstance(case[0], torch.nn.Module)):
        raise _refusal(name, f"gives a {type(case).__name__}")
    return case


def _refusal(name, found):
    return ValueError(
        f"[kerf.trace] {name!r} {found}; expected package.module:function, a function that gives "
        "the model, its positional and its named arguments; see kerf trace --help"
    )


def _show(message, category, filename, line, file=None, text=None):
    place = "" if category is KerfWarning else f"{filename}:{line}: "
    sys.stderr.write(f"kerf: warning: {place}{message}\n")
