# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks that run as Python: by themselves, by hand, and where they are refused."""

import copy
import logging

import models
import pytest
import reference
import torch
import torch.nn as nn
from comparing import assert_as_eager

from kerf._errors import ExportError
from kerf._trace import trace


class Branch(nn.Module):
    """Looks at the values: no graph can hold it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        if x.sum() > 0:
            return self.linear(x)
        return -self.linear(x)


class Stateful(Branch):
    """Changes its input and a buffer, and returns a size."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        x.mul_(2)
        return super().forward(x), x.shape[0]


class Stack(nn.Module):
    def __init__(self, block, count=3):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([block() for _ in range(count)])
        self.eval()

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
            x = x[0] if isinstance(x, tuple) else x
        return x.tanh()


def operators(graph):
    return [n["op"] for n in graph.nodes]


def assert_equal_to_eager(model, recording, batches=(1, 2, 3, 5)):
    for batch in batches:
        x = torch.randn(batch, 4)
        with torch.no_grad():
            expected = copy.deepcopy(model)(x.clone())
            reference.assert_same(expected, recording.run(x.clone()))


@pytest.mark.parametrize("block", [Branch, Stateful])
def test_what_will_not_export_becomes_the_smallest_block(block):
    model = Stack(block)
    recording = reference.record(model, torch.randn(2, 4))
    assert operators(recording.graph) == [
        "aten.linear.default",
        *["opaque"] * 3,
        "aten.tanh.default",
    ]
    assert [r["kwargs"].get("module") for r in recording.nodes[1:4]] == [
        "blocks.0",
        "blocks.1",
        "blocks.2",
    ]
    assert "module 'blocks.0' runs as Python" in recording.graph.notes[0]
    assert_equal_to_eager(model, recording)


def test_block_weights_are_inputs_of_its_node():
    recording = reference.record(Stack(Stateful, 1), torch.randn(2, 4))
    node = next(n for n in recording.graph.nodes if n["op"] == "opaque")
    assert {"blocks.0.linear.weight", "blocks.0.linear.bias", "blocks.0.calls"} <= set(
        node["inputs"]
    )
    record = next(r for r in recording.nodes if r["op"] == "opaque")
    assert len(record["kwargs"]["written"]) == 2  # its input and its counter
    assert len(record["written"]) == 2


@pytest.mark.parametrize("wanted", ["ResidualBlock", models.ResidualBlock, "layers.1"])
def test_basic_blocks_are_kept_whole(wanted):
    model, args, kwargs = models.build("resnet")
    recording = reference.record(model, args, kwargs, basic_blocks=[wanted])
    assert operators(recording.graph).count("opaque") == (1 if wanted == "layers.1" else 3)
    assert_as_eager(model, recording.run, args, kwargs, batches=(1, 2, 3))


def test_a_block_may_add_to_a_cache_it_is_given():
    model, args, kwargs = models.build("gpt2")
    recording = reference.record(model, args, kwargs, basic_blocks=["GPT2Block"])
    assert operators(recording.graph).count("opaque") == 2
    assert_as_eager(model, recording.run, args, kwargs, batches=(1, 2, 3))


def test_sizes_that_depend_on_values_widen_the_block():
    class Pick(nn.Module):
        def forward(self, x):
            return x[x > 0]

    class Total(nn.Module):
        def __init__(self):
            super().__init__()
            self.pick = Pick()

        def forward(self, x):
            return x + self.pick(x).sum()

    model = nn.Sequential(nn.Linear(4, 4), Total()).eval()
    recording = reference.record(model, torch.randn(2, 4))
    assert operators(recording.graph) == ["aten.linear.default", "opaque"]
    assert recording.nodes[1]["kwargs"]["module"] == "1"
    assert_equal_to_eager(model, recording)


def test_unknown_basic_blocks_are_refused():
    with pytest.raises(ValueError, match="basic_blocks names 'Nothing'"):
        trace(nn.Linear(4, 4), torch.zeros(2, 4), basic_blocks=["Nothing"])


class Fickle(nn.Module):
    """Does ``one`` or ``other`` to its input, as the values tell."""

    def __init__(self, one, other):
        super().__init__()
        self.one = one
        self.other = other

    def forward(self, x):
        return self.one(x) if x.sum() > 0 else self.other(x)


FICKLE = {
    r"returns its input.*for some inputs and a new tensor.*; return .*x\.clone": (
        lambda x: x,
        lambda x: x * 2,
    ),
    r"returns its input, or a part of it.*x\.clone": (lambda x: x[:, :2], lambda x: x[:, :2] * 2),
    r"dtypes of its results differ.*same dtype": (lambda x: x.double(), lambda x: x + 1),
    r"writes into its inputs or buffers for some.*; write for all": (
        lambda x: x.mul_(2) + 1,
        lambda x: x + 1,
    ),
    r"structure of its result.*; return tensors, nested the same way": (
        lambda x: x + 1,
        lambda x: (x + 1, x + 2),
    ),
    r"shapes of its results depend on the values.*one submodule": (
        lambda x: x[:, :2] + 1,
        lambda x: x + 1,
    ),
    r"memory layout of its results depends on the values.*contiguous": (
        lambda x: (x + 1).t().contiguous().t(),
        lambda x: x + 1,
    ),
}


