# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Planning: from a graph and devices to a plan. Needs no PyTorch unless it is to measure."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kerf import _core
from kerf._arguments import GRAPH_OR_MODULE, PROFILE_OR_SOURCE, check, checked, shown, whole
from kerf._core import Cluster, Comparison, Graph, Infeasible, Plan, Profile, Violation
from kerf._graph_of import as_graph

if TYPE_CHECKING:
    from torch.fx import GraphModule

StrPath = str | os.PathLike[str]


class InfeasibleError(ValueError):
    """No plan fits the devices. ``infeasible`` names the tightest device and what it lacks."""

    def __init__(self, infeasible: Infeasible) -> None:
        super().__init__(str(infeasible))
        self.infeasible = infeasible

    def __reduce__(self) -> tuple[type[InfeasibleError], tuple[Infeasible]]:
        return type(self), (self.infeasible,)


def _to_bytes(caller: str, key: str, size: str | int | float) -> int:
    if isinstance(size, str):
        return _core.parse_bytes(size)
    whole = isinstance(size, int | float) and not isinstance(size, bool) and size % 1 == 0
    if not whole:
        raise TypeError(
            f"[{caller}] max_memory of {key!r} is {shown(size)}; expected bytes as a whole "
            "number, or a text such as '2GiB'"
        )
    if abs(size) >= 2**60:
        raise ValueError(
            f"[{caller}] max_memory of {key!r} is {shown(size)} bytes; expected a positive size "
            "below 2^60 bytes"
        )
    return int(size)


def _limits(caller: str, max_memory: Mapping[str | int, str | int]) -> dict[str, int]:
    """Keys as texts (0 becomes "0"), sizes as bytes. Negative ones are refused further down."""
    limits = {}
    for key, size in max_memory.items():
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise TypeError(
                f"[{caller}] max_memory has the key {shown(key)}; expected a device's name "
                "('cpu:0'), the number of an accelerator (0), or a kind ('cpu')"
            )
        limits[str(key)] = _to_bytes(caller, str(key), size)
    return limits


@checked("kerf.make_cluster")
def make_cluster(
    devices: Cluster | Sequence[str] | str,
    max_memory: Mapping[str | int, str | int] | None = None,
    speeds: Mapping[str, float] | None = None,
) -> Cluster:
    """Makes a cluster from a list of device names, a text ``"cpu:0=2GiB,cpu:1"`` or a Cluster.

    ``speeds`` are relative to the kind the profile was made for: 2 is twice as fast.
    """
    return _cluster("kerf.make_cluster", devices, max_memory, speeds)


def _cluster(
    caller: str,
    devices: Cluster | Sequence[str] | str,
    max_memory: Mapping[str | int, str | int] | None = None,
    speeds: Mapping[str, float] | None = None,
) -> Cluster:
    """``make_cluster`` on behalf of another function, which messages name."""
    if isinstance(devices, Cluster):
        if max_memory or speeds:
            raise ValueError(
                f"[{caller}] max_memory or speeds together with a Cluster, which has its "
                "own; expected them when the cluster is made; omit them here"
            )
        return devices
    if isinstance(devices, str):
        if max_memory or speeds:
            raise ValueError(
                f"[{caller}] max_memory or speeds together with devices as one text; "
                "expected the limits inside it ('cpu:0=2GiB,cpu:1=1GiB'), or devices as a list"
            )
        return Cluster.parse(devices)
    names = [str(device) for device in devices]  # torch.device prints as its name
    return Cluster(names, _limits(caller, max_memory or {}), dict(speeds or {}))


