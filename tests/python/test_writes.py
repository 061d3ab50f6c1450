# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Writes in place, where strides, micro-batches and the caller's memory decide who sees them.

A pipeline gives the model's numbers, leaves the caller's tensors as the model does, or refuses.
"""

import random
import warnings

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import kerf


class Model(nn.Module):
    """``code(self, *inputs)``, with a layer to make hidden values with."""

    def __init__(self, code):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.code = code

    def forward(self, *inputs):
        return self.code(self, *inputs)


def pipeline(model, *inputs, n=1, devices=("cpu:0",), trace=None, **options):
    """Cut in even parts where there are several devices: small models are best on one."""
    graph = kerf.trace(model, inputs, **(trace or {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kerf.KerfWarning)
        method = "even" if len(devices) > 1 else "auto"
        plan = kerf.plan(graph, list(devices), n_microbatches=n, method=method)
        return kerf.Pipeline(model, plan, **options)


def twins(inputs):
    """The same tensors over memory of their own, with strides and overlaps as they are."""
    made = {}
    for tensor in inputs:
        storage = tensor.untyped_storage()
        made.setdefault(storage._cdata, storage.clone())
    return [
        torch.empty(0, dtype=t.dtype).set_(
            made[t.untyped_storage()._cdata], t.storage_offset(), t.shape, t.stride()
        )
        for t in inputs
    ]


def assert_as_eager(pipe, model, *inputs):
    """Twice: a second call must not be another one."""
    for _ in range(2):
        own, expected_inputs = twins(inputs), twins(inputs)
        with torch.no_grad():
            expected = model(*expected_inputs)
        found = pipe(*own)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(own, expected_inputs, rtol=1e-4, atol=1e-5)


# Whether these copy depends on strides, and on there being one sample.
MAY_COPY = {
    "contiguous": lambda h: h.t().contiguous().t(),
    "reshape": lambda h: h.unsqueeze(1).transpose(0, 2).reshape(4, -1).t(),
    "flatten": lambda h: h.t().flatten().view(4, -1).t(),
    "ravel": lambda h: h.t().ravel().view(4, -1).t(),
    "movedim": lambda h: h.view(-1, 2, 2).movedim(0, 2).reshape(4, -1).t(),
    "format": lambda h: h.t().to(memory_format=torch.contiguous_format).t(),
    "float": lambda h: h.t().float(memory_format=torch.contiguous_format).t(),
    "channels_last": lambda h: (
        h.view(-1, 2, 2, 1).transpose(0, 1).contiguous(memory_format=torch.channels_last)
    ).transpose(0, 1),
    "needless": lambda h: h.contiguous(),
    "slices": lambda h: h[:, 1:3].contiguous(),
}


@pytest.mark.parametrize("devices", [("cpu:0",), ("cpu:0", "cpu:1")])
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("name", MAY_COPY)
def test_micro_batches_share_memory_as_the_whole_batch_does(name, n, devices):
    def code(self, x):
        h = self.layer(x)
        y = MAY_COPY[name](h)
        y.add_(1)
        return h * 2, y * 3

    model = Model(code).eval()
    pipe = pipeline(model, torch.randn(4, 4), n=n, devices=devices)
    for batch in (4, 3, 2, 1, 5):
        assert_as_eager(pipe, model, torch.randn(batch, 4))


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("name", MAY_COPY)
def test_a_write_to_what_was_copied_is_as_visible(name, n):
    def code(self, x):
        h = self.layer(x)
        y = MAY_COPY[name](h)
        h.mul_(2)
        return h + 1, y + 1

    model = Model(code).eval()
    pipe = pipeline(model, torch.randn(4, 4), n=n)
    for batch in (4, 3, 1):
        assert_as_eager(pipe, model, torch.randn(batch, 4))


def test_a_trace_with_one_sample_knows_that_more_are_copied():
    def code(self, x):
        h = self.layer(x)
        y = h.t().contiguous()
        y.add_(1)
        return h * 2, y.t() * 3

    model = Model(code).eval()
    for n in (1, 3):
        pipe = pipeline(model, torch.randn(1, 4), n=n)
        for batch in (1, 2, 3):
            assert_as_eager(pipe, model, torch.randn(batch, 4))


def test_what_is_packed_without_gradients_may_be_written_with_them():
    def code(self, x):
        h = self.layer(x)
        with torch.no_grad():
            y = h.contiguous()
        y.add_(1)
        return h * 2, y * 3

    model = Model(code).eval()
    assert_as_eager(pipeline(model, torch.randn(4, 4)), model, torch.randn(4, 4))


def test_a_trace_leaves_tensors_and_dropout_as_they_were():
    before = dict(torch.ops.aten.dropout.default.py_kernels)
    pipeline(nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval(), torch.randn(4, 4))
    assert torch.ops.aten.dropout.default.py_kernels == before
    assert not {"contiguous", "to", "float"} & set(torch.Tensor.__dict__)


def strided(name, *shape):
    x = torch.randn(*shape)
    if name == "transposed":
        return x.transpose(-1, -2).clone(memory_format=torch.contiguous_format).transpose(-1, -2)
    if name == "rows apart":
        return torch.randn(2 * shape[0], *shape[1:])[::2]
    if name == "columns apart":
        return torch.randn(*shape[:-1], shape[-1] + 3)[..., :-3]
    return x


STRIDES = ("dense", "transposed", "rows apart", "columns apart")
ON_INPUTS = {
    "contiguous": lambda x: x.contiguous(),
    "format": lambda x: x.to(memory_format=torch.contiguous_format),
    "reshape": lambda x: x.reshape(-1).view(x.shape),
    "flatten": lambda x: x.flatten().view(x.shape),
    "same shape": lambda x: x.reshape(x.shape),
    "dtype": lambda x: x.to(torch.float32).float().type_as(x),
    "view": lambda x: x.view(x.shape).expand(-1, -1),
    "atleast": lambda x: torch.atleast_2d(x)[:, 0:3],
}


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("traced", STRIDES)
@pytest.mark.parametrize("name", ON_INPUTS)
def test_strides_of_a_call_decide_what_it_copies(name, traced, hidden):
    def code(self, x):
        h = x * 1 if hidden else x  # has the strides of x
        y = ON_INPUTS[name](h)
        y.add_(1)
        return h * 2, y * 3

    model = Model(code).eval()
    pipe = pipeline(model, strided(traced, 4, 4))
    for called in STRIDES:
        assert_as_eager(pipe, model, strided(called, 4, 4))
        assert_as_eager(pipe, model, strided(called, 1, 4))


def test_strides_reach_further_than_the_call_that_changes_them():
    def code(self, x):
        h = x.contiguous() * 1
        y = h.reshape(-1)
        y.add_(1)
        return h * 2, y * 3

    model = Model(code).eval()
    pipe = pipeline(model, torch.randn(4, 4))
    for called in STRIDES:
        assert_as_eager(pipe, model, strided(called, 4, 4))


def test_channels_last_images_are_seen_as_they_are_laid_out():
    def code(self, x):
        y = x.contiguous(memory_format=torch.channels_last)
        z = x.contiguous()
        y.add_(1)
        z.mul_(2)
        return x * 1, y * 1, z * 1

    model = Model(code).eval()
    plain = torch.randn(2, 3, 4, 4)
    last = plain.to(memory_format=torch.channels_last)
    for example in (plain, last):
        pipe = pipeline(model, example.clone())
        assert_as_eager(pipe, model, plain)
        assert_as_eager(pipe, model, last)


def test_micro_batches_of_other_strides_are_refused_where_a_write_would_show_them():
    def code(self, x):
        y = x.contiguous()
        y.add_(1)
        return x * 2, y * 3

    model = Model(code).eval()
    pipe = pipeline(model, torch.randn(4, 4), n=2)
    assert_as_eager(pipe, model, torch.randn(4, 4))
    with pytest.raises(ValueError, match=r"'args.0' has strides \[1, 4\].*with \[4, 1\]") as caught:
        pipe(torch.randn(4, 4).t())
    assert "test_writes.py:" in str(caught.value) and "n_microbatches=1" in str(caught.value)
    assert_as_eager(pipe, model, torch.randn(1, 4))  # not cut


def test_micro_batches_of_any_strides_run_where_a_layer_lays_out_its_result():
    def code(self, x):
        h = self.layer(x)
        y = h.t().contiguous()
        y.add_(1)
        return h * 2, y.t() * 3

    model = Model(code).eval()
    pipe = pipeline(model, torch.randn(4, 4), n=4)
    for called in STRIDES:
        assert_as_eager(pipe, model, strided(called, 4, 4))


def test_strides_do_not_matter_where_no_write_shows_them():
    def code(self, x):
        h = self.layer(x.contiguous()).contiguous()
        return F.relu_(h.reshape(-1, 2, 2)).flatten(1)

    model = Model(code).eval()
    graph = kerf.trace(model, (torch.randn(4, 4),))
    assert not any("contiguous" in node["op"] for node in graph.nodes)
    for n in (1, 4):
        pipe = pipeline(model, torch.randn(4, 4), n=n)
        for called in STRIDES:
            assert_as_eager(pipe, model, strided(called, 4, 4))


def test_a_batch_in_the_second_dimension_is_cut_only_where_parts_are_views_too():
    def code(self, x):
        y = x.flatten(0, 1)
        y.add_(1)
        return x * 2

    model = Model(code).eval()
    pipe = pipeline(model, torch.randn(3, 4, 2), n=2, trace={"batch_dims": 1})
    with pytest.raises(RuntimeError, match="copies its argument.*n_microbatches=1"):
        pipe(torch.randn(3, 4, 2))
    pipe = pipeline(model, torch.randn(3, 4, 2), trace={"batch_dims": 1})
    assert_as_eager(pipe, model, torch.randn(3, 4, 2))


class Packed(nn.Module):
    def forward(self, x):
        return x.contiguous()


@pytest.mark.parametrize("n", [1, 2, 4])
def test_blocks_that_run_as_python_share_memory_as_for_the_whole_batch(n):
    class Blocks(Model):
        def __init__(self):
            super().__init__(None)
            self.packed = Packed()

        def forward(self, x):
            h = self.layer(x)
            y = self.packed(h)
            y.add_(1)
            return h * 2, y * 3

    model = Blocks().eval()
    pipe = pipeline(
        model,
        torch.randn(4, 4),
        n=n,
        trace={"basic_blocks": [Packed]},
        batch_independent=True,
    )
    assert_as_eager(pipe, model, torch.randn(4, 4))


class Viewing(nn.Module):
    """Needs packed memory, and writes into what it packs itself."""

    def forward(self, x):
        y = x.view(-1).contiguous()
        y.add_(1)
        return x * 2


def test_blocks_that_run_as_python_get_the_strides_that_the_model_gives_them():
    class Blocks(Model):
        def __init__(self):
            super().__init__(None)
            self.viewing = Viewing()

        def forward(self, x):
            return self.viewing(x.contiguous() * 1)

    model = Blocks().eval()
    pipe = pipeline(model, torch.randn(4, 4), trace={"basic_blocks": [Viewing]})
    for called in STRIDES:
        assert_as_eager(pipe, model, strided(called, 4, 4))


# In evaluation a dropout gives its argument: views of the one are views of the other.
DROPOUTS = {
    "column": lambda h: F.dropout(h, 0.5, False)[:, 0].add_(1),
    "view": lambda h: F.dropout(h, 0.5, False).view(-1, 2, 2).mul_(3),
    "slice": lambda h: F.dropout(h[:, 1:3], 0.5, False)[:, 1].add_(1),
    "turned": lambda h: F.dropout(h[:, 1:3].t(), 0.5, False).reshape(-1).add_(1),
    "packed": lambda h: F.dropout(h[:, :2], 0.5, False).flatten().add_(1),
    "twice": lambda h: F.dropout(F.dropout(h, 0.1, False)[:, 1:], 0.1, False)[:, 0].mul_(2),
    "narrow": lambda h: F.dropout(h, 0.5, False).narrow(1, 2, 2).add_(1),
    "features": lambda h: F.dropout1d(h.unsqueeze(2), 0.5, False)[:, 1].mul_(2),
    "alpha": lambda h: F.alpha_dropout(h, 0.5, False)[:, 1:3].neg_(),
    "operator": lambda h: torch.ops.aten.dropout.default(h[:, 1:], 0.5, False)[:, 0].add_(1),
}


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_in_evaluation_is_its_argument(name, n):
    def code(self, x):
        h = self.layer(x)
        DROPOUTS[name](h)
        return F.relu(h)

    model = Model(code).eval()
    pipe = pipeline(model, torch.randn(4, 4), n=n, devices=("cpu:0", "cpu:1"))
    for batch in (4, 3, 1):
        assert_as_eager(pipe, model, torch.randn(batch, 4))


def add_to_first(self, a, b):
    a.add_(1)
    return self.layer(b) + a


def two_inputs(n=2, devices=("cpu:0",), code=add_to_first):
    model = Model(code).eval()
    return model, pipeline(model, torch.randn(4, 4), torch.randn(4, 4), n=n, devices=devices)


def test_inputs_that_overlap_are_not_cut_where_one_is_written():
    model, pipe = two_inputs()
    base = torch.randn(6, 4)
    with pytest.raises(ValueError, match=r"'args.0' and 'args.1' share memory.*x\.clone\(\)"):
        pipe(base[0:4], base[2:6])
    with pytest.raises(ValueError, match=r"'args.0' and 'args.1' share memory"):
        pipe(base[2:6], base[0:4])
    assert_as_eager(pipe, model, torch.randn(4, 4), torch.randn(4, 4))
    assert_as_eager(pipe, model, base[0:1], base[0:1])  # in one piece
    _, whole = two_inputs(n=1)
    assert_as_eager(whole, model, base[0:4], base[2:6])


def test_inputs_that_lie_between_each_other_share_nothing():
    model, pipe = two_inputs(devices=("cpu:0", "cpu:1"))
    both = torch.randn(4, 8)
    assert_as_eager(pipe, model, both[:, :4], both[:, 4:])
    rows = torch.randn(8, 4)
    assert_as_eager(pipe, model, rows[::2], rows[1::2])
    assert_as_eager(pipe, model, rows[:4], rows[4:])


def test_a_tensor_that_is_passed_twice_is_cut_alike():
    model, pipe = two_inputs()
    x = torch.randn(4, 4)
    assert_as_eager(pipe, model, x, x)


def test_stages_refuse_overlaps_that_the_trace_did_not_know():
    def code(self, a, b):
        a.add_(1)
        return self.layer(self.layer(a)) + self.layer(self.layer(b))

    model, pipe = two_inputs(n=1, devices=("cpu:0", "cpu:1"), code=code)
    assert len(pipe.plan.stages) == 2
    x = torch.randn(4, 4)
    with pytest.raises(ValueError, match="share memory, which they did not when the model was tra"):
        pipe(x, x)
    assert_as_eager(pipe, model, x, x.clone())


def test_samples_of_one_memory_are_not_cut_where_they_are_written():
    def code(self, x):
        x[:, 0].add_(1)
        return self.layer(x)

    model = Model(code).eval()
    pipe = pipeline(model, torch.randn(4, 4), n=2)
    with pytest.raises(ValueError, match="samples of input 'args.0' share memory"):
        pipe(torch.randn(1, 4).expand(4, -1))
    with pytest.raises(ValueError, match="samples of input 'args.0' share memory"):
        pipe(torch.randn(16).as_strided((4, 4), (2, 1)))
    assert_as_eager(pipe, model, strided("transposed", 4, 4))
    assert_as_eager(pipe, model, strided("rows apart", 4, 4))


def test_an_input_that_is_a_buffer_is_refused_where_the_order_of_writes_is_lost():
    class Counting(Model):
        def __init__(self):
            super().__init__(None)
            self.register_buffer("state", torch.randn(4, 4))

        def forward(self, x):
            x.add_(1)
            return self.layer(self.layer(self.layer(x))) + self.layer(self.state)

    model = Counting().eval()
    pipe = pipeline(model, torch.randn(4, 4), devices=("cpu:0", "cpu:1"))
    assert len(pipe.plan.stages) == 2
    with pytest.raises(ValueError, match="'args.0' and weight 'state' share memory"):
        pipe(model.state)


STEPS = {
    "contiguous": lambda x: x.contiguous(),
    "turned": lambda x: x.transpose(-1, -2),
    "packed": lambda x: x.transpose(-1, -2).contiguous(),
    "flat": lambda x: x.flatten(1),
    "rows": lambda x: x.reshape(x.shape[0], -1),
    "part": lambda x: x[..., 1:],
    "half": lambda x: x.narrow(-1, 0, 2),
    "column": lambda x: x.select(-1, 0),
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "format": lambda x: x.to(memory_format=torch.contiguous_format),
    "split": lambda x: x.unflatten(-1, (2, -1)),
    "twice": lambda x: x * 2,
}
WRITES = {
    "add": lambda x: x.add_(1),
    "part": lambda x: x[:, 0].mul_(2),
    "flat": lambda x: x.flatten(1).add_(3),
    "packed": lambda x: x.contiguous().relu_(),
}


def random_code(rng):
    steps, names = [], 2
    for _ in range(rng.randint(3, 6)):
        write = bool(steps) and rng.random() < 0.4
        steps.append((write, rng.choice(list(WRITES if write else STEPS)), rng.randrange(names)))
        names += not write
    steps.append((True, rng.choice(list(WRITES)), rng.randrange(names)))
    kept = rng.sample(range(names), 2)

    def code(self, x):
        made = [x, self.layer(x)]
        for write, name, which in steps:
            if write:
                WRITES[name](made[which])
            else:
                made.append(STEPS[name](made[which]))
        return tuple(made[i] * 1 for i in kept)

    return code


@pytest.mark.parametrize("seed", range(16))
def test_random_programs_write_what_the_model_writes(seed):
    rng = random.Random(seed)
    model = Model(random_code(rng)).eval()
    traced = rng.choice(STRIDES)
    with torch.no_grad():
        try:
            model(strided(traced, 4, 6, 4))
        except (RuntimeError, IndexError):
            pytest.skip("not a program")
    for n, devices in ((1, ("cpu:0",)), (1, ("cpu:0", "cpu:1")), (4, ("cpu:0", "cpu:1"))):
        pipe = pipeline(model, strided(traced, 4, 6, 4), n=n, devices=devices)
        for called in STRIDES:
            for batch in (4, 1):
                inputs = [strided(called, batch, 6, 4)]
                try:
                    assert_as_eager(pipe, model, *inputs)
                except ValueError as refused:
                    assert n > 1 and "has strides" in str(refused)
                    assert called != traced or called.endswith("apart")  # a trace closes gaps
