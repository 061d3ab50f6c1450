# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Code of models for which a symbolic trace once gave another answer, left something behind, or was
refused in words that help nobody."""

import copy
import dataclasses
import heapq
import pickle
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from given_code import Model, trace, x
from saving import kept_bytes
from torch import nn

import kerf
from kerf import ExportError
from kerf.symbolic import (
    GuardError,
    MetaInfo,
    profile_table,
    register_flop_count_impl,
    register_leaf_module_impl,
    register_shape_impl,
    register_tracer_impl,
    symbolic_profile,
    symbolic_trace,
)
from kerf.symbolic._registry import Registry


def agrees(model, gm, *batches):
    for batch in batches or (4, 4, 3):
        given, found = x(batch), []
        for module in (model, gm):
            model.zero_grad()
            torch.manual_seed(0)
            out = module(given.clone())
            out.sum().backward()
            found.append((out, [p.grad for p in model.parameters()]))
        torch.testing.assert_close(found[1], found[0])


# A call that returns its argument in the trace, and another tensor in a later call


def test_a_residual_around_a_dropout_is_right_in_train_mode_after_a_trace_in_eval_mode():
    def forward(model, x):
        return model.linear(model.drop(x)) + x

    model = Model(forward, drop=nn.Dropout(0.5)).eval()
    gm = symbolic_trace(model, meta_args={"x": x()})
    model.train(), gm.train()
    agrees(model, gm)


def test_a_tensor_and_its_conversion_are_two_tensors():
    def forward(model, x):
        y = model.linear(x)
        total = y.float().sum()
        return y * 2, total

    model = Model(forward)
    gm, given = symbolic_trace(model, meta_args={"x": x()}), x()
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = gm(given), model(given)
    assert [t.dtype for t in found] == [torch.bfloat16, torch.float32]
    torch.testing.assert_close(found, expected)


def test_what_contiguous_copies_is_not_written():
    def forward(x):
        x.contiguous().add_(1)
        return x

    gm = symbolic_trace(forward, meta_args={"x": torch.ones(2, 3)})
    assert torch.equal(gm(torch.zeros(2, 3)), torch.ones(2, 3))
    assert torch.equal(gm(torch.zeros(3, 2).t()), torch.zeros(2, 3))


# Modules of one node that forward changes


def dropped_more(model, x):
    model.drop.p = 0.9
    return model.drop(model.linear(x))


def dropped_more_for_a_call(model, x):
    before, model.drop.p = model.drop.p, 0.9
    y = model.drop(model.linear(x))
    model.drop.p = before
    return y


def with_other_weights(model, x):
    weights = {"weight": model.linear.weight * 2, "bias": model.linear.bias + 1}
    return torch.func.functional_call(model.linear, weights, (x,))


def frozen_norm(model, x):
    model.norm.eval()
    return model.norm(model.linear(x))


@pytest.mark.parametrize(
    "forward", [dropped_more, dropped_more_for_a_call, with_other_weights, frozen_norm]
)
def test_a_module_that_forward_changes_computes_what_it_does_then(forward):
    model = Model(forward, drop=nn.Dropout(0.0), norm=nn.BatchNorm1d(8))
    gm = symbolic_trace(copy.deepcopy(model), meta_args={"x": x()})
    gm.load_state_dict(model.state_dict())
    given, found = x(), []
    for module in (model, gm):
        torch.manual_seed(0)
        found.append(module(given))
    torch.testing.assert_close(found[1], found[0])


def test_a_module_that_is_always_one_node_may_not_be_changed():
    registry = Registry()
    registry.leaf_modules.add(nn.Dropout)
    model = Model(dropped_more, drop=nn.Dropout(0.0))
    with pytest.raises(ExportError, match=r"sets 'p' of Dropout.*test_symbolic_promises.py:\d+"):
        symbolic_trace(model, meta_args={"x": x()}, registry=registry)


def test_what_a_module_counts_is_not_known_after_its_call():
    def forward(model, x):
        y = model.norm(x)
        return y if model.norm.num_batches_tracked > 0 else model.linear(y)

    with pytest.raises(ExportError, match=r"reads numbers .*test_symbolic_promises.py:\d+"):
        trace(forward, norm=nn.BatchNorm1d(8))


# Settings of PyTorch


def test_a_norm_that_averages_over_all_its_batches_is_one_node():
    model = Model(
        lambda model, x: model.norm(model.linear(x)), norm=nn.BatchNorm1d(8, momentum=None)
    )
    twin = copy.deepcopy(model)
    gm = symbolic_trace(model, meta_args={"x": x()})
    for given in (x(), x(3), x(6)):
        torch.testing.assert_close(gm(given), twin(given))
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert profile_table(symbolic_profile(gm, x())).unknown_ops == []


def test_questions_about_gradients_and_autocast_are_guarded():
    def forward(model, x):
        autocast = torch.is_autocast_enabled("cpu")
        return model.linear(x) * (2 if torch.is_grad_enabled() and not autocast else 3)

    for gm in (trace(forward), symbolic_trace(Model(forward))):
        assert gm(x()).shape == (4, 8)
        with (
            torch.no_grad(),
            pytest.raises(GuardError, match=r"is_grad_enabled\(\) was True.*\.py:"),
        ):
            gm(x())
        autocast = torch.autocast("cpu", torch.bfloat16)
        with autocast, pytest.raises(GuardError, match="is_autocast_enabled.*was False"):
            gm(x())


def test_a_dtype_that_the_code_has_read_is_guarded():
    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(9, 8)

        def forward(self, ids):
            y = self.table(ids)
            return y.float().square().to(y.dtype)

    ids, model = torch.arange(4), Embedded()
    gm = symbolic_trace(model, meta_args={"ids": ids})
    torch.testing.assert_close(gm(ids), model(ids))
    model.bfloat16()  # the weights of both
    with pytest.raises(
        GuardError, match=r"and is of torch.bfloat16.*test_symbolic_promises.py:\d+"
    ):
        gm(ids)
    again = symbolic_trace(model, meta_args={"ids": ids})
    assert again(ids).dtype == model(ids).dtype == torch.bfloat16


def seeded(model, x):
    torch.manual_seed(1)
    return x + torch.rand(x.shape)


def forked(model, x):
    with torch.random.fork_rng(devices=[]):
        return x + torch.rand(x.shape)


def put_back(model, x):
    state = torch.get_rng_state()
    noise = torch.rand(x.shape)
    torch.set_rng_state(state)
    return x + noise


def seeded_generator(model, x):
    return x + torch.rand(x.shape, generator=model.generator.manual_seed(1))


@pytest.mark.parametrize("forward", [seeded, forked, put_back, seeded_generator])
def test_seeds_that_a_graph_would_lose_are_refused(forward):
    generator = torch.Generator()
    model, given = Model(forward, generator=generator), x()
    before = torch.get_rng_state(), generator.get_state()
    with pytest.raises(ExportError, match=r"sets the state of .*\w\.py:\d+"):
        symbolic_trace(model, meta_args={"x": given})
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(generator.get_state(), before[1])


def test_seeds_are_refused_without_samples_too():
    with pytest.raises(ExportError, match=r"sets the state of .*test_symbolic_promises.py:\d+"):
        symbolic_trace(Model(seeded))


# What belongs to the caller or to the model


def test_caches_under_private_names_are_left_as_they_were():
    def forward(model, x):
        if len(x) not in model._rows:
            model._rows[len(x)] = torch.arange(len(x)).float()[:, None]
        return model.linear(x) + model._rows[len(x)]

    model = Model(forward, _rows={})
    with pytest.raises(ExportError, match=r"attribute '_rows'.*forward: given_code.py"):
        symbolic_trace(model, meta_args={"x": x()})
    assert model._rows == {}
    model(x())
    agrees(model, symbolic_trace(model, meta_args={"x": x()}), 4)


def appended(x, seen):
    seen.append(x * 2)
    return x


def popped(x, seen):
    return x * seen.pop("scale")


def test_arguments_that_the_code_changes_are_refused_and_put_back():
    for function, seen in ((appended, []), (popped, {"scale": torch.ones(8)})):
        held = copy.copy(seen)
        name = "meta_args" if seen else "concrete_args"
        given = {"meta_args": {"x": x()}} | ({} if seen else {name: {"seen": seen}})
        if seen:
            given["meta_args"]["seen"] = seen
        with pytest.raises(ExportError, match="changes what its argument 'seen' holds"):
            symbolic_trace(function, **given)
        assert seen == held
    gm = symbolic_trace(lambda **given: given.pop("x") * 2, meta_args={"x": x()})
    assert torch.equal(gm(x=torch.ones(8, 8)[:4]), torch.full((4, 8), 2.0))


def test_hooks_of_the_whole_model_see_what_is_passed_by_place():
    model = Model(lambda model, x: model.linear(x))
    model.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    model.register_forward_hook(lambda module, given, out: out * given[0])
    agrees(model, symbolic_trace(model, meta_args={"x": x()}))


# Errors that the code catches: another call may raise none


def number_or_nothing(model, x):
    try:
        return x * int(x.sum())
    except Exception:
        return x


def branched_or_not(model, x):
    try:
        return x if x.sum() > 0 else -x
    except Exception:
        return x


def product_or_sum(model, x):
    try:
        return x @ x
    except RuntimeError:
        return x + x


def fifth_row(model, x):
    try:
        return x[4] + x
    except IndexError:
        return x


def turned_if_it_fits(model, x):
    try:
        return model.linear(x.t())
    except RuntimeError:
        return model.linear(x)


@pytest.mark.parametrize(
    "forward", [number_or_nothing, branched_or_not, product_or_sum, fifth_row, turned_if_it_fits]
)
def test_code_that_catches_an_error_of_a_call_is_refused(forward):
    with pytest.raises(ExportError, match=r"test_symbolic_promises.py:\d+"):
        trace(forward)


def test_code_that_catches_a_refusal_is_refused_without_samples_too():
    with pytest.raises(ExportError, match="without samples the code cannot be followed"):
        symbolic_trace(Model(branched_or_not))


def test_code_that_asks_whether_a_type_fits_is_followed():
    def forward(model, x):
        try:
            return model.linear(x) + object()
        except TypeError:
            return model.linear(x)

    model = Model(forward)
    agrees(model, symbolic_trace(model, meta_args={"x": x()}))


def test_a_function_whose_forward_looks_at_data_is_refused_with_its_line():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * float(x.sum())

    with pytest.raises(ExportError, match=r"forward of Scaled .*test_symbolic_promises.py:\d+"):
        trace(lambda model, x: Scaled.apply(x))


def test_a_refusal_names_the_models_line_and_functions_as_users_call_them():
    with pytest.raises(ExportError, match=r"test_symbolic_promises.py:\d+"):
        trace(lambda model, x: heapq.nlargest(1, [x.sum(), x.mean()])[0])
    with pytest.raises(ExportError, match=r"register_shape_impl\(torch.Tensor.to_sparse\)"):
        trace(lambda model, x: x.to_sparse())
    with pytest.raises(ExportError, match=r"register_shape_impl\(torch._pack_padded_sequence\)"):
        trace(lambda model, x: torch._pack_padded_sequence(x, torch.tensor([8] * 4), True)[0])


def test_questions_about_leaves_are_guarded():
    for question in (lambda x: x.is_leaf, lambda x: x.grad_fn is None):
        gm = trace(lambda model, x, ask=question: model.linear(x) * (2 if ask(x) else 3))
        assert gm(x()).shape == (4, 8)
        with pytest.raises(GuardError, match=r"is_leaf of x was True.*_promises.py:\d+"):
            gm(x().requires_grad_() * 2)


class Ring(nn.Module):
    """Remembers the first row of each call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(3, 8))
        self.register_buffer("next", torch.tensor(0))

    def forward(self, x):
        self.rows[self.next] = x.detach()[0]
        self.next.add_(1).remainder_(3)
        return x @ self.rows.t()


