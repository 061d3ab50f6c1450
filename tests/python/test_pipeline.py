# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Pipelines give what the models give."""

import copy
import inspect
import pickle
import threading

import pytest
import torch
from comparing import assert_same, eager, hand_plan, kept_state, random_stages
from models import FLOOR, OTHERS, batch_of, build

import kerf

MIXING = {"clip"}  # contrastive logits: samples are compared with each other
OPAQUE = {"longformer"}  # the user has to say that its blocks keep samples apart
KEEPS_STATE = {"slice_writer"}  # writes means over the samples into a buffer


@pytest.fixture(scope="module", params=[*FLOOR, *OTHERS])
def traced(request):
    model, args, kwargs = build(request.param)
    return request.param, model, args, kwargs, kerf.trace(model, args, kwargs)


def test_three_stages_on_two_devices_equal_the_model(traced):
    _, model, args, kwargs, graph = traced
    plan = hand_plan(graph, random_stages(graph, 3, seed=1), ["cpu:0", "cpu:1"])
    expected = eager(model, args, kwargs)
    with kerf.Pipeline(model, plan, graph=graph) as pipe, kept_state(model):
        assert_same(pipe(*args, **kwargs), expected)


def test_a_stream_gives_what_the_model_gives_batch_by_batch(traced):
    name, model, args, kwargs, graph = traced
    if name in KEEPS_STATE:
        return  # what it gives depends on the calls before
    plan = hand_plan(graph, random_stages(graph, 3, seed=3), ["cpu:0", "cpu:1"])
    expected = eager(model, args, kwargs)
    signature = inspect.signature(model.forward)
    batch = signature.bind(*args, **kwargs).arguments
    assert not any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    with kerf.Pipeline(model, plan, graph=graph, batch_independent=True) as pipe:
        found = 0
        for result in pipe.stream([dict(batch)] * 4):
            found += 1
            assert_same(result, expected)
        assert found == 4


def test_uneven_micro_batches_of_another_batch_equal_the_model(traced):
    name, model, args, kwargs, graph = traced
    args, kwargs = batch_of(5, args, kwargs)
    plan = hand_plan(graph, random_stages(graph, 3, seed=2), ["cpu:0", "cpu:1"], 3, batch=5)
    if graph.is_static or name in MIXING or name in KEEPS_STATE:
        with pytest.raises((ValueError, NotImplementedError)):
            kerf.Pipeline(model, plan, graph=graph)(*args, **kwargs)
        return
    if name in OPAQUE:
        with pytest.raises(NotImplementedError, match="batch_independent=True"):
            kerf.Pipeline(model, plan, graph=graph)
    expected = eager(model, args, kwargs)
    vouched = name in OPAQUE
    with kerf.Pipeline(model, plan, graph=graph, batch_independent=vouched) as pipe:
        for _ in range(2):
            assert_same(pipe(*args, **kwargs), expected)


def test_calls_of_the_model_itself_are_no_change(traced):
    name, model, args, kwargs, graph = traced
    fresh, _, _ = build(name, seed=1)  # as many will be under a saved plan
    plan = hand_plan(graph, random_stages(graph, 1, seed=1), ["cpu:0"])
    with kerf.Pipeline(fresh, plan, graph=graph) as pipe:
        for _ in range(2):
            with kept_state(fresh):
                found = pipe(*args, **kwargs)
            assert_same(found, eager(fresh, args, kwargs))


