# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What the graph proves about samples is held to what the model does with them.

Every family of operators has cases that are proved and cases that mix. A case that is proved is run
whole, cut at several places and beside other samples, at several scales; a case that mixes must be
seen to mix, so that no case is listed wrongly.
"""

import random

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import kerf

BATCH = 5
SCALES = (1e-3, 1.0, 1e3)


class Case(nn.Module):
    """A function of x, with layers to use; ``f(m, x)`` gets the module for them."""

    def __init__(self, f):
        super().__init__()
        torch.manual_seed(0)
        self.f = f
        self.lin = nn.Linear(6, 6)
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.norm = nn.LayerNorm(6)
        self.group = nn.GroupNorm(2, 4)
        self.bn = nn.BatchNorm1d(4)
        self.lstm = nn.LSTM(6, 6, batch_first=True)
        self.gru_second = nn.GRU(6, 6)
        self.table = nn.Embedding(7, 6)
        self.cell = nn.GRUCell(6, 6)
        self.prelu = nn.PReLU(4)

    def forward(self, x):
        return self.f(self, x)


def trace(f, x):
    model = Case(f).eval()
    graph = kerf.trace(model, (x,))
    assert not graph.is_static, graph.notes
    return model, graph


def batch_dims(graph):
    found = []
    for output in graph.outputs:
        dims = [d for d, s in enumerate(output["value"]["shape"]) if isinstance(s, str)]
        found.append(dims[0] if dims else None)
    return found


def tensors_of(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def unlike(a, b):
    if a.shape != b.shape:
        return True
    a, b = a.double(), b.double()
    scale = a.abs().nan_to_num(0, 0, 0).max().item() if a.numel() else 0.0
    return not torch.allclose(a, b, rtol=0, atol=1e-4 * scale + 1e-30, equal_nan=True)


def seen_to_mix(model, graph, x):
    """Does cutting the batch, or another sample, change what comes out for a sample?"""
    dims = batch_dims(graph)
    with torch.no_grad():
        for scale in SCALES:
            whole = tensors_of(model(x * scale))
            for cuts in ((2, 3), (1, 4), (3, 1, 1)):
                parts = [tensors_of(model(p)) for p in (x * scale).split(cuts)]
                for k, dim in enumerate(dims):
                    if dim is None:
                        continue
                    if unlike(whole[k], torch.cat([p[k] for p in parts], dim)):
                        return True
            changed = x.clone()
            changed[0] = -2 * x[0] + 1
            beside = tensors_of(model(changed * scale))
            for k, dim in enumerate(dims):
                if dim is None:
                    continue
                own = whole[k].shape[dim] // BATCH
                rest = whole[k].shape[dim] - own
                if unlike(*(t.narrow(dim, own, rest) for t in (whole[k], beside[k]))):
                    return True
    return False


def example():
    torch.manual_seed(1)
    return torch.randn(BATCH, 4, 6)


def rows(x):
    return torch.arange(x.shape[0])


def filled(x):
    out = torch.zeros(x.shape[0], 4, 3)
    out[:, :, 0] = x[..., 0]
    out[:, 1].copy_(x[:, 2, :3])
    return out


def written_view(x):
    h = x * 2
    h.view(-1, 2, 12)[:, 0].relu_()
    h[:, 1:3].mul_(3.0)
    return h


def masked(x):
    h = x + 0
    h[h > 0.5] = 0.25
    return h


def put_own_row(x):
    h = x * 1
    h[rows(x), x[:, :, 0].argmax(-1)] = x[:, 0]
    return h


def shared_buffer(x):
    pool = torch.zeros(4, 6)
    pool[0] = x.sum((0, 1))
    return x + pool


PROVED = {
    # pointwise
    "pointwise": lambda m, x: F.gelu(x) * torch.sigmoid(x) + x.clamp(max=0.5),
    "where": lambda m, x: torch.where(x > 0, x, x.abs().sqrt()),
    "broadcasting": lambda m, x: x * x[:, :1] + m.lin.bias,
    "masked fill": lambda m, x: x.masked_fill(x > 1, 0.0),
    "masked put": lambda m, x: masked(x),
    "prelu": lambda m, x: m.prelu(x),
    "to": lambda m, x: x.to(torch.float64).float().type_as(x),
    # reductions and scans along other dimensions
    "sum": lambda m, x: x.sum(-1),
    "two dims": lambda m, x: x.mean((1, 2), keepdim=True) + x,
    "max dim": lambda m, x: x.max(1).values + x.argmin(1),
    "norm dim": lambda m, x: x / x.norm(dim=-1, keepdim=True),
    "var": lambda m, x: x.var(-1),
    "softmax": lambda m, x: x.softmax(1) + x.log_softmax(-1),
    "cumsum": lambda m, x: x.cumsum(1),
    "sort": lambda m, x: x.sort(-1).values,
    "topk": lambda m, x: x.topk(2, 1).values,
    "flip": lambda m, x: x.flip(1, 2),
    "roll": lambda m, x: x.roll(1, -1),
    "cosine": lambda m, x: F.cosine_similarity(x, x * x, dim=1),
    "normalize": lambda m, x: F.normalize(x, dim=1),
    # products
    "linear": lambda m, x: m.lin(x),
    "matmul": lambda m, x: x @ x.transpose(1, 2) @ x,
    "weights times x": lambda m, x: m.conv.weight[:, :, 0] @ x,
    "bmm": lambda m, x: torch.bmm(x, x.mT),
    "addmm": lambda m, x: torch.addmm(m.lin.bias, x.flatten(0, 1), m.lin.weight),
    "baddbmm": lambda m, x: torch.baddbmm(x, x @ x.mT, x),
    "einsum": lambda m, x: torch.einsum("bsd,btd,de->bste", x, x, m.lin.weight),
    "einsum batch second": lambda m, x: torch.einsum("sbd,btd->bst", x.transpose(0, 1), x),
    "attention": lambda m, x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "cdist": lambda m, x: torch.cdist(x, x * 2),
    # normalisation
    "layer norm": lambda m, x: m.norm(x),
    "group norm": lambda m, x: m.group(x),
    "instance norm": lambda m, x: F.instance_norm(x),
    "batch norm": lambda m, x: m.bn(x),
    "rms norm": lambda m, x: F.rms_norm(x, (6,)),
    # windows
    "conv": lambda m, x: m.conv(x),
    "pool": lambda m, x: F.max_pool1d(x, 2) + F.adaptive_avg_pool1d(x, 3),
    "interpolate": lambda m, x: F.interpolate(x, scale_factor=2.0),
    "pad": lambda m, x: F.pad(x, (1, 1, 2, 0)),
    "unfold": lambda m, x: x.unfold(2, 3, 1).sum(-1),
    "pixel shuffle": lambda m, x: F.pixel_shuffle(x.view(-1, 4, 2, 3), 2),
    # views
    "heads": lambda m, x: m.lin(x.reshape(-1, 6)).view(x.shape[0], 4, 2, 3).permute(0, 2, 1, 3),
    "heads in the batch": lambda m, x: (
        (x.view(-1, 4, 2, 3).transpose(1, 2).reshape(-1, 4, 3).softmax(1))
        .view(-1, 2, 4, 3)
        .transpose(1, 2)
        .flatten(2)
    ),
    "batch second": lambda m, x: x.transpose(0, 1).softmax(0).transpose(0, 1),
    "batch last": lambda m, x: x.movedim(0, -1).softmax(0).movedim(-1, 0),
    "squeeze": lambda m, x: x[:, :1].squeeze(1).unsqueeze(-1),
    "unflatten": lambda m, x: x.unflatten(1, (2, 2)).flatten(1),
    "outer factor": lambda m, x: (
        torch.stack([x, -x]).flatten(0, 1).relu().view(2, -1, 4, 6).transpose(0, 1)
    ),
    "tril": lambda m, x: x.tril(),
    "diagonal": lambda m, x: x.diagonal(0, 1, 2),
    # parts
    "chunk": lambda m, x: x.chunk(2, -1)[0] * x.chunk(2, -1)[1],
    "split": lambda m, x: torch.cat(x.split([1, 3], 1)[::-1], 1),
    "two batches": lambda m, x: m.lin(torch.cat([x, x * x])).chunk(2)[1],
    "class token": lambda m, x: torch.cat([m.lin.bias.expand(x.shape[0], 1, -1), x], 1),
    "select": lambda m, x: x[:, -1] + x[:, ::2].sum(1),
    "stack": lambda m, x: torch.stack([x, x * 2], 1),
    "unbind": lambda m, x: x.unbind(1)[2],
    # repeats
    "expand": lambda m, x: x.mean(1, keepdim=True).expand(-1, 3, -1),
    "broadcast": lambda m, x: torch.broadcast_tensors(x, x[:, :1], m.lin.bias)[1],
    "repeat": lambda m, x: x.repeat(1, 2, 1),
    "repeat positions": lambda m, x: x + torch.arange(4.0)[None, :, None].repeat(x.shape[0], 1, 1),
    "repeat interleave": lambda m, x: x.repeat_interleave(2, 0).view(-1, 2, 4, 6).sum(1),
    # indices
    "embedding": lambda m, x: m.table(x[..., 0].abs().long().clamp(max=6)),
    "own row": lambda m, x: x[rows(x), x[:, :, 0].argmax(-1)],
    "own rows": lambda m, x: x[rows(x)[:, None], x[:, :3, :2].argmax(1)],
    "put own row": lambda m, x: put_own_row(x),
    "fixed index": lambda m, x: x[:, torch.tensor([3, 0, 1])],
    "index select": lambda m, x: x.index_select(2, torch.tensor([1, 1, 5])),
    "look-up": lambda m, x: m.lin.weight[x[..., 0].argmax(-1)],
    "gather": lambda m, x: x.gather(1, x.argsort(1)),
    "scatter": lambda m, x: torch.zeros_like(x).scatter(2, x.argsort(-1), x),
    "scatter add": lambda m, x: torch.zeros(x.shape[0], 4, 6).scatter_add(1, x.argsort(1), x),
    "one hot": lambda m, x: F.one_hot(x.argmax(-1), 6) * x,
    # making
    "zeros": lambda m, x: torch.zeros(x.shape[0], 4, 6) + x + torch.ones_like(x),
    "position": lambda m, x: x + torch.arange(4.0)[:, None],
    # memory
    "filled": lambda m, x: filled(x),
    "written view": lambda m, x: written_view(x),
    # recurrence
    "lstm": lambda m, x: m.lstm(x)[0],
    "lstm state": lambda m, x: m.lstm(x)[1][0],
    "gru batch second": lambda m, x: m.gru_second(x.transpose(0, 1))[0],
    "gru cell": lambda m, x: m.cell(x[:, 0], x[:, 1]),
    # a loss a sample
    "loss a sample": lambda m, x: F.cross_entropy(x[:, 0], x[:, 1].argmax(-1), reduction="none"),
    # mixed values that go nowhere
    "unused norm": lambda m, x: (x * 2, x.norm())[0],
}

MIXING = {
    "clipped norm": lambda m, x: x * torch.clamp(50 / x.norm(), max=1),
    "centred": lambda m, x: x - x.mean(0),
    "max": lambda m, x: x / x.max(),
    "any": lambda m, x: torch.where((x > 2).any(), x, -x),
    "pairs": lambda m, x: (x[:, None] - x[None, :]).abs().sum(1),
    "gram": lambda m, x: x.flatten(1) @ x.flatten(1).T,
    "attention over the batch": lambda m, x: F.scaled_dot_product_attention(
        *[x.transpose(0, 1)] * 3
    ).transpose(0, 1),
    "softmax over the batch": lambda m, x: x.softmax(0),
    "cumsum": lambda m, x: x.cumsum(0),
    "flip": lambda m, x: x.flip(0),
    "roll": lambda m, x: x.roll(1, 0),
    "roll all": lambda m, x: x.roll(1),
    "first sample": lambda m, x: x - x[0],
    "first samples": lambda m, x: x * x[:1],
    "number of samples": lambda m, x: x * x.shape[0],
    "full of their number": lambda m, x: x + torch.full((6,), float(1)) * x.shape[0],
    "batch norm of the batch": lambda m, x: F.batch_norm(x, None, None, training=True),
    "std": lambda m, x: x / x.std(0),
    "reshape": lambda m, x: x.reshape(4, -1, 6).softmax(0).reshape(-1, 4, 6),
    "two orders": lambda m, x: (x.flatten(0, 1) + x.transpose(0, 1).reshape(-1, 6)).view(-1, 4, 6),
    "conv over the batch": lambda m, x: m.conv(x.transpose(0, 1)[..., 0].unsqueeze(0)).squeeze(0).T,
    "shared buffer": lambda m, x: shared_buffer(x),
    "einsum": lambda m, x: torch.einsum("bsd,csd->bcs", x, x).sum(1),
    "rows by number": lambda m, x: x + x[torch.tensor([0])],
    "pad the batch": lambda m, x: F.pad(x, (0, 0, 0, 0, 1, 0))[:-1],
    "repeat by number": lambda m, x: (x.repeat(x.shape[0], 1, 1).view(-1, x.shape[0], 4, 6)).sum(1),
}

# Nothing is said: they mix, or would mix with other numbers.
UNKNOWN = {
    "sorted samples": lambda m, x: x.sort(0).values,
    "picked samples": lambda m, x: x[x[:, 0, 0].argsort()],
    "positions": lambda m, x: x + rows(x)[:, None, None],
    "two numbers": lambda m, x: x[:, 0, :5][rows(x), rows(x) % 3][:, None],
    "flat index": lambda m, x: x.flatten(0, 1)[rows(x) * 4 + x[:, :, 0].argmax(1)],
}


@pytest.mark.parametrize("name", PROVED)
def test_what_is_proved_does_not_mix(name):
    model, graph = trace(PROVED[name], example())
    assert graph.batch_independence().verdict == "proved", graph.batch_independence()
    assert not seen_to_mix(model, graph, example())


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_is_named_with_its_line(name):
    model, graph = trace(MIXING[name], example())
    found = graph.batch_independence()
    assert found.verdict == "mixes", found
    assert found.operator and found.node and found.source.startswith("test_batch_flow.py:")
    assert found.reaches == "output 'output'"
    # With the batch in two dimensions there is nothing to put together.
    dims = [s for s in graph.outputs[0]["value"]["shape"] if isinstance(s, str)]
    assert len(dims) == 2 or seen_to_mix(model, graph, example())


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_followed_is_unknown(name):
    _, graph = trace(UNKNOWN[name], example())
    found = graph.batch_independence()
    assert found.verdict == "unknown", found
    assert found.operator and found.source.startswith("test_batch_flow.py:")


# Chains of steps, each from [B, 4, 6] to [B, 4, 6]; the last ones mix.
STEPS = [
    lambda m, x: m.lin(x),
    lambda m, x: m.conv(x),
    lambda m, x: m.norm(x),
    lambda m, x: x.softmax(1),
    lambda m, x: x.transpose(0, 1).cumsum(0).transpose(0, 1),
    lambda m, x: x.reshape(-1, 4, 2, 3).transpose(1, 2).reshape(-1, 4, 6),
    lambda m, x: x.reshape(-1, 12).tanh().view(-1, 4, 6),
    lambda m, x: torch.cat([x, x.flip(1)]).view(2, -1, 4, 6).sum(0),
    lambda m, x: torch.stack([x, x], 0).flatten(0, 1).chunk(2)[0],
    lambda m, x: x.repeat_interleave(3, 0)[::3],
    lambda m, x: x.gather(1, x.argsort(1)),
    lambda m, x: x + x[rows(x), x[:, :, 0].argmax(-1)][:, None],
    lambda m, x: written_view(x),
    lambda m, x: torch.cat([x[:, 2:], x[:, :2]], 1),
    lambda m, x: x.movedim(0, 2).relu().movedim(2, 0),
    lambda m, x: m.lstm(x)[0],
    lambda m, x: x.reshape(-1, 2, 12).softmax(1).reshape(x.shape),
    lambda m, x: x.reshape(4, -1, 6).softmax(0).reshape(x.shape),
    lambda m, x: x.transpose(0, 1).reshape(-1, 4, 6),
    lambda m, x: x.repeat(2, 1, 1)[::2],
]


@pytest.mark.parametrize("seed", range(24))
def test_chains_of_steps_are_never_proved_wrongly(seed):
    chosen = random.Random(seed).choices(STEPS, k=5)

    def chain(m, x):
        for step in chosen:
            x = step(m, x)
        return x

    model, graph = trace(chain, example())
    if graph.batch_independence().verdict == "proved":
        assert not seen_to_mix(model, graph, example())


def test_some_chains_are_proved_and_some_are_not():
    whole = [trace(step, example())[1].batch_independence().verdict for step in STEPS]
    assert whole == ["proved"] * 17 + ["mixes"] * 3, whole