def test_a_place_that_a_tensor_says_is_written():
    model = Ring()
    twin = copy.deepcopy(model)
    gm = symbolic_trace(model, meta_args={"x": x()})
    for batch in (4, 3, 4, 4):
        given = x(batch)
        torch.testing.assert_close(gm(given), twin(given))
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert profile_table(symbolic_profile(gm, x())).totals["fwd_mac"] == 4 * 8 * 3


# Dimensions that come and go


@pytest.mark.parametrize(
    "squeeze, shape",
    [
        (lambda x: x.squeeze(), (1, 8)),
        (lambda x: torch.squeeze(x, 0), (1, 8)),
        (lambda x: (x * 1).squeeze_() + 1, (1, 8)),
        (lambda x: x.squeeze((0, 1)), (1, 8)),
        (lambda x: x[:1].squeeze(1).relu(), (4, 1)),
    ],
)
def test_a_rank_that_follows_from_sizes_is_guarded_where_it_is_read(squeeze, shape):
    def by_dim(x):
        y = squeeze(x)
        return y * 2 if y.dim() == 2 else y * 3

    def by_shape(x):
        return squeeze(x).sum() * len(squeeze(x).shape)

    for function in (by_dim, by_shape):
        gm = symbolic_trace(function, meta_args={"x": torch.ones(4, 8)})
        given = torch.randn(3, 8)
        torch.testing.assert_close(gm(given), function(given))
        with pytest.raises(
            GuardError, match=r"squeeze_?\(\) of .* had 2 .* has 1.*_promises.py:\d+"
        ):
            gm(torch.randn(shape))
    gm = symbolic_trace(squeeze, meta_args={"x": torch.ones(4, 8)})
    for given in (torch.randn(3, 8), torch.randn(shape)):  # no question, no guard
        torch.testing.assert_close(gm(given), squeeze(given))


