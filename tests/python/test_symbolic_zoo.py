# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Symbolic traces of whole models: convolutional families and architectures of transformers."""

import inspect

import cnn_zoo
import models
import pytest
import torch

from kerf.symbolic import GuardError, MetaTensorMode, ShapeProp, symbolic_trace

TRANSFORMERS = (
    "gpt2 llama_tied llama_untied qwen2 qwen3 gemma2 mistral opt bloom falcon phi gptneox bert "
    "distilbert roberta electra albert deberta xlnet t5 bart whisper vit swin clip wav2vec2 "
    "convnext mixtral"
).split()


def tensors(value):
    """All of them, of objects such as caches too."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif hasattr(value, "__dict__"):
        value = vars(value).values()
    elif not isinstance(value, tuple | list):
        return []
    return [tensor for item in value for tensor in tensors(item)]


def gradients(model, x):
    torch.manual_seed(1)
    out = model(x)
    sum(tensor.square().mean() for tensor in tensors(out)).backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return out, found


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", cnn_zoo.FAMILIES)
def test_a_convolutional_network_is_traced(name, training):
    torch.manual_seed(0)
    model = cnn_zoo.FAMILIES[name]().train(training)
    argument = next(iter(inspect.signature(model.forward).parameters))
    sample = torch.empty(2, 3, 32, 32, device="meta")
    for options in ({}, {"bias_addition_split": True, "trace_act_ckpt": True}):
        gm = symbolic_trace(model, meta_args={argument: sample}, **options)
        for batch, side in ((2, 32), (5, 48)):
            x = torch.randn(batch, 3, side, side)
            torch.testing.assert_close(gradients(gm, x), gradients(model, x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", cnn_zoo.FAMILIES)
def test_every_node_of_a_network_without_data_has_a_shape(name):
    with MetaTensorMode():
        model = cnn_zoo.FAMILIES[name]()
        sample = torch.empty(100, 3, 64, 64)
    assert all(p.is_meta for p in model.parameters())
    argument = next(iter(inspect.signature(model.forward).parameters))
    gm = symbolic_trace(model, meta_args={argument: sample})
    ShapeProp(gm).propagate(sample)
    computed = [n for n in gm.graph.nodes if n.op == "call_module" and "guard" not in n.name]
    assert computed and all("tensor_meta" in n.meta for n in computed)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_an_architecture_of_transformers_is_traced(name):
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, args, kwargs = getattr(models, name)()
    names = list(inspect.signature(model.forward).parameters)
    given = dict(zip(names, args, strict=False)) | kwargs
    samples = {key: value for key, value in given.items() if tensors(value)}
    plain = {key: value for key, value in given.items() if key not in samples}
    gm = symbolic_trace(model, meta_args=samples, concrete_args=plain)
    for _ in range(2):
        found, expected = tensors(gm(*args, **kwargs)), tensors(model(*args, **kwargs))
        torch.testing.assert_close(found, expected)
    assert found


def test_another_length_is_computed_or_refused():
    pytest.importorskip("transformers")
    for name in ("gpt2", "llama_untied", "bert"):
        model, _, _ = getattr(models, name)()
        gm = symbolic_trace(model, meta_args={"input_ids": models.ids()})
        for batch, length in ((3, 8), (2, 5), (1, 1)):
            ids = models.ids(batch, length)
            try:
                found = tensors(gm(input_ids=ids))
            except GuardError as error:
                assert "trace again" in str(error)
                continue
            torch.testing.assert_close(found, tensors(model(input_ids=ids)))
