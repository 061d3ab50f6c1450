# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Masks that no call can change are folded into attention; all others are kept as they are."""

import collections
import re

import models
import pytest
import torch
import torch.nn.functional as F
from comparing import assert_as_eager, assert_same, eager, hand_plan
from torch import nn

import kerf

LENGTH = 8


def attentions(graph):
    """The arguments of each attention, as the graph's text has them."""
    names = ["query", "key", "value", "attn_mask", "dropout_p", "is_causal"]
    for written in re.findall(r"scaled_dot_product_attention\.default\((.*?)\)", graph.text()):
        given = [item.rpartition("=") for item in written.split(", ")]
        yield {name or names[i]: value for i, (name, _, value) in enumerate(given)}


def masks(graph):
    """How many attentions have no mask, a causal one told by is_causal, or one that is given."""
    found = collections.Counter()
    for given in attentions(graph):
        if given.get("attn_mask", "none") != "none":
            found["kept"] += 1
        else:
            found["causal" if given.get("is_causal") == "true" else "none"] += 1
    return dict(found)


def run(model, graph, args, kwargs):
    plan = hand_plan(graph, [list(range(graph.num_nodes))], ["cpu:0"])
    with kerf.Pipeline(model, plan, graph=graph) as pipe:
        return pipe(*args, **kwargs)


def check(model, args, kwargs, expected, exact=True, batches=(1, 2, 5)):
    """The masks of the graph, and eager's numbers at several batches."""
    graph = kerf.trace(model, args, kwargs)
    assert masks(graph) == expected
    assert_as_eager(
        model, lambda a, k: run(model, graph, a, k), args, kwargs, batches=batches, exact=exact
    )
    return graph


# The models of the zoo, called as their users call them. Bit-equal: eager leaves these masks out.
ZOO = {
    "gpt2": {"causal": 2},
    "llama_tied": {"causal": 2},
    "mixtral": {"causal": 2},
    "qwen2": {"causal": 2},
    "qwen3": {"causal": 2},
    "opt": {"causal": 2},
    "phi": {"causal": 2},
    "gptneox": {"causal": 2},
    "falcon": {"causal": 2},
    "roberta": {"none": 2},
    "distilbert": {"none": 2},
    "electra": {"none": 2},
    "albert": {"none": 2},
    "vit": {"none": 2},
    "bart": {"none": 4, "causal": 2},
    "pegasus": {"none": 4, "causal": 2},
    "whisper": {"none": 4, "causal": 2},
}


@pytest.mark.parametrize("name", ZOO)
def test_masks_that_eager_leaves_out_are_left_out(name):
    check(*models.build(name), ZOO[name])


# A window smaller than the sequence, a padding mask, a bias: none of these is causal or empty.
KEPT = {"mistral": {"kept": 2}, "bert": {"kept": 2}}


@pytest.mark.parametrize("name", KEPT)
def test_windows_and_padding_are_kept(name):
    check(*models.build(name), KEPT[name], exact=False)


def _decoder(config, model, length, attention="sdpa", **more):
    import transformers as t

    torch.manual_seed(0)
    config = models._tiny(getattr(t, config), num_key_value_heads=2, head_dim=8, **more)
    config._attn_implementation = attention
    return getattr(t, model)(config).eval(), (), {"input_ids": models.ids(length=length)}


@pytest.mark.parametrize(("length", "expected"), [(1, "none"), (8, "causal"), (64, "causal")])
def test_one_token_sees_all_and_more_see_what_came_before(length, expected):
    check(*_decoder("LlamaConfig", "LlamaForCausalLM", length), {expected: 2}, batches=(1, 3))


@pytest.mark.parametrize(("length", "expected"), [(4, "causal"), (16, "causal"), (17, "kept")])
def test_a_window_is_kept_when_the_sequence_is_longer(length, expected):
    built = _decoder("MistralConfig", "MistralForCausalLM", length, sliding_window=16)
    check(*built, {expected: 2}, exact=False, batches=(1, 3))