# Containers that are passed in


def one_after_the_other(given):
    return torch.cat([*given.values()], 1)


def test_the_order_of_a_dictionary_matters_where_the_code_goes_by_it():
    given = {"a": torch.ones(2, 3), "b": torch.zeros(2, 3)}
    turned = dict(reversed(given.items()))
    gm = symbolic_trace(one_after_the_other, meta_args={"given": given})
    assert torch.equal(gm(given), one_after_the_other(given))
    with pytest.raises(GuardError, match=r"holds \['b', 'a'\].*\['a', 'b'\], in this order"):
        gm(turned)
    by_name = symbolic_trace(lambda **given: one_after_the_other(given), meta_args=given)
    with pytest.raises(GuardError, match="in this order"):
        by_name(**turned)
    gm = symbolic_trace(lambda given: given["a"] - given["b"], meta_args={"given": given})
    assert torch.equal(gm(turned), torch.ones(2, 3))


@pytest.mark.parametrize("given, other", [([x()], (x(),)), ({"a": x()}, OrderedDict(a=x()))])
def test_a_container_of_another_class_is_refused(given, other):
    gm = symbolic_trace(
        lambda given: len(given) if type(given) in (list, dict) else 0, meta_args={"given": given}
    )
    assert gm(given) == 1
    with pytest.raises(GuardError, match="the module was traced for a (list|dict); pass one"):
        gm(other)


