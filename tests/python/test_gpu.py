# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""On an accelerator: two logical devices on one card, streams, moved weights."""

import pytest
import torch
from comparing import eager, kept_state, largest_difference, random_stages
from models import FLOOR, batch_of, build

import kerf
from kerf import _core

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
    pytest.mark.filterwarnings("ignore:kerf.Pipeline moved"),
]

# Kernels are chosen by shape: a micro-batch may use another one than the whole batch.
TOLERANCE = 2e-3


def to_cuda(value):
    return torch.utils._pytree.tree_map(
        lambda x: x.cuda() if isinstance(x, torch.Tensor) else x, value
    )


def plan_on(graph, stages, names, n_microbatches=1, batch=0):
    cluster = _core.make_cluster(names)
    labels = [cluster.devices[i % len(names)].name for i in range(len(stages))]
    profile = _core.estimate(graph)
    return _core.make_plan(
        graph, profile, cluster, stages, labels, n_microbatches=n_microbatches, batch=batch
    )


@pytest.fixture(autouse=True)
def exact_products():
    """TF32 rounds differently in different kernels; comparisons are of fp32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("name", FLOOR)
def test_two_stages_on_one_card_equal_the_model(name):
    model, args, kwargs = build(name)
    graph = kerf.trace(model, args, kwargs)  # on the CPU: devices are not baked in
    plan = plan_on(graph, random_stages(graph, 2, seed=1), ["cuda:0", "cuda:0"])
    pipe = kerf.Pipeline(model, plan, graph=graph)
    assert all(w.is_cuda for w in model.parameters())
    args, kwargs = to_cuda(args), to_cuda(kwargs)
    expected = eager(model, args, kwargs)
    with kept_state(model):
        for _ in range(3):
            with kept_state(model):
                assert largest_difference(pipe(*args, **kwargs), expected) <= TOLERANCE


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "resnet", "gated_resnet", "view_writer"])
def test_micro_batches_on_one_card_equal_the_model(name):
    model, args, kwargs = build(name)
    graph = kerf.trace(model, args, kwargs)
    plan = plan_on(graph, random_stages(graph, 3, seed=2), ["cuda:0", "cuda:0"], 3, 5)
    pipe = kerf.Pipeline(model, plan, graph=graph)
    args, kwargs = to_cuda(batch_of(5, args, kwargs))
    expected = eager(model, args, kwargs)
    for _ in range(5):
        assert largest_difference(pipe(*args, **kwargs), expected) <= TOLERANCE


def test_a_model_traced_on_the_card_runs_there():
    model, args, kwargs = build("llama_tied")
    model = model.cuda()
    args, kwargs = to_cuda(args), to_cuda(kwargs)
    graph = kerf.trace(model, args, kwargs)
    plan = plan_on(graph, random_stages(graph, 2, seed=1), ["cuda:0", "cuda:0"])
    pipe = kerf.Pipeline(model, plan, graph=graph)
    assert largest_difference(pipe(*args, **kwargs), eager(model, args, kwargs)) <= TOLERANCE


def test_stages_on_the_host_and_on_the_card_share_tied_weights():
    model, args, kwargs = build("gpt2")
    graph = kerf.trace(model, args, kwargs)
    expected = eager(model, args, kwargs)
    plan = plan_on(graph, random_stages(graph, 3, seed=4), ["cpu:0", "cuda:0"])
    pipe = kerf.Pipeline(model, plan, graph=graph)
    assert largest_difference(pipe(*args, **kwargs).logits.cpu(), expected.logits) <= TOLERANCE
    with torch.no_grad():
        model.transformer.wte.weight.mul_(1.5)
    changed = pipe(*args, **kwargs).logits.cpu()
    assert largest_difference(changed, expected.logits) > TOLERANCE


def test_moving_weights_is_said():
    model, args, kwargs = build("gpt2")
    graph = kerf.trace(model, args, kwargs)
    plan = plan_on(graph, random_stages(graph, 2, seed=1), ["cuda:0", "cuda:0"])
    with pytest.warns(UserWarning, match=r"moved \d+ weights .* to cuda:0"):
        kerf.Pipeline(model, plan, graph=graph)


def test_results_are_ready_on_the_callers_stream():
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(12)]).cuda().eval()
    x = torch.randn(2048, 512, device="cuda")
    graph = kerf.trace(model, (x,))
    plan = plan_on(graph, random_stages(graph, 3, seed=0), ["cuda:0", "cuda:0"], 4, 2048)
    pipe = kerf.Pipeline(model, plan, graph=graph)
    stream = torch.cuda.Stream()
    for i in range(20):
        with torch.cuda.stream(stream):
            y = x * (i + 1)
            found = pipe(y).double().sum().item()
            expected = eager(model, (y,), {}).double().sum().item()
        assert abs(found - expected) <= 1e-3 * abs(expected) + 1e-3


def test_a_card_that_is_not_here_is_named():
    model, args, kwargs = build("gpt2")
    graph = kerf.trace(model, args, kwargs)
    plan = plan_on(graph, random_stages(graph, 2, seed=1), ["cuda:77"])
    with pytest.raises(RuntimeError, match="cuda:77"):
        kerf.Pipeline(model, plan, graph=graph)


def test_one_memory_limit_is_shared_by_both():
    model, args, kwargs = build("gpt2")
    graph = kerf.trace(model, args, kwargs)
    need = sum(p.numel() * 4 for p in model.parameters())
    plan = kerf.plan(graph, devices=["cuda:0", "cuda:0"], max_memory={"cuda:0": "64MiB"})
    assert len({d.memory_group for d in plan.cluster.devices}) == 1
    with pytest.raises(kerf.InfeasibleError):
        kerf.plan(graph, devices=["cuda:0", "cuda:0"], max_memory={"cuda:0": need // 2})


class Accumulate(torch.nn.Module):
    """Writes one of its inputs."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, total):
        total.add_(self.layer(x))
        return total * 2


@torch.no_grad()
def test_what_the_model_writes_reaches_tensors_on_the_host_and_on_the_card():
    model, x, total = Accumulate().eval(), torch.randn(4, 4), torch.zeros(4, 4)
    graph = kerf.trace(model, (x, total))
    plan = plan_on(graph, [list(range(graph.num_nodes))], ["cuda:0"])
    pipe = kerf.Pipeline(model, plan, graph=graph)
    added = model(x.cuda(), torch.zeros(4, 4, device="cuda")).cpu() / 2
    for device in ("cpu", "cuda"):
        total = torch.zeros(4, 4, device=device)
        for count in range(1, 6):  # later calls are replayed
            assert (pipe(x, total).cpu() - 2 * count * added).abs().max() <= TOLERANCE
            assert (total.cpu() - count * added).abs().max() <= TOLERANCE
