# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerf._core import Cluster, Graph, Plan, Profile

StrPath = str | os.PathLike[str]

def pipe_model(
    model: Any = None,
    model_args: Any = (),
    model_kwargs: Mapping[str, Any] | None = None,
    batch_dim: int | Mapping[str, int] | None = None,
    *,
    nparts: int | None = None,
    devices: Cluster | Sequence[str] | str | None = None,
    max_memory: Mapping[str | int, str | int] | None = None,
    n_microbatches: int = 1,
    depth: int | None = 1000,
    basic_blocks: Sequence[Any] = (),
    node_weight_function: Callable[[Any], float] | None = None,
    edge_weight_function: Callable[[Any, Any], float] | None = None,
    output_file: StrPath | None = None,
    overwrite: bool = False,
    generate_explicit_del: bool = True,
    generate_activation_propagation: bool = False,
    recomputation: bool | str | Sequence[str] = False,
    force_no_recomp_scopes: Callable[[str], bool] | None = None,
    partitioning_method: str = "auto",
    METIS_opt: Mapping[str, Any] | None = None,
    acyclic_opt: Mapping[str, Any] | None = None,
    binpack_opt: Mapping[str, Any] | None = None,
    mpipe_opt: Mapping[str, Any] | None = None,
    graph: Graph | Plan | None = None,
    profile: Profile | StrPath | None = None,
    save_memory_mode: bool = False,
    async_pipe: bool = False,
    dont_use_async_meta_alg: bool = False,
    trace_cache_name: StrPath | None = None,
    profiles_cache_name: StrPath | None = None,
    budget_seconds: float = 2.0,
    objective: str = "throughput",
    comm_model: str = "link",
    schedule: str | None = None,
    optimizer: str = "adamw",
    mixed: bool = True,
    seed: int = 0,
    time_budget: float = 1.0,
    threads: int = 1,
    **ftpipe: Any,
) -> Plan: ...