# Code that was refused, or in no words


def force(model, x):
    place = x.detach().requires_grad_()
    energy = model.linear(place).square().sum()
    return torch.autograd.grad(energy, place, create_graph=True)[0]


@torch.jit.script
def scripted(x):
    return x * 2 + 1


compiled = torch.compile(nn.Linear(8, 8), backend="eager")


@pytest.mark.parametrize(
    "forward",
    [
        force,
        lambda model, x: scripted(model.linear(x)) + x,
        lambda model, x: model.compiled(x),
        lambda model, x: model.linear(x) * (x.shape[0] & 1) + (1 << x.shape[0]) + ~x.shape[0],
        lambda model, x: torch.ones(torch.broadcast_shapes(x.shape, (1, 8))) * model.linear(x),
        lambda model, x: model.linear(x) / np.sqrt(x.shape[-1]) * np.log2(x.shape[1]),
    ],
)
def test_code_that_once_was_refused_is_followed(forward):
    model = Model(forward, compiled=compiled)
    agrees(model, symbolic_trace(model, meta_args={"x": x()}))


@pytest.mark.parametrize(
    "forward",
    [
        lambda model, x: torch.vmap(lambda row: row * 2)(x),
        lambda model, x: torch.func.grad(lambda x: x.square().sum())(x),
        lambda model, x: torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,)),
    ],
)
def test_functions_of_functions_are_refused_with_their_line(forward):
    with pytest.raises(ExportError, match=r"the code (calls|transforms).*_promises.py:\d+"):
        trace(forward)


