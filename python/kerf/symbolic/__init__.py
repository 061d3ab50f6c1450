# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Know a model without running it: a trace at the level of modules, and what its nodes cost."""

from kerf.symbolic._codegen import ActivationCheckpointCodeGen
from kerf.symbolic._flops import flop_count
from kerf.symbolic._guards import GuardError
from kerf.symbolic._meta import MetaTensor, MetaTensorMode
from kerf.symbolic._meta_info import MetaInfo
from kerf.symbolic._passes import FlopProfiler, graph_profile_pass
from kerf.symbolic._profile import (
    graph_of,
    profile_table,
    register_flop_count_impl,
    symbolic_profile,
)
from kerf.symbolic._registry import (
    Registry,
    current_registry,
    register_leaf_module,
    register_leaf_module_impl,
    register_non_leaf_module,
    register_shape_impl,
    register_tracer_impl,
)
from kerf.symbolic._shape_prop import ShapeProp, shape_prop_pass, sim_env
from kerf.symbolic._table import ProfileTable
from kerf.symbolic._trace import symbolic_trace

__all__ = [
    "ActivationCheckpointCodeGen",
    "FlopProfiler",
    "GuardError",
    "MetaInfo",
    "MetaTensor",
    "MetaTensorMode",
    "ProfileTable",
    "Registry",
    "ShapeProp",
    "current_registry",
    "flop_count",
    "graph_of",
    "graph_profile_pass",
    "profile_table",
    "register_flop_count_impl",
    "register_leaf_module",
    "register_leaf_module_impl",
    "register_non_leaf_module",
    "register_shape_impl",
    "register_tracer_impl",
    "shape_prop_pass",
    "sim_env",
    "symbolic_profile",
    "symbolic_trace",
]
