# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What the arguments of public functions may be, by name: a name means the same in all of them.

Every public function checks its arguments here before it does anything, so that a wrong one is
named in a line, ``[kerf.plan] seed is 'x', a str; expected a whole number, such as 4``, and not in
whatever the code below would say about it.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

from kerf import _core

P = ParamSpec("P")
R = TypeVar("R")


class Kind(NamedTuple):
    """What an argument may be. ``within`` says, of a value of the right type, what is wrong."""

    fits: Callable[[Any], bool]
    expected: str  # and what to do, where that is not plain
    within: Callable[[Any], str] = lambda value: ""


def shown(value: object, most: int = 60) -> str:
    """A value for a message: on one line, and no longer than a reader wants."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a user's class may fail at saying what it is
        text = ""
    if not text or re.fullmatch(r"<.* at 0x[0-9a-f]+>", text):
        return f"an object of class {class_name(type(value))}"
    return shortened(text, most)


def shortened(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def told_apart(a: str, b: str, most: int = 80) -> tuple[str, str]:
    """Two texts that differ, shortened so that they still do."""
    if shortened(a, most) != shortened(b, most):
        return shortened(a, most), shortened(b, most)
    same = len(os.path.commonprefix([a, b]))
    return _around(a, same, most), _around(b, same, most)


def _around(text: str, place: int, most: int) -> str:
    begin = max(0, place - most // 2)
    return "..." + shortened(text[begin:], most - 3)


def class_name(cls: type) -> str:
    """With its module, but for Python's own: other libraries have a Graph and a bool too."""
    module = re.sub(r"^kerf\..*", "kerf", cls.__module__)
    return cls.__qualname__ if module == "builtins" else f"{module}.{cls.__qualname__}"


def found(value: object) -> str:
    """``'x', a str``: what was given, and its type where the value does not show it."""
    if value is None or isinstance(value, bool) or type(value).__name__ in shown(value):
        return shown(value)
    name = class_name(type(value))
    return f"{shown(value)}, {'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def is_number(value: object) -> bool:
    return not isinstance(value, bool) and (
        isinstance(value, int | float) or _is_like(value, "__float__", "__index__")
    )


def is_whole(value: object) -> bool:
    return not isinstance(value, bool) and _is_like(value, "__index__")


def _is_like(value: object, *methods: str) -> bool:
    """Numbers of other libraries too, such as numpy's; not their arrays."""
    return any(hasattr(value, m) for m in methods) and not getattr(value, "shape", ())


def _is_path(value: object) -> bool:
    return isinstance(value, str | bytes | os.PathLike) and b"\0" not in os.fsencode(value)


def _is_module(value: object) -> bool:
    torch = sys.modules.get("torch")  # without it nothing can be a module
    return torch is not None and isinstance(value, torch.nn.Module)


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    value.encode()  # raises for halves of characters, which no file and no C++ can take
    return True


def _name_within(value: Any) -> str:
    fine = value.isprintable() and len(value) <= 256
    return "" if fine else "a name of at most 256 characters, all of which can be printed"


def _recompute_within(value: Any) -> str:
    if value == "":
        return "'auto', 'none', 'all', 'as_traced', or a list of modules"
    names = [value] if isinstance(value, str) else value
    return next((wanted for wanted in map(_name_within, names) if wanted), "")


def _devices_within(value: Any) -> str:
    fine = isinstance(value, _core.Cluster) or all(str(device).isprintable() for device in value)
    return "" if fine else "names that can be printed"


def _fits_float(value: Any) -> str:
    float(value)  # a whole number may be too large for one
    return ""


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _a(kind: type, expected: str) -> Kind:
    return Kind(lambda value: isinstance(value, kind), expected)


def whole(least: int, most: int) -> Kind:
    def within(value: Any) -> str:
        return "" if least <= value.__index__() <= most else f"{least} to {most}"

    return Kind(is_whole, "a whole number, such as 4", within)