def places(x):
    return torch.arange(x.shape[0]) % 2 == 0


@pytest.mark.parametrize(
    "pick",
    [
        lambda x: x[places(x)],
        lambda x: x[:, torch.arange(8) > 3],
        lambda x: x[places(x), 1:3],
        lambda x: x[torch.ones(x.shape).tril().bool()],
        lambda x: x[torch.tensor(0)],
        lambda x: x[x.detach().argmax() % 2],
    ],
)
def test_masks_whose_numbers_are_known_are_followed(pick):
    model = Model(lambda model, x: torch.relu(pick(model.linear(x))) * 2)
    gm, given = symbolic_trace(model, meta_args={"x": x()}), x()
    agrees(model, gm)
    for module in (gm, pickle.loads(pickle.dumps(gm))):
        table = profile_table(symbolic_profile(module, given, device_kind="cpu"))
        assert table.ops_without_rule == []
        assert table.totals["saved"] == kept_bytes(module, (given,), {})


def test_a_mask_in_a_list_is_followed():
    model = Model(lambda model, x: model.linear(x)[None, :, [True, False] * 4])
    agrees(model, symbolic_trace(model, meta_args={"x": x()}))


def test_a_mask_of_data_is_refused():
    with pytest.raises(ExportError, match="depends on the data"):
        trace(lambda model, x: x[x > 0])


# Profiles


def test_a_shape_that_follows_from_numbers_is_profiled_for_the_sizes_of_the_trace_alone():
    gm = symbolic_trace(Picked(), meta_args={"x": x()})
    for module in (gm, pickle.loads(pickle.dumps(gm))):
        assert profile_table(symbolic_profile(module, x())).totals["fwd_mac"] == 3 * 4 * 8 * 8
        with pytest.raises(ValueError, match=r"'x' has shape \(6, 8\) and was traced for \(4, 8\)"):
            symbolic_profile(module, x(6))


class Picked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x[(torch.arange(x.shape[0]) % 2).nonzero()[:, 0]]


def test_an_unpickled_module_has_the_profile_and_the_name_of_the_first():
    gm = symbolic_trace(Picked(), meta_args={"x": x()})
    again = pickle.loads(pickle.dumps(gm))
    assert type(again).__name__ == "Picked"
    for recompute in ("none", "all", ["layers.1"]):
        totals = [
            profile_table(symbolic_profile(module, x(), recompute=recompute)).totals
            for module in (gm, again)
        ]
        assert totals[0] == totals[1]


