# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The door of the FX family: a module and a configuration in, submodules out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.graph_manipulation import get_size_of_all_nodes

from kerf import _core
from kerf.fx._check import check_word
from kerf.fx._dag import DAG, PartitionResult
from kerf.fx._errors import InfeasibleError, PartitionError, original_errors, runtime_errors
from kerf.fx._partition import Partition
from kerf.fx._partitions import get_node_to_partition_mapping
from kerf.fx._request import Request, request_compat, request_default
from kerf.fx._split import make_dag, make_original_dag, split, split_checked
from kerf.fx._types import Device, DeviceBytes, PartitionerConfig

_ROOM = re.compile(r"^\[partition[^\]]*\]")  # users know the package, not the room


class Partitioner:
    """Cuts an FX module into submodules, one a partition, and places them on devices.

    - ``compat=True``: torch.fx's own answers, bit for bit, its faults included.
    - ``cost_model``: ``"critical_path"`` is torch.fx's; by ``"serial"`` a device does one thing at
      a time.
    - ``memory``: what must fit: ``"fx"`` counts as torch.fx does, ``"exact"`` counts weights and
      received tensors once a device, buffers too, in true element sizes.

    The attributes hold the last call's answer; no call sees another's. ``cost`` and ``serial_cost``
    are seconds by the two models, None without latencies or rate; ``device_bytes`` goes by
    ``devices``. The original has none of the three, nor has ``compat=True``.
    """

    def __init__(
        self, compat: bool = False, *, cost_model: str = "critical_path", memory: str = "fx"
    ) -> None:
        check_word("cost_model", cost_model, ("critical_path", "serial"))
        check_word("memory", memory, ("fx", "exact"))
        self.compat = compat
        self.cost_model = cost_model
        self.memory = memory
        self._forget()

    def _forget(self) -> None:
        self.partitions: list[Partition] = []
        self.node_to_partition: Mapping[Node, int] = {}
        self.devices: Sequence[Device] = []
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
        wrong with the arguments, InfeasibleError when nothing fits; both are RuntimeErrors.
        """
        self._forget()
        self.graph_module = fx_module
        self.torch_module = torch_module
        self.devices = partitioner_config.devices
        if self.compat:
            with runtime_errors():
                self._plan_compat(partitioner_config)
        else:
            self._plan(partitioner_config)
        with runtime_errors():
            module = self.do_partition()
            return PartitionResult(self.dump_dag(module), module)

    def do_partition(self) -> GraphModule:
        """The module with a submodule for each of the last call's partitions."""
        if self.compat:
            return split(self.graph_module, self.torch_module, self.node_to_partition)
        return split_checked(self.graph_module, self.torch_module, self.partitions)

    def dump_dag(self, module_with_submodules: GraphModule) -> DAG:
        """The submodules of what do_partition returns, in the order of their calls."""
        make = make_original_dag if self.compat else make_dag
        return make(module_with_submodules, self.partitions)

    def _plan(self, config: PartitionerConfig) -> None:
        try:
            request = request_default(self.graph_module, config, self.cost_model, self.memory)
            answer = _core.fx_partition_graph(request.core)
        except PartitionError:
            raise
        except ValueError as error:  # the core's word for what is wrong with a request
            raise PartitionError(_ROOM.sub("[kerf.fx]", str(error))) from None
        if isinstance(answer, _core.Infeasible):
            raise InfeasibleError(answer)
        self._take(request, answer)

    def _plan_compat(self, config: PartitionerConfig) -> None:
        if len(self.devices) == 0:
            raise RuntimeError("No devices")
        get_size_of_all_nodes(self.graph_module)
        request = request_compat(self.graph_module, config)
        with original_errors(request.nodes, config.transfer_rate_bytes_per_sec):
            answer = _core.fx_partition_graph_compat(request.core)
        self._take(request, answer)
        numbers = zip(request.nodes, answer.node_to_partition)  # not always the partitions': K2
        self.node_to_partition = {node: number for node, number in numbers if number >= 0}
        self._share_lists(answer, config)
        if config.saturate_host:  # fault S1
            for partition in self.partitions:
                print(partition.logical_device_ids)

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

    def _share_lists(self, answer: _core.FxAnswer, config: PartitionerConfig) -> None:
        """The original's lists are not always its own: fault S2, and the maps of a given plan."""
        shared = [self.partitions[i] for i in answer.one_device_list]
        for partition in shared:
            partition.logical_device_ids = shared[0].logical_device_ids
        if getattr(config.mode, "name", "") == "aot_based":
            self.node_to_partition = config.node_to_partition_mapping
            for partition in self.partitions:
                given = config.partition_to_logical_device_mapping[partition.partition_id]
                if given != partition.logical_device_ids:
                    given[:] = partition.logical_device_ids
                partition.logical_device_ids = given


def _known(seconds: float) -> float | None:
    return None if math.isnan(seconds) else seconds
