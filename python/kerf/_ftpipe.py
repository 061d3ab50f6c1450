# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""FTPipe's words in Kerf's: names of methods and their options, and parameters that are no more."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kerf import _core
from kerf._arguments import is_number, is_whole, shown

_METHODS = {"mpipe": "mixed_pipe", "2dbin": "binpack2d"}


def method_name(name: str) -> str:
    """FTPipe's name of a method, or Kerf's, in any case."""
    known = [method for method, _ in _core.methods()]
    lower = _METHODS.get(name.lower(), name.lower())
    if lower in known and lower != "aot":
        return lower
    near = difflib.get_close_matches(lower, [*_METHODS, *known], 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if lower == "aot":
        hint = "; a placement of your own goes to kerf.plan(method='aot')"
    raise ValueError(
        f"[kerf.pipe_model] partitioning_method is {shown(name)}; expected one of FTPipe's "
        "acyclic, metis, 2dbin, mpipe, pipedream, or of Kerf's "
        f"{', '.join(sorted({*known} - {'aot'}))}{hint}"
    )


class Only(NamedTuple):
    """An option of which some values say what happens anyway, and others what does not."""

    values: tuple[Any, ...]
    instead: str


class As(NamedTuple):
    """An option that has another name, and perhaps other values, here."""

    name: str
    convert: Callable[[Any], Any] = lambda value: value


def _word(value: Any) -> str:
    """``Objective.EDGE_CUT`` and ``"edge_cut"`` alike."""
    return str(value).rpartition(".")[2].lower()


def _one_of(**words: Any) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if _word(value) in words:
            return words[_word(value)]
        raise ValueError(f"expected one of {', '.join(words)}")

    return convert


def _number(value: Any) -> float:
    if is_number(value):
        return float(value)
    raise ValueError("expected seconds, a number such as 1.5")


def _whole(value: Any) -> int:
    if is_whole(value) and value > 0:
        return int(value)
    raise ValueError("expected a whole number from 1 on")


def _numbers_of_stages(value: Any) -> list[int] | None:
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and all(is_whole(n) and n > 0 for n in value):
        return [int(number) for number in value]
    raise ValueError("expected numbers of stages, such as [8, 16]")


def _modules(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    raise ValueError("expected a list of modules, as basic_blocks= takes")


_NOT_TUNED = "Kerf's own search tries several starts within time_budget="
_OPTIONS: dict[str, tuple[tuple[str, ...], dict[str, Only | As]]] = {
    "METIS_opt": (
        ("metis",),
        {
            "seed": As("seed"),
            **dict.fromkeys(("ncuts", "niter", "nseps", "attempts"), Only((None,), _NOT_TUNED)),
            "objtype": Only((None, 0, "cut"), "Kerf's METIS minimises the edge cut"),
            "contig": Only((None, False, 0), "parts are cut into stages that can run"),
            "compress": Only((None, False, 0), "Kerf coarsens the graph itself"),
            "verbose_on_error": Only((None, False, True), "errors are always told"),
        },
    ),
    "acyclic_opt": (
        ("acyclic", "multilevel"),
        {
            "epsilon": As("imbalance"),
            "rounds": Only((None,), _NOT_TUNED),
            "allocated_seconds": As("time_budget", _number),
            "meta_algorithm": As(
                "method", _one_of(single_level="acyclic", multi_level="multilevel")
            ),
            "objective": As("minimise", _one_of(edge_cut="edge_cut", stage_time="stage_time")),
            "constraint": Only(
                (None, "time"), "give max_memory=, which holds for every method, for memory"
            ),
            "maximum_constraint_value": Only((None,), "give max_memory="),
        },
    ),
    "binpack_opt": (
        ("binpack2d",),
        {
            "n_clusters": Only((None,), "one to four classes are tried, and the best is taken"),
            "analyze_n_clusters": Only((None, False), "one to four classes are tried"),
            "reminder_policy": Only((None,), "both policies are tried"),
            "second_and_on_cluster_policy": Only((None, "best_fit"), "best fit is what is done"),
            "THRESHOLD": Only(
                (None, 0), "use node_weight_function= for nodes that should not count"
            ),
        },
    ),
    "mpipe_opt": (
        ("mixed_pipe",),
        {
            "L_list": As("L_list", _numbers_of_stages),
            "special_blocks": As("special_blocks", _modules),
            "basic_blocks": As("basic_blocks", _modules),
            "depth": Only((None,), "give depth= to kerf.pipe_model"),
            "round_limit": Only((None, -1), "time_budget= bounds the refinement"),
            "nprocs": As("threads", _whole),
        },
    ),
}


def method_options(method: str, given: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """The options of the four dictionaries by Kerf's names; ``given``: dictionaries by name."""
    out: dict[str, Any] = {}
    for dictionary, options in given.items():
        methods, table = _OPTIONS[dictionary]
        if options and method not in methods:
            raise ValueError(
                f"[kerf.pipe_model] {dictionary} together with the method {method!r}; expected it "
                f"with {' or '.join(methods)} alone; leave it out"
            )
        for key, value in (options or {}).items():
            out.update(_option(dictionary, table, key, value))
    if "imbalance" in out and out.get("minimise") != "edge_cut":
        raise ValueError(
            "[kerf.pipe_model] acyclic_opt has epsilon without objective 'edge_cut'; expected it "
            "with edge_cut alone: stage times are made as equal as they can be; leave it out"
        )
    return out


def _option(
    dictionary: str, table: Mapping[str, Only | As], key: str, value: Any
) -> dict[str, Any]:
    rule = table.get(key)
    if rule is None:
        raise ValueError(
            f"[kerf.pipe_model] {dictionary} has the key {shown(key)}; expected {', '.join(table)}"
        )
    if isinstance(rule, Only):
        _accept(f"{dictionary}[{key!r}]", value, rule)
        return {}
    try:
        return {rule.name: rule.convert(value)}
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"[kerf.pipe_model] {dictionary}[{key!r}] is {shown(value)}; {error}"
        ) from None


def _accept(name: str, value: Any, rule: Only) -> None:
    plain = _word(value) if not isinstance(value, (int, float, list, tuple)) else value
    if value in rule.values or (isinstance(value, str) and plain in rule.values):
        return
    allowed = " or ".join(repr(v) for v in rule.values if v is not None)
    expected = f"{allowed}, or nothing" if allowed else "nothing: leave it out"
    raise ValueError(
        f"[kerf.pipe_model] {name} is {shown(value)}; expected {expected}; {rule.instead}"
    )


# What FTPipe has and Kerf does not: values that change nothing, and what to use for the others.
OBSOLETE: dict[str, Only] = {
    "n_iter": Only(
        (None,), "nodes are measured until their times have settled; budget_seconds= bounds it"
    ),
    "use_layers_only_graph": Only(
        (True,), "constants never count; basic_blocks= and depth= coarsen"
    ),
    "trace_on_gpu": Only((False,), "a trace moves and computes nothing, on any device"),
    "use_graph_profiler": Only((True,), "profile= takes costs of your own"),
    "use_network_profiler": Only((False,), "nodes are measured one by one"),
    "profile_ops": Only((True,), "node_weight_function= can give operators no weight"),
    "use_virtual_stages": Only((True,), "mixed=False gives each device one stage"),
    "tracing_timeout": Only((None,), "a trace has no limit of time"),
    "bw": Only(
        (None,), "kerf.make_cluster says what links do; edge_weight_function= a single tensor"
    ),
}


def accept_obsolete(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises TypeError for a parameter that nobody has, ValueError for one that does nothing."""
    for name, value in given.items():
        if name in OBSOLETE:
            _accept(name, value, OBSOLETE[name])
            continue
        near = difflib.get_close_matches(name, [*known, *OBSOLETE], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(
            f"[kerf.pipe_model] unknown parameter {name!r}; expected those of "
            f"docs/pipe_model.md{hint}"
        )
