# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``symbolic_trace``: what each construct of a model's code becomes."""

import copy
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint as checkpointing
from small import After, Around
from torch import nn

from kerf._errors import ExportError
from kerf.symbolic._guards import GuardError
from kerf.symbolic._trace import symbolic_trace

X = torch.randn(3, 4)


def traced(function, x=X, model=After, **options):
    return symbolic_trace(model(function), meta_args={"x": x}, **options)


def agrees(function, x=X, model=After, **options):
    whole = model(function)
    gm = symbolic_trace(whole, meta_args={"x": x}, **options)
    for _ in range(2):  # the second call is as good as the first
        torch.testing.assert_close(gm(x), whole(x), equal_nan=True)
    return gm


def chosen_by_size(x):
    return x * 2 if x.size(0) > 1 else x * 3


def is_tensor(x):
    return x + 1 if isinstance(x, torch.Tensor) else x - 1


def unrolled(x):
    return sum(row * i for i, row in enumerate(x))


def pieces(x):
    return torch.cat(x.chunk(2, 1))


def filled(x):
    buffer = torch.zeros(x.shape[0], 8)
    buffer[:, :4] += x
    return buffer


def written(x):
    y = x * 2
    y[0] = 0
    y.add_(1)
    return y


def unpacked(x):
    a, b = x.split(2, dim=1)
    return a * b


def containers(x):
    return {"a": x, "b": (x + 1, [x + 2])}


def flattened(x):
    return x.view(x.shape[0] * 2, -1)


def known_mask(x):
    mask = torch.ones(x.shape[1], x.shape[1]).tril().bool()
    return x.masked_fill(~mask[: x.shape[0]], 0.0)


@pytest.mark.parametrize(
    "function",
    [chosen_by_size, is_tensor, unrolled, pieces, filled, written, unpacked, containers, flattened,
     known_mask],
)  # fmt: skip
def test_a_traced_module_computes_what_the_model_does(function):
    agrees(function)


def float_of_sum(x):
    return x * float(x.sum())


def branch_on_data(x):
    return x if x.sum() > 0 else -x


def item(x):
    return x * x.sum().item()


def to_numpy(x):
    return x + torch.from_numpy(x.detach().numpy())


def masked(x):
    return x[x > 0]


def address(x):
    return x + x.data_ptr()


@pytest.mark.parametrize(
    "function", [float_of_sum, branch_on_data, item, to_numpy, masked, address]
)
def test_code_that_looks_at_data_is_refused_with_its_line(function):
    with pytest.raises(ExportError, match=r"test_symbolic_trace\.py:\d+") as refused:
        traced(function)
    assert refused.value.args[0].count(";") >= 2


def test_a_shape_that_takes_another_branch_breaks_a_guard_that_is_named():
    gm = traced(chosen_by_size)
    torch.testing.assert_close(gm(torch.ones(5, 4)), After(chosen_by_size)(torch.ones(5, 4)))
    with pytest.raises(GuardError, match=r"shape\[0\] > 1 held .* \(1, 4\); trace again") as broken:
        gm(torch.ones(1, 4))
    assert "test_symbolic_trace.py" in str(broken.value)


@pytest.mark.parametrize("function", [unrolled, lambda x: torch.stack([*x])])
def test_a_loop_over_rows_holds_for_as_many_rows(function):
    gm = traced(function)
    with pytest.raises(GuardError, match="trace again for this shape"):
        gm(torch.ones(4, 4))


def test_other_batch_sizes_are_computed_where_nothing_depends_on_them():
    gm = traced(flattened)
    x = torch.randn(7, 4)
    torch.testing.assert_close(gm(x), After(flattened)(x))


def test_inputs_of_another_rank_or_dtype_are_refused():
    gm = traced(lambda x: x * 2)
    with pytest.raises(GuardError, match="x has shape"):
        gm(torch.ones(2, 3, 4))
    with pytest.raises(TypeError, match="x is 3"):
        gm(3)


def test_functions_can_be_traced():
    gm = symbolic_trace(lambda a, b=2.0: torch.relu(a) * b, meta_args={"a": X})
    torch.testing.assert_close(gm(X), torch.relu(X) * 2.0)
    with pytest.raises(GuardError, match="b is 3.0"):
        gm(X, 3.0)


