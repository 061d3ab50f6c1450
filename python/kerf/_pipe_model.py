# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``kerf.pipe_model``: from a model to stages in a file, in one call, with FTPipe's parameters."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kerf import _core
from kerf._arguments import Kind, check, checked, is_whole, shown, whole
from kerf._call import Signature
from kerf._coarsen import BLOCKS, coarsen
from kerf._code import all_code, reached_functions
from kerf._content_cache import Cache, check_is_cache
from kerf._core import Cluster, Graph, Plan, Profile
from kerf._emit import emit
from kerf._errors import warn
from kerf._ftpipe import accept_obsolete, method_name, method_options
from kerf._pipe_costs import EdgeWeight, NodeWeight, given_times, given_transfers, pipe_nodes
from kerf._plan import InfeasibleError, make_cluster, plan
from kerf._profile import conditions
from kerf._profile import profile as measure
from kerf._surroundings import Surroundings
from kerf._trace import trace, traced_device
from kerf._traced import TracedModel

StrPath = str | os.PathLike[str]

_FUNCTION = Kind(callable, "a function")
_OPTIONS = Kind(lambda value: isinstance(value, Mapping), "a dictionary of options")
_KINDS = {
    "model": Kind(
        lambda value: value is None or isinstance(value, torch.nn.Module),
        "the model, an nn.Module",
    ),
    "model_kwargs": Kind(
        lambda value: isinstance(value, Mapping) and all(isinstance(k, str) for k in value),
        "a dictionary from names to arguments of the model",
    ),
    "batch_dim": Kind(
        lambda value: isinstance(value, Mapping) or whole(-64, 64).fits(value),
        "the number of a dimension, such as 0, or a dictionary from inputs to theirs",
    ),
    "nparts": whole(1, 4096),
    "depth": Kind(
        lambda value: value is None or is_whole(value),
        "a whole number, such as 4, or None",
        lambda value: "" if value is None or 0 <= value <= 2**20 else f"0 to {2**20}",
    ),
    "basic_blocks": BLOCKS,
    "graph": Kind(
        lambda value: isinstance(value, (Graph, Plan)), "a graph, or a plan that pipe_model gave"
    ),
    "profile": Kind(
        lambda value: isinstance(value, (Profile, str, os.PathLike)),
        "a Profile, the path of a profile.json, 'estimate' or 'measure'",
    ),
    "recomputation": Kind(
        lambda value: isinstance(value, (bool, str, list, tuple)),
        "True, False, or what kerf.plan takes as recompute",
    ),
    "partitioning_method": Kind(lambda value: isinstance(value, str), "the name of a method"),
    **dict.fromkeys(
        ("node_weight_function", "edge_weight_function", "force_no_recomp_scopes"), _FUNCTION
    ),
    **dict.fromkeys(("METIS_opt", "acyclic_opt", "binpack_opt", "mpipe_opt"), _OPTIONS),
    **dict.fromkeys(
        (
            *("generate_explicit_del", "generate_activation_propagation", "async_pipe"),
            *("dont_use_async_meta_alg", "save_memory_mode"),
        ),
        Kind(lambda value: isinstance(value, bool), "True or False"),
    ),
    **dict.fromkeys(
        ("output_file", "trace_cache_name", "profiles_cache_name"),
        Kind(
            lambda value: isinstance(value, (str, os.PathLike)) and "\0" not in os.fspath(value),
            "the path of a file",
        ),
    ),
}