def test_layers_with_and_without_a_window_are_told_apart():
    layers = ["sliding_attention", "full_attention"]
    built = _decoder(
        "Gemma3TextConfig", "Gemma3ForCausalLM", 12, sliding_window=4, layer_types=layers
    )
    check(*built, {"kept": 1, "causal": 1}, exact=False, batches=(1, 3))


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "bart", "roberta"])
def test_attention_written_out_in_operators_gives_the_same_numbers(name):
    model, args, kwargs = models.build(name)
    model.set_attn_implementation("eager")
    check(model, args, kwargs, {}, exact=False)


def test_a_mask_of_ones_that_is_given_stays_an_input():
    model, args, kwargs = models.build("bert")
    kwargs["attention_mask"] = torch.ones(2, LENGTH, dtype=torch.long)
    graph = check(model, args, kwargs, {"kept": 2}, exact=False)
    kwargs["attention_mask"][0, 4:] = 0
    assert_same(run(model, graph, args, kwargs), eager(model, args, kwargs))


def test_masks_are_kept_when_asked_for():
    model, args, kwargs = models.build("gpt2")
    graph = kerf.trace(model, args, kwargs, fold_masks=False)
    assert masks(graph) == {"kept": 2}
    folded = kerf.trace(model, args, kwargs)
    assert folded.num_nodes < graph.num_nodes
    assert folded.hash != graph.hash
    assert folded.notes == graph.notes
    assert_same(run(model, graph, args, kwargs), eager(model, args, kwargs))


# Masks of any making


class Attention(nn.Module):
    """Attention under a mask that ``make(x, keys)`` gives."""

    def __init__(self, make, keys=LENGTH, heads=2, **options):
        super().__init__()
        self.make = make
        self.options = options
        self.to_query = nn.Linear(8, 8)
        self.to_key = nn.Linear(8, 8)
        self.keys = keys
        self.heads = heads
        self.register_buffer("seen", torch.ones(LENGTH, keys, dtype=torch.bool))
        self.attribute = torch.ones(LENGTH, keys, dtype=torch.bool)

    def split(self, x):
        return x.unflatten(-1, (-1, 4)).transpose(1, 2)

    def forward(self, x, y):
        query, key = self.split(self.to_query(x)), self.split(self.to_key(y))
        found = F.scaled_dot_product_attention(
            query, key, key, attn_mask=self.make(self, x), **self.options
        )
        return found.transpose(1, 2).flatten(2)


def attend(make, expected, keys=LENGTH, **options):
    torch.manual_seed(0)
    model = Attention(make, keys, **options).eval()
    call = (torch.randn(2, LENGTH, 8), torch.randn(2, keys, 8))
    graph = check(model, call, {}, {expected: 1}, exact=False, batches=(1, 2, 3, 5, 7))
    return model, graph, call


def ones(*shape):
    return torch.ones(*shape, dtype=torch.bool)


def window(n, width):
    i = torch.arange(n)
    return (i[:, None] >= i) & (i[:, None] - i < width)


INF = float("inf")
FOLDED = {
    "all true": (lambda m, x: ones(LENGTH, LENGTH), "none"),
    "all true, a batch of it": (lambda m, x: ones(x.shape[0], 1, LENGTH, LENGTH), "none"),
    "one row for all": (lambda m, x: ones(1, LENGTH), "none"),
    "of the input's form": (
        lambda m, x: torch.ones_like(x[..., 0], dtype=torch.bool)[:, None, None, :],
        "none",
    ),
    "zeros": (lambda m, x: torch.zeros(LENGTH, LENGTH), "none"),
    "zeros where true": (
        lambda m, x: torch.where(ones(LENGTH, LENGTH), 0.0, -INF).expand(x.shape[0], 1, -1, -1),
        "none",
    ),
    "tril": (lambda m, x: ones(LENGTH, LENGTH).tril(), "causal"),
    "triu of -inf": (lambda m, x: torch.full((LENGTH, LENGTH), -INF).triu(1), "causal"),
    "transformer": (
        lambda m, x: nn.Transformer.generate_square_subsequent_mask(LENGTH),
        "causal",
    ),
    "compared": (
        lambda m, x: (torch.arange(LENGTH)[None, :] <= torch.arange(LENGTH)[:, None]).expand(
            x.shape[0], 1, LENGTH, LENGTH
        ),
        "causal",
    ),
    "repeated": (
        lambda m, x: ones(1, 1, LENGTH, LENGTH).tril().repeat(x.shape[0], 1, 1, 1),
        "causal",
    ),
    "a window as wide as the sequence": (lambda m, x: window(LENGTH, LENGTH), "causal"),
    "picked by the batch": (
        lambda m, x: ones(x.shape[0], LENGTH)[
            torch.arange(x.shape[0])[:, None, None, None], torch.arange(LENGTH)
        ],
        "none",
    ),
}