class Mlp(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


@pytest.fixture
def mlp():
    torch.manual_seed(0)
    model = Mlp().eval()
    x = torch.randn(4, 16)
    graph = kerf.trace(model, (x,))
    plan = kerf.plan(graph, devices=["cpu:0", "cpu:1"], method="even", n_microbatches=2)
    return model, x, graph, plan


def test_weights_are_the_models_own(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan)
    before = pipe(x)
    with torch.no_grad():
        model.up.weight.mul_(2)
    assert_same(pipe(x), eager(model, (x,), {}))
    assert not torch.equal(pipe(x), before)
    fresh = Mlp()
    model.load_state_dict(fresh.state_dict())
    assert_same(pipe(x), eager(fresh, (x,), {}))
    other = Mlp()
    model.load_state_dict(other.state_dict(), assign=True)
    assert_same(pipe(x), eager(other, (x,), {}))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    optimizer.step()
    assert_same(pipe(x), eager(model, (x,), {}))


def test_results_carry_no_gradient_and_are_no_inference_tensors(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan)
    with torch.inference_mode():
        y = pipe(x)
    assert not y.requires_grad and not y.is_inference()
    assert not pipe(x).requires_grad and torch.is_grad_enabled()


def test_thread_counts_of_the_caller_stay(mlp):
    model, x, graph, plan = mlp
    before = torch.get_num_threads()
    kerf.Pipeline(model, plan)(x)
    assert torch.get_num_threads() == before


def test_two_threads_are_served_one_after_the_other(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan)
    inputs = [torch.randn(4, 16) for _ in range(40)]
    found = [None] * len(inputs)

    def call(start):
        for i in range(start, len(inputs), 2):
            found[i] = pipe(inputs[i])

    threads = [threading.Thread(target=call, args=(s,)) for s in (0, 1)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for x, y in zip(inputs, found, strict=True):
        assert_same(y, eager(model, (x,), {}))


def test_another_number_of_micro_batches_is_simulated_again(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan, n_microbatches=4)
    assert pipe.plan.n_microbatches == 4 and plan.n_microbatches == 2
    assert_same(pipe(x), eager(model, (x,), {}))


def test_a_plan_and_a_graph_from_files_run(mlp, tmp_path):
    model, x, graph, plan = mlp
    plan.save(tmp_path / "plan.json")
    graph.save(tmp_path / "model.graph")
    loaded = kerf.load_plan(tmp_path / "plan.json")
    pipe = kerf.Pipeline(model, loaded, graph=kerf.load_graph(tmp_path / "model.graph"))
    assert_same(pipe(x), eager(model, (x,), {}))
    with pytest.raises(ValueError, match="graph="):
        kerf.Pipeline(model, kerf.load_plan(tmp_path / "plan.json"))


def test_the_timeline_is_recorded_when_asked_for(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan)
    pipe(x)
    assert pipe.timeline is None
    pipe.record = True
    pipe(x)
    computed = [e for e in pipe.timeline.events if e.kind == "compute"]
    assert len(computed) == 2 * len(plan.stages)


def test_a_pipeline_checks_itself_against_the_model(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan, frozen=True)  # else the patched forward is seen before
    assert pipe.check(x) <= 1e-6
    model.forward = lambda x: Mlp.forward(model, x) + 1
    with pytest.raises(RuntimeError, match="differs from the model's by 1"):
        pipe.check(x)
    model.forward = lambda x: (Mlp.forward(model, x),)
    with pytest.raises(RuntimeError, match="trace again"):
        pipe.check(x)


class Keeping(torch.nn.Module):
    """Leaves something behind in every way there is."""

    def __init__(self):
        super().__init__()
        self.register_buffer("written", torch.zeros(()))
        self.register_buffer("replaced", torch.zeros(()))
        self.tensor = torch.zeros(())
        self.calls = 0
        self.seen = []

    def forward(self, x):
        self.written.add_(1)
        self.replaced = self.replaced + 1
        self.tensor.add_(1)
        self.calls += 1
        self.seen.append(self.calls)
        return x + self.written + self.replaced + self.tensor + len(self.seen), self.written


@pytest.mark.parametrize("blocks", [(), ["Keeping"]])
def test_a_check_leaves_the_model_as_it_was(blocks):
    model = torch.nn.ModuleDict({"keeping": Keeping(), "linear": torch.nn.Linear(8, 8)}).eval()
    model.forward = lambda x: model["keeping"](model["linear"](x))
    keeping, x = model["keeping"], torch.randn(4, 8)
    plan = kerf.plan(kerf.trace(model, (x,), basic_blocks=blocks), devices=["cpu:0"])
    pipe = kerf.Pipeline(model, plan)
    before = dict(vars(keeping)), dict(keeping._buffers)
    for _ in range(2):
        assert pipe.check(x) == 0
        assert vars(keeping) == before[0] and keeping.seen == [] and keeping.calls == 0
        assert all(keeping._buffers[name] is buffer for name, buffer in before[1].items())
        assert keeping.written == keeping.replaced == keeping.tensor == 0


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_pipeline_is_not_copied_but_made_again(mlp, duplicate):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan)
    with pytest.raises(
        TypeError, match=r"\[pipeline\] .*cannot be copied.*pipe\.graph, pipe\.plan"
    ):
        duplicate(pipe)
    graph, plan = pickle.loads(pickle.dumps((pipe.graph, pipe.plan)))
    again = kerf.Pipeline(copy.deepcopy(model), plan, graph=graph)
    assert_same(again(x), pipe(x))


# Bad input


def test_an_input_of_another_shape_names_the_dimension(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan)
    with pytest.raises(ValueError, match=r"args\.0.*dimension 1 has size 17, expected 16"):
        pipe(torch.randn(4, 17))
    with pytest.raises(ValueError, match="dtype"):
        pipe(torch.randint(0, 4, (4, 16)))
    with pytest.raises(ValueError, match="dimensions"):
        pipe(torch.randn(4))
    with pytest.raises(ValueError, match="empty"):
        pipe(torch.randn(0, 16))
    assert_same(pipe(x), eager(model, (x,), {}))


def test_a_model_moved_after_the_pipeline_is_refused(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan)
    model.double()
    with pytest.raises(ValueError, match="new kerf.Pipeline"):
        pipe(x)


def test_a_plan_for_another_graph_names_both(mlp):
    model, x, graph, plan = mlp
    wide = Mlp(32).eval()
    other = kerf.trace(wide, (torch.randn(4, 32),))
    with pytest.raises(ValueError) as caught:
        kerf.Pipeline(wide, plan, graph=other)
    assert graph.hash in str(caught.value) and other.hash in str(caught.value)


def test_another_model_is_refused_by_its_weights(mlp):
    model, x, graph, plan = mlp
    with pytest.raises(ValueError, match=r"up\.weight"):
        kerf.Pipeline(Mlp(8).eval(), plan)


def test_a_model_in_another_mode_is_refused(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan)
    model.train()
    with pytest.raises(ValueError, match="train mode"):
        pipe(x)


class Fragile(torch.nn.Module):
    """Fails at run time for some inputs: an index out of range."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)
        self.head = torch.nn.Linear(4, 4)

    def forward(self, ids):
        return self.head(self.table(ids))


def test_a_stage_that_throws_names_node_scope_and_device_and_can_be_called_again():
    model = Fragile().eval()
    ids = torch.randint(0, 10, (4, 3))
    graph = kerf.trace(model, (ids,))
    plan = kerf.plan(graph, devices=["cpu:0", "cpu:1"], method="even", n_microbatches=2)
    pipe = kerf.Pipeline(model, plan)
    bad = ids.clone()
    bad[3, 0] = 99
    for _ in range(3):
        with pytest.raises(RuntimeError) as caught:
            pipe(bad)
        message = str(caught.value)
        assert "table" in message and "cpu:0" in message and "embedding" in message
        assert "test_pipeline.py" in message and "stage 0" in message
        assert_same(pipe(ids), eager(model, (ids,), {}))


def test_micro_batching_a_model_that_mixes_samples_names_the_output():
    model, args, kwargs = build("clip")
    graph = kerf.trace(model, args, kwargs)
    stages = random_stages(graph, 2, seed=0)
    with pytest.raises(NotImplementedError, match=r"logits_per.*mixes samples"):
        kerf.Pipeline(model, hand_plan(graph, stages, ["cpu:0", "cpu:1"], 2), graph=graph)


def test_a_loss_needs_a_reduction():
    class WithLoss(Mlp):
        def forward(self, x):
            y = super().forward(x)
            return {"loss": y.pow(2).mean(), "y": y}

    model = WithLoss().eval()
    x = torch.randn(6, 16)
    graph = kerf.trace(model, (x,))
    plan = kerf.plan(graph, devices=["cpu:0", "cpu:1"], method="even", n_microbatches=4)
    with pytest.raises(NotImplementedError, match=r'reduce=\{"loss": "mean"\}'):
        kerf.Pipeline(model, plan)
    pipe = kerf.Pipeline(model, plan, reduce={"loss": "mean"})
    assert_same(pipe(x), eager(model, (x,), {}))


def test_a_closed_pipeline_says_so(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan)
    pipe.close()
    with pytest.raises(RuntimeError, match="closed"):
        pipe(x)


def test_dropout_depends_on_the_seed_and_not_on_the_cut():
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(64, 64),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(64, 8),
    ).train()
    x = torch.randn(6, 16)
    graph = kerf.trace(model, (x,))
    found = []
    for count, devices in ((1, ["cpu:0"]), (2, ["cpu:0", "cpu:1"]), (3, ["cpu:1", "cpu:0"])):
        stages = random_stages(graph, count, seed=3)
        pipe = kerf.Pipeline(model, hand_plan(graph, stages, devices, 3), graph=graph)
        torch.manual_seed(7)
        found.append((pipe(x), pipe(x)))
    for first, second in found:
        assert not torch.equal(first, second)
        assert_same(first, found[0][0])
        assert_same(second, found[0][1])


def test_inputs_without_plain_numbers_are_refused(mlp):
    model, x, graph, plan = mlp
    pipe = kerf.Pipeline(model, plan)
    with pytest.raises(ValueError, match=r"args\.0.*sparse"):
        pipe(x.to_sparse())
    with pytest.raises(ValueError, match=r"args\.0.*no data"):
        pipe(x.to("meta"))


def test_a_weight_that_does_not_fit_is_refused_until_one_that_fits_stands_there(mlp):
    model, x, graph, plan = mlp
    with kerf.Pipeline(model, plan) as pipe:
        pipe(x)
        fitting = model.up.weight
        model.up.weight = torch.nn.Parameter(fitting.detach().double())
        for _ in range(2):  # the second call too
            with pytest.raises(ValueError, match="weight 'up.weight' is f64"):
                pipe(x)
        model.up.weight = torch.nn.Parameter(fitting.detach() * 2)
        assert_same(pipe(x), eager(model, (x,), {}))