def _assignment(
    node_to_partition: Mapping[str, int] | None, partition_to_device: Mapping[int, str] | None
) -> tuple[dict[str, int], dict[int, str]]:
    """The two maps of the method aot, checked for their types alone; devices by name."""
    for name, value, example in (
        ("node_to_partition", node_to_partition, "{'linear': 0, 'relu': 1}"),
        ("partition_to_device", partition_to_device, "{0: 'cpu:0', 1: 'cpu:1'}"),
    ):
        if value is not None and not isinstance(value, Mapping):
            raise TypeError(
                f"[kerf.plan] {name} is {shown(value)}; expected a dictionary, such as {example}"
            )
    nodes, devices = {}, {}
    for node, partition in (node_to_partition or {}).items():
        if not isinstance(node, str):
            raise TypeError(
                f"[kerf.plan] node_to_partition has the key {shown(node)}; expected the name of a "
                "node, a string"
            )
        _check_partition(f"node_to_partition of {node!r}", partition)
        nodes[node] = int(partition)
    for partition, device in (partition_to_device or {}).items():
        _check_partition("a key of partition_to_device", partition)
        devices[int(partition)] = str(device)  # torch.device prints as its name
    return nodes, devices


def _check_partition(name: str, value: object) -> None:
    check("kerf.plan", name, value, whole(0, 2**31 - 1))


def _find_profile(
    caller: str,
    graph: Graph,
    cluster: Cluster,
    given: Mapping[str, Any],
) -> Profile | None:
    """What was given, loaded or measured; None where costs are to be estimated.

    ``given``: the caller's arguments by name; of them profile, model, args, kwargs, batch,
    n_microbatches and training count.
    """
    profile, model = given["profile"], given["model"]
    if isinstance(profile, Profile):
        return profile
    if profile is None:
        profile = "estimate" if model is None else "measure"
    if profile == "estimate":
        return None
    if profile != "measure":
        return _core.load_profile(os.fspath(profile), graph)
    if model is None:
        raise ValueError(
            f'[{caller}] profile="measure" without a model; expected model= and the arguments it '
            "was traced with (args=, kwargs=), or a Profile from kerf.profile(...)"
        )
    from kerf._profile import profile as measure

    args = tuple(given["args"]) if isinstance(given["args"], list) else given["args"]
    micro_batch = _core.micro_batch_size(graph, given["batch"] or 0, given["n_microbatches"])
    return measure(
        model,
        graph,
        args,
        given["kwargs"],
        batch=micro_batch or None,
        devices=cluster,
        training=bool(given["training"]),
    )


def _one_count(caller: str, n_microbatches: int | None, chunks: int | None) -> int:
    """The number of micro-batches, which has two names."""
    if chunks is not None and n_microbatches is not None and n_microbatches != chunks:
        raise ValueError(
            f"[{caller}] n_microbatches={n_microbatches} and chunks={chunks}; both name the same "
            "number; give one"
        )
    given = chunks if n_microbatches is None else n_microbatches
    return 1 if given is None else given


