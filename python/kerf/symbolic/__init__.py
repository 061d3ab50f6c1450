# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Know a model without running it: a trace at the level of modules, and what its nodes cost."""

from kerf.symbolic._registry import (
    Registry,
    current_registry,
    register_leaf_module,
    register_leaf_module_impl,
    register_non_leaf_module,
    register_shape_impl,
    register_tracer_impl,
)

__all__ = [
    "Registry",
    "current_registry",
    "register_leaf_module",
    "register_leaf_module_impl",
    "register_non_leaf_module",
    "register_shape_impl",
    "register_tracer_impl",
]
