# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""From partitions to modules: torch.fx's splitter, and what it made."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.graph import CodeGen
from torch.fx.passes.split_module import split_module

from kerf.fx._dag import DAG
from kerf.fx._errors import PartitionError
from kerf.fx._names import with_own_names
from kerf.fx._node_graph import LEAVES
from kerf.fx._partition import Partition

_CALLS = ("call_function", "call_method", "call_module")
# The splitter repeats these in every part they reach.
_STATE = (torch.amp._enter_autocast, torch.amp._exit_autocast, torch._C._set_grad_enabled)


def split(
    fx_module: GraphModule, torch_module: torch.nn.Module, node_to_partition: Mapping[Node, int]
) -> GraphModule:
    return split_module(fx_module, torch_module, lambda node: node_to_partition[node])


def split_checked(
    fx_module: GraphModule, torch_module: torch.nn.Module, partitions: Sequence[Partition]
) -> GraphModule:
    """Splits, and holds what came out against the plan."""
    mapping = {n: p.partition_id for p in partitions for n in p.nodes if n.op not in LEAVES}
    to_split, places = with_own_names(fx_module, mapping)
    try:
        module = split(to_split, torch_module, places)
    except AssertionError as error:
        raise PartitionError(
            f"[kerf.fx] torch.fx's splitter refuses the plan: {error}; expected a module without "
            "autocast or gradient switches inside; trace it without them"
        ) from error
    for partition in partitions:
        _check(partition, getattr(module, f"submod_{partition.partition_id}", None))
    _keep_call_form(fx_module, module)
    return module


def _keep_call_form(fx_module: GraphModule, module: GraphModule) -> None:
    """The arguments and results of an export may be trees: the splitter forgets how they look."""
    codegen = fx_module.graph._codegen
    if type(codegen) is not CodeGen:
        module.graph.set_codegen(copy(codegen))
        module.recompile()


def _shape(nodes: Sequence[Node]) -> list[tuple[str, Any]]:
    """What is called, in order. Names of modules change when they move."""
    calls = [n for n in nodes if n.op in _CALLS and n.target not in _STATE]
    return [(n.op, n.target if n.op != "call_module" else None) for n in calls]


def _check(partition: Partition, submodule: Any) -> None:
    planned = _shape(sorted(partition.nodes))
    emitted = _shape(list(submodule.graph.nodes)) if submodule is not None else []
    if planned != emitted:
        raise RuntimeError(
            f"[kerf.fx] partition {partition} has {len(planned)} operations and its submodule "
            f"{len(emitted)}, or other ones; expected the same: a bug in Kerf, please report it"
        )


def _submodule_calls(module: GraphModule) -> list[Node]:
    calls = []
    for node in module.graph.nodes:
        if node.op == "output":
            break
        if node.op not in LEAVES and node.target is not operator.getitem:
            calls.append(node)
    return calls


def make_dag(module: GraphModule, partitions: Sequence[Partition]) -> DAG:
    """A node for each submodule: the values it produces, and who reads them."""
    by_target = {f"submod_{p.partition_id}": p for p in partitions}
    dag = DAG()
    for call in _submodule_calls(module):
        partition = by_target[call.target]
        parts = [user for user in call.users if user.target is operator.getitem]
        produced = parts or [call]
        consumers = {user: None for value in produced for user in value.users}
        dag.create_node(
            call,
            call.all_input_nodes,
            produced,
            partition.logical_device_ids,
            partition.used_mem_bytes,
            list(consumers),
        )
    return dag


def make_original_dag(module: GraphModule, partitions: Sequence[Partition]) -> DAG:
    """torch.fx's: consumers among the outputs (D1), and a number used as a place (A1)."""
    dag = DAG()
    for call in _submodule_calls(module):
        outputs = list(call.users) if len(call.users) > 1 else [call]
        partition = partitions[int(call.name.rsplit("_", 1)[-1])]
        dag.create_node(
            call,
            call.all_input_nodes,
            outputs,
            partition.logical_device_ids,
            partition.used_mem_bytes,
        )
    return dag
