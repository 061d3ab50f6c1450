# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Grad mode, autocast, checkpoints, devices, buffers: what surrounds the operators."""

import contextlib

import models
import reference
import torch
import torch.nn as nn
import torch.utils.checkpoint
from torch.utils.checkpoint import checkpoint  # bound early, as user code does

from kerf import _core
from kerf._trace import trace


class Modes(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            x = self.a(x)
            with torch.enable_grad():
                x = x.sin()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.b(x)
            with torch.autocast("cpu", enabled=False):
                x = x.float().exp()
        return x


def modes(recording):
    return [(r["op"].split(".")[1], r["grad_enabled"], r["autocast"]) for r in recording.nodes]


def test_modes_survive_inlining():
    recording = reference.record(Modes().eval(), torch.randn(2, 4))
    assert modes(recording) == [
        ("linear", False, []),
        ("sin", True, []),
        ("linear", True, [("cpu", "bf16", True)]),
        ("to", True, [("cpu", "bf16", False)]),
        ("exp", True, [("cpu", "bf16", False)]),
    ]


def test_modes_around_the_trace_are_included():
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        recording = reference.record(nn.Linear(4, 4), torch.randn(2, 4))
    assert modes(recording) == [("linear", False, [("cpu", "bf16", True)])]


def test_trace_works_in_inference_mode():
    model = Modes().eval()
    with torch.inference_mode():
        recording = reference.record(model, torch.randn(2, 4))
    assert not recording.nodes[0]["grad_enabled"]


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def inner(self, x):
        return checkpoint(self.b, x, use_reentrant=False).exp()

    def forward(self, x):
        x = checkpoint(self.a, x, use_reentrant=True)
        x = checkpoint(self.inner, x.cos(), use_reentrant=False)
        return self.c(x)


def test_checkpoint_regions_are_tagged():
    originals = vars(torch.utils.checkpoint).copy()
    recording = reference.record(Checkpointed().train(), torch.randn(2, 4, requires_grad=True))
    regions = [(r["op"].split(".")[1], r["region"]) for r in recording.nodes]
    assert regions == [
        ("linear", "0"),
        ("cos", ""),
        ("linear", "1/0"),
        ("exp", "1"),
        ("linear", ""),
    ]
    assert vars(torch.utils.checkpoint) == originals


def test_devices_are_not_written_down():
    class Arange(nn.Module):
        def forward(self, x):
            return x + torch.arange(4, device=x.device) + torch.zeros(4, device="meta").to("cpu")

    recording = reference.record(Arange(), torch.zeros(2, 4))
    devices = {
        r["name"]: r["kwargs"]["device"].name for r in recording.nodes if "device" in r["kwargs"]
    }
    assert devices == {"arange": "", "zeros": "meta", "to": ""}


def test_no_ops_are_dropped_and_effects_kept():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count.add_(1)  # an effect nobody uses
            torch.rand(2)  # and another one
            x.to(torch.float32).exp()  # nobody uses it, it does nothing
            return self.drop(x).to(x.device)[:, :] + 1

    recording = reference.record(Mixed().eval(), torch.zeros(2, 4))
    assert [r["op"] for r in recording.nodes] == [
        "aten.add_.Tensor",
        "aten.rand.default",
        "aten.add.Tensor",
    ]
    assert [r["random"] for r in recording.nodes] == [False, True, False]


class Counter(nn.Module):
    """Replaces a buffer, and leaves a tensor behind."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(4))
        self.seen = []

    def forward(self, x):
        y = x + self.steps
        self.steps = self.steps + 1
        self.last = y
        self.seen.append(y)
        return y * self.steps


def test_replaced_buffers_are_written_back():
    model = nn.Sequential(Counter()).eval()
    steps = model[0].steps
    recording = reference.record(model, torch.zeros(2, 4))
    assert model[0].steps is steps and not steps.any()
    assert torch.equal(recording.run(torch.ones(3, 4)), torch.ones(3, 4))
    assert torch.equal(steps, torch.ones(4))


def test_no_fake_tensors_stay_behind():
    model = nn.Sequential(Counter()).eval()
    graph = reference.record(model, torch.zeros(2, 4)).graph
    assert not hasattr(model[0], "last")
    assert model[0].seen == []
    assert any("attribute '0.last'" in note for note in graph.notes)


def test_hooks_that_a_first_call_installs_stay():
    """transformers sets them up at the first call and remembers that it has."""
    model, args, kwargs = models.build("segformer")
    fresh, _, _ = models.build("segformer")
    trace(model, args, kwargs)
    with torch.no_grad():
        reference.assert_same(fresh(*args, **kwargs), model(*args, **kwargs))


def test_weights_on_the_meta_device_give_the_same_graph():
    for name in ("gpt2", "resnet"):
        model, args, kwargs = models.build(name)
        graph = trace(model, args, kwargs)
        with torch.device("meta"):
            hollow, _, _ = models.build(name)
        assert trace(hollow, args, kwargs).hash == graph.hash
        assert all(p.is_meta for p in hollow.parameters())
        to_meta = torch.utils._pytree.tree_map(lambda t: t.to("meta"), (args, kwargs))
        assert trace(hollow, *to_meta).hash == graph.hash


def test_a_trace_takes_no_memory_for_weights():
    model = nn.Sequential(*[nn.Linear(4096, 4096, bias=False, device="meta") for _ in range(64)])
    graph = trace(model, torch.zeros(2, 4096))  # 4 GiB of weights, if they were there
    assert graph.num_nodes == 64


def test_constants_of_a_forward_carry_their_values():
    class Literal(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.arange(4.0)  # no buffer: an attribute

        def forward(self, x):
            return x * torch.tensor([1.0, 2.0, -1.0, 0.5]) + self.table

    model = Literal()
    recording = reference.record(model, torch.zeros(2, 4))
    kinds = {w["names"][0]: w["kind"] for w in recording.graph.weights}
    assert kinds == {"lifted_tensor_0": "constant", "table": "constant"}
    x = torch.randn(3, 4)
    assert torch.equal(recording.run(x), model(x))
    model.table.add_(1)  # the attribute is the model's own tensor
    assert torch.equal(recording.run(x), model(x))


def test_non_persistent_buffers_are_told_apart():
    model, args, kwargs = models.build("slice_writer")
    graph = reference.record(model, args, kwargs).graph
    kinds = {w["names"][0]: w["kind"] for w in graph.weights}
    assert kinds["history"] == "buffer"
    assert kinds["scratch"] == "non_persistent_buffer"


def test_numbers_taken_out_of_tensors_are_scalars():
    class Scale(nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    recording = reference.record(Scale(), torch.ones(2, 4))
    x = torch.randn(3, 4)
    assert torch.equal(recording.run(x), x * x.sum().item())


def test_compiled_submodules_are_traced_from_their_code():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with contextlib.suppress(Exception):
        model[0].compile()
    compiled = model[0]._compiled_call_impl
    assert trace(model, torch.zeros(2, 4)).num_nodes == 2
    assert model[0]._compiled_call_impl is compiled


def test_graph_is_the_cores_own():
    assert isinstance(trace(nn.Linear(4, 4), torch.zeros(2, 4)), _core.Graph)
