# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Stages recorded as CUDA graphs: same answers as the model, call after call."""

import pytest
import torch
from comparing import eager, kept_state, largest_difference, random_stages
from models import FLOOR, OTHERS, batch_of, build
from test_gpu import TOLERANCE, exact_products, plan_on, to_cuda  # noqa: F401

import kerf
from kerf import _pytree

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
    pytest.mark.filterwarnings("ignore:kerf.Pipeline moved"),
]

CALLS = 5  # two to warm up, one to record, two replays


def changed(args, kwargs, call):
    """The same call with other samples."""
    return torch.utils._pytree.tree_map(
        lambda x: x.roll(call, -1) if isinstance(x, torch.Tensor) and x.ndim > 1 else x,
        (args, kwargs),
    )


def tensors(value):
    return _pytree.describe(value).tensors


def mlp(width=64, layers=4):
    torch.manual_seed(0)
    parts = [m for _ in range(layers) for m in (torch.nn.Linear(width, width), torch.nn.GELU())]
    return torch.nn.Sequential(*parts).cuda().eval()


def one_stage(model, x, **options):
    graph = kerf.trace(model, (x,))
    plan = kerf.plan(graph, ["cuda:0"], method="single")
    return kerf.Pipeline(model, plan, **options)


@pytest.mark.parametrize("name", [*FLOOR, *OTHERS])
def test_a_model_traced_on_the_cpu_runs_recorded_on_the_card(name):
    model, args, kwargs = build(name)
    graph = kerf.trace(model, args, kwargs)
    plan = plan_on(graph, random_stages(graph, 2, seed=1), ["cuda:0"])
    pipe = kerf.Pipeline(model, plan, graph=graph)
    for call in range(CALLS):
        now = to_cuda(changed(args, kwargs, call))
        expected = eager(model, *now)
        with kept_state(model):
            found = pipe(*now[0], **now[1])
        assert largest_difference(found, expected) <= TOLERANCE, (call, pipe.recorded())
    for stage in pipe.recorded():
        assert stage["recordings"] == 1 or stage["why_not"], pipe.recorded()


def test_results_of_earlier_calls_stay():
    model, x = mlp(), torch.randn(8, 64, device="cuda")
    pipe = one_stage(model, x)
    inputs = [x * (i + 1) for i in range(8)]
    results = [pipe(y) for y in inputs]
    assert pipe.recorded()[0]["recordings"] == 1
    for y, result in zip(inputs, results, strict=True):
        assert largest_difference(result, eager(model, (y,), {})) <= TOLERANCE


def test_weights_that_change_in_place_or_are_replaced_are_used():
    model, x = mlp(), torch.randn(8, 64, device="cuda")
    pipe = one_stage(model, x)
    for _ in range(4):
        pipe(x)
    with torch.no_grad():
        model[0].weight.mul_(2)
    assert largest_difference(pipe(x), eager(model, (x,), {})) <= TOLERANCE
    model[2].weight = torch.nn.Parameter(torch.randn_like(model[2].weight))
    assert largest_difference(pipe(x), eager(model, (x,), {})) <= TOLERANCE
    assert pipe.recorded()[0]["recordings"] == 1


def test_other_batches_and_other_streams():
    model = mlp()
    pipe = one_stage(model, torch.randn(8, 64, device="cuda"))
    streams = [torch.cuda.Stream() for _ in range(3)]
    for i in range(60):
        with torch.cuda.stream(streams[i % 3]):
            x = torch.randn(4 + i % 2, 64, device="cuda")
            found = pipe(x)
            expected = eager(model, (x,), {})
            assert largest_difference(found, expected) <= TOLERANCE
    assert pipe.recorded()[0]["recordings"] == 2


@pytest.mark.parametrize("devices", [["cuda:0", "cuda:0"], ["cpu:0", "cuda:0"]])
@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "resnet"])
def test_micro_batches_over_recorded_stages(name, devices):
    model, args, kwargs = build(name)
    graph = kerf.trace(model, args, kwargs)
    plan = plan_on(graph, random_stages(graph, 3, seed=2), devices, 3, 5)
    args, kwargs = batch_of(5, args, kwargs)
    expected = eager(model.cpu(), args, kwargs)
    pipe = kerf.Pipeline(model, plan, graph=graph)
    for _ in range(5):
        found = pipe(*args, **kwargs)
        for a, b in zip(tensors(found), tensors(expected), strict=True):
            assert (a.cpu() - b).abs().max().item() <= TOLERANCE
    recorded = [s for s in pipe.recorded() if s["device"].startswith("cuda")]
    assert any(s["recordings"] for s in recorded), recorded