def _positive(example: str) -> Kind:
    def within(value: Any) -> str:
        return "" if 0 < float(value) < math.inf else f"a positive number, such as {example}"

    return Kind(is_number, f"a number, such as {example}", within)


def _mapping(
    expected: str,
    keys: Callable[[Any], bool] = _is_text,
    values: Callable[[Any], bool] = lambda value: True,
) -> Kind:
    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            keys(key) and values(item) for key, item in value.items()
        )

    return Kind(fits, f"a dictionary, such as {expected}")


def _batch_dims_fit(value: Any) -> bool:
    dims = value.values() if isinstance(value, Mapping) else [value]
    return all(d is None or is_whole(d) for d in dims)


def _blocks_fit(value: Any) -> bool:
    return _is_list(value) and all(isinstance(b, str | type) for b in value)


def _class_names(value: Any) -> list[str]:
    return [cls.__name__ for cls in type(value).__mro__]


_NAME = Kind(_is_text, "a name, a string", _name_within)
TEXT = _a(str, "a text")
_FLAG = _a(bool, "True or False")
_PATH = Kind(_is_path, "the path of a file, such as 'plan.json'")
_GRAPH = _a(_core.Graph, "a graph; take one from kerf.trace or kerf.load_graph")
_PLAN = _a(_core.Plan, "a plan; take one from kerf.plan or kerf.load_plan")
_PROFILE = _a(
    _core.Profile, "a profile; take one from kerf.profile, kerf.estimate or kerf.load_profile"
)
_TIMELINE = _a(
    _core.Timeline, "a timeline; take one from kerf.simulate, pipe.timeline or kerf.load_timeline"
)
_CLUSTER = _a(_core.Cluster, "a cluster; take one from kerf.make_cluster or kerf.load_cluster")

# A profiled module is known by its class alone: planning does not import PyTorch.
GRAPH_OR_MODULE = Kind(
    lambda value: isinstance(value, _core.Graph) or "GraphModule" in _class_names(value),
    _GRAPH.expected,
)
PROFILE_OR_SOURCE = Kind(
    lambda value: isinstance(value, _core.Profile) or _is_path(value),
    "a Profile, the path of a profile.json, 'estimate' or 'measure'",
)

