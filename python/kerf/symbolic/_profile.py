# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``symbolic_profile``: what the nodes of an FX module compute and keep, without running it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from kerf import _core
from kerf._arguments import checked, found
from kerf._core import Graph
from kerf.symbolic._meta_info import attach, check_fresh
from kerf.symbolic._registry import REGISTRY, Registry, Rule, _check_function, current_registry
from kerf.symbolic._run import Run
from kerf.symbolic._table import ProfileTable


class _Record:
    """What is known of a profiled module."""

    def __init__(self, run: Run, profile: Any) -> None:
        self.graph, self.profile = run.graph, profile
        self._order, self._parts = _order(run.gm), _parts(run.gm)

    def check(self, gm: GraphModule, where: str) -> None:
        """Raises where the figures are no longer those of the module."""
        check_fresh(gm, where)
        parts = _parts(gm)
        changed = next(
            (n for n in {**self._parts, **parts} if self._parts.get(n) != parts.get(n)), ""
        )
        if not changed and _order(gm) == self._order:
            return
        said = f"'{changed}' was changed" if changed else "nodes of the graph were moved"
        raise RuntimeError(
            f"[{where}] {said} after the profile; expected the module that symbolic_profile() has "
            "seen; call it again"
        )


def _order(gm: GraphModule) -> list[str]:
    return [node.name for node in gm.graph.nodes]


def _parts(gm: GraphModule) -> dict[str, Any]:
    """What figures go by besides the graph: which modules there are, and of weights what a
    profile reads. The mode of the module is no part of it, nor is where it is."""
    parts: dict[str, Any] = {n: id(m) for n, m in gm.named_modules(remove_duplicate=False) if n}
    for name, tensor in (*gm.named_parameters(), *gm.named_buffers()):
        parts[name] = tensor.dtype, tuple(tensor.shape), tensor.requires_grad
    return parts


# Beside the modules, not in them: a module with a profile is pickled and copied as before.
_records: weakref.WeakKeyDictionary[GraphModule, _Record] = weakref.WeakKeyDictionary()


@checked("symbolic.profile", registry=REGISTRY)
def symbolic_profile(
    gm: GraphModule,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    verbose: bool = False,
    strict: bool = False,
    device_kind: str = "cuda",
    recompute: str | Sequence[str] = "as_traced",
    registry: Registry | None = None,
) -> GraphModule:
    """Annotates every node of ``gm`` with what it computes and keeps: see ``MetaInfo``.

    gm           a traced module; it and its weights are left as they are
    args         a call of it; ``kwargs``: the rest by name. Tensors may be without data
    verbose      print the table of all nodes
    strict       refuse operators whose flops no formula and no rule knows; they are listed
                 otherwise, with their share
    device_kind  a kind of device, which need not be present: what is kept depends on its kernels
    recompute    what backward computes again: the regions that were traced or annotated
                 (``"as_traced"``), ``"none"``, ``"all"`` layers, or a list of modules
    registry     the rules to go by, instead of the current ones

    Returns ``gm``. Nothing is computed and no memory is used but for the nodes themselves. The
    figures are for this module and these shapes; after an edit of the graph, call it again.
    """
    _check_module("symbolic.profile", gm)
    run = Run(gm, args, kwargs or {}, registry or current_registry()).run()
    profile = _core.profile_spans(
        run.graph,
        run.spans,
        device_kind,
        recompute if isinstance(recompute, str) else list(recompute),
        run.flops,
        run.op_flops,
    )
    if strict:
        _check_known(gm, run, profile)
    for node, cost in zip(gm.graph.nodes, profile.costs, strict=True):
        attach(node, cost, run.results[node])
    _records[gm] = _Record(run, profile)
    if verbose:
        print(ProfileTable(profile))
    return gm


@checked("symbolic.table")
def profile_table(gm: GraphModule, sort: str = "", limit: int = 0) -> ProfileTable:
    """The table of a profiled module: text, JSON, and HTML in notebooks.

    sort   a column (accumulate, incremental, output, temp, param, backward, fwd_flop, bwd_flop),
           largest first; as the model runs by default
    limit  rows at most; totals count all
    """
    return ProfileTable(_record("symbolic.table", gm).profile, sort, limit)


def graph_of(gm: GraphModule) -> Graph:
    """The graph of a profiled module: what ``kerf.plan``, ``kerf.memory`` and ``kerf.estimate``
    take. Its batch is that of the profiled call."""
    return _record("kerf.graph_of", gm).graph  # type: ignore[no-any-return]


@checked("symbolic.register_flop_count_impl", registry=REGISTRY)
def register_flop_count_impl(func: Any, registry: Registry | None = None) -> Callable[[Rule], Rule]:
    """Decorates what counts the flops of ``func``: called with its arguments, whose tensors have
    no data, it returns ``(forward, backward)``. A multiply-add is two flops."""
    _check_function("register_flop_count_impl", func)
    return (registry or current_registry()).add("flop_rules", func)


def _record(where: str, gm: GraphModule) -> _Record:
    _check_module(where, gm)
    record = _records.get(gm)
    if record is None:
        raise RuntimeError(
            f"[{where}] {type(gm).__name__} was not profiled; expected a module that "
            "symbolic_profile() has seen; call it first"
        )
    record.check(gm, where)
    return record


def _check_module(where: str, gm: Any) -> None:
    if not isinstance(gm, GraphModule):
        advice = "; trace it first: kerf.symbolic_trace(model, meta_args=...)"
        raise TypeError(
            f"[{where}] gm is {found(gm)}; expected a torch.fx.GraphModule"
            f"{advice if isinstance(gm, torch.nn.Module) else ''}"
        )


def _check_known(gm: GraphModule, run: Run, profile: Any) -> None:
    unknown = {op for op, _, _ in profile.unknown_ops}
    for node, cost, span in zip(gm.graph.nodes, profile.costs, profile.spans, strict=True):
        if cost.known:
            continue
        ops = [n["op"] for n in run.graph.nodes[span.first : span.last]]
        op = next(op for op in ops if op in unknown)
        name = op.removesuffix(".default")
        raise NotImplementedError(
            f"[symbolic.profile] node '{node.name}' ({name}) has no flop rule; expected one under "
            f"strict=True; decorate a function with @kerf.register_flop_count_impl({name})"
        )
