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

# Names of Siu's that stand for nothing here; docs/symbolic.md has the whole table.
_INSTEAD = {
    "ColoAttribute": "attributes of proxies are ordinary tensors while a model is traced",
    "ColoGraphModule": "a traced module is a torch.fx.GraphModule; use that class",
    "ColoProxy": "forward sees tensors, not proxies; use register_tracer_impl or "
    "register_shape_impl to say how a function is traced",
    "ColoTracer": "use symbolic_trace; register_leaf_module, register_non_leaf_module and "
    "register_tracer_impl say what it does",
    "CommunicationProfiler": "communication is a matter of plans; use kerf.plan and its transfers",
    "MeshConfig": "times go by the figures of a device; use symbolic_profile(..., device_kind=)",
    "flop_mapping": "decorate a function with register_flop_count_impl(torch.ops.aten.op)",
}


def __getattr__(name: str) -> object:
    if name in _INSTEAD:  # an AttributeError would lose its text in `from kerf.symbolic import`
        raise ImportError(f"[kerf.symbolic] there is no {name}; {_INSTEAD[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
