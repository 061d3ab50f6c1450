# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""From a module and a configuration to what the core plans on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch.fx import GraphModule, Node

from kerf import _core
from kerf.fx._check import COST_MODES, check_config, check_method, check_module, mode_name
from kerf.fx._effects import effects
from kerf.fx._embedding import embeddings, embeddings_by_text
from kerf.fx._modules import Modules
from kerf.fx._node_graph import LEAVES, core_devices, latency_columns, sizes, to_bytes, to_number
from kerf.fx._sizes import tag_sizes
from kerf.fx._types import PartitionerConfig, PartitionMode

_HOLDERS = ("call_module", "get_attr")  # nodes that may have weights


def operations(fx_module: GraphModule) -> list[Node]:
    """All nodes but the output, in order."""
    return [node for node in fx_module.graph.nodes if node.op != "output"]


class Alone(NamedTuple):
    """A mode whose method is called by itself, and what that is given."""

    mode: str  # of PartitionMode, or "single"
    given_bytes: int = 0
    device_id: int = 0

    def options(self) -> dict[str, Any]:
        given = {"given_bytes": to_bytes(self.given_bytes, "a size")}
        return {"mode_alone": True, "device_id": to_number(self.device_id, "the device"), **given}


def _results(fx_module: GraphModule, index: Mapping[Node, int]) -> list[int]:
    read = (
        n for node in fx_module.graph.nodes if node.op == "output" for n in node.all_input_nodes
    )
    return sorted({index[node] for node in read})


class Request:
    """A request for the core, and the nodes that its positions stand for."""

    def __init__(
        self,
        fx_module: GraphModule,
        config: PartitionerConfig,
        mode: str,
        nodes: Sequence[Node],
        columns: Mapping[str, Any],
        **options: Any,
    ) -> None:
        self.nodes = nodes
        self.index = index = {node: i for i, node in enumerate(nodes)}
        output_sizes, total_sizes = sizes(nodes)
        inputs = [node.all_input_nodes for node in nodes]
        graph = _core.FxGraph(
            inputs=[index[i] for read in inputs for i in read],
            num_inputs=[len(read) for read in inputs],
            leaves=[node.op in LEAVES for node in nodes],
            output_sizes=output_sizes,
            total_sizes=total_sizes,
            names=[node.name for node in nodes],
            results=_results(fx_module, index),
            **latency_columns(nodes, config.node_to_latency_mapping),
            **columns,
        )
        self.core = _core.FxRequest(
            graph=graph,
            devices=core_devices(config.devices),
            mode=mode,
            rate=config.transfer_rate_bytes_per_sec,
            node_to_partition=[
                (index[node], to_number(number, f"the partition of {node}"))
                for node, number in _given(config.node_to_partition_mapping, mode)
                if node in index
            ],
            partition_to_devices=[
                (
                    to_number(number, "a partition"),
                    [to_number(i, f"a device of partition {number}") for i in ids],
                )
                for number, ids in _given(config.partition_to_logical_device_mapping, mode)
            ],
            **options,
        )

    def positions(self, nodes: Iterable[Node]) -> list[int]:
        return sorted(self.index[node] for node in nodes if node in self.index)  # no outputs


def _given(mapping: Mapping[Any, Any], mode: str) -> Iterable[tuple[Any, Any]]:
    return mapping.items() if mode == "aot_based" else ()


def request_compat(
    fx_module: GraphModule,
    config: PartitionerConfig,
    alone: Alone | None = None,
    others: Iterable[Node] = (),
) -> Request:
    """As torch.fx sees it: its own sizes are on the nodes already. ``others`` may be strangers."""
    mode = alone.mode if alone else getattr(config.mode, "name", "")
    mode = mode if alone or mode in PartitionMode.__members__ else "size_based"
    if mode not in COST_MODES:  # it reads neither
        config = PartitionerConfig(*config)._replace(
            transfer_rate_bytes_per_sec=0.0, node_to_latency_mapping={}
        )
    if mode == "aot_based":
        others = config.node_to_partition_mapping
    nodes = operations(fx_module)
    nodes += _strangers(others, nodes)
    modules = Modules(fx_module)
    columns = _weights(nodes, modules)
    if mode == "sparse_nn":
        columns |= _targets(nodes)
        columns["embeddings_by_text"] = embeddings_by_text(nodes, modules)
    options = alone.options() if alone else {}
    return Request(fx_module, config, mode, nodes, columns, **options)


def _weights(nodes: Sequence[Node], modules: Modules) -> dict[str, Any]:
    own = [(i, modules.weights(n.target)) for i, n in enumerate(nodes) if n.op in _HOLDERS]
    return {"weights": own}


def _targets(nodes: Sequence[Node]) -> dict[str, Any]:
    """What is called, for the original's messages: a text, or something of a type."""
    texts = [node.target if isinstance(node.target, str) else "" for node in nodes]
    types = ["" if text else type(n.target).__name__ for n, text in zip(nodes, texts)]
    return {"targets": texts, "target_types": types}


def _strangers(others: Iterable[Node], nodes: Iterable[Node]) -> list[Node]:
    """Nodes of other graphs, or outputs, with all they read: the original takes them so."""
    known = set(nodes)
    found: set[Node] = set()
    waiting = [node for node in others if node not in known]
    while waiting:
        node = waiting.pop()
        if node not in known and node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return sorted(found)


def request_default(
    fx_module: GraphModule,
    config: PartitionerConfig,
    cost_model: str,
    memory: str,
    alone: Alone | None = None,
) -> Request:
    """Everything that can be known without planning is refused here; the rest, by the core."""
    check_module(fx_module)
    mode = alone.mode if alone else mode_name(config.mode)
    nodes = operations(fx_module)
    config = check_config(config, mode, nodes)
    if alone:
        check_method(alone.given_bytes, alone.device_id)
    modules = Modules(fx_module)
    # Sizes that were put there are the caller's to a method called by itself.
    tag_sizes([n for n in nodes if not hasattr(n, "size_bytes")] if alone else nodes, modules)
    columns = {**_weights(nodes, modules), **effects(nodes, modules)}
    if mode == "sparse_nn":
        columns["embeddings"] = embeddings(nodes, modules)
        # What the original takes for embeddings may fit where these do not.
        columns["embeddings_by_text"] = embeddings_by_text(nodes, modules)
    options = {"cost_model": cost_model, "memory": memory, **(alone.options() if alone else {})}
    return Request(fx_module, config, mode, nodes, columns, **options)
