# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What functions made of other operators keep for backward: bytes against those of a real call."""

import pytest
import torch
import torch.nn.functional as F
from saved_forms import idx, square
from saving import kept_bytes
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from kerf.symbolic import MetaInfo, profile_table, symbolic_profile, symbolic_trace

FORMS = {
    "fft": lambda x, y: torch.fft.irfft(torch.fft.rfft(x.float()), n=8),
    "fft2": lambda x, y: torch.fft.ifft2(torch.fft.fft2(x.float())).real,
    "rrelu": lambda x, y: F.rrelu(x, training=True),
    "bilinear": lambda x, y: F.bilinear(x, y, y.view(2, 8, 8)),
    "cdist": lambda x, y: torch.cdist(x, y),
    "cdist of many": lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
    "multilabel_margin_loss": lambda x, y: F.multilabel_margin_loss(x, idx(16, 8)),
    "cdist 1": lambda x, y: torch.cdist(x, y, p=1.0),
    "embedding_bag": lambda x, y: F.embedding_bag(idx(2, 3), x, mode="sum"),
    "embedding_bag mean": lambda x, y: F.embedding_bag(idx(2, 3), x),
    "embedding_bag padded": lambda x, y: F.embedding_bag(idx(2, 3), x, mode="sum", padding_idx=1),
    "embedding_bag factors": lambda x, y: F.embedding_bag(
        idx(2, 3), x, mode="sum", per_sample_weights=y[:2, :3]
    ),
    "attention dropout": lambda x, y: F.scaled_dot_product_attention(
        *(t.view(2, 2, 4, 8) for t in (x, x, y)), dropout_p=0.2
    ),
    "embedding_bag max": lambda x, y: F.embedding_bag(idx(2, 3), x, mode="max"),
    "solve": lambda x, y: torch.linalg.solve(square(x), y[:8]),
    "inv": lambda x, y: torch.linalg.inv(square(x)),
    "det": lambda x, y: torch.linalg.det(square(x)),
    "slogdet": lambda x, y: torch.linalg.slogdet(square(x))[1],
    "svd": lambda x, y: torch.linalg.svd(x, full_matrices=False)[1],
    "eigh": lambda x, y: torch.linalg.eigh(square(x))[0],
    "cholesky": lambda x, y: torch.linalg.cholesky(square(x) @ square(x).mT),
    "ctc": lambda x, y: F.ctc_loss(x[:, None].log_softmax(-1), torch.tensor([[1, 2]]), (16,), (2,)),
    "stft": lambda x, y: torch.stft(x, 4, 2, window=torch.ones(4), return_complex=True).abs(),
}


class Form(nn.Module):
    def __init__(self, function, which):
        super().__init__()
        self.function = function
        self.first, self.second = (nn.Parameter(torch.rand(16, 8) + 0.5) for _ in range(2))
        self.first.requires_grad_(which != "second")
        self.second.requires_grad_(which != "first")

    def forward(self, x):
        return self.function(x + self.first, x + self.second)


def saved(model, given):
    gm = symbolic_trace(model, meta_args={"x": given})
    table = profile_table(symbolic_profile(gm, given, device_kind="cpu"))
    assert table.ops_without_rule == []
    assert table.totals["saved"] == kept_bytes(gm, (given,), {})


@pytest.mark.parametrize("which", ["both", "first", "second"])
@pytest.mark.parametrize("name", FORMS)
def test_a_function_keeps_what_pytorch_keeps(name, which):
    torch.manual_seed(0)
    saved(Form(FORMS[name], which), torch.rand(16, 8))


class TurnedNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.norm((x * 2).transpose(1, 2)).transpose(1, 2)
        return self.first(y) + self.second(y)


@pytest.mark.parametrize("training", [False, True])
def test_a_batch_norm_writes_row_by_row(training):
    """So that what follows, turned back, has to copy its result: each product anew."""
    saved(TurnedNorm().train(training), torch.rand(3, 5, 8))


def test_an_accelerator_copies_what_it_normalises_where_that_is_not_dense():
    for dtype, copies in ((torch.float32, 480), (torch.bfloat16, 0)):
        given = torch.rand(3, 5, 8, dtype=dtype)
        gm = symbolic_trace(TurnedNorm().to(dtype), meta_args={"x": given})
        symbolic_profile(gm, given)
        norm = next(node for node in gm.graph.nodes if node.target == "norm")
        statistics = 2 * 8 * 4
        assert MetaInfo(norm).fwd_tmp == copies + statistics
        assert MetaInfo(norm).fwd_in == (0 if copies else 240)


def test_a_bilinear_layer_multiplies_its_inputs_and_its_weight():
    gm = symbolic_trace(
        Form(lambda x, y: F.bilinear(x, y, y.view(2, 8, 8)), "both"),
        meta_args={"x": torch.rand(16, 8)},
    )
    table = profile_table(symbolic_profile(gm, torch.rand(16, 8)))
    assert table.unknown_ops == [] and table.totals["fwd_mac"] == 16 * 2 * 8 * 8
    assert table.totals["bwd_mac"] == 3 * 16 * 2 * 8 * 8


class Recurrent(nn.Module):
    def __init__(self, cls, **options):
        super().__init__()
        self.layer = cls(8, 6, **options)

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cls", [nn.RNN, nn.GRU])
def test_layers_both_ways_keep_a_turned_input_each(cls, layers, batch_first):
    options = {"num_layers": layers, "bidirectional": True, "batch_first": batch_first}
    saved(Recurrent(cls, **options), torch.rand(3, 5, 8))


@pytest.mark.parametrize("model", [nn.RNN(8, 6), nn.GRU(8, 6, 2, bidirectional=True)])
def test_recurrent_layers_make_the_gradients_that_pytorch_makes(model):
    """None of the first states, which require none."""
    given = torch.rand(3, 5, 8)
    with FlopCounterMode(display=False) as counter:
        model(given)[0].sum().backward()
    assert sum(flop_count_of_products(model, given)) == counter.get_total_flops()


def flop_count_of_products(model, given):
    gm = symbolic_trace(model, meta_args={"input": given})
    totals = profile_table(symbolic_profile(gm, given, device_kind="cpu")).totals
    return 2 * totals["fwd_mac"], 2 * totals["bwd_mac"]


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("trained", [True, False])
def test_a_norm_across_maps_keeps_what_pytorch_keeps(size, trained):
    """Its forward writes into views that it makes without gradients."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.CrossMapLRN2d(size), nn.Conv2d(8, 4, 1))
    model[0].requires_grad_(trained)
    given = torch.randn(2, 3, 8, 8)
    gm = symbolic_trace(model, meta_args={"input": given})
    table = profile_table(symbolic_profile(gm, given, device_kind="cpu"))
    scale = gm(given).new_empty(2, 8, 6, 6).nbytes if trained else 0  # an attribute, no hook's
    assert table.totals["saved"] == kept_bytes(gm, (given,), {}) + scale
