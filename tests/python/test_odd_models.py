# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Models that do odd things: each gives what the model gives, or is refused with the reason."""

import pytest
import torch
from torch import nn

import kerf


class Holds(nn.Module):
    """A model with a buffer, and the forward that it is given."""

    def __init__(self, forward, **buffers):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.generator = torch.Generator()
        self.run = forward
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *args, **kwargs):
        return self.run(self, *args, **kwargs)


def pipeline_of(model, args=(), kwargs=None, devices=("cpu:0",)):
    graph = kerf.trace(model, args, kwargs)
    return kerf.Pipeline(model, kerf.plan(graph, devices=list(devices)))


def returns_the_old(self, x):
    old = self.count
    self.count = self.count + 1
    return self.linear(x), old


def ties_buffers(self, x):
    y = self.linear(x) * self.count
    self.count = self.table[1]
    return y


@pytest.mark.parametrize(
    "forward, reason",
    [
        (returns_the_old, "replaces buffer 'count' and returns the tensor that it held"),
        (ties_buffers, "replaces buffer 'count' by another tensor of the model"),
    ],
)
def test_a_replaced_buffer_is_refused_where_the_old_tensor_shows(forward, reason):
    model = Holds(forward, count=torch.zeros(4), table=torch.ones(2, 4)).eval()
    with pytest.raises(kerf.ExportError, match=reason):
        kerf.trace(model, (torch.randn(4, 4),))


@pytest.mark.parametrize("n_microbatches", [1, 4])
def test_batch_norm_takes_no_single_value_per_channel(n_microbatches):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    graph = kerf.trace(model, (torch.randn(4, 4),))
    with pytest.raises(ValueError, match="B != 1"), torch.no_grad():
        plan = kerf.plan(graph, devices=["cpu:0"], n_microbatches=n_microbatches)
        kerf.Pipeline(model, plan)(torch.randn(n_microbatches, 4))
    assert not model[1].running_var.isnan().any()


def test_the_order_of_free_keywords_counts():
    model = Holds(lambda self, **kw: torch.cat([self.linear(v) for v in kw.values()], 1)).eval()
    a, b = torch.randn(2, 4, 4)
    pipe = pipeline_of(model, (), {"a": a, "b": b})
    assert torch.equal(pipe(a=a, b=b), model(a=a, b=b))
    with pytest.raises(ValueError, match="in the order b, a; the model was traced with a, b"):
        pipe(b=b, a=a)


def test_a_contiguous_result_is_the_callers_own():
    model = Holds(lambda self, x: (self.linear(x), x.contiguous())).eval()
    base = torch.randn(4, 4)
    before = base.clone()
    result = pipeline_of(model, (torch.randn(4, 4),))(base.t())[1]
    assert result.is_contiguous() and torch.equal(result, base.t())
    result.add_(1)
    assert torch.equal(base, before)


def overwrites_the_first(self, x, y):
    kept = y.contiguous()
    x.mul_(3)
    return kept * 1, self.linear(x)


def test_a_copy_shows_where_inputs_overlap():
    model = Holds(overwrites_the_first).eval()
    pipe = pipeline_of(model, tuple(torch.randn(2, 4, 4)))
    base = torch.randn(4, 4)
    again = base.clone()
    for found, expected in zip(pipe(base, base.t()), model(again, again.t()), strict=True):
        assert torch.allclose(found, expected)


def test_a_weight_of_another_shape_is_refused():
    model = Holds(lambda self, x: self.linear(x) / self.count.numel(), count=torch.ones(4)).eval()
    x = torch.randn(4, 4)
    pipe = pipeline_of(model, (x,))
    pipe(x)
    model.count.data = torch.ones(8)
    with pytest.raises(ValueError, match=r"weight 'count' is now f32\[8\] on cpu; it was f32\[4\]"):
        pipe(x)


def test_a_trace_leaves_no_tensors_without_numbers():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    seen, last = [], {"x": torch.ones(1)}
    model[0].register_forward_hook(lambda module, args, output: seen.append(output.detach()))
    model[1].register_forward_hook(lambda module, args, out: last.update(x=out.detach()))
    with pytest.warns(kerf.KerfWarning, match="keeps a tensor in .*seen.0'; a pipeline does not"):
        kerf.trace(model, (torch.randn(4, 4),))
    assert seen == [] and torch.equal(last["x"], torch.ones(1))


def names_its_weight(self, x):
    self.again = self.linear.weight
    return self.linear(x)


def test_a_trace_registers_no_weights():
    model = Holds(names_its_weight).eval()
    kerf.trace(model, (torch.randn(4, 4),))
    assert list(model.state_dict()) == ["linear.weight", "linear.bias"]


def test_a_generator_is_refused_by_name():
    model = Holds(lambda self, x: self.linear(x) + torch.rand(4, generator=self.generator)).eval()
    with pytest.raises(kerf.ExportError, match="aten.rand.generator takes an argument of type"):
        kerf.trace(model, (torch.randn(4, 4),))


def adds_one(self, x, state):
    state.add_(1)
    return self.linear(x) + state


@pytest.mark.parametrize("traced_inside", [False, True])
@pytest.mark.parametrize("devices", [("cpu:0",), ("cpu:0", "cpu:1")])
def test_tensors_of_inference_mode_are_written(traced_inside, devices):
    model = Holds(adds_one).eval()
    with torch.inference_mode(traced_inside):
        pipe = pipeline_of(model, (torch.randn(4, 4), torch.zeros(4, 4)), None, devices)
    with torch.inference_mode():
        x, state, same = torch.randn(4, 4), torch.zeros(4, 4), torch.zeros(4, 4)
        for _ in range(3):
            assert torch.allclose(pipe(x, state), model(x, same))
        assert torch.equal(state, same) and state[0, 0] == 3


@pytest.mark.parametrize(
    "take, is_static",
    [
        (lambda base: (base[0:3], base[3:6]), False),
        (lambda base: (base[0:4], base[2:6]), True),
        (lambda base: (base[0:4], base[0:4]), False),
    ],
    ids=["apart", "overlapping", "the same"],
)
@pytest.mark.filterwarnings("ignore:batch is static")
def test_inputs_may_be_rows_of_one_tensor(take, is_static):
    model = Holds(lambda self, x, y: self.linear(x) + y).eval()
    inputs = take(torch.randn(6, 4))
    graph = kerf.trace(model, inputs)
    assert graph.is_static == is_static
    with kerf.Pipeline(model, kerf.plan(graph, devices=["cpu:0"])) as pipe:
        assert torch.allclose(pipe(*inputs), model(*inputs))