class Variadic(nn.Module):
    def forward(self, first, *rest, scale=1.0, **named):
        out = first * scale
        for item in rest:
            out = out + item
        return out + named["mask"] if "mask" in named else out


def test_variadic_roots():
    gm = symbolic_trace(Variadic(), meta_args={"first": X, "rest": (X, X), "mask": X})
    torch.testing.assert_close(gm(X, X, X, mask=X), 4 * X)
    with pytest.raises(GuardError, match="rest holds 1 arguments"):
        gm(X, X, mask=X)


def test_without_any_sample_plain_code_is_traced_and_other_code_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    torch.testing.assert_close(symbolic_trace(model)(X), model(X))
    gm = symbolic_trace(After(is_tensor))
    torch.testing.assert_close(gm(X), After(is_tensor)(X))
    with pytest.raises(ExportError, match="pass meta_args"):
        symbolic_trace(After(branch_on_data))


@pytest.mark.parametrize(
    "options, said",
    [
        ({"meta_args": {"y": X}}, "meta_args names 'y'; forward takes x; use one of these"),
        ({"meta_args": {"x": 3}}, r"meta_args\['x'\] is 3"),
        ({"meta_args": [X]}, "expected a dictionary"),
        ({"meta_args": {"x": X}, "concrete_args": {"x": X}}, "in meta_args and in concrete_args"),
    ],
)
def test_wrong_arguments_are_named(options, said):
    with pytest.raises((ValueError, TypeError), match=said):
        symbolic_trace(After(is_tensor), **options)


def test_defaults_of_one_trace_do_not_reach_the_next():
    symbolic_trace(lambda a, b=2: a * b, meta_args={"a": X})
    symbolic_trace(lambda c: c + 1, meta_args={"c": X})


def _globals():
    return (
        nn.Module.__call__,
        "training" in vars(nn.Module),
        torch.autograd.Function.apply.__func__.__code__,
        checkpointing._checkpoint_without_reentrant_generator,
        checkpointing.CheckpointFunction,
        torch.zeros,
        torch.autocast.__enter__,
        torch.autocast.__exit__,
        torch.is_grad_enabled(),
    )


def test_nothing_global_stays_changed_after_a_failure():
    before = _globals()
    with pytest.raises(ExportError):
        traced(branch_on_data)
    assert _globals() == before


