# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Saved sets against PyTorch: the bytes that backward keeps, exactly."""

import contextlib

import models
import pytest
import torch
from saving import kept_bytes
from torch import nn
from torch.utils.checkpoint import checkpoint

import kerf
from kerf import _core

ZOO = {**models.FLOOR, **models.OTHERS}
REFUSED = {"wav2vec2"}  # in train mode: test_trace_zoo.py
EXCEPTIONS = {
    "longformer": "its encoder looks at the values of a mask, and runs as Python",
}


# Its GELU is an autograd.Function that keeps its input, and runs as Python.
_WITH_BLOCKS = {"BloomForCausalLM"}


def predicted_bytes(graph, batch=0):
    saved = _core.saved_sets(graph, batch, accelerator=False)
    known = {"aten.lstm.input"}  # fused on the host: counted as oneDNN lays it out, and listed
    unknown = [op for op in saved["ops_without_rule"] if op not in known]
    assert unknown == (["opaque"] if graph.name in _WITH_BLOCKS else [])
    # Tensors that the model's code makes anew in every call are weights of the graph.
    constants = {w["storage"] for w in graph.weights if w["kind"] == "constant"}
    tensors = {(s, size) for row in saved["by_node"] for _, s, size in row if s in constants}
    return saved["made"] + saved["inputs"] + sum(size for _, size in tensors)


@contextlib.contextmanager
def masks_as_traced(name):
    """T5 adds a mask of ones to its position bias when it is traced, and only then."""
    import transformers.masking_utils as masking

    with pytest.MonkeyPatch.context() as patch:
        if name == "t5":
            patch.setattr(masking, "is_torchdynamo_exporting", lambda: True)
        yield


@pytest.mark.parametrize("name", [n for n in ZOO if n not in REFUSED | set(EXCEPTIONS)])
def test_saved_bytes_are_what_pytorch_keeps(name):
    torch.manual_seed(0)
    model, args, kwargs = ZOO[name]()
    graph = kerf.trace(model.train(), args, kwargs)
    with masks_as_traced(name):
        assert predicted_bytes(graph) == kept_bytes(model, args, kwargs)
        if graph.is_static:
            return
        args, kwargs = models.batch_of(6, args, kwargs)  # whole rows, no slice of more
        assert predicted_bytes(graph, 6) == kept_bytes(model, args, kwargs)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions_are_still_exceptions(name):
    model, args, kwargs = ZOO[name]()
    graph = kerf.trace(model.train(), args, kwargs)
    saved = _core.saved_sets(graph)
    assert saved["made"] + saved["inputs"] != kept_bytes(model, args, kwargs)
    assert saved["ops_without_rule"] == ["opaque"]


@pytest.mark.parametrize("name", ["gpt2", "resnet", "swin", "mamba", "unet"])
def test_frozen_parameters_keep_less(name):
    torch.manual_seed(0)
    model, args, kwargs = ZOO[name]()
    whole = predicted_bytes(kerf.trace(model.train(), args, kwargs))
    parameters = list(model.parameters())
    for parameter in parameters[: len(parameters) // 2]:
        parameter.requires_grad_(False)
    frozen = predicted_bytes(kerf.trace(model, args, kwargs))
    assert frozen == kept_bytes(model, args, kwargs)
    assert frozen < whole
    for parameter in parameters:
        parameter.requires_grad_(False)
    assert predicted_bytes(kerf.trace(model, args, kwargs)) == 0


@pytest.mark.parametrize("every", [2, 3])
def test_scattered_frozen_parameters(every):
    torch.manual_seed(0)
    model, args, kwargs = ZOO["gpt2"]()
    for i, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(i % every != 0)
    graph = kerf.trace(model.train(), args, kwargs)
    assert predicted_bytes(graph) == kept_bytes(model, args, kwargs)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, 4 * width)
        self.second = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.second(torch.tanh(self.first(x))))


