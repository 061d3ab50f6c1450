# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds of models that torch.export alone does not take: they work, or a line says what to do."""

import pytest
import torch
from torch import nn

import kerf
from kerf._lower import true_states


def check(model, *args, stages=2, **kwargs):
    """The graph; a pipeline of it gives what the model gives."""
    model.eval()
    graph = kerf.trace(model, args, kwargs)
    pipe = kerf.Pipeline(model, kerf.plan(graph, devices=f"cpu:{stages}"), graph=graph)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            torch.testing.assert_close(pipe(*args, **kwargs), model(*args, **kwargs))
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return graph


def refusal(model, *args, **kwargs):
    with pytest.raises((kerf.ExportError, ValueError)) as caught:
        kerf.trace(model.eval(), args, kwargs)
    message = str(caught.value)
    assert message.startswith("[") and "\n" not in message
    return message


def opaque_blocks(graph):
    return [n["kwargs"]["module"] for n in graph.nodes if n["op"] == "opaque"]


def causal(size):
    return nn.Transformer.generate_square_subsequent_mask(size)


X = torch.randn(3, 5, 8)
PADDING = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"mask": causal(5)},
        {"mask": causal(5), "is_causal": True},
        {"mask": torch.zeros(5, 5)},
        {"src_key_padding_mask": PADDING},
    ],
)
def test_an_encoder_with_a_mask_is_captured_operator_by_operator(masks, grad):
    model = encoder().requires_grad_(grad)
    with torch.set_grad_enabled(grad):
        graph = check(model, X, **masks)
    assert opaque_blocks(graph) == []
    assert graph.num_nodes > 20


def test_a_causal_mask_of_the_example_does_not_decide_for_others():
    model = encoder().eval()
    graph = kerf.trace(model, X, {"mask": causal(5)})
    pipe = kerf.Pipeline(model, kerf.plan(graph, devices="cpu:2"), graph=graph)
    other = torch.zeros(5, 5)
    with torch.no_grad():
        torch.testing.assert_close(pipe(X, mask=other), model(X, mask=other))


def test_a_transformer_with_a_mask_is_captured():
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    assert opaque_blocks(check(model, X, X, tgt_mask=causal(5))) == []


def test_a_packed_sequence_is_refused_with_what_to_do():
    packed = nn.utils.rnn.pack_padded_sequence(X, [5, 4, 2], batch_first=True)
    assert "pad_packed_sequence" in refusal(nn.LSTM(8, 8, batch_first=True), packed)


@pytest.mark.filterwarnings("ignore")
def test_quantised_layers_run_as_blocks():
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()
    model = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear})
    graph = check(model, X)
    assert opaque_blocks(graph) == ["0", "2"]
    assert any("quantised" in note for note in graph.notes)
    assert "nn.Sequential" in refusal(model[0], X)


class Vmap(nn.Module):
    def forward(self, x):
        return torch.func.vmap(lambda row: row * row.sum())(x)


def test_vmap_runs_as_a_block_inside_a_model_and_is_refused_outside():
    graph = check(nn.Sequential(nn.Linear(8, 8), Vmap()), X)
    assert opaque_blocks(graph) == ["1"]
    message = refusal(Vmap(), X)
    assert "vmap" in message and "move it into a submodule" in message


class Product(nn.Module):
    def __init__(self, matrix):
        super().__init__()
        self.register_buffer("matrix", matrix)

    def forward(self, x):
        return self.matrix @ x


def test_sparse_tensors_are_refused_by_name():
    sparse = torch.eye(3).to_sparse()
    assert "weight 'matrix' is a sparse_coo tensor" in refusal(Product(sparse), torch.randn(3, 2))
    model = nn.Bilinear(3, 3, 3)
    assert "args.0 is a sparse_coo tensor" in refusal(model, sparse, torch.randn(3, 3))


def test_a_model_made_in_inference_mode_is_captured():
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    check(model, X)


@pytest.mark.filterwarnings("ignore")
def test_torch_jit_modules_are_refused_outside_and_run_inside():
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    for model in (torch.jit.script(layers), torch.jit.trace(layers, X)):
        assert "the Python module that it was made from" in refusal(model, X)
    graph = check(nn.Sequential(nn.Linear(8, 8), torch.jit.script(layers)), X)
    assert opaque_blocks(graph) == ["1"]


class NoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self):
        return self.weight @ self.weight


def test_a_forward_without_inputs_is_captured():
    assert check(NoInputs(), stages=1).is_static


def test_a_batch_of_none_is_refused():
    assert "the batch of args.0 is 0" in refusal(nn.Linear(8, 8), torch.randn(0, 8))


def test_a_model_that_fails_by_itself_is_told_from_one_that_cannot_be_captured():
    message = refusal(nn.Linear(8, 8), torch.randn(3, 7))
    assert "the model itself fails on this example" in message

    class Odd(nn.Module):
        def forward(self, x):
            return x.numpy().sum() + x

    message = refusal(Odd(), X)
    assert "the model does run by itself" in message
    assert "test_trace_kinds.py" in message


def test_states_of_recurrent_operators_have_three_dimensions():
    spec = {"dtype": "f32", "shape": [2, 1, "B", 24], "strides": ["24*B", "24*B", 24, 1]}
    assert true_states("aten.lstm.input", 1, spec)["shape"] == [2, "B", 24]
    assert true_states("aten.lstm.input", 1, spec)["strides"] == ["24*B", 24, 1]
    assert true_states("aten.lstm.input", 0, spec) is spec
    assert true_states("aten.cat.default", 1, spec) is spec
    graph = kerf.trace(nn.LSTM(8, 8, 2, batch_first=True).eval(), X)
    states = [o["value"]["shape"] for o in graph.outputs[1:]]
    assert states == [[2, "B", 8], [2, "B", 8]]


def test_a_batch_that_is_fixed_where_it_was_guessed_is_told_of_batch_dims():
    x = X.transpose(0, 1).contiguous()
    (note,) = kerf.trace(nn.LSTM(8, 8).eval(), x).notes
    assert "batch_dims=1" in note
    assert not kerf.trace(nn.LSTM(8, 8).eval(), x, batch_dims=1).is_static