@pytest.mark.parametrize("kind", FOLDED)
def test_folded(kind):
    attend(*FOLDED[kind])


KEPT_MASKS = {
    "window": lambda m, x: window(LENGTH, 3),
    "prefix": lambda m, x: ones(LENGTH, LENGTH).tril() | (torch.arange(LENGTH) < 3),
    "the lowest number": lambda m, x: torch.full((LENGTH, LENGTH), torch.finfo().min).triu(1),
    "a bias": lambda m, x: -torch.arange(LENGTH).float()[None],
    "one head only": lambda m, x: torch.stack([ones(LENGTH, LENGTH), ones(LENGTH, LENGTH).tril()]),
    "strictly below": lambda m, x: ones(LENGTH, LENGTH).tril() | ones(LENGTH, LENGTH).triu(2),
    "a buffer": lambda m, x: m.seen,
    "an attribute": lambda m, x: m.attribute,
    "the input": lambda m, x: (x[..., 0] < INF)[:, None, None, :],
    # All true at the batch that is traced, and not at others.
    "the first samples": lambda m, x: (torch.arange(x.shape[0]) < 3)[:, None, None, None],
    "a count along the batch": lambda m, x: torch.ones(x.shape[0], 1, 1, 1).cumsum(0) < 4,
    "a limit": lambda m, x: torch.arange(LENGTH)[None] < 10 - x.shape[0],
    "numbered elements": lambda m, x: (
        torch.arange(x.shape[0] * LENGTH).view(x.shape[0], 1, 1, LENGTH) < 20
    ),
    "filled with the batch": lambda m, x: torch.full((1, LENGTH), x.shape[0]) < 9,
}


@pytest.mark.parametrize("kind", KEPT_MASKS)
def test_kept(kind):
    attend(KEPT_MASKS[kind], "kept")


def test_a_buffer_may_change():
    model, graph, call = attend(KEPT_MASKS["a buffer"], "kept")
    model.seen.tril_()
    assert_same(run(model, graph, call, {}), eager(model, call, {}))


def written(m, x):
    mask = torch.zeros(LENGTH, LENGTH)
    mask[:, 5:] = -INF
    return mask


def test_a_mask_that_is_written_is_kept():
    attend(written, "kept")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda m, x: ones(LENGTH, 12).tril(), "causal"),  # is_causal begins at the upper left
        (lambda m, x: ones(LENGTH, 12).tril(4), "kept"),
        (lambda m, x: ones(LENGTH, 12), "none"),
    ],
)
def test_other_lengths_of_queries_and_keys(make, expected):
    attend(make, expected, keys=12)


def test_other_options_are_kept():
    _, graph, _ = attend(lambda m, x: ones(LENGTH, LENGTH).tril(), "causal", scale=0.25)
    (given,) = attentions(graph)
    assert given["scale"] == "0.25"


def test_a_constant_of_the_forward_is_folded():
    class Two(nn.Module):
        def forward(self, x):
            mask = torch.tensor([[True, False], [True, True]])
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    check(Two().eval(), (torch.randn(2, 3, 2, 4),), {}, {"causal": 1}, exact=False)