class Checkpointed(nn.Module):
    def __init__(self, nested=False):
        super().__init__()
        self.stem = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(Block(16) for _ in range(3))
        self.nested = nested

    def two_blocks(self, x):
        x = checkpoint(self.blocks[0], x, use_reentrant=False)
        return self.blocks[1](torch.sin(x))

    def forward(self, x):
        x = torch.relu(self.stem(x))
        if self.nested:
            x = checkpoint(self.two_blocks, x, use_reentrant=False)
            return self.blocks[2](x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


@pytest.mark.parametrize("nested", [False, True])
def test_a_checkpointed_region_keeps_its_inputs_alone(nested):
    model = Checkpointed(nested).train()
    args = (torch.randn(4, 8),)
    graph = kerf.trace(model, args)
    assert any(node["region"] for node in graph.nodes)
    assert predicted_bytes(graph) == kept_bytes(model, args, {})
    args = (torch.randn(9, 8),)
    assert predicted_bytes(graph, 9) == kept_bytes(model, args, {})


class SequenceFirst(nn.Module):
    """As torchvision's ViT: attention of tensors whose first dimension is the sequence."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x):
        x = x.transpose(0, 1)
        return self.attention(x, x, x, need_weights=False)[0]


def test_attention_writes_its_result_by_query_on_an_accelerator():
    batch, tokens, width, heads = 3, 5, 8, 2
    graph = kerf.trace(SequenceFirst().train(), (torch.randn(batch, tokens, width),))
    host, accelerator = (_core.saved_sets(graph, accelerator=on)["made"] for on in (False, True))
    # What the graph has as a view of the result is a copy there, and the sums of rows come in
    # groups of 32.
    copied = batch * tokens * width * 4
    sums = batch * heads * (32 - tokens) * 4
    assert accelerator - host == copied + sums


class PartlyWithoutGradients(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        with torch.no_grad():
            y = torch.sigmoid(self.a(x))
        z = torch.sigmoid(self.b(x)) * y
        return self.c(z.detach()) * z


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        x = torch.relu_(self.norm(self.a(x)))
        x = nn.functional.silu(self.b(x), inplace=True)
        x = nn.functional.hardtanh_(self.c(x), 0.0, 6.0)
        return x.mul_(2.0).add_(1.0)


@pytest.mark.parametrize(
    ("make", "shape"), [(PartlyWithoutGradients, (4, 8)), (InPlace, (2, 3, 12, 12))]
)
def test_parts_without_gradients_and_in_place(make, shape):
    model = make().train()
    args = (torch.randn(*shape),)
    assert predicted_bytes(kerf.trace(model, args)) == kept_bytes(model, args, {})


def _pools(x):
    image = x.view(2, 2, 4, 8)
    f = nn.functional
    return (
        f.avg_pool2d(image, 2).sum()
        + f.adaptive_avg_pool2d(image, 2).sum()
        + f.adaptive_avg_pool2d(image, 1).sum()
        + f.max_pool2d(image, 2).sum()
        + f.max_pool1d(image[0], 2).sum()
        + f.group_norm(image, 2).sum()
        + f.interpolate(image, scale_factor=2, mode="nearest").sum()
    )


UNARY = (
    "abs cos erf exp expm1 floor log1p neg reciprocal rsqrt sigmoid sin sqrt square tan tanh celu "
    "elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 selu silu "
    "softplus softshrink logsigmoid"
).split()


def _all_unary(x, y, z):
    """Sums of sines of cosines and so on, so that no function keeps what another one keeps."""
    total = 0
    for i, name in enumerate(UNARY):
        function = getattr(torch, name, None) or getattr(nn.functional, name)
        total = total + function(x[:, : i % 7 + 1] + i).sum()
    return total


CALLS = {
    "unary": _all_unary,
    "add and multiply": lambda x, y, z: x * y + z * 2.0,
    "divide": lambda x, y, z: x / y / 3.0,
    "divide by input": lambda x, y, z: 1.0 / x + z / y,
    "powers": lambda x, y, z: x.abs() ** 2 + x.abs() ** y.abs() + 2.0**y,
    "clamp": lambda x, y, z: x.clamp(min=0.1) + y.clamp(-1.0, 1.0),
    "maximum": lambda x, y, z: torch.maximum(x, y) + torch.minimum(x, z),
    "extrema": lambda x, y, z: x.max() + x.max(1).values.sum() + y.amax(1).sum() + y.min(),
    "addcmul": lambda x, y, z: torch.addcmul(x, y, z) + torch.addcdiv(x, y, z),
    "lerp": lambda x, y, z: torch.lerp(x, y, 0.3) + torch.lerp(x, y, z),
    "where": lambda x, y, z: torch.where(x > 0, y, z),
    "masked_fill": lambda x, y, z: x.masked_fill(z > 0, 0.0),
    "softmax": lambda x, y, z: x.softmax(-1) + y.log_softmax(0) + x.logsumexp(1, keepdim=True),
    "matmul": lambda x, y, z: (x @ y.t()).view(4, 8, 8) @ z.view(1, 16, 8)[:, :8],
    "stack of matrices": lambda x, y, z: x.view(2, 4, 2, 8).transpose(1, 2) @ y.view(2, 8, 8)[:1],
    "shared matrix": lambda x, y, z: x.view(2, 8, 8).transpose(0, 1) @ y[:8],
    "einsum": lambda x, y, z: torch.einsum("ij,kj->ik", x, y),
    "norms": lambda x, y, z: (
        nn.functional.layer_norm(x, (8,)) + nn.functional.layer_norm(y, (16, 8))
    ),
    "weight norms": lambda x, y, z: (
        torch._weight_norm(x, y[:, :1] * 1) + torch._weight_norm(z, y[:1] * 1, 1)
    ),
    "weight norm in the middle": lambda x, y, z: torch._weight_norm(
        x.view(2, 8, 8) * 1, y[:8, 0].view(1, 8, 1) * 1, 1
    ),
    "pools": lambda x, y, z: _pools(x),
    "dropout": lambda x, y, z: nn.functional.dropout(x, 0.3) + nn.functional.dropout(y, 0.0),
    "sort": lambda x, y, z: x.sort(1).values + y.topk(8, 1).values,
    "indices": lambda x, y, z: (
        x[torch.tensor([0, 2])].sum() + y.index_select(0, torch.tensor([1])).sum()
    ),
    "added at indices": lambda x, y, z: (
        x.scatter_add(0, torch.zeros(2, 8, dtype=torch.long), y[:2])
        + x.index_add(0, torch.tensor([1]), z[:1])
    ),
    "glu": lambda x, y, z: nn.functional.glu(x),
    "losses": lambda x, y, z: (
        nn.functional.mse_loss(x, y) + nn.functional.cross_entropy(z, torch.arange(16) % 8)
    ),
    "reductions": lambda x, y, z: x.std() + x.var(1).sum() + y.norm() + z.prod(1).sum(),
    "prelu": lambda x, y, z: nn.functional.prelu(x, y[0]),
    "padded": lambda x, y, z: nn.functional.pad(x, (1, 1), mode="reflect"),
    "repeated": lambda x, y, z: x.repeat_interleave(2, 0).sum() + y.repeat_interleave(3, 1).sum(),
    "views": lambda x, y, z: torch.cat([x.flip(0), y.roll(1, 0)]).t().reshape(-1),
}


class Function(nn.Module):
    def __init__(self, function, trainable):
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(torch.rand(16, 8) + 0.5 for _ in range(3))
        for weight, flag in zip(self.weights, trainable, strict=True):
            weight.requires_grad_(flag)

    def forward(self, x):
        # Results of operators, so that what is kept is no parameter.
        return self.function(*[x + weight for weight in self.weights])


@pytest.mark.parametrize(
    "trainable", [(True, True, True), (True, False, False), (False, True, False)]
)
@pytest.mark.parametrize("name", CALLS)
def test_operators_keep_what_pytorch_keeps(name, trainable):
    model = Function(CALLS[name], trainable).train()
    args = (torch.rand(16, 8),)
    graph = kerf.trace(model, args)
    assert predicted_bytes(graph) == kept_bytes(model, args, {})


IN_PLACE = (
    "abs_ acos_ acosh_ asin_ asinh_ atan_ atanh_ cos_ cosh_ digamma_ erf_ erfc_ erfinv_ exp_ exp2_ "
    "expm1_ frac_ lgamma_ log_ log10_ log1p_ log2_ logit_ neg_ reciprocal_ rsqrt_ sigmoid_ sin_ "
    "sinc_ sinh_ sqrt_ square_ tan_ tanh_ relu_ deg2rad_ nan_to_num_"
).split()
IN_PLACE_FUNCTIONS = "relu relu6 hardtanh leaky_relu elu selu celu silu mish hardswish".split()


class Overwritten(nn.Module):
    """What comes next keeps the result, so that a copy of what was overwritten shows."""

    def __init__(self, name):
        super().__init__()
        self.weight, self.name = nn.Parameter(torch.rand(16, 8) + 0.2), name

    def forward(self, x):
        x = x + self.weight
        if self.name in IN_PLACE_FUNCTIONS:
            return getattr(nn.functional, self.name)(x, inplace=True).sin()
        return getattr(x, self.name)().sin()


@pytest.mark.parametrize("name", [*IN_PLACE, *IN_PLACE_FUNCTIONS])
def test_what_is_overwritten_is_copied_where_backward_needs_it(name):
    model, args = Overwritten(name).train(), (torch.rand(16, 8) / 2,)
    gm = kerf.symbolic_trace(model, meta_args={"x": args[0]})
    kerf.symbolic_profile(gm, *args, device_kind="cpu", strict=True)
    assert kerf.profile_table(gm).totals["saved"] == kept_bytes(model, args, {})


RECURRENT = {
    "plain": {},
    "batch first": dict(batch_first=True),
    "layers": dict(num_layers=2),
    "both ways": dict(bidirectional=True),
    "layers both ways": dict(num_layers=2, bidirectional=True),
    "no bias": dict(bias=False),
    "dropout": dict(num_layers=3, dropout=0.1),
}


@pytest.mark.parametrize(
    ("layer", "dtype"),
    [
        (nn.LSTM, torch.float32),
        (nn.LSTM, torch.float64),
        (nn.GRU, torch.float32),
        (nn.RNN, torch.float32),
    ],
)
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_keep_what_pytorch_keeps(layer, dtype, name):
    model = layer(6, 20, **RECURRENT[name]).to(dtype).train()
    args = (torch.rand(7, 4, 6).to(dtype),)
    graph = kerf.trace(model, args)
    assert predicted_bytes(graph) == kept_bytes(model, args, {})
    # cuDNN's reserve is a guess, and listed.
    assert _core.saved_sets(graph, accelerator=True)["ops_without_rule"] != []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", RECURRENT)
def test_lstms_with_projections_keep_what_pytorch_keeps(dtype, name):
    model = nn.LSTM(6, 20, proj_size=5, **RECURRENT[name]).to(dtype).train()
    args = (torch.rand(7, 4, 6).to(dtype),)
    graph = kerf.trace(model, args)
    assert predicted_bytes(graph) == kept_bytes(model, args, {})
    assert _core.saved_sets(graph, accelerator=False)["ops_without_rule"] == []  # no guess
    assert _core.saved_sets(graph, accelerator=True)["ops_without_rule"] != []


def test_a_plan_tells_of_operators_whose_memory_is_a_guess():
    model = nn.LSTM(64, 64, batch_first=True).train()
    args = (torch.randn(8, 100, 64),)
    plan = kerf.plan(kerf.trace(model, args), ["cpu:0"], training=True, optimizer="sgd")
    assert plan.stages[0].saved_bytes >= kept_bytes(model, args, {}) - args[0].nbytes
    (note,) = [note for note in plan.notes if "aten.lstm.input" in note]
    assert "(1 call): predicted memory may be too low" in note


def test_rms_norms_scale_is_kept_as_pytorch_keeps_it():
    layers = [
        nn.Linear(16, 16),
        nn.RMSNorm(16),
        nn.Linear(16, 16),
        nn.RMSNorm(16),
        nn.Linear(16, 1),
    ]
    model = nn.Sequential(*layers).train()
    args = (torch.randn(12, 16),)
    graph = kerf.trace(model, args)
    assert predicted_bytes(graph) == kept_bytes(model, args, {})
    memory = kerf.memory(graph, device_kind="cpu")
    assert memory.saved == kept_bytes(model, args, {}) - args[0].nbytes