def test_two_threads_may_trace_while_a_third_computes():
    before, errors, whole = _globals(), [], After(pieces)
    expected = whole(X)

    def work(function):
        try:
            for _ in range(10):
                function()
        except Exception as error:
            errors.append(error)

    tasks = (lambda: agrees(pieces), lambda: agrees(filled), lambda: _same(whole(X), expected))
    threads = [threading.Thread(target=work, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and _globals() == before


def _same(found, expected):
    torch.testing.assert_close(found, expected)
    assert found.device.type == "cpu"


def test_a_trace_inside_a_trace():
    inner, sample = After(pieces), torch.empty(3, 4)

    def outer(x):
        symbolic_trace(inner, meta_args={"x": sample})
        return x + 1

    gm = agrees(outer)
    assert not any("chunk" in str(node.target) for node in gm.graph.nodes)


def test_pickled_copied_and_recompiled_modules_compute_the_same(tmp_path):
    gm = traced(flattened)
    for made in (pickle.loads(pickle.dumps(gm)), copy.deepcopy(gm)):
        torch.testing.assert_close(made(X), gm(X))
        with pytest.raises(GuardError):
            made(torch.ones(2, 3, 4))
    gm.recompile()
    torch.testing.assert_close(gm(X), After(flattened)(X))


def test_the_state_dict_is_the_models():
    class Model(After):
        def __init__(self):
            super().__init__(torch.relu)
            self.unused = nn.Parameter(torch.ones(2))
            self.register_buffer("seen", torch.zeros(()))
            self.register_buffer("hidden", torch.ones(4), persistent=False)

        def forward(self, x):
            return super().forward(x) * self.hidden

    model = Model()
    gm = symbolic_trace(model, meta_args={"x": X})
    assert set(gm.state_dict()) == set(model.state_dict())
    with torch.no_grad():
        model.layer.weight.mul_(2)  # the weights are the model's own
    torch.testing.assert_close(gm(X), model(X))


def test_a_model_that_remembers_tensors_is_refused_and_left_as_it_was():
    class Remembers(Around):
        def forward(self, x):
            last = getattr(self, "last", None)
            self.last = x
            return x if last is None else x + last

    model = Remembers(None)
    with pytest.raises(ExportError, match="sets the attribute 'last'"):
        symbolic_trace(model, meta_args={"x": X})
    assert not hasattr(model, "last")


def test_a_model_may_note_what_it_never_reads():
    class Notes(After):
        def forward(self, x):
            self.last = super().forward(x)
            return self.last

    model = Notes(torch.relu)
    gm = symbolic_trace(model, meta_args={"x": X})
    assert not hasattr(model, "last")
    torch.testing.assert_close(gm(X), model(X))


def test_code_that_reads_training_holds_for_one_mode():
    class Drops(After):
        def forward(self, x):
            return F.dropout(super().forward(x), 0.5, self.training)

    gm = symbolic_trace(Drops(torch.relu), meta_args={"x": X})
    gm(X)
    with pytest.raises(GuardError, match="traced in eval mode"):
        gm.train()(X)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 100


def test_a_backward_of_its_own_stays():
    x = X.clone().requires_grad_()
    gm = agrees(Doubled.apply)
    gm(x).sum().backward()
    y = X.clone().requires_grad_()
    After(Doubled.apply)(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_blocks_without_gradients_stay():
    def frozen(x):
        with torch.no_grad():
            y = x * 2
        return x + y

    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    agrees(frozen)(x).sum().backward()
    After(frozen)(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_a_composite_layer_is_one_node():
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)).eval()
    gm = symbolic_trace(model, meta_args={"input": torch.empty(2, 3, 8)})
    assert sum(node.op == "call_module" for node in gm.graph.nodes) == 1
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(gm(x), model(x))


def test_random_numbers_are_not_drawn():
    model = After(lambda x: F.dropout(x) + torch.rand(4))
    before = torch.get_rng_state()
    symbolic_trace(model, meta_args={"x": X})
    assert torch.equal(torch.get_rng_state(), before)


def test_every_node_knows_its_module():
    gm = traced(lambda x: x + 1)
    assert all(node.meta["mod_dir"] for node in gm.graph.nodes)


class LayerDrop(nn.Module):
    """As models of transformers drop layers in train mode."""

    def __init__(self, share, compare=lambda drawn, share: drawn < share):
        super().__init__()
        self.layer, self.share, self.compare = nn.Linear(4, 4), share, compare

    def forward(self, x):
        if self.training and self.compare(torch.rand([]), self.share):
            return x
        return self.layer(x)


@pytest.mark.parametrize(
    ("share", "compare"),
    [
        (0.0, lambda drawn, share: drawn < share),
        (0, lambda drawn, share: torch.lt(drawn, share)),
        (1.0, lambda drawn, share: drawn > share),
        (1.0, lambda drawn, share: drawn <= share),
        (-0.5, lambda drawn, share: drawn >= share),
    ],
)
def test_random_numbers_that_cannot_decide_do_not(share, compare):
    model, x = LayerDrop(share, compare).train(), torch.randn(3, 4)
    gm = symbolic_trace(model, meta_args={"x": x})
    torch.testing.assert_close(gm(x), model(x))
    torch.manual_seed(3)
    gm(x)
    after = torch.rand(2)
    torch.manual_seed(3)
    model(x)
    assert torch.equal(torch.rand(2), after)  # what it drew, too


@pytest.mark.parametrize(
    ("share", "compare"),
    [
        (0.1, lambda drawn, share: drawn < share),
        (0.0, lambda drawn, share: drawn <= share),
        (0.0, lambda drawn, share: drawn.mul_(-1) < share),
        (0.0, lambda drawn, share: drawn - 0.5 < share),
        (0.0, lambda drawn, share: torch.randn([]) < share),
    ],
)
def test_random_numbers_that_decide_are_refused(share, compare):
    with pytest.raises(ExportError, match="reads numbers of a traced tensor with bool"):
        symbolic_trace(LayerDrop(share, compare).train(), meta_args={"x": torch.randn(3, 4)})