@checked("kerf.plan", graph=GRAPH_OR_MODULE, profile=PROFILE_OR_SOURCE)
def plan(
    graph: Graph | GraphModule,
    devices: Cluster | Sequence[str] | str,
    max_memory: Mapping[str | int, str | int] | None = None,
    n_microbatches: int | None = None,
    *,
    chunks: int | None = None,
    batch: int | None = None,
    method: str = "chain",
    objective: str = "throughput",
    profile: Profile | StrPath | None = None,
    model: Any = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    time_budget: float = 1.0,
    threads: int = 1,
    schedule: str = "fill_drain",
    comm_model: str = "link",
    mixed: bool = True,
    stages: int = 0,
    minimise: str = "stage_time",
    imbalance: float = 0.03,
    saturate_host: bool = False,
    node_to_partition: Mapping[str, int] | None = None,
    partition_to_device: Mapping[int, str] | None = None,
    training: bool = False,
    optimizer: str = "adamw",
    recompute: str | Sequence[str] = "auto",
    stages_per_device: int = 1,
    transfer_times: Mapping[str, float] | None = None,
    keep_last_stage: bool = False,
) -> Plan:
    """Cuts ``graph`` into stages and places them on ``devices``; the plan has been verified.

    - ``graph``: from ``kerf.trace``, or a module that ``kerf.symbolic_profile`` has seen.
    - ``max_memory``: limits such as ``{"cpu:0": "2GiB", 0: "10GiB", "cpu": 123456789}``.
    - ``n_microbatches``, also ``chunks``: micro-batches per batch; default 1.
    - ``batch``: samples per step; default: the traced example's.
    - ``profile``: a Profile, a ``profile.json``, ``"estimate"`` (the default: costs from shapes),
      or ``"measure"`` (the default if ``model`` is given, with its ``args`` and ``kwargs``).
    - ``method``: one of the names in ``kerf.methods()``.
    - ``objective``: ``"throughput"``; for the methods auto, refine and exact also ``"latency"``,
      ``"step"`` or ``"memory"``.
    - ``time_budget``: seconds of search, for the methods that search; ``threads`` change the time,
      never the plan.
    - ``comm_model``: how transfers are costed, ``"link"``, ``"host_staged"`` or ``"overlapped"``.
    - ``mixed``: whether a device may get several stages; ``False``: one each, for every method.
    - ``stages``: for the method mixed_pipe, how many stages to make; 0: the method chooses.
    - ``minimise``, ``imbalance``: for the methods acyclic and multilevel, ``"stage_time"``, or
      ``"edge_cut"`` with no stage's time above ``1 + imbalance`` times its share.
    - ``saturate_host``: fill idle devices with copies of the plan, ``plan.replicas``. A Pipeline
      runs the plan's own stages, not the replicas.
    - ``node_to_partition``, ``partition_to_device``: only for the method ``"aot"``, which needs
      both: ``{"linear": 0, "relu": 1}`` and ``{0: "cpu:0", 1: "cpu:1"}``.
    - ``training``: plan a training step: backward, gradients and ``optimizer`` count. The graph
      must have been traced in training mode.
    - ``schedule``: a name of ``kerf.schedules()``, or torch's, such as ``"1F1B"``.
    - ``recompute``: for training, what runs forward again instead of being kept: ``"auto"`` (as
      little as fits), ``"none"``, ``"all"`` (every layer: modules with a number in their path, such
      as ``h.0``, or those at the top where there are none), ``"as_traced"`` (the model's own
      checkpoints), or a list of modules. A layer of one operator keeps no less when it runs again.
    - ``stages_per_device``: with more than 1, that many stages per device, looped.
    - ``transfer_times``: seconds that a value of the graph, by name, takes between any two devices,
      and its gradient as much again, in place of what links say.
    - ``keep_last_stage``: for training in asynchronous pipelines: of the blocks to recompute, those
      in the last stage are kept, and planned as the cheaper that they are.

    Raises InfeasibleError if nothing fits in memory, ValueError for invalid arguments.
    """
    graph = as_graph(graph)
    n_microbatches = _one_count("kerf.plan", n_microbatches, chunks)
    _warn_of_mixing(graph, n_microbatches)
    nodes, placed = _assignment(node_to_partition, partition_to_device)
    cluster = _cluster("kerf.plan", devices, max_memory)
    costs = _find_profile("kerf.plan", graph, cluster, locals())
    answer = _core.plan(
        graph,
        costs,
        cluster,
        method=method,
        objective=objective,
        comm_model=comm_model,
        schedule=schedule,
        n_microbatches=n_microbatches,
        batch=batch or 0,
        seed=seed,
        time_budget=float(time_budget),
        threads=threads,
        mixed=bool(mixed),
        stages=stages,
        minimise=minimise,
        imbalance=float(imbalance),
        saturate_host=bool(saturate_host),
        node_to_partition=nodes,
        partition_to_device=placed,
        training=bool(training),
        optimizer=optimizer,
        recompute=recompute if isinstance(recompute, str) else list(recompute),
        stages_per_device=stages_per_device,
        transfer_times=dict(transfer_times or {}),
        keep_last_stage=bool(keep_last_stage),
    )
    return _feasible(answer, graph)