@checked("kerf.pipe_model", **_KINDS)
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
    node_weight_function: NodeWeight | None = None,
    edge_weight_function: EdgeWeight | None = None,
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
) -> Plan:
    """Traces, measures, plans and writes: a model's stages in a file, and the plan of them.

    The parameters are FTPipe's, which docs/pipe_model.md goes through one by one; ``args`` and
    ``kwargs`` stand for ``model_args`` and ``model_kwargs``. The sample call is one micro-batch. A
    model in train mode is planned for training, and its stages have both modes.

    - ``model``, ``model_args``, ``model_kwargs``, ``batch_dim``: the model, a call of it, and the
      dimension of the samples in its inputs (the default: the first one that most inputs share).
    - ``nparts``, ``devices``, ``max_memory``: how many devices, ``cuda:i`` where there are so many,
      else ``cpu:i``; or which; and their limits.
    - ``depth``, ``basic_blocks``: which modules stay whole, as for ``kerf.coarsen``; ``depth=None``
      cuts modules without modules in them, too.
    - ``node_weight_function``, ``edge_weight_function``: milliseconds of a node, forward and
      backward together, and of a tensor between two devices, for the node that makes it and one
      that reads it. They are given objects with name, op, scope, inputs, outputs, measured times
      and bytes.
    - ``output_file``: the Python file to write (``kerf.emit``); one that is there is left alone
      unless ``overwrite=True``. ``generate_explicit_del``: with ``del`` after last uses.
      ``generate_activation_propagation``: what several stages use goes from each to the next.
    - ``recomputation``: what runs forward again in backward: True for every layer, or as for
      ``kerf.plan``. ``force_no_recomp_scopes``: a function of a module's path, true for those that
      are kept. ``async_pipe``: the last stage computes nothing again, and is planned so;
      ``dont_use_async_meta_alg`` plans it as the others.
    - ``partitioning_method``: FTPipe's names or Kerf's, in any case; ``METIS_opt``,
      ``acyclic_opt``, ``binpack_opt``, ``mpipe_opt``: options of one method.
    - ``graph``: a graph, or a plan of this function, to partition anew without tracing or
      measuring. ``profile``: costs as for ``kerf.plan``; the default: measured.
      ``save_memory_mode``: a block at a time, so that the model may be larger than the device
      (``kerf.profile(isolate=True)``).
    - ``trace_cache_name``, ``profiles_cache_name``: files that keep the trace and the times. They
      are used while model, call, PyTorch and devices are the same; a warning says what differs.
    - The others are those of ``kerf.plan`` and ``kerf.profile``.

    The plan has ``graph``, ``eval_graph`` and ``profile``, and ``plan.analysis()``. Raises what
    ``kerf.trace``, ``kerf.plan`` and ``kerf.emit`` do, and ValueError for values of old parameters
    that would do nothing here, with what to use.
    """
    given = dict(locals())
    model_args, model_kwargs = _call_of(given)
    accept_obsolete(ftpipe, (name for name in given if name not in ("ftpipe", "given")))
    method = method_name(partitioning_method)
    options = method_options(
        method,
        {n: given[n] for n in ("METIS_opt", "acyclic_opt", "binpack_opt", "mpipe_opt")},
    )
    _check_files(given)  # before the work
    cluster = _cluster(nparts, devices, max_memory)
    traced = _Traced(given, model_args, model_kwargs, cluster)
    blocks = [*basic_blocks, *options.get("basic_blocks", ())]
    coarse = _coarse(traced.graph, model, depth, blocks)
    starts = [coarse]
    if special := options.get("special_blocks"):
        # Whole, and free: what the method splits again is what it would have split by itself.
        whole = 1000 if depth is None else depth
        starts.append(_coarse(traced.graph, model, whole, [*blocks, *special]))
    costs = traced.costs(coarse)
    asked = _asked(given, traced.graph, costs, options)
    answer = _best_plan(
        starts,
        cluster,
        asked,
        method=options.get("method", method),
        numbers_of_stages=options.get("L_list"),
    )
    answer.graph = traced.graph
    answer._eval_graph, answer._profile = traced.eval_graph, traced.measured
    if output_file is not None:
        _write(
            answer,
            output_file,
            overwrite=overwrite,
            explicit_del=generate_explicit_del,
            relay=generate_activation_propagation,
        )
    return answer


