# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.pipe_model: from a model to stages in a file, with FTPipe's parameters."""

import json
import warnings

import emit_models
import pytest
import torch
import torch.nn as nn
from emitting import assert_as_model, load

import kerf
from kerf import _pipe_model

DEVICES = ["cpu:0", "cpu:1"]


class Chain(nn.Module):
    """Equal layers."""

    def __init__(self, layers=16, width=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def chain(layers=16, training=True):
    torch.manual_seed(0)
    return Chain(layers).train(training), (torch.randn(4, 8),)


def pipe(model=None, args=(), **options):
    options.setdefault("nparts", 2)
    options.setdefault("profile", "estimate")
    options.setdefault("partitioning_method", "chain")
    return kerf.pipe_model(model, args, **options)


def uniform(tmp_path, layers):
    """A chain of equal layers as a traced plan, and costs: forward 1 ms, backward 2 ms each."""
    model, args = chain(layers)
    traced = pipe(model, args, nparts=1, partitioning_method="single")
    path = tmp_path / "profile.json"
    traced.profile.save(path, traced.graph)
    costs = json.loads(path.read_text())
    for node in costs["nodes"]:
        node |= {"forward_ns": 1e6, "backward_ns": 2e6, "backward_weights_ns": 1e6}
    path.write_text(json.dumps(costs))
    return {"graph": traced, "profile": path}


def refusal(error, pattern, *args, **options):
    with pytest.raises(error, match=pattern):
        pipe(*args, **options)


# From end to end


def test_a_model_becomes_stages_in_a_file(tmp_path):
    model, args, kwargs = emit_models.make_decoder_with_loss()
    path = tmp_path / "stages.py"
    plan = kerf.pipe_model(
        model.train(),
        args,
        kwargs,
        batch_dim=0,
        nparts=2,
        depth=1000,
        basic_blocks=[emit_models.Block],
        partitioning_method="ACYCLIC",
        output_file=path,
        budget_seconds=0.2,
        time_budget=0.2,
    )
    assert plan.profile_source == "measured" and plan.profile.training
    assert [device.name for device in plan.cluster.devices] == DEVICES
    assert plan.method == "acyclic" and plan.training
    assert plan.graph.training and not plan.eval_graph.training
    assert kerf.verify(plan, plan.graph) == []
    blocks = kerf.coarsen(plan.graph, basic_blocks=["Block"])
    assert kerf.verify(plan, blocks) == []  # no stage cuts one
    assert load(path).MODES == (True, False)
    assert model.training and model.h[0].training
    assert_as_model(load(path), model, args, kwargs)


def test_a_model_in_eval_mode_is_planned_for_inference(tmp_path):
    model, args = chain(training=False)
    plan = pipe(model, args, output_file=tmp_path / "stages.py")
    assert not plan.training and plan.eval_graph is None
    assert_as_model(load(tmp_path / "stages.py"), model, args, {})
    refusal(ValueError, "the model is in eval mode", model, args, recomputation=True)


def test_modes_of_single_modules_stay_as_they_are(tmp_path):
    model, args = chain()
    model.layers[3].eval()
    kerf.pipe_model(model, args, nparts=2, profile="estimate")
    assert [m.training for m in model.layers] == [i != 3 for i in range(16)]


def test_args_and_kwargs_are_aliases():
    model, args = chain()
    options = {"nparts": 2, "profile": "estimate"}
    plan = kerf.pipe_model(model, args=args, kwargs={}, **options)
    assert plan.graph.hash == pipe(model, args).graph.hash
    with pytest.raises(TypeError, match="args together with model_args"):
        kerf.pipe_model(model, args, args=args, **options)


def test_devices_and_nparts(monkeypatch):
    model, args = chain()
    assert len(pipe(model, args, nparts=None).cluster.devices) == 4
    assert len(pipe(model, args, nparts=None, devices=DEVICES).cluster.devices) == 2
    refusal(ValueError, "nparts is 3 and there are 2", model, args, nparts=3, devices=DEVICES)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    on_gpus = pipe(model, args)
    assert [d.name for d in on_gpus.cluster.devices] == ["cuda:0", "cuda:1"]
    assert pipe(model, args, nparts=3).cluster.devices[0].name == "cpu:0"  # too few


def test_files_are_left_alone_unless_told(tmp_path):
    model, args = chain()
    path = tmp_path / "stages.py"
    path.write_text("mine\n")
    refusal(OSError, "is there already", None, args, output_file=path)  # before any work
    assert path.read_text() == "mine\n"
    pipe(model, args, output_file=path, overwrite=True)
    assert "class Stage1" in path.read_text()


def test_del_is_written_or_not(tmp_path):
    model, args = chain()
    for told in (True, False):
        path = tmp_path / f"stages_{told}.py"
        pipe(model, args, output_file=path, generate_explicit_del=told)
        stages = path.read_text().partition("class Stage0")[2].partition("STAGES =")[0]
        assert ("del x" in stages) == told
        assert_as_model(load(path), model, args, {})


# Words of FTPipe


@pytest.mark.parametrize(
    "name, method",
    [
        ("ACYCLIC", "acyclic"),
        ("mpipe", "mixed_pipe"),
        ("2DBIN", "binpack2d"),
        ("PipeDream", "pipedream"),
        ("Auto", "auto"),
        ("mixed_pipe", "mixed_pipe"),
    ],
)
def test_names_of_methods_in_any_case(name, method):
    model, args = chain()
    assert pipe(model, args, partitioning_method=name, time_budget=0.1).method == method


def test_unknown_names_say_what_there_is():
    model, args = chain()
    refusal(ValueError, "did you mean 'acyclic'", model, args, partitioning_method="acyclyc")
    refusal(ValueError, r"kerf.plan\(method='aot'\)", model, args, partitioning_method="aot")
    refusal(TypeError, "did you mean 'nparts'", model, args, npart=3)


def test_options_of_methods_do_what_they_say():
    model, args = chain()
    many = pipe(model, args, partitioning_method="mpipe", mpipe_opt={"L_list": [2, 4]})
    assert many.method == "mixed_pipe"
    cut = {"objective": "edge_cut", "epsilon": 0.5, "meta_algorithm": "MULTI_LEVEL"}
    plan = pipe(model, args, partitioning_method="acyclic", acyclic_opt=cut)
    assert plan.method == "multilevel"
    seeded = pipe(model, args, partitioning_method="metis", METIS_opt={"seed": 7})
    assert seeded.seed == 7


@pytest.mark.parametrize(
    "method, dictionary, options, message",
    [
        ("mpipe", "mpipe_opt", {"round_limit": 5}, "time_budget= bounds"),
        ("mpipe", "acyclic_opt", {"epsilon": 0.1}, "together with the method 'mixed_pipe'"),
        ("acyclic", "acyclic_opt", {"epsilon": 0.1}, "epsilon without objective 'edge_cut'"),
        ("acyclic", "acyclic_opt", {"constraint": "memory"}, "give max_memory="),
        ("acyclic", "acyclic_opt", {"objective": "cut"}, "expected one of edge_cut, stage_time"),
        ("metis", "METIS_opt", {"niter": 3}, "tries several starts"),
        ("mpipe", "mpipe_opt", {"L_list": "24"}, r"expected numbers of stages, such as \[8, 16\]"),
        ("mpipe", "mpipe_opt", {"L_list": [2.7]}, "expected numbers of stages"),
        ("mpipe", "mpipe_opt", {"L_list": [0]}, "expected numbers of stages"),
        ("mpipe", "mpipe_opt", {"nprocs": 1.5}, "expected a whole number from 1 on"),
        ("mpipe", "mpipe_opt", {"special_blocks": "Linear"}, "expected a list of modules"),
        ("acyclic", "acyclic_opt", {"allocated_seconds": "x"}, "expected seconds"),
        ("2dbin", "binpack_opt", {"n_clusters": 3}, "one to four classes"),
        ("2dbin", "binpack_opt", {"clusters": 3}, "has the key 'clusters'; expected n_clusters"),
    ],
)
def test_options_that_would_do_nothing_are_refused(method, dictionary, options, message):
    model, args = chain(2)
    refusal(ValueError, message, model, args, partitioning_method=method, **{dictionary: options})


@pytest.mark.parametrize(
    "name, does_nothing, otherwise, message",
    [
        ("use_layers_only_graph", True, False, "basic_blocks= and depth="),
        ("trace_on_gpu", False, True, "moves and computes nothing"),
        ("use_network_profiler", False, True, "one by one"),
        ("use_graph_profiler", True, False, "profile= takes"),
        ("profile_ops", True, False, "node_weight_function="),
        ("use_virtual_stages", True, False, "mixed=False"),
        ("n_iter", None, 10, "budget_seconds="),
    ],
)
def test_obsolete_parameters_take_what_changes_nothing(name, does_nothing, otherwise, message):
    model, args = chain(2)
    pipe(model, args, **{name: does_nothing})
    refusal(ValueError, message, model, args, **{name: otherwise})


# Weights


def test_node_weights_are_the_times_of_the_plan():
    model, args = chain(6)

    def weigh(node):
        return 50.0 if node.scope == "layers.0" else 10.0

    plan = pipe(model, args, node_weight_function=weigh)
    first, second = plan.stages
    assert (len(first.nodes), len(second.nodes)) == (1, 5)
    assert first.time + first.backward == pytest.approx(0.05)
    assert second.time + second.backward == pytest.approx(0.05)
    assert plan.profile_source == "given" and plan.profile.source == "estimated"
    for wrong in (-1, float("nan"), 10**400, "3", None, True):
        refusal(
            ValueError,
            rf"node_weight_function gives '?{str(wrong)[:20]}",
            model,
            args,
            node_weight_function=lambda node, wrong=wrong: wrong,
        )


def two_ends():
    """A tensor that is dear between the halves of a chain."""
    model, args = chain(6)
    weights = {
        "node_weight_function": lambda node: 10.0,
        "edge_weight_function": lambda a, b: 1000.0 if b.scope == "layers.3" else 1.0,
    }
    return model, args, weights


METHODS = [m for m, _ in kerf.methods() if m not in ("aot", "cost_aware", "kl")]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_edge_weights_are_what_transfers_cost_in_every_method(method, training):
    model, args, weights = two_ends()
    plan = pipe(model.train(training), args, partitioning_method=method, time_budget=0.3, **weights)
    made_dear = plan.graph.nodes[2]["outputs"][0]  # what layer 3 reads
    sent = 0
    for cut in plan.cuts:
        times = 2 if training else 1
        sent += times * (1.0 if cut.tensor == made_dear else 1e-3)
    assert sum(d.communication for d in plan.devices) == pytest.approx(sent)
    transfers = [e for e in kerf.simulate(plan).events if e.kind == "transfer"]
    assert sum(e.end - e.start for e in transfers) == pytest.approx(sent)
    avoids = {"chain", "auto", "ideals", "refine", "exact", "pipedream", "acyclic", "multilevel"}
    if method in avoids:
        assert made_dear not in [cut.tensor for cut in plan.cuts]
        assert plan.busiest < 0.05  # two stages of 20 and 40 ms, or three on two devices


def test_edge_weights_that_cannot_be_honoured_are_refused():
    model, args, weights = two_ends()
    for method in ("cost_aware", "kl"):
        refusal(
            ValueError, "given transfer times", model, args, partitioning_method=method, **weights
        )

    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            x = self.a(x)
            return self.b(x) + self.c(x)

    def by_reader(a, b):
        return 1.0 if b.scope == "b" else 2.0

    refusal(
        ValueError,
        "1 ms from 'linear' to 'linear_1' and 2 ms from 'linear' to 'linear_2', for one tensor",
        Fork(),
        (torch.randn(2, 4),),
        edge_weight_function=by_reader,
    )


def test_given_transfers_are_kept_in_files(tmp_path):
    model, args, weights = two_ends()
    plan = pipe(model, args, **weights)
    plan.save(tmp_path / "plan.json")
    again = kerf.load_plan(tmp_path / "plan.json")
    assert again == plan and kerf.verify(again, plan.graph, None) == []
    assert json.loads((tmp_path / "plan.json").read_text())["cuts"][0]["cost_ns"] == 1e6
    text = (tmp_path / "plan.json").read_text().replace('"cost_ns": 1000000.0', '"cost_ns": 5.0')
    (tmp_path / "plan.json").write_text(text)
    assert kerf.verify(kerf.load_plan(tmp_path / "plan.json"), plan.graph)  # figures do not fit
    smaller = kerf.replan(plan, plan.graph, n_microbatches=4)
    assert sum(d.communication for d in smaller.devices) == pytest.approx(0.25 * 2e-3)
    with pytest.raises(ValueError, match="did you mean 'linear'"):
        kerf.plan(plan.graph, DEVICES, transfer_times={"lineer": 1.0})


# Recomputation


def test_the_last_stage_of_an_asynchronous_pipeline_computes_nothing_again(tmp_path):
    options = {"recomputation": True, "nparts": 4, **uniform(tmp_path, 40)}
    usual = pipe(None, **options)
    assert [len(s.nodes) for s in usual.stages] == [10, 10, 10, 10]
    assert usual.busiest == pytest.approx(0.04, rel=1e-2)
    plan = pipe(None, async_pipe=True, **options)
    # Elsewhere a layer takes 4 ms, in the last stage 3.
    assert [len(s.nodes) for s in plan.stages] == [9, 9, 9, 13]
    assert plan.busiest == pytest.approx(0.039, rel=1e-2)
    assert plan.stages[3].recompute == 0 and all(s.recompute > 0 for s in plan.stages[:3])
    assert plan.recomputed == [f"layers.{i}" for i in range(27)]  # no mistakes
    assert "the last stage computes nothing again: 13 of 40 blocks kept" in plan.notes
    as_others = pipe(None, async_pipe=True, dont_use_async_meta_alg=True, **options)
    assert as_others.recomputed == usual.recomputed and as_others.stages[3].recompute > 0


@pytest.mark.parametrize("method", ["auto", "mpipe", "pipedream", "acyclic", "metis", "2dbin"])
def test_every_method_keeps_the_last_stage(method):
    model, args, kwargs = emit_models.make_decoder()
    plan = kerf.pipe_model(
        model.train(),
        args,
        nparts=2,
        profile="estimate",
        recomputation=True,
        async_pipe=True,
        partitioning_method=method,
        depth=None,
        time_budget=0.3,
    )
    assert kerf.verify(plan, plan.graph, plan.profile) == []
    last = {n["name"]: n["scope"] for n in plan.graph.nodes}
    inside = {last[name] for name in plan.stages[-1].nodes}
    wholly = [
        block
        for block in ("h.0", "h.1")
        if all(
            n["name"] in plan.stages[-1].nodes
            for n in plan.graph.nodes
            if n["scope"].startswith(block)
        )
    ]
    assert inside and not set(wholly) & set(plan.recomputed)


def test_backward_has_a_forward_where_it_recomputes_and_exempt_modules_do_not():
    model, args, _ = emit_models.make_decoder()
    model.train()
    one = {"nparts": 1, "node_weight_function": lambda node: 1.0}
    kept = pipe(model, args, **one).stages[0]
    again = pipe(model, args, recomputation=True, **one)
    assert again.recomputed == ["h.0", "h.1"]
    assert again.stages[0].backward > kept.backward
    some = pipe(
        model, args, recomputation=True, force_no_recomp_scopes=lambda s: s == "h.0.attn", **one
    )
    assert "h.1" in some.recomputed and "h.0" not in some.recomputed
    assert {"h.0.ln_1", "h.0.mlp"} <= set(some.recomputed)
    assert not any(name.startswith("h.0.attn") for name in some.recomputed)
    assert kept.backward < some.stages[0].backward < again.stages[0].backward


# Partitioning again


def test_partitioning_again_neither_traces_nor_measures(monkeypatch):
    model, args = chain()
    plan = kerf.pipe_model(model, args, nparts=2, budget_seconds=0.1)
    for name in ("trace", "measure"):
        monkeypatch.setattr(_pipe_model, name, None)
    again = kerf.pipe_model(model, args, graph=plan, nparts=3, partitioning_method="mpipe")
    assert len(again.cluster.devices) == 3 and again.profile == plan.profile
    assert again.graph.hash == plan.graph.hash and again.eval_graph.hash == plan.eval_graph.hash
    same = kerf.pipe_model(graph=plan, nparts=2)
    assert same == plan
    bare = kerf.pipe_model(graph=plan.graph, profile=plan.profile, nparts=2)
    assert bare.stages[0].nodes == plan.stages[0].nodes
    with pytest.raises(TypeError, match="times to measure and no model"):
        kerf.pipe_model(graph=plan.graph, nparts=2)


def test_a_graph_is_partitioned_for_its_own_model_alone(tmp_path):
    model, args = chain()
    graph = kerf.trace(model, args)
    with pytest.raises(ValueError, match="trace"):
        kerf.pipe_model(chain(2)[0], args, graph=graph, nparts=2, profile="estimate")
    name = tmp_path / "trace.graph"
    refusal(ValueError, "trace_cache_name together with graph", graph=graph, trace_cache_name=name)
    refusal(ValueError, "batch_dim together with graph", graph=graph, batch_dim=0)
    refusal(
        ValueError,
        "profiles_cache_name together with a prof",
        graph=graph,
        profiles_cache_name=name,
    )
    assert not name.exists()


def test_numbers_of_stages_that_do_not_fit_are_passed_over(monkeypatch):
    model, args = chain()

    def planned(*numbers, limit="1MiB"):
        how = {"partitioning_method": "mpipe", "mpipe_opt": {"L_list": numbers}}
        return pipe(model, args, max_memory={"cpu:0": limit, "cpu:1": limit}, **how)

    with pytest.raises(kerf.InfeasibleError) as nothing:
        planned(1, 2, limit="9KiB")

    def only_two(*args, stages, **options):
        if stages != 2:
            raise nothing.value
        return kerf.plan(*args, stages=stages, **options)

    monkeypatch.setattr(_pipe_model, "plan", only_two)
    assert planned(1, 2, 3) == planned(2)


def test_a_plan_from_a_file_has_no_graph(tmp_path):
    model, args = chain()
    pipe(model, args).save(tmp_path / "plan.json")
    refusal(ValueError, "a plan without its graph", graph=kerf.load_plan(tmp_path / "plan.json"))


# Caches


def cached(tmp_path, model, args, **options):
    """A plan, and the warnings about its caches."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        plan = kerf.pipe_model(
            model,
            args,
            nparts=2,
            partitioning_method="chain",
            trace_cache_name=tmp_path / "t.graph",
            profiles_cache_name=tmp_path / "p.json",
            budget_seconds=0.1,
            **options,
        )
    return plan, [str(w.message) for w in seen if "cache" in str(w.message)]


def test_caches_are_used_while_nothing_changes(tmp_path, monkeypatch):
    model, args = chain()
    cold, said = cached(tmp_path, model, args)
    assert said == []
    for name in ("trace", "measure"):
        monkeypatch.setattr(_pipe_model, name, None)
    warm, said = cached(tmp_path, model, args)
    assert said == [] and warm == cold and warm.profile == cold.profile
    assert kerf.load_graph(tmp_path / "t.graph").hash == cold.graph.hash
    assert kerf.load_graph(tmp_path / "t.graph.eval").hash == cold.eval_graph.hash
    kerf.load_profile(tmp_path / "p.json", cold.graph)


def other_forward(self, x):
    for layer in self.layers:
        x = layer(x).relu()
    return x


@pytest.mark.parametrize(
    "change, trace_reason",
    [
        ("model", "another weights"),
        ("mode", "another mode"),
        ("call", "another (call|tensors)"),
        ("code", "another code"),
        ("torch", "another torch"),
    ],
)
def test_a_cache_of_something_else_is_made_again(tmp_path, monkeypatch, change, trace_reason):
    model, args = chain()
    cold, _ = cached(tmp_path, model, args)
    if change == "model":
        model, args = chain(12)
    if change == "mode":
        model.eval()
    if change == "call":
        args = (torch.randn(6, 8),)
    if change == "code":
        monkeypatch.setattr(Chain, "forward", other_forward)
    if change == "torch":
        monkeypatch.setattr(torch, "__version__", "2.0.1")
    plan, said = cached(tmp_path, model, args)
    assert any("trace cache" in text for text in said), said
    assert [t for t in said if "trace" in t][0].count("made again") == 1
    import re

    assert re.search(trace_reason, [t for t in said if "trace" in t][0]), said
    assert plan.graph.hash == kerf.trace(model, args).hash
    again, said = cached(tmp_path, model, args)
    assert said == [] and again == plan


def test_a_trace_of_other_surroundings_is_made_again(tmp_path):
    """Autocast and the default dtype are no part of the model; the old trace was taken."""
    model, args = chain()
    cold, _ = cached(tmp_path, model, args)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plan, said = cached(tmp_path, model, args)
        assert "inside torch.autocast" in said[0]
        assert plan.graph.hash == kerf.trace(model, args).hash != cold.graph.hash
        assert cached(tmp_path, model, args)[1] == []
    plan, said = cached(tmp_path, model, args)
    assert "outside torch.autocast" in said[0] and plan.graph.hash == cold.graph.hash


def test_files_that_cannot_be_written_are_told_before_the_work(tmp_path, monkeypatch):
    model, args = chain()
    monkeypatch.setattr(_pipe_model, "trace", None)
    for name in ("output_file", "trace_cache_name", "profiles_cache_name"):
        refusal(OSError, "check that the folder", model, args, **{name: tmp_path / "no" / "file"})
        refusal(OSError, "directory", model, args, overwrite=True, **{name: tmp_path})
        refusal(OSError, "cannot write ''", model, args, **{name: ""})
    both = {"trace_cache_name": tmp_path / "c", "profiles_cache_name": tmp_path / "c"}
    refusal(ValueError, "trace_cache_name and profiles_cache_name both write", model, args, **both)
    both = {"trace_cache_name": tmp_path / "c", "profiles_cache_name": tmp_path / "c.eval"}
    refusal(ValueError, "both write", model, args, **both)
    assert not list(tmp_path.iterdir())


def test_files_that_are_no_caches_are_left_alone(tmp_path, monkeypatch):
    model, args = chain()
    monkeypatch.setattr(_pipe_model, "trace", None)
    path = tmp_path / "model.py"
    path.write_text("mine")
    for name in ("trace_cache_name", "profiles_cache_name"):
        refusal(OSError, "is there already and is no cache", model, args, **{name: path})
    assert path.read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


def test_save_memory_mode_measures_blocks(tmp_path):
    model, args = chain()
    whole, _ = cached(tmp_path, model, args)
    blocks, said = cached(tmp_path, model, args, save_memory_mode=True)
    assert "another way of measuring" in said[0]
    assert whole.profile.blocks == [] and len(blocks.profile.blocks) == len(model.layers)
    assert len({block.kind for block in blocks.profile.blocks}) < len(model.layers)
    again, said = cached(tmp_path, model, args, save_memory_mode=True)
    assert said == [] and again == blocks
    _, said = cached(tmp_path, model, args, save_memory_mode=True, depth=0)
    assert "another way of measuring" in said[0]
    options = {"graph": again, "profile": None, "save_memory_mode": True}
    refusal(ValueError, "with a plan that has", model, args, **options)
    refusal(ValueError, "together with a profile", model, args, save_memory_mode=True)


def test_a_profile_of_other_devices_is_measured_again(tmp_path):
    model, args = chain()
    cached(tmp_path, model, args)
    _, said = cached(tmp_path, model, args, max_memory=None, n_microbatches=1)
    assert said == []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        kerf.pipe_model(
            model, args, nparts=3, profiles_cache_name=tmp_path / "p.json", budget_seconds=0.1
        )
    assert (
        "made with another device" in [str(w.message) for w in seen if "cache" in str(w.message)][0]
    )


@pytest.mark.parametrize("name", ["t.graph", "t.graph.eval", "p.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "key"])
def test_damaged_caches_are_made_again(tmp_path, name, damage):
    model, args = chain()
    cold, _ = cached(tmp_path, model, args)
    path = tmp_path / name
    key = tmp_path / f"{name.removesuffix('.eval')}.key.json"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "changed":
        path.write_text(path.read_text().replace("1", "2", 1))
    elif damage == "gone":
        path.unlink()
    else:
        key.write_text("{}")
    plan, said = cached(tmp_path, model, args)
    assert len(said) == 1 and ("damaged" in said[0]), said
    assert plan.graph.hash == cold.graph.hash
    assert cached(tmp_path, model, args)[1] == []


# The report


def test_the_analysis_says_what_a_split_gains(tmp_path):
    model, args = chain(6)
    weights = {
        "node_weight_function": lambda n: 20.0 if n.scope == "layers.0" else 10.0,
        "edge_weight_function": lambda a, b: 1.0,
    }
    plan = pipe(model, args, **weights)
    analysis = plan.analysis()
    # 20 + 10 + 10 against 10 + 10 + 10, a tensor there and its gradient back
    figures = json.loads(analysis.to_json())
    first, second = figures["devices"]
    assert first["busy_s"] == pytest.approx(0.041) or second["busy_s"] == pytest.approx(0.041)
    assert analysis.busiest == pytest.approx(0.041)
    assert analysis.ideal == pytest.approx(0.035)
    assert analysis.slowdown == pytest.approx(41 / 35)
    assert analysis.speedup == analysis.expected_speedup == pytest.approx(70 / 41)
    parameters = [stage["parameters"] for stage in figures["stages"]]
    assert sum(parameters) == sum(p.numel() for p in model.parameters())
    assert [s["compute_share"] < 1 for s in figures["stages"]] == [True, True]
    assert figures["stages"][0]["sent_bytes"] == figures["stages"][1]["received_bytes"] == 4 * 8 * 4
    assert {"utilisation", "peak_bytes"} <= first.keys()
    text = str(analysis)
    for words in ("utilisation", "pipeline slowdown", "expected speed-up", "sequential", "peak"):
        assert words in text
    analysis.save(tmp_path / "report.txt")
    analysis.save(tmp_path / "report.json")
    assert (tmp_path / "report.txt").read_text() == text + "\n"
    assert json.loads((tmp_path / "report.json").read_text()) == figures


def test_recomputation_is_no_part_of_the_sequential_time(tmp_path):
    costs = uniform(tmp_path, 8)
    kept = pipe(None, **costs).analysis()
    again = pipe(None, recomputation=True, **costs).analysis()
    assert kept.sequential == again.sequential == pytest.approx(0.024)
    assert kept.speedup == kept.expected_speedup == pytest.approx(2, rel=1e-2)
    assert again.expected_speedup == pytest.approx(2, rel=1e-2)
    assert again.speedup == pytest.approx(1.5, rel=1e-2)


def test_the_analysis_of_a_run_has_its_times():
    model, args = chain(4, training=False)
    plan = pipe(model, args, n_microbatches=2)
    runner = kerf.Pipeline(model, plan)
    runner.record = True
    runner(torch.randn(8, 8))
    measured = plan.analysis(runner.timeline)
    assert "times of a run" in str(measured)
    computes = [e for e in runner.timeline.events if e.kind == "compute"]
    assert 0 < measured.busiest <= sum(e.end - e.start for e in computes) * 2
    other = pipe(model, args, nparts=3, devices=["cpu:0", "cpu:1", "cpu:2"])
    with pytest.raises(ValueError, match="another graph, other stages or other devices"):
        other.analysis(runner.timeline)