@checked("kerf.compare", graph=GRAPH_OR_MODULE, profile=PROFILE_OR_SOURCE)
def compare(
    graph: Graph | GraphModule,
    devices: Cluster | Sequence[str] | str,
    max_memory: Mapping[str | int, str | int] | None = None,
    n_microbatches: int | None = None,
    *,
    methods: Sequence[str] | str = "all",
    chunks: int | None = None,
    batch: int | None = None,
    objective: str = "throughput",
    profile: Profile | StrPath | None = None,
    model: Any = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    time_budget: float = 1.0,
    threads: int = 1,
    schedule: str = "fill_drain",
    comm_model: str = "link",
    mixed: bool = True,
    training: bool = False,
    optimizer: str = "adamw",
    recompute: str | Sequence[str] = "auto",
    stages_per_device: int = 1,
) -> Comparison:
    """Plans with several methods; ``print`` shows objective, gap to the bound, memory and seconds.

    ``methods``: ``"all"``, comma-separated names, or a list of names. Methods that cannot
    minimise ``objective`` are run for throughput and scored for it. The other arguments are those
    of ``kerf.plan``. Every plan has been verified; a method that finds none has ``plan`` None and a
    ``reason``.
    """
    graph = as_graph(graph)
    n_microbatches = _one_count("kerf.compare", n_microbatches, chunks)
    cluster = _cluster("kerf.compare", devices, max_memory)
    costs = _find_profile("kerf.compare", graph, cluster, locals())
    return _core.compare(
        graph,
        costs,
        cluster,
        methods=methods if isinstance(methods, str) else list(methods),
        objective=objective,
        comm_model=comm_model,
        schedule=schedule,
        n_microbatches=n_microbatches,
        batch=batch or 0,
        seed=seed,
        time_budget=float(time_budget),
        threads=threads,
        mixed=bool(mixed),
        training=bool(training),
        optimizer=optimizer,
        recompute=recompute if isinstance(recompute, str) else list(recompute),
        stages_per_device=stages_per_device,
    )


@checked("kerf.replan", graph=GRAPH_OR_MODULE)
def replan(
    plan: Plan,
    graph: Graph | GraphModule,
    *,
    n_microbatches: int | None = None,
    batch: int | None = None,
    profile: Profile | None = None,
) -> Plan:
    """The same stages on the same devices with other micro-batches, simulated and checked again."""
    graph = as_graph(graph)
    return _feasible(_core.replan(plan, graph, profile, n_microbatches, batch), graph)


@checked("kerf.verify", graph=GRAPH_OR_MODULE)
def verify(
    plan: Plan, graph: Graph | GraphModule, profile: Profile | None = None
) -> list[Violation]:
    """Derives everything the plan claims from the graph. An empty list: the plan is sound."""
    return _core.verify_plan(as_graph(graph), plan, profile)


def _warn_of_mixing(graph: Graph, n_microbatches: int) -> None:
    """A plan may be looked at, simulated and edited; a pipeline would refuse to run it."""
    if n_microbatches == 1 or graph.is_static:
        return
    found = graph.batch_independence()
    if found.verdict not in ("mixes", "opaque"):
        return
    remedy = "" if found.verdict == "mixes" else " unless batch_independent=True is given"
    output = found.reaches.startswith("output ")
    fails = "cannot be combined from" if output else "would be left with other values by"
    warnings.warn(
        f"kerf.plan: {found.reaches} of this graph {fails} {n_microbatches} "
        f"micro-batches: {found.reason}; kerf.Pipeline will refuse the plan{remedy}; plan with "
        "n_microbatches=1",
        stacklevel=4,
    )


def _feasible(answer: Plan | Infeasible, graph: Graph) -> Plan:
    if isinstance(answer, Infeasible):
        raise InfeasibleError(answer)
    answer.graph = graph
    return answer