def test_an_input_that_the_model_writes_is_written():
    class Counter(torch.nn.Module):
        def forward(self, x, state):
            state.add_(x.sum(0))
            return x * state

    model = Counter().cuda().eval()
    x, state = torch.randn(4, 8, device="cuda"), torch.zeros(8, device="cuda")
    graph = kerf.trace(model, (x, state), batch_dims={})
    pipe = kerf.Pipeline(model, kerf.plan(graph, ["cuda:0"], method="single"))
    expected_state = state.clone()
    for _ in range(6):
        expected = eager(model, (x, expected_state), {})
        assert largest_difference(pipe(x, state), expected) <= TOLERANCE
        assert torch.allclose(state, expected_state)
    assert pipe.recorded()[0]["recordings"] == 1


def test_settings_that_choose_kernels_are_followed():
    model, x = mlp(512, 2), torch.randn(64, 512, device="cuda")
    pipe = one_stage(model, x)
    for _ in range(4):
        exact = pipe(x)
    torch.backends.cuda.matmul.allow_tf32 = True
    for _ in range(4):
        coarse = pipe(x)
    assert not torch.equal(exact, coarse)
    torch.backends.cuda.matmul.allow_tf32 = False
    assert torch.equal(pipe(x), exact)


def test_random_numbers_of_recorded_stages_are_those_of_any_run():
    class Masked(torch.nn.Module):
        def forward(self, x):
            return x * torch.bernoulli(torch.sigmoid(x)) + torch.bernoulli(torch.sigmoid(-x))

    model, x = Masked().cuda().eval(), torch.randn(64, 64, device="cuda")
    recorded, plain = one_stage(model, x), one_stage(model, x, cuda_graphs=False)
    results = []
    for pipe in (recorded, plain):
        torch.manual_seed(7)
        results.append([pipe(x) for _ in range(6)])
    assert recorded.recorded()[0]["recordings"] == 1, recorded.recorded()
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(results[0][4], results[0][5])


def test_what_cannot_be_recorded_runs_and_says_why():
    class Noisy(torch.nn.Module):
        def forward(self, x):
            return x[x > 0].sum() + torch.rand_like(x).sum() * 0

    class Wrapper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Noisy()

        def forward(self, x):
            return x * self.inner(x)

    model = Wrapper().cuda().eval()
    x = torch.randn(4, 8, device="cuda")
    pipe = one_stage(model, x)
    for _ in range(5):
        assert largest_difference(pipe(x), eager(model, (x,), {})) <= TOLERANCE
    assert pipe.recorded()[0]["recordings"] == 0
    assert pipe.recorded()[0]["why_not"]


def test_it_can_be_turned_off():
    model, x = mlp(), torch.randn(8, 64, device="cuda")
    pipe = one_stage(model, x, cuda_graphs=False)
    for _ in range(5):
        pipe(x)
    assert pipe.recorded()[0]["recordings"] == 0
    assert "turned off" in pipe.recorded()[0]["why_not"]
    with pytest.raises(ValueError, match="cuda_graphs"):
        one_stage(model, x, cuda_graphs="always")


def test_a_limit_without_room_for_recordings_is_kept():
    model, x = mlp(), torch.randn(8, 64, device="cuda")
    graph = kerf.trace(model, (x,))
    roomy = kerf.plan(graph, ["cuda:0"], method="single")
    tight = kerf.plan(
        graph, ["cuda:0"], {"cuda:0": roomy.devices[0].predicted_bytes}, method="single"
    )
    pipe = kerf.Pipeline(model, tight)
    for _ in range(4):
        pipe(x)
    assert "limit" in pipe.recorded()[0]["why_not"]


TORCHVISION = """resnet18 resnet50 densenet121 efficientnet_b0 mobilenet_v3_large vit_b_16 swin_t
convnext_tiny googlenet inception_v3 mnasnet1_0 regnet_y_400mf resnext50_32x4d shufflenet_v2_x1_0
squeezenet1_1 vgg11""".split()


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision_models_traced_on_the_cpu_run_on_the_card(name):
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).eval()
    size = 299 if name == "inception_v3" else 224
    x = torch.randn(2, 3, size, size)
    graph = kerf.trace(model, (x,))
    plan = plan_on(graph, random_stages(graph, 2, seed=1), ["cuda:0", "cuda:0"])
    pipe = kerf.Pipeline(model, plan, graph=graph)
    for call in range(4):
        now = (x.roll(call, -1).cuda(),)
        assert largest_difference(pipe(*now), eager(model, now, {})) <= TOLERANCE