KINDS: dict[str, Kind] = {
    "graph": _GRAPH,
    "plan": _PLAN,
    "profile": _PROFILE,
    "eval_graph": _GRAPH,
    "cluster": _CLUSTER,
    "predicted": _TIMELINE,
    "measured": _TIMELINE,
    "model": Kind(_is_module, "the model, an nn.Module; wrap what you have in one"),
    "path": _PATH,
    "kwargs": _mapping("{'attention_mask': mask}, from names to arguments of the model"),
    "batch_dims": Kind(
        _batch_dims_fit,
        "the number of a dimension, such as 0, or a dictionary from inputs to theirs, such as "
        "{'x': 0}",
    ),
    "basic_blocks": Kind(
        _blocks_fit,
        "a list of modules' classes, class names or paths, such as [MyBlock, 'layers.0']",
    ),
    "devices": Kind(
        lambda value: (
            isinstance(value, _core.Cluster)
            or _is_text(value)
            or (_is_list(value) and all(_is_text(str(device)) for device in value))
        ),
        "a list of names, such as ['cpu:0', 'cpu:1'], or a Cluster",
        _devices_within,
    ),
    "max_memory": _mapping(
        "{'cpu:0': '2GiB', 'cpu:1': '1GiB'}, a limit per device", keys=lambda key: True
    ),
    "transfer_times": _mapping("{'add_1': 0.001}, seconds per value", values=is_number),
    "speeds": _mapping("{'cuda:1': 0.5}, a speed per device", values=is_number),
    "reduce": _mapping(
        "{'loss': 'mean'}, from outputs to mean, sum or first",
        values=_is_text,
    ),
    "cuda_graphs": Kind(
        lambda value: isinstance(value, str | bool),
        "'auto' or False",
        lambda value: "" if value is False or value == "auto" else "'auto' or False",
    ),
    "batch_independent": _FLAG,
    "n_microbatches": whole(1, 2**20),
    "window": whole(1, 2**20),
    "chunks": whole(1, 2**20),
    "batch": whole(1, 2**40),
    "seed": whole(0, 2**63 - 1),
    "threads": whole(1, 1024),
    "stages": whole(0, 2**20),
    "width": whole(1, 2**20),
    # The planners say which numbers will do.
    "time_budget": Kind(is_number, "seconds, such as 1.0", _fits_float),
    "imbalance": Kind(is_number, "a number, such as 0.03", _fits_float),
    "budget_seconds": _positive("2.0"),
    "tolerance": Kind(
        is_number,
        "a number, such as 1e-3",
        lambda value: (
            "" if 0 <= float(value) < math.inf else "a number of at least 0, such as 1e-3"
        ),
    ),
    "forward": Kind(
        lambda value: _is_list(value) and all(is_number(time) for time in value),
        "a list of seconds, one per node of the graph",
    ),
    "methods": Kind(
        lambda value: (
            isinstance(value, str)
            or (_is_list(value) and all(isinstance(name, str) for name in value))
        ),
        "'all', a name, or a list of names; see kerf.methods()",
    ),
    **dict.fromkeys(
        (
            "method",
            "objective",
            "schedule",
            "comm_model",
            "minimise",
            "opaque",
            "source",
            "optimizer",
            "sort",
        ),
        _NAME,
    ),
    "recompute": Kind(
        lambda value: _is_text(value) or (_is_list(value) and all(map(_is_text, value))),
        "'auto', 'none', 'all', 'as_traced', or a list of modules",
        _recompute_within,
    ),
    "stages_per_device": whole(1, 1 << 10),
    **dict.fromkeys(("device", "from_device", "to_device", "device_kind"), _NAME),
    "text": Kind(_is_text, "a text, such as 'cpu:0=2GiB,cpu:1=1GiB'", _devices_within),
    **dict.fromkeys(
        ("fold_masks", "mixed", "saturate_host", "frozen", "training", "overwrite"), _FLAG
    ),
    **dict.fromkeys(("keep_last_stage", "explicit_del", "relay"), _FLAG),
    **dict.fromkeys(("trace_act_ckpt", "bias_addition_split", "verbose", "strict"), _FLAG),
    "meta_args": _mapping("{'x': tensor}, from names of arguments to tensors"),
    "concrete_args": _mapping("{'mask': None}, from names of arguments to values"),
    "limit": whole(0, 2**31 - 1),
}


def check(where: str, name: str, value: object, kind: Kind) -> None:
    """Raises TypeError for a value of another kind, ValueError for one out of bounds."""
    try:
        fits = kind.fits(value)
    except Exception:  # values of users' own classes may fail in any way
        fits = False
    if not fits:
        raise TypeError(f"[{where}] {name} is {found(value)}; expected {kind.expected}")
    try:
        wanted = kind.within(value)
    except OverflowError:  # a whole number that is no float
        wanted = "a number below 1e300"
    if wanted:
        raise ValueError(f"[{where}] {name} is {shown(value)}; expected {wanted}")


def checked(where: str, **kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: arguments are checked by their names before the function is entered.

    What equals the default needs no check. ``kinds`` are for names that mean something of their
    own in this function.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        table = {name: kinds.get(name, KINDS.get(name)) for name in signature.parameters}

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, value in bind(where, signature, args, kwargs).items():
                kind = table[name]
                if kind is not None and value is not signature.parameters[name].default:
                    check(where, name, value, kind)
            return function(*args, **kwargs)

        return call

    return decorate


def bind(
    where: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name. Raises TypeError for one too many, one missing, or one unknown."""
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        names = ", ".join(n for n in signature.parameters if n != "self")
        raise TypeError(f"[{where}] {error}; expected the arguments {names}") from None
