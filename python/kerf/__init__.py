# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Kerf cuts PyTorch models into pipeline stages, proves how good the cut is, and runs it.

    graph = kerf.trace(model, args)
    plan  = kerf.plan(graph, devices=["cpu:0", "cpu:1"], n_microbatches=4)
    print(plan)
    pipe  = kerf.Pipeline(model, plan)
    y     = pipe(*args)

Graphs, profiles and plans are values that can be saved and loaded. Planning does not need PyTorch:
the names that need it (trace, profile, Pipeline, place) import it on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kerf._compiled  # noqa: F401  (first: it wraps what the core offers)
from kerf._classes import allow_output_class
from kerf._coarsen import coarsen
from kerf._core import (
    Cluster,
    Comparison,
    Graph,
    Infeasible,
    Placement,
    Plan,
    Profile,
    StepMemory,
    Timeline,
    __version__,
    compare_timelines,
    estimate,
    load_cluster,
    load_graph,
    load_plan,
    load_profile,
    load_timeline,
    memory,
    methods,
    schedules,
    simulate,
)
from kerf._emit import emit
from kerf._errors import ExportError, KerfWarning
from kerf._plan import InfeasibleError, compare, make_cluster, plan, replan, verify

if TYPE_CHECKING:
    from kerf._dataflow import DataFlow
    from kerf._pipe_model import pipe_model
    from kerf._pipeline import Pipeline
    from kerf._place import empty_weights, place
    from kerf._profile import profile
    from kerf._trace import trace
    from kerf.symbolic import (
        MetaInfo,
        MetaTensor,
        MetaTensorMode,
        flop_count,
        graph_of,
        profile_table,
        register_flop_count_impl,
        register_leaf_module,
        register_non_leaf_module,
        register_shape_impl,
        register_tracer_impl,
        symbolic_profile,
        symbolic_trace,
    )

__all__ = [
    "Cluster",
    "Comparison",
    "DataFlow",
    "ExportError",
    "Graph",
    "Infeasible",
    "InfeasibleError",
    "KerfWarning",
    "MetaInfo",
    "MetaTensor",
    "MetaTensorMode",
    "Pipeline",
    "Placement",
    "Plan",
    "Profile",
    "StepMemory",
    "Timeline",
    "__version__",
    "allow_output_class",
    "coarsen",
    "compare",
    "compare_timelines",
    "emit",
    "empty_weights",
    "estimate",
    "flop_count",
    "graph_of",
    "load_cluster",
    "load_graph",
    "load_plan",
    "load_profile",
    "load_timeline",
    "make_cluster",
    "memory",
    "methods",
    "pipe_model",
    "place",
    "plan",
    "profile",
    "profile_table",
    "register_flop_count_impl",
    "register_leaf_module",
    "register_non_leaf_module",
    "register_shape_impl",
    "register_tracer_impl",
    "replan",
    "schedules",
    "simulate",
    "symbolic_profile",
    "symbolic_trace",
    "trace",
    "verify",
]

_NEEDS_TORCH = {
    "DataFlow": "_dataflow",
    "Pipeline": "_pipeline",
    "pipe_model": "_pipe_model",
    "empty_weights": "_place",
    "place": "_place",
    "profile": "_profile",
    "trace": "_trace",
    # The main names of kerf.symbolic, which docs/symbolic.md describes.
    "MetaInfo": "symbolic",
    "MetaTensor": "symbolic",
    "MetaTensorMode": "symbolic",
    "flop_count": "symbolic",
    "graph_of": "symbolic",
    "profile_table": "symbolic",
    "register_flop_count_impl": "symbolic",
    "register_leaf_module": "symbolic",
    "register_non_leaf_module": "symbolic",
    "register_shape_impl": "symbolic",
    "register_tracer_impl": "symbolic",
    "symbolic_profile": "symbolic",
    "symbolic_trace": "symbolic",
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module 'kerf' has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(f"kerf.{_NEEDS_TORCH[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"kerf.{name} needs PyTorch, which is not installed; planning from saved graphs works "
            "without it"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