def test_figures_of_a_node_are_refused_after_an_edit_elsewhere():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    gm = symbolic_profile(symbolic_trace(model, meta_args={"input": x()}), x())
    first, last = (n for n in gm.graph.nodes if n.target in ("1", "3"))
    assert MetaInfo(first).accumulate_size > 0
    last.replace_all_uses_with(last.args[0])
    gm.graph.erase_node(last)
    for node in gm.graph.nodes:
        with pytest.raises(RuntimeError, match="changed after the profile"):
            MetaInfo(node)
    with pytest.raises(RuntimeError, match="changed after the profile"):
        profile_table(gm)


def moved(gm):
    first, second = (n for n in gm.graph.nodes if n.target in ("1", "2"))
    first.prepend(second)


def in_other_numbers(gm):
    gm.double()


def frozen(gm):
    gm.get_submodule("2").requires_grad_(False)


def another_layer(gm):
    gm.add_submodule("2", nn.Linear(8, 8, bias=False))


@pytest.mark.parametrize("change", [moved, in_other_numbers, frozen, another_layer])
def test_a_profile_is_refused_after_a_change_of_order_weights_or_modules(change):
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    gm = symbolic_profile(symbolic_trace(layers, meta_args={"input": x()}), x())
    profile_table(gm.eval())
    change(gm.train())
    for use in (profile_table, kerf.graph_of, kerf.memory, partial(kerf.plan, devices=["cpu:0"])):
        with pytest.raises(
            RuntimeError, match=r"(changed|moved) after the profile; .*call it again"
        ):
            use(gm)


def test_a_node_in_front_of_what_it_takes_is_named():
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    gm = symbolic_trace(layers, meta_args={"input": x()})
    moved(gm)
    with pytest.raises(RuntimeError, match="node '_2' takes '_1', which comes after it"):
        symbolic_profile(gm, x())


def fused(x):
    return torch.sin(x)


def test_rules_for_functions_hold_without_samples_too():
    def forward(model, x):
        return fused(model.linear(x)) + 1

    replaced, one_node, given = Registry(), Registry(), x()
    register_tracer_impl(fused, registry=replaced)(lambda x: torch.cos(x) * 2)
    register_shape_impl(fused, registry=one_node)(lambda x: torch.empty(x.shape, device="meta"))
    model = Model(forward)
    gm = symbolic_trace(model, registry=replaced)
    torch.testing.assert_close(gm(given), torch.cos(model.linear(given)) * 2 + 1)
    gm = symbolic_trace(model, registry=one_node)
    assert fused in [node.target for node in gm.graph.nodes]
    torch.testing.assert_close(gm(given), model(given))
    assert fused(given).equal(torch.sin(given))


def scaled(x, *, by=2.0, bias=None):
    return x * by if bias is None else x * by + bias


@pytest.mark.parametrize(
    "forward",
    [
        lambda model, x: model.function(model.linear(x), by=3.0),
        lambda model, x: model.table["scaled"](model.linear(x), bias=x),
        lambda model, x, function=scaled: function(model.linear(x)),
        lambda model, x: partial(scaled, by=4.0)(model.linear(x)),
        lambda model, x: scaled(x=model.linear(x)),
    ],
)
def test_rules_hold_wherever_a_model_has_a_function_from(forward):
    code, given = scaled.__code__, x()
    one_node, replaced = Registry(), Registry()
    shape = register_shape_impl(scaled, registry=one_node)
    shape(lambda x, **others: torch.empty(x.shape, device="meta"))
    register_tracer_impl(scaled, registry=replaced)(lambda x, **others: scaled(x, **others) - 1)
    model = Model(forward, function=scaled, table={"scaled": scaled})
    for samples in ({"x": given}, None):
        gm = symbolic_trace(model, meta_args=samples, registry=one_node)
        assert scaled in [node.target for node in gm.graph.nodes]
        torch.testing.assert_close(gm(given), model(given))
        gm = symbolic_trace(model, meta_args=samples, registry=replaced)
        assert scaled not in [node.target for node in gm.graph.nodes]
        torch.testing.assert_close(gm(given), model(given) - 1)
        assert scaled.__code__ is code


