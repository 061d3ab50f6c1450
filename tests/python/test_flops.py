# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Estimated multiply-adds, forward and backward, against those that PyTorch's own counter sees."""

import models
import pytest
import reference
import torch
from test_trace_zoo import BLOCKS_IN_TRAINING, REFUSED_IN_TRAINING, ZOO
from torch.utils import flop_counter
from torch.utils._pytree import tree_leaves

import kerf

aten = torch.ops.aten


def raw(formula):
    """As the counter's own formulas, which take the call's tensors and its result."""

    def of_call(*args, out_val=None, **kwargs):
        return formula(*args, out_val=out_val, **kwargs)

    of_call._get_raw = True
    return of_call


def convolution_backward(*args, out_val):
    """The counter's own formula gives a gradient of a grouped weight the size of a full one."""
    *call, groups, mask = args
    count = 0
    for wanted, divisor in (([mask[0], False, False], 1), ([False, mask[1], False], groups)):
        count += flop_counter.conv_backward_flop(*call, groups, wanted, out_val=out_val) // divisor
    return count


# What the counter does not know, or has wrong: the host's fused attention, groups.
CORRECTED = {
    aten._scaled_dot_product_flash_attention_for_cpu: raw(flop_counter.sdpa_flop),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: raw(flop_counter.sdpa_backward_flop),
    aten.convolution_backward: raw(convolution_backward),
}


def count(model, args, kwargs, formulas=CORRECTED):
    """(forward, backward) flops of one training step of the eager model."""
    with flop_counter.FlopCounterMode(display=False, custom_mapping=formulas) as forward:
        result = model(*args, **kwargs)
    leaves = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    loss = sum(t.sum() for t in leaves)
    with flop_counter.FlopCounterMode(display=False, custom_mapping=formulas) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


# Operators whose products the counter does not see: the fused layer of the host, and an operator
# of transformers that hides them.
UNSEEN = {"lstm": "aten.lstm.input", "mixtral": "transformers.grouped_mm_fallback.default"}
# Models that cannot be compared, with the reason.
APART = {
    "view_writer": "it changes in place what its backward needs: PyTorch refuses to train it",
    **dict.fromkeys(REFUSED_IN_TRAINING, "it is not traced in train mode"),
    **dict.fromkeys(BLOCKS_IN_TRAINING, "a part of it runs as Python, and is not looked into"),
}


def estimate(model, args, kwargs, unseen=None):
    """(forward, backward) flops by Kerf's formulas, of all operators but one."""
    graph = reference.record(model, args, kwargs).graph
    profile = kerf.estimate(graph, training=True)
    assert any(node["op"] == unseen for node in graph.nodes) or not unseen
    seen = [c for n, c in zip(graph.nodes, profile.nodes, strict=True) if n["op"] != unseen]
    return 2 * sum(c.macs for c in seen), 2 * sum(c.backward_macs for c in seen)


@pytest.mark.parametrize("name", [n for n in ZOO if n not in APART])
def test_multiply_adds_are_those_of_pytorchs_counter(name):
    model, args, kwargs = models.build(name)
    model.train()
    assert estimate(model, args, kwargs, UNSEEN.get(name)) == count(model, args, kwargs)


def test_frozen_weights_have_no_gradient():
    model, args, kwargs = models.build("gpt2")
    model.train()
    everything = estimate(model, args, kwargs)
    for parameter in model.transformer.parameters():
        parameter.requires_grad_(False)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    frozen = estimate(model, args, kwargs)
    assert frozen == count(model, args, kwargs)
    assert frozen[0] == everything[0]
    assert 0 < frozen[1] < everything[1] / 4


def convolutions():
    """Groups, strides and a transposed one with groups."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.Conv2d(8, 16, 3, groups=4, stride=2, padding=1),
        torch.nn.Conv2d(16, 16, 3, groups=16, padding=1),
        torch.nn.ConvTranspose2d(16, 6, 2, stride=2, groups=2),
    )


def test_grouped_convolutions_are_counted_by_group():
    model, example = convolutions(), torch.randn(2, 3, 10, 10)
    assert estimate(model, (example,), {}) == count(model, (example,), {})


def test_pytorchs_own_formula_forgets_groups_of_a_weights_gradient():
    """The reason for the correction above: it may go when this fails."""
    model, example = convolutions(), torch.randn(2, 3, 10, 10)
    uncorrected = count(model, (example,), {}, formulas={})
    assert uncorrected[1] > 1.5 * estimate(model, (example,), {})[1]
