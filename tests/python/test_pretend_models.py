# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Models on the pretend accelerator compute what they compute on the CPU, bit for bit."""

import copy

import models
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map


def _conv_net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 8, 3, groups=2),
        torch.nn.ConvTranspose2d(8, 4, 2, stride=2),
        torch.nn.GroupNorm(2, 4),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 5),
    )


def _train(model, optimizer, batches, loss_of):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model(batch))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_convolutional_net_trains_as_on_the_cpu(pretend_device, optimizer):
    torch.manual_seed(0)
    model = _conv_net()
    moved = copy.deepcopy(model).to("pretend:1")
    batches = [torch.randn(2, 3, 8, 8) for _ in range(3)]
    on_cpu = _train(model, optimizer(model.parameters(), lr=0.01), batches, torch.Tensor.sum)
    there = [batch.to("pretend:1") for batch in batches]
    on_it = _train(moved, optimizer(moved.parameters(), lr=0.01), there, torch.Tensor.sum)
    assert on_cpu == on_it
    for (name, value), other in zip(model.state_dict().items(), moved.state_dict().values()):
        assert torch.equal(value, other.cpu()), name


def _gpt2(transformers):
    config = transformers.GPT2Config(
        vocab_size=90,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.GPT2LMHeadModel(config)


def _llama(transformers):
    config = transformers.LlamaConfig(
        vocab_size=90,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return transformers.LlamaForCausalLM(config)


def _t5(transformers):
    config = transformers.T5Config(
        vocab_size=90,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def _outputs(model, ids):
    """Logits, gradients and generated tokens, all on the CPU."""
    out = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)
    out.loss.backward()
    gradients = {name: p.grad.cpu() for name, p in model.named_parameters()}
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False, pad_token_id=0
    )
    return {"logits": out.logits.detach().cpu(), "made": made.cpu(), **gradients}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("make", [_gpt2, _llama, _t5])
def test_a_transformer_computes_as_on_the_cpu(pretend_device, make, attention):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = make(transformers).eval()
    if make is not _t5:
        model.set_attn_implementation(attention)
    ids = torch.randint(3, 90, (2, 7))
    expected = _outputs(model, ids)
    model.zero_grad()
    got = _outputs(model.to("pretend:1"), ids.to("pretend:1"))
    assert expected.keys() == got.keys()
    assert [name for name, value in expected.items() if not torch.equal(value, got[name])] == []


def test_layers_on_two_devices_with_gradients(pretend_device):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16) for _ in range(4)]
    moved = [copy.deepcopy(layer).to(f"pretend:{i % 2}") for i, layer in enumerate(layers)]
    x = torch.randn(3, 16)

    def loss_of(layers, x):
        for layer in layers:
            x = torch.tanh(layer(x.to(layer.weight.device)))
        return x.square().sum()

    loss_of(layers, x).backward()
    with pretend_device.copy_delay(0.01):
        loss_of(moved, x).backward()
        torch.accelerator.synchronize()
    for layer, other in zip(layers, moved):
        assert torch.equal(layer.weight.grad, other.weight.grad.cpu())


def _tensors(out):
    out = out.to_tuple() if hasattr(out, "to_tuple") else out
    return [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("name", [*models.FLOOR, *models.OTHERS])
def test_a_model_of_the_zoo_computes_as_on_the_cpu(pretend_device, name):
    model, args, kwargs = models.build(name)
    moved = copy.deepcopy(model).to("pretend:1")
    there = tree_map(
        lambda x: x.to("pretend:1") if isinstance(x, torch.Tensor) else x, (args, kwargs)
    )
    with torch.no_grad():
        torch.manual_seed(0)
        expected = _tensors(model(*args, **kwargs))
        torch.manual_seed(0)
        got = _tensors(moved(*there[0], **there[1]))
    assert {value.device for value in got} == {torch.device("pretend:1")}
    # Accelerators have cells of recurrent networks of their own, which round at other places.
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if name == "lstm" else {"rtol": 0, "atol": 0}
    torch.testing.assert_close([value.cpu() for value in got], expected, **tolerance)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_a_recurrent_network_trains_as_on_the_cpu(pretend_device, kind):
    torch.manual_seed(0)
    model = kind(4, 8, num_layers=2, bidirectional=True)
    moved = copy.deepcopy(model).to("pretend")
    x = torch.randn(5, 3, 4)
    for net, value in ((model, x), (moved, x.to("pretend"))):
        net(value)[0].square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            moved.get_parameter(name).grad.cpu(), parameter.grad, rtol=1e-4, atol=1e-5
        )
