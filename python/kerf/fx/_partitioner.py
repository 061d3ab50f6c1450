# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The entry point of kerf.fx: a module and a configuration in, submodules out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.graph_manipulation import get_size_of_all_nodes

from kerf import _core
from kerf.fx._check import check_fields, check_known, check_word
from kerf.fx._dag import DAG, PartitionResult
from kerf.fx._errors import InfeasibleError, original_errors, partition_errors, runtime_errors
from kerf.fx._partition import Partition
from kerf.fx._partitions import core_partitions, get_node_to_partition_mapping
from kerf.fx._request import Alone, Request, request_compat, request_default
from kerf.fx._split import make_dag, make_original_dag, split, split_checked
from kerf.fx._types import Device, DeviceBytes, NodeLatency, PartitionerConfig, PartitionMode

_NO_MODE = Alone("size_based")  # nothing is planned: sizes stay, latencies are not read


class Partitioner:
    """Cuts an FX module into submodules, one per partition, and places them on devices.

    - ``compat=True``: torch.fx's own answers, bit for bit, including its bugs.
    - ``cost_model``: ``"critical_path"`` is torch.fx's; with ``"serial"`` a device does one thing
      at a time.
    - ``memory``: what must fit: ``"fx"`` counts as torch.fx does; ``"exact"`` counts weights,
      buffers and received tensors once per device, in their real element sizes.

    The attributes hold the last call's answer; calls do not affect each other, except saturate_host
    and the two that create partitions, which work on ``partitions``. ``cost`` and ``serial_cost``
    are seconds under the two cost models, None without latencies or rate; ``device_bytes`` follows
    the order of ``devices``. The original has none of the three. With ``compat=True`` they are set
    if the answer is a plan (every operation once, no cycle, all devices within their memory), and
    the costs only in the cost modes.

    The modes are also methods, as in the original: set ``graph_module`` and ``devices``, put sizes
    on the nodes, call one, read ``partitions``.
    """

    def __init__(
        self, compat: bool = False, *, cost_model: str = "critical_path", memory: str = "fx"
    ) -> None:
        check_word("cost_model", cost_model, ("critical_path", "serial"))
        check_word("memory", memory, ("fx", "exact"))
        self.compat = compat
        self.cost_model = cost_model
        self.memory = memory
        self.devices: Sequence[Device] = []
        self._forget()

    def _forget(self) -> None:
        self.partitions: list[Partition] = []
        self.node_to_partition: Mapping[Node, int] = {}
        self.cost: float | None = None
        self.serial_cost: float | None = None
        self.device_bytes: list[DeviceBytes] = []

    def partition_graph(
        self,
        fx_module: GraphModule,
        torch_module: torch.nn.Module,
        partitioner_config: PartitionerConfig,
    ) -> PartitionResult:
        """Partitions a module whose nodes have shapes (by ShapeProp, or by an export).

        ``torch_module`` is kept as an attribute and not used. Raises PartitionError for what is
        wrong with the arguments, InfeasibleError if nothing fits; both are RuntimeErrors.
        """
        self.graph_module = fx_module
        self.torch_module = torch_module
        with runtime_errors():
            if not self.compat:
                check_fields(partitioner_config)
            self.devices = partitioner_config.devices
        self._plan(partitioner_config)
        if partitioner_config.saturate_host:
            self.saturate_host()
        with runtime_errors():
            module = self.do_partition()
            return PartitionResult(self.dump_dag(module), module)

    def find_single_partition(self, total_size_of_graph: int, logical_device_id: int = 0) -> None:
        """Everything on one device. ``compat=True`` trusts the given size; else it is counted."""
        self._plan_alone(Alone("single", total_size_of_graph, logical_device_id))

    def size_based_partition(self) -> None:
        """The mode size_based. ``compat=True`` also cuts what would fit on one device."""
        self._plan_alone(Alone("size_based"))

    def sparse_nn_partition(self, available_mem_bytes: int) -> None:
        """The mode sparse_nn; no device counts for more than the bytes given."""
        self._plan_alone(Alone("sparse_nn", available_mem_bytes))

    def cost_aware_partition(
        self,
        transfer_rate_bytes_per_sec: float,
        node_to_latency_mapping: Mapping[Node, NodeLatency],
    ) -> None:
        """The mode cost_aware."""
        costs = (transfer_rate_bytes_per_sec, node_to_latency_mapping)
        self._plan_alone(Alone("cost_aware"), *costs)

    def kl_based_partition(
        self,
        transfer_rate_bytes_per_sec: float,
        node_to_latency_mapping: Mapping[Node, NodeLatency],
    ) -> None:
        """The mode kl_based."""
        costs = (transfer_rate_bytes_per_sec, node_to_latency_mapping)
        self._plan_alone(Alone("kl_based"), *costs)

    def aot_based_partition(
        self,
        node_to_partition_mapping: Mapping[Node, int],
        partition_to_logical_device_mapping: Mapping[int, list[int]],
    ) -> None:
        """The mode aot_based: partitions and their devices as given."""
        given = (node_to_partition_mapping, partition_to_logical_device_mapping)
        self._plan_alone(Alone("aot_based"), 0.0, {}, *given)

    def saturate_host(self) -> None:
        """Copies of the partitions on idle devices, whose ids are appended to their lists."""
        nodes = [node for partition in self.partitions for node in partition.nodes]
        config = PartitionerConfig(self.devices)
        if self.compat:
            with runtime_errors():
                self._saturate(request_compat(self.graph_module, config, _NO_MODE, nodes))
            for partition in self.partitions:  # fault S1
                print(partition.logical_device_ids)
            return
        with runtime_errors(), partition_errors():
            request = self._request(config, _NO_MODE)
            check_known("self.partitions", nodes, set(request.nodes))
            self._saturate(request)

    def create_partition(self) -> Partition:
        """An empty partition, at the end of the list."""
        partition = Partition(len(self.partitions))
        self.partitions.append(partition)
        return partition

    def create_single_node_partition(self, node: Node) -> None:
        """A partition of one node and the leaves it reads, at the end of the list."""
        self.create_partition().add_node(node)

    def do_partition(self) -> GraphModule:
        """The module with a submodule for each of the last call's partitions."""
        if self.compat:
            return split(self.graph_module, self.torch_module, self.node_to_partition)
        return split_checked(self.graph_module, self.torch_module, self.partitions)

    def dump_dag(self, module_with_submodules: GraphModule) -> DAG:
        """The submodules of what do_partition returns, in the order of their calls."""
        make = make_original_dag if self.compat else make_dag
        return make(module_with_submodules, self.partitions)

    def _plan_alone(self, alone: Alone, *config: Any) -> None:
        self._plan(PartitionerConfig(self.devices, PartitionMode.size_based, *config), alone)

    def _plan(self, config: PartitionerConfig, alone: Alone | None = None) -> None:
        self._forget()
        if self.compat:
            with runtime_errors():
                self._plan_compat(config, alone)
            return
        with runtime_errors(), partition_errors():
            request = self._request(config, alone)
            answer = _core.fx_partition_graph(request.core)
        if isinstance(answer, _core.Infeasible):
            raise InfeasibleError(answer)
        self._take(request, answer)

    def _request(self, config: PartitionerConfig, alone: Alone | None) -> Request:
        module = getattr(self, "graph_module", None)
        return request_default(module, config, self.cost_model, self.memory, alone)

    def _plan_compat(self, config: PartitionerConfig, alone: Alone | None) -> None:
        if not alone:
            if len(self.devices) == 0:
                raise RuntimeError("No devices")
            get_size_of_all_nodes(self.graph_module)
        request = request_compat(self.graph_module, config, alone)
        with original_errors(request.nodes, config.transfer_rate_bytes_per_sec):
            answer = _core.fx_partition_graph_compat(request.core)
        self._take(request, answer)
        numbers = zip(request.nodes, answer.node_to_partition)  # not always the partitions': K2
        self.node_to_partition = {node: number for node, number in numbers if number >= 0}
        # The original's lists are not always its own: fault S2, and the maps of a given plan.
        for partition, first in zip(self.partitions, answer.device_lists):
            partition.logical_device_ids = self.partitions[first].logical_device_ids
        if (alone.mode if alone else getattr(config.mode, "name", "")) == "aot_based":
            self.node_to_partition = config.node_to_partition_mapping
            for partition in self.partitions:
                given = config.partition_to_logical_device_mapping[partition.partition_id]
                partition.logical_device_ids = given

    def _saturate(self, request: Request) -> None:
        partitions = core_partitions(self.partitions, request)
        if self.compat:
            first: dict[int, int] = {}
            lists = [p.logical_device_ids for p in self.partitions]
            same = [first.setdefault(id(ids), i) for i, ids in enumerate(lists)]
            with original_errors(request.nodes):
                answer = _core.fx_saturate_host_compat(request.core, partitions, same)
        else:
            answer = _core.fx_saturate_host(request.core, partitions)
        for partition, core in zip(self.partitions, answer.partitions):
            ids = partition.logical_device_ids
            for number in core.device_ids[len(ids) :]:  # a list that is shared grows once
                ids.append(number)
        self.device_bytes = [DeviceBytes(*row) for row in answer.device_bytes]

    def _take(self, request: Request, answer: _core.FxAnswer) -> None:
        self.partitions = [Partition(core.id) for core in answer.partitions]
        for partition, core in zip(self.partitions, answer.partitions):
            partition.nodes = {request.nodes[i] for i in core.nodes}
            partition.parents = {self.partitions[i] for i in core.parents}
            partition.children = {self.partitions[i] for i in core.children}
            partition.bfs_level = core.level
            partition.used_mem_bytes = core.used_bytes
            partition.logical_device_ids = core.device_ids
        self.node_to_partition = get_node_to_partition_mapping(self.partitions)
        self.cost = _known(answer.cost)
        self.serial_cost = _known(answer.serial_cost)
        self.device_bytes = [DeviceBytes(*row) for row in answer.device_bytes]


def _known(seconds: float) -> float | None:
    return None if math.isnan(seconds) else seconds