def test_a_rule_of_one_trace_is_none_of_another_that_runs_meanwhile():
    one_node = Registry()
    register_shape_impl(scaled, registry=one_node)(lambda x: torch.empty(x.shape, device="meta"))

    def forward(model, x):
        inner = symbolic_trace(lambda x: scaled(x), meta_args={"x": torch.ones(2)})
        assert scaled not in [node.target for node in inner.graph.nodes]
        return scaled(model.linear(x))

    gm = symbolic_trace(Model(forward), meta_args={"x": x()}, registry=one_node)
    assert scaled in [node.target for node in gm.graph.nodes]


class Peeking(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x * self.scale * int(x.detach().sum() > 0)


@pytest.mark.parametrize(
    "register, target, op",
    [
        (register_shape_impl, fused, "fused"),
        (register_leaf_module_impl, Peeking, "Peeking"),
    ],
)
def test_gradients_go_through_what_a_rule_stands_for(register, target, op):
    """A rule returns tensors with shapes, and says nothing of gradients."""
    registry = Registry()
    layer = Peeking() if target is Peeking else lambda x: fused(x)
    with registry.active():
        register(target)(lambda x: torch.empty(x.shape, device="meta"))
        model = Model(lambda model, x: model.last(torch.relu(layer(model.linear(x)))))
        model.add_module("last", nn.Linear(8, 8))
        if target is Peeking:
            model.add_module("layer", layer)
        gm = symbolic_profile(symbolic_trace(model, meta_args={"x": x()}), x())
    totals = profile_table(gm).totals
    assert totals["fwd_mac"] == 2 * 4 * 8 * 8
    assert totals["bwd_mac"] == 3 * 4 * 8 * 8  # of the last layer's input, and of both weights
    assert totals["saved"] == 4 * 4 * 8 * 4  # x, what the rule stands for and its input, relu's
    assert [name.rpartition(".")[2] for name in profile_table(gm).ops_without_rule] == [op]


@dataclasses.dataclass
class Pair:
    first: torch.Tensor
    others: list


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    pair: Pair


def test_what_an_object_holds_that_is_returned_is_kept_for_backward():
    def forward(model, x):
        y = torch.relu(model.linear(x))
        return Holder(Pair(y, [y.exp()]))

    gm = symbolic_profile(trace(forward), x(), device_kind="cpu")
    totals = profile_table(gm).totals
    assert totals["saved"] == 3 * 4 * 8 * 4  # the input, and two results
    assert totals["bwd_mac"] == 4 * 8 * 8


@pytest.mark.parametrize("equation", ["ij,kj,kl->il", "...j,kj->...k", "ij->j", "ij , kj -> ik"])
def test_an_einsum_costs_what_it_calls(equation):
    def forward(model, x):
        y = model.linear(x)
        return torch.einsum(equation, *[y, x, x][: equation.count(",") + 1])

    gm = symbolic_profile(trace(forward), x(), strict=True, device_kind="cpu")
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        gm(x())
    own = {p.untyped_storage().data_ptr() for p in gm.parameters()}
    table = profile_table(gm)
    assert table.ops_without_rule == []
    assert table.totals["saved"] == sum(size for at, size in kept.items() if at not in own)
    products = {"ij,kj,kl->il": 4 * 4 * 8 * 2, "...j,kj->...k": 4 * 4 * 8, "ij->j": 0}
    assert table.totals["fwd_mac"] == 4 * 8 * 8 + products.get(equation, 4 * 4 * 8)


def test_a_flop_rule_of_an_operator_made_of_others_is_used():
    registry = Registry()
    with registry.active():
        register_flop_count_impl(torch.ops.aten.einsum)(lambda *args, **kwargs: (7, 11))
        gm = trace(lambda model, x: torch.einsum("ij,kj->ik", x, F.relu(x)))
        symbolic_profile(gm, x())
    assert 7 + 32 == profile_table(gm).totals["fwd_flop"]