@pytest.mark.parametrize("words", FICKLE)
def test_a_block_that_does_this_or_that_is_refused_with_what_would_help(words):
    model = nn.Sequential(nn.Linear(4, 4), Fickle(*FICKLE[words])).eval()
    with pytest.raises(ExportError, match=words) as caught:
        trace(model, torch.randn(3, 4))
    assert "module '1' cannot run as one block" in str(caught.value)
    assert "move it into a submodule" not in str(caught.value)
    assert "test_trace_opaque.py:" in caught.value.location


def test_a_block_that_returns_a_copy_of_its_input_for_some_values_is_captured():
    model = nn.Sequential(nn.Linear(4, 4), Fickle(torch.clone, lambda x: x * 2)).eval()
    recording = reference.record(model, torch.randn(3, 4))
    assert operators(recording.graph) == ["aten.linear.default", "opaque"]
    assert_equal_to_eager(model, recording)


def test_a_block_that_returns_its_input_at_some_batches_only_makes_the_batch_static():
    class Odd(nn.Module):
        def forward(self, x):
            return x if x.shape[0] % 2 else x * 2

    model = nn.Sequential(nn.Linear(4, 4), Odd()).eval()
    recording = reference.record(model, torch.randn(3, 4), basic_blocks=[Odd])
    assert "batch is static" in recording.graph.notes[0]
    assert "returns its input" in recording.graph.notes[0]
    assert_equal_to_eager(model, recording, batches=(3,))


class LayerDrop(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        if self.training and torch.rand([]) < 0.1:
            return x
        return self.linear(x)


def test_layer_drop_in_train_mode_is_refused_with_file_and_line(capfd):
    logging.getLogger("torch").warning("torch's own log stays")
    model = nn.Sequential(nn.Linear(4, 4), LayerDrop()).train()
    with pytest.raises(ExportError) as caught:
        trace(model, torch.zeros(2, 4))
    error = caught.value
    line = LayerDrop.forward.__code__.co_firstlineno + 1
    assert error.location.endswith(f"test_trace_opaque.py:{line}")
    assert error.module == "1"
    assert isinstance(error, NotImplementedError)
    for part in ("module '1'", "torch.rand([]) < 0.1", "config.layerdrop = 0", error.location):
        assert part in str(error)
    assert "forward(self, arg0_1" not in capfd.readouterr().err
    assert trace(model.eval(), torch.zeros(2, 4)).num_nodes == 2


def test_a_branch_in_the_root_is_refused():
    with pytest.raises(ExportError, match="the model's own forward at .*x.sum.*submodule"):
        trace(Branch().eval(), torch.zeros(2, 4))


def test_opaque_never_refuses():
    with pytest.raises(ExportError, match="opaque='auto'"):
        trace(Stack(Branch), torch.zeros(2, 4), opaque="never")


def test_a_call_that_does_not_work_says_so():
    model = nn.Sequential(nn.Linear(5, 4)).eval()
    with pytest.raises(ExportError, match="expected a call that works"):
        trace(model, torch.zeros(2, 4))
    with pytest.raises(TypeError, match="expected the model, an nn.Module"):
        trace(lambda x: x, torch.zeros(2, 4))
    with pytest.raises(ValueError, match="expected 'auto' or 'never'"):
        trace(model, torch.zeros(2, 5), opaque="yes")


def test_a_failed_trace_leaves_the_model_as_it_was():
    model = Stack(Branch).train()
    before = {n: dict(m.__dict__) for n, m in model.named_modules()}
    with pytest.raises(ExportError):
        trace(model, torch.zeros(2, 4), opaque="never")
    for name, module in model.named_modules():
        assert module.__dict__ == before[name]


class AddsRows(nn.Module):
    """Fits one batch alone, which a probe of the block finds at the second."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.ones(3, 8))

    def forward(self, x):
        y = x + self.rows
        return y if y.sum() > 0 else -y


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


def test_what_a_probe_tries_in_vain_is_not_logged():
    """PyTorch logged the whole stack, several hundred lines for a block."""
    model = nn.Sequential(nn.Linear(8, 8), AddsRows(), nn.Linear(8, 8)).eval()
    kept = Kept()
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(kept)
    try:
        with pytest.raises(ExportError, match="cannot run as one block"):
            trace(model, (torch.randn(3, 8),))
    finally:
        logger.removeHandler(kept)
    assert not kept.records