def _call_of(given: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """The sample call; ``args`` and ``kwargs`` are taken out of the other parameters."""
    found = {}
    for name in ("args", "kwargs"):
        value = given[f"model_{name}"]
        if name in given["ftpipe"]:
            if value is not None and not (isinstance(value, tuple) and not value):
                raise TypeError(
                    f"[kerf.pipe_model] {name} together with model_{name}; expected one of them"
                )
            value = given["ftpipe"].pop(name)
        found[name] = value
    args, kwargs = found["args"], found["kwargs"]
    if kwargs is not None:
        check("kerf.pipe_model", "kwargs", kwargs, _KINDS["model_kwargs"])
    return tuple(args) if isinstance(args, list) else args, kwargs or {}


def _check_files(given: Mapping[str, Any]) -> None:
    """Can they be written, and is each of them one file?"""
    taken: dict[str, str] = {}
    for name, others in (
        ("output_file", ()),
        ("trace_cache_name", (".eval", ".key.json")),
        ("profiles_cache_name", (".key.json",)),
    ):
        if given[name] is None:
            continue
        path = os.fspath(given[name])
        _core.check_writable(path, given["overwrite"] or name != "output_file")
        if name != "output_file":
            check_is_cache(path)
        for file in (path, *(path + end for end in others)):
            other = taken.setdefault(os.path.realpath(file), name)
            if other != name:
                raise ValueError(
                    f"[kerf.pipe_model] {other} and {name} both write {shown(file)}; expected "
                    "files of their own; give one of them another name"
                )


def _cluster(
    nparts: int | None,
    devices: Cluster | Sequence[str] | str | None,
    max_memory: Mapping[str | int, str | int] | None,
) -> Cluster:
    if devices is None:
        count = 4 if nparts is None else nparts
        kind = "cuda" if torch.cuda.device_count() >= count else "cpu"
        return make_cluster([f"{kind}:{i}" for i in range(count)], max_memory)
    cluster = make_cluster(devices, max_memory)
    if nparts is not None and nparts != len(cluster.devices):
        raise ValueError(
            f"[kerf.pipe_model] nparts is {nparts} and there are {len(cluster.devices)} devices; "
            "expected as many; leave nparts out"
        )
    return cluster


class _Traced:
    """The graphs of a model and its costs: made, from a cache, or given."""

    def __init__(
        self, given: Mapping[str, Any], args: Any, kwargs: Mapping[str, Any], cluster: Cluster
    ) -> None:
        self.given = given
        self.model = given["model"]
        self.args = args
        self.kwargs = kwargs
        self.cluster = cluster
        self.measured: Profile | None = None
        self.eval_graph: Graph | None = None
        source = given["graph"]
        if source is None:
            self._need_model("no graph")
            self.graph, self.eval_graph = self._graphs()
            return
        if isinstance(source, Plan):
            if source.graph is None:
                raise ValueError(
                    "[kerf.pipe_model] graph is a plan without its graph, as from a file; expected "
                    "one that kerf.pipe_model gave, or a graph; set plan.graph"
                )
            self.eval_graph, self.measured = source.eval_graph, source.profile
        self.graph = source.graph if isinstance(source, Plan) else source
        for name in ("trace_cache_name", "batch_dim"):
            if given[name] is not None:
                raise ValueError(
                    f"[kerf.pipe_model] {name} together with graph, which is traced already; "
                    f"expected one of them; leave {name} out"
                )
        if self.model is not None:
            TracedModel(self.graph).check(self.model)

    def _need_model(self, found: str) -> None:
        if self.model is None:
            raise TypeError(f"[kerf.pipe_model] {found} and no model; expected the model")

    def costs(self, coarse: Graph) -> Profile:
        """What planning starts from: as given, else measured once."""
        source = self.given["profile"]
        known = source is None and self.measured is not None
        if known or source not in (None, "measure"):
            found = "a plan that has its profile" if known else "a profile"
            for name in ("save_memory_mode", "profiles_cache_name"):
                if self.given[name]:
                    raise ValueError(
                        f"[kerf.pipe_model] {name} together with {found}; expected one of them: "
                        "it is for measuring; leave it out, or give profile='measure'"
                    )
        if known:
            assert self.measured is not None
            return self.measured
        if isinstance(source, Profile):
            self.measured = source
        elif source == "estimate":
            kind = _core.profiled_kind(self.cluster)
            self.measured = _core.estimate(
                self.graph, kind, self._micro_batch(), self.graph.training
            )
        elif source not in (None, "measure"):
            self.measured = _core.load_profile(os.fspath(source), self.graph)
        else:
            self._need_model("times to measure")
            self.measured = self._profile(coarse)
        return self.measured

    def _micro_batch(self) -> int:
        return _core.micro_batch_size(self.graph, 0, 1)

    # Tracing

    def _trace(self) -> tuple[Graph, Graph | None]:
        options = {"batch_dims": self.given["batch_dim"]}
        if not self.model.training:
            return trace(self.model, self.args, self.kwargs, **options), None
        graph = trace(self.model, self.args, self.kwargs, **options)
        with _in_eval_mode(self.model):
            return graph, trace(self.model, self.args, self.kwargs, **options)

    def _graphs(self) -> tuple[Graph, Graph | None]:
        name = self.given["trace_cache_name"]
        if name is None:
            return self._trace()
        both = self.model.training
        path = Path(name)
        paths = [path, path.with_name(path.name + ".eval")] if both else [path]

        def load() -> tuple[Graph, Graph | None]:
            found = [_core.load_graph(path) for path in paths]
            TracedModel(found[0]).check(self.model)
            Surroundings(found[0], {self._device().type}).check()
            if not both:
                return found[0], None
            with _in_eval_mode(self.model):
                TracedModel(found[1]).check(self.model)
            return found[0], found[1]

        def save(graphs: tuple[Graph, Graph | None]) -> None:
            for graph, path in zip(graphs, paths, strict=False):
                assert graph is not None
                graph.save(path)

        cache = Cache("trace", name, {**self._versions(), **self._call_key()})
        return cache.get(paths, load, self._trace, save)

    def _versions(self) -> dict[str, str]:
        return {"kerf": _core.__version__, "torch": torch.__version__}

    def _device(self) -> torch.device:
        args = self.args if isinstance(self.args, tuple) else (self.args,)
        return traced_device(self.model, args, self.kwargs)

    def _call_key(self) -> dict[str, str]:
        args = self.args if isinstance(self.args, tuple) else (self.args,)
        device = self._device()
        signature, tensors = Signature.of_call(self.model, args, self.kwargs, device)
        shapes = [f"{tuple(t.shape)} {t.dtype} {t.requires_grad}" for t in tensors]
        return {
            "model": f"{type(self.model).__module__}.{type(self.model).__qualname__}",
            "mode": "train" if self.model.training else "eval",
            "code": _code_digest(self.model),
            "weights": _weights_digest(self.model),
            "call": signature.to_json(),
            "tensors": ", ".join(shapes),
            "batch_dim": repr(self.given["batch_dim"]),
            "gradient mode": repr(torch.is_grad_enabled()),
        }

    # Measuring

    def _measure(self, coarse: Graph) -> Profile:
        """The one place where times are measured."""
        return measure(
            self.model,
            coarse,
            self.args,
            self.kwargs,
            devices=self.cluster,
            budget_seconds=self.given["budget_seconds"],
            training=self.graph.training,
            isolate=self.given["save_memory_mode"],
        )

    def _profile(self, coarse: Graph) -> Profile:
        name = self.given["profiles_cache_name"]
        if name is None:
            return self._measure(coarse)
        made_from = {
            **self._versions(),
            "graph": self.graph.hash,
            "batch": str(self._sample_batch()),
            **conditions(self.cluster.devices[0]),
            "devices": _devices_text(self.cluster),
            "training": repr(self.graph.training),
            "way of measuring": self._way(coarse),
        }
        path = Path(name)
        return Cache("profile", name, made_from).get(
            [path],
            lambda: _core.load_profile(os.fspath(path), self.graph),
            lambda: self._measure(coarse),
            lambda profile: profile.save(path, self.graph),
        )

    def _way(self, coarse: Graph) -> str:
        if not self.given["save_memory_mode"]:
            return "the whole model"
        # "cold": with caches as a step of a large model leaves them.
        return f"cold blocks {hashlib.sha256(repr(coarse.glued).encode()).hexdigest()[:16]}"

    def _sample_batch(self) -> str:
        args = self.args if isinstance(self.args, tuple) else (self.args,)
        leaves = torch.utils._pytree.tree_leaves((args, dict(self.kwargs)))
        return " ".join(str(tuple(t.shape)) for t in leaves if isinstance(t, torch.Tensor))


@contextmanager
def _in_eval_mode(model: Any) -> Iterator[None]:
    """Every module has its own mode again afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _code_digest(model: Any) -> str:
    """Of the functions that the model's code consists of, PyTorch's own left out."""
    digest = hashlib.sha256()
    for function in reached_functions(model, all_code(model)):
        digest.update(f"{function.__module__}.{function.__qualname__}".encode())
        _add_code(digest, function.__code__)
    return digest.hexdigest()


def _add_code(digest: Any, code: Any) -> None:
    digest.update(code.co_code)
    digest.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            _add_code(digest, constant)
        else:
            digest.update(repr(constant).encode())


def _weights_digest(model: Any) -> str:
    digest = hashlib.sha256()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        text = f"{name} {tuple(tensor.shape)} {tensor.dtype} {tensor.requires_grad}"
        digest.update(text.encode())
    return digest.hexdigest()


def _devices_text(cluster: Cluster) -> str:
    """The devices as far as times of the first depend on them: how many share how many cores."""
    names = ", ".join(device.name for device in cluster.devices)
    return f"{names}; {len(os.sched_getaffinity(0))} cores"


def _coarse(graph: Graph, model: Any, depth: int | None, basic_blocks: list[Any]) -> Graph:
    if depth is None and not basic_blocks:
        return graph
    if depth is None:
        raise ValueError(
            "[kerf.pipe_model] basic_blocks with depth=None, which cuts every module; expected a "
            "depth; leave it out"
        )
    return coarsen(graph, depth=depth, basic_blocks=basic_blocks, model=model)


def _asked(
    given: Mapping[str, Any], graph: Graph, costs: Profile, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of kerf.plan."""
    nodes = []
    if given["node_weight_function"] or given["edge_weight_function"]:
        nodes = pipe_nodes(graph, costs)
    asked = {
        name: given[name]
        for name in ("n_microbatches", "objective", "comm_model", "optimizer", "mixed")
    }
    for name in ("seed", "time_budget", "threads"):
        asked[name] = options.get(name, given[name])
    for name in ("minimise", "imbalance"):
        if name in options:
            asked[name] = options[name]
    if not graph.is_static:
        asked["batch"] = _core.micro_batch_size(graph, 0, 1) * given["n_microbatches"]
    asked["training"] = graph.training
    usual = "1f1b" if graph.training else "fill_drain"
    asked["schedule"] = usual if given["schedule"] is None else given["schedule"]
    asked.update(_recomputation(given, graph))
    if given["edge_weight_function"]:
        asked["transfer_times"] = given_transfers(graph, nodes, given["edge_weight_function"])
    asked["profile"] = costs
    if given["node_weight_function"]:
        times = given_times(nodes, given["node_weight_function"])
        asked["profile"] = costs.with_times(graph, times)
    return asked


def _recomputation(given: Mapping[str, Any], graph: Graph) -> dict[str, Any]:
    wanted = given["recomputation"]
    exempt = given["force_no_recomp_scopes"]
    if not graph.training:
        if wanted not in (False, "none"):
            raise ValueError(
                f"[kerf.pipe_model] recomputation is {shown(wanted)} and the model is in eval "
                "mode, which keeps nothing; expected a model in train mode (model.train())"
            )
        return {}
    recompute = {True: "all", False: "none"}[wanted] if isinstance(wanted, bool) else wanted
    if exempt is not None and recompute != "none":
        if recompute not in ("all", "as_traced"):
            raise ValueError(
                f"[kerf.pipe_model] force_no_recomp_scopes with recomputation {shown(wanted)}; "
                "expected recomputation=True"
            )
        paths = [path for path, _ in graph.scopes if path and exempt(path)]
        recompute = _core.recomputed_without(graph, recompute, paths) or "none"
    kept = given["async_pipe"] and not given["dont_use_async_meta_alg"]
    return {"recompute": recompute, "keep_last_stage": kept and recompute != "none"}


def _best_plan(
    graphs: list[Graph],
    cluster: Cluster,
    asked: dict[str, Any],
    *,
    method: str,
    numbers_of_stages: list[int] | None,
) -> Plan:
    """Of all graphs and numbers of stages; raises InfeasibleError if none of them fits."""
    plans, without = [], None
    for graph in graphs:
        for stages in numbers_of_stages or [None]:
            number = {} if stages is None else {"stages": stages}
            try:
                plans.append(plan(graph, cluster, method=method, **number, **asked))
            except InfeasibleError as error:
                without = without or error
    if not plans:
        assert without is not None
        raise without
    return min(plans, key=lambda found: found.objective_value)


def _write(answer: Plan, path: StrPath, **options: bool) -> None:
    assert answer.graph is not None
    if answer.eval_graph is not None:
        try:
            emit(answer, answer.graph, path, eval_graph=answer.eval_graph, **options)
            return
        except NotImplementedError as error:
            reason = str(error)
        emit(answer, answer.graph, path, **options)
        warn(f"kerf.pipe_model: '{os.fspath(path)}' has stages for train mode alone: {reason}")
        return
    emit(answer, answer.graph, path, **options)
