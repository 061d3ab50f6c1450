# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Symbolic traces of code that keeps state, switches gradients, hooks into backward or draws random
numbers: the traced module does the same, or the trace is refused."""

import copy
import dataclasses
import enum
import functools
import itertools
import pickle
import random

import numpy
import pytest
import torch
from given_code import Model, trace, x
from torch import nn

import kerf
from kerf import ExportError
from kerf.symbolic import GuardError, symbolic_trace


def check_gradients(model, gm, given):
    found = []
    for module in (model, gm):
        model.zero_grad()
        torch.manual_seed(0)
        out = module(given)
        out.sum().backward()
        grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        found.append((out.detach(), grads))
    torch.testing.assert_close(found[1], found[0])


# Gradients


def nested_switches(model, x):
    with torch.set_grad_enabled(False):
        y = model.linear(x)
        with torch.enable_grad():
            z = model.linear(x)
    return y + z


def switches_as_calls(model, x):
    with torch.no_grad():
        torch.set_grad_enabled(True)
        y = model.linear(x)
    return y + model.linear(x)


@torch.set_grad_enabled(False)
def decorated(model, x):
    return model.linear(x)


@torch.inference_mode()
def inferred(model, x):
    return model.linear(x)


@pytest.mark.parametrize(
    "forward",
    [
        nested_switches,
        switches_as_calls,
        lambda model, x: decorated(model, x) + model.linear(x),
        lambda model, x: inferred(model, x) + model.linear(x),
    ],
)
def test_gradients_are_switched_where_the_model_switches_them(forward):
    model = Model(forward)
    gm = symbolic_trace(model, meta_args={"x": x()})
    check_gradients(model, gm, x())
    assert torch.is_grad_enabled()


class FreezesItsHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        with torch.no_grad():
            y = self.linear(x)
        return y + self.linear(x)


def test_gradients_are_switched_in_a_trace_without_samples_too():
    model = FreezesItsHead()
    check_gradients(model, symbolic_trace(model), x())


def test_a_trace_within_inference_mode_is_like_any_other():
    model = FreezesItsHead()
    with torch.inference_mode():
        gm = symbolic_trace(model, meta_args={"x": x()})
    check_gradients(model, gm, x())


# Hooks of backward


def test_a_module_with_hooks_of_its_backward_stays_one_node_and_keeps_them():
    model = Model(lambda model, x: model.part(x), part=nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    model.part.register_full_backward_hook(lambda module, given, out: (given[0] * 3,))
    gm = symbolic_trace(model, meta_args={"x": x()})
    given, same = x().requires_grad_(), None
    same = given.detach().clone().requires_grad_()
    model(given).sum().backward()
    gm(same).sum().backward()
    torch.testing.assert_close(same.grad, given.grad)


def test_hooks_that_a_graph_would_lose_are_refused():
    model = Model(lambda model, x: model.linear(x))
    model.register_full_backward_hook(lambda module, given, out: None)
    with pytest.raises(ExportError, match="has hooks of its backward"):
        symbolic_trace(model, meta_args={"x": x()})

    def hooked(model, x):
        y = model.linear(x)
        y.register_hook(lambda gradient: gradient * 2)
        return y

    with pytest.raises(ExportError, match=r"register_hook\(\) .*test_symbolic_state.py:\d+"):
        trace(hooked)


def hooked_step(model, x):
    y = model.linear(x)
    y.grad_fn.next_functions[0][0].register_hook(lambda given, out: None)
    return y


def packed(model, x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
        return model.linear(x).square()


def stored(model, x):
    with torch.autograd.graph.save_on_cpu():
        return model.linear(x).square()


@pytest.mark.parametrize("forward", [hooked_step, packed, stored])
def test_hooks_of_steps_and_of_what_autograd_keeps_are_refused(forward):
    with pytest.raises(ExportError, match=r"no part of a graph; .*\w"):
        trace(forward)


def test_the_step_of_a_gradient_answers_questions():
    def forward(model, x):
        y = model.linear(x)
        return y * (2 if "Addmm" in y.grad_fn.name() and x.grad_fn is None else 3)

    model = Model(forward)
    check_gradients(model, symbolic_trace(model, meta_args={"x": x()}), x())


# Results that run the model's code later


def generated(x):
    yield x * 2


async def awaited(x):
    return x * 2


@pytest.mark.parametrize(
    "function",
    [
        generated,
        awaited,
        lambda x: map(torch.relu, [x]),
        lambda x: lambda y: x + y,
        lambda x: functools.partial(torch.add, x),
    ],
)
def test_results_that_run_later_are_refused_where_forward_begins(function):
    line = function.__code__.co_firstlineno
    text = rf"passes on .* \(test_symbolic_state.py:{line}\); .*compute them in forward"
    with pytest.raises(ExportError, match=text):
        symbolic_trace(function, meta_args={"x": x()})


def test_functions_of_plain_values_may_be_returned():
    gm = symbolic_trace(lambda x: (x, torch.relu, lambda y: y), meta_args={"x": x()})
    assert gm(x())[1] is torch.relu


# State


def count_in_a_dictionary(model, x):
    model.counts["calls"] += 1
    return model.linear(x) * model.counts["calls"]


def count_in_a_list(model, x):
    model.seen.append(1)
    return model.linear(x) * len(model.seen)


class Counter:
    calls = 0


def count_in_an_object(model, x):
    model.counter.calls += 1
    return model.linear(x) * model.counter.calls


def test_state_in_containers_and_objects_is_refused_and_put_back():
    counts, seen, counter = {"calls": 0}, [], Counter()
    for forward, given, name in (
        (count_in_a_dictionary, {"counts": counts}, "counts"),
        (count_in_a_list, {"seen": seen}, "seen"),
        (count_in_an_object, {"counter": counter}, "counter"),
    ):
        with pytest.raises(ExportError, match=f"attribute '{name}'"):
            trace(forward, **given)
    assert (counts, seen, vars(counter)) == ({"calls": 0}, [], {})


def nested(depth, leaf):
    for _ in range(depth):
        leaf = {"in": leaf}
    return leaf


@pytest.mark.parametrize(
    "around", [lambda c: nested(20, c), lambda c: (1, (c,)), lambda c: functools.partial(print, c)]
)
def test_state_is_seen_however_deep_it_is(around):
    def forward(model, x):
        inner = model.held
        while not isinstance(inner, Counter):
            parts = getattr(inner, "args", inner)
            inner = parts["in"] if isinstance(parts, dict) else parts[-1]
        inner.calls += 1
        return model.linear(x) * inner.calls

    counter = Counter()
    with pytest.raises(ExportError, match="attribute 'held'"):
        trace(forward, held=around(counter))
    assert vars(counter) == {}


def test_state_in_closures_and_in_modules_of_a_list_is_refused_and_put_back():
    calls, part = 0, nn.Identity()
    part.calls = 0

    def around(model, x):
        nonlocal calls
        calls += 1
        return model.linear(x) * calls

    def inside(model, x):
        model.parts[0].calls += 1
        return model.linear(x) * model.parts[0].calls

    for forward, name in ((around, "code"), (inside, "parts")):
        with pytest.raises(ExportError, match=f"attribute '{name}'"):
            trace(forward, parts=[part])
    assert (calls, part.calls) == (0, 0)


def numbered():
    yield from range(10)


@pytest.mark.parametrize(
    "make", [itertools.count, lambda: itertools.cycle([1, 2]), lambda: iter([1, 2]), numbered]
)
def test_an_iterator_of_the_model_is_refused_with_its_line_and_goes_on(make):
    iterator, beside = make(), make()

    def forward(model, x):
        return model.linear(x) * next(model.held["at"])

    held = {"at": iterator}
    line = forward.__code__.co_firstlineno + 1
    with pytest.raises(ExportError, match=rf"that outlives the call \(test_.*state.py:{line}: "):
        trace(forward, held=held)
    assert held["at"] is iterator and next(iterator) == next(beside)
    with pytest.raises(ExportError, match="that outlives the call"):
        trace(lambda model, x: model.linear(x) * next(iterator))  # a closure's
    assert next(iterator) == next(beside)
    model = Model(lambda model, x: model.linear(x) * sum(iter([1, 2])), held=iterator)
    assert torch.equal(symbolic_trace(model, meta_args={"x": x()})(x() * 0), model(x() * 0))


@dataclasses.dataclass(slots=True)
class Slots:
    calls: int = 0


def count_in_an_array(model, x):
    model.counts[0] += 1
    return model.linear(x) * float(model.counts[0])


def count_in_slots(model, x):
    model.slots.calls += 1
    return model.linear(x) * model.slots.calls


class Shared(Model):
    calls = 0
    tables = {}


def count_in_the_class(model, x):
    Shared.calls += 1
    return model.linear(x) * Shared.calls


def keep_in_the_class(model, x):
    if "row" not in Shared.tables:
        Shared.tables["row"] = torch.ones(8)
    return model.linear(x) + Shared.tables["row"]


def test_state_in_arrays_slots_and_classes_is_refused_and_put_back():
    counts, grown, slots = numpy.zeros(2), bytearray(2), Slots()
    for forward, given, name in (
        (count_in_an_array, {"counts": counts}, "counts"),
        (count_in_an_array, {"counts": grown}, "counts"),
        (count_in_slots, {"slots": slots}, "slots"),
        (count_in_the_class, {}, "calls"),
        (keep_in_the_class, {}, "tables"),
    ):
        with pytest.raises(ExportError, match=f"attribute '{name}'"):
            symbolic_trace(Shared(forward, **given), meta_args={"x": x()})
    assert (counts.tolist(), grown, slots.calls) == ([0, 0], bytearray(2), 0)
    assert (Shared.calls, Shared.tables) == (0, {})
    Shared(keep_in_the_class)(x())  # its cache is full, and of tensors with data
    gm = symbolic_trace(Shared(keep_in_the_class), meta_args={"x": x()})
    assert gm(x()).shape == (4, 8)


@pytest.mark.parametrize(
    "decide", [lambda n: n > 5, lambda n: n < 1000, lambda n: n % 100 == 0, lambda n: n % 7 == 6]
)
@pytest.mark.parametrize("first", [True, False])
def test_a_counter_that_decides_at_a_later_call_is_refused(decide, first):
    def forward(model, x):
        model.calls += first
        y = model.linear(x) * (2 if decide(model.calls) else 3)
        model.calls += not first
        return y

    with pytest.raises(ExportError, match="attribute 'calls'"):
        trace(forward, calls=1)


def test_a_counter_that_decides_nothing_is_left_out():
    def forward(model, x):
        model.calls += 1
        if model.calls % 10 == 0:
            model.log.append(model.calls)
        return model.linear(x)

    model = Model(forward, calls=1, log=[])
    gm, given = symbolic_trace(model, meta_args={"x": x()}), x()
    assert torch.equal(gm(given), model.linear(given))
    assert (model.calls, model.log) == (1, [])


def test_a_number_that_is_set_once_is_no_counter():
    def forward(model, x):
        if model.rows == 0:
            model.rows = x.shape[1]
        model.columns = min(x.shape[1], model.columns)
        return model.linear(x).view(-1, model.rows) * model.columns

    model = Model(forward, rows=0, columns=100)
    gm, given = symbolic_trace(model, meta_args={"x": x()}), x()
    assert (model.rows, model.columns) == (0, 100)
    assert torch.equal(gm(given), model(given))


def kept_in_a_default(x, seen=[]):  # noqa: B006
    seen.append(x.shape[0])
    return x * len(seen)


def test_a_default_that_the_code_changes_is_refused_and_put_back():
    with pytest.raises(ExportError, match="changes what its argument 'seen' holds"):
        symbolic_trace(kept_in_a_default, meta_args={"x": x()})
    assert kept_in_a_default.__defaults__ == ([],)


def test_a_log_that_nothing_reads_is_left_out_and_put_back():
    def forward(model, x):
        model.log.append(x.mean())
        return model.linear(x)

    log = []
    model = Model(forward, log=log)
    gm = symbolic_trace(model, meta_args={"x": x()})
    given = x()
    assert log == [] and torch.equal(gm(given), model.linear(given))


def test_another_tensor_in_the_place_of_a_buffer_is_refused():
    def forward(model, x):
        model.steps = model.steps + 1
        return model.linear(x) * model.steps

    with pytest.raises(ExportError, match=r"in the place of 'steps'.*copy_\(\)"):
        trace(forward, steps=nn.Buffer(torch.zeros(())))


def test_copies_keep_every_weight_and_what_is_persistent_in_the_models_order():
    model = Model(lambda model, x: model.late * model.linear(x) * model.mask)
    model.unread = nn.BatchNorm1d(3)
    model.late = nn.Parameter(torch.ones(8))
    model.mask = nn.Buffer(torch.ones(8), persistent=False)
    model.aliased = model.linear
    model.code = scaled
    gm = symbolic_trace(model, meta_args={"x": x()})
    for made in (gm, copy.copy(gm), copy.deepcopy(gm), pickle.loads(pickle.dumps(gm))):
        assert list(made.state_dict()) == list(model.state_dict())
        assert [n for n, _ in made.named_parameters()] == [n for n, _ in model.named_parameters()]


def scaled(model, x):
    return model.late * model.aliased(x) * model.mask


# Modules that forward makes


def test_a_dropout_that_forward_makes_drops_in_eval_mode_too():
    model = Model(lambda model, x: nn.Dropout(0.5)(model.linear(x))).eval()
    gm = symbolic_trace(model, meta_args={"x": x()}).eval()
    check_gradients(model, gm, x())


def test_a_copy_of_a_layer_that_forward_makes_is_refused():
    with pytest.raises(ExportError, match=r"makes a Linear with weights of its own \(.*deepcopy"):
        trace(lambda model, x: copy.deepcopy(model.linear)(x))


# Other memory, and tensors that are made


def set_to_a_result(model, x):
    made = torch.zeros(4, 8)
    made.set_(model.linear(x).detach())
    return made


def set_to_an_input(model, x):
    return model.linear.bias.data.set_(x)


def set_to_ones(model, x):
    return torch.empty(0).set_(torch.ones(4, 8)) + x


@pytest.mark.parametrize("forward", [set_to_a_result, set_to_an_input, set_to_ones])
def test_other_memory_in_a_tensor_is_refused(forward):
    with pytest.raises(ExportError, match=r"set_\(\)\) \(test_symbolic_state.py:\d+: .*copy_\(\)"):
        trace(forward)


def test_a_tensor_is_made_of_a_shape_and_not_of_its_numbers():
    gm = symbolic_trace(lambda x: x.new(x.shape).zero_(), meta_args={"x": torch.ones(3)})
    assert torch.equal(gm(torch.ones(5)), torch.zeros(5))


def test_gradients_of_a_weight_of_one_node_are_a_node():
    def forward(model, x):
        loss = model.linear(x).square().sum()
        (gradient,) = torch.autograd.grad(loss, model.linear.weight, create_graph=True)
        return model.linear(x) * gradient.sum()

    model = Model(forward)
    check_gradients(model, symbolic_trace(model, meta_args={"x": x()}), x())


# Chance


@pytest.mark.parametrize(
    "draw", [random.random, lambda: float(numpy.random.rand())], ids=["random", "numpy"]
)
def test_random_numbers_of_python_and_numpy_are_refused(draw):
    with pytest.raises(ExportError, match="forward draws numbers from"):
        trace(lambda model, x: model.linear(x) * draw())


@pytest.mark.parametrize(
    "generator",
    [random.Random(0), numpy.random.default_rng(0), numpy.random.RandomState(0)],
    ids=lambda generator: type(generator).__name__,
)
def test_random_numbers_of_a_generator_of_the_model_are_refused_and_not_drawn(generator):
    before = pickle.dumps(generator)
    forward = lambda model, x: model.linear(x) if model.rng.random() < 2 else x  # noqa: E731
    with pytest.raises(ExportError, match="forward draws numbers from its attribute 'rng'"):
        trace(forward, rng=generator)
    assert pickle.dumps(generator) == before


def test_a_generator_that_forward_makes_is_refused_and_one_of_the_model_is_kept():
    def made(model, x):
        return x + torch.rand(8, generator=torch.Generator().manual_seed(0))

    with pytest.raises(ExportError, match=r"makes a torch\.Generator"):
        trace(made)
    generator = torch.Generator()
    gm = trace(lambda model, x: x + torch.rand(8, generator=model.generator), generator=generator)
    generator.manual_seed(3)
    drawn = gm(torch.zeros(4, 8))
    generator.manual_seed(3)
    assert torch.equal(drawn[0], torch.rand(8, generator=generator))


# Arguments and results


def test_dictionaries_and_lists_within_arguments_hold_what_they_held():
    def forward(tree):
        return sum(tree["parts"]) + sum(tree["named"].values())

    gm = symbolic_trace(forward, meta_args={"tree": {"parts": [x(), x()], "named": {"a": x()}}})
    same = {"parts": [x(2), x(2)], "named": {"a": x(2)}}
    torch.testing.assert_close(gm(same), forward(same))
    for other, text in (
        ({**same, "parts": [x()] * 3}, r"tree\['parts'\] holds 3 arguments"),
        ({**same, "named": {"a": x(), "b": x()}}, r"tree\['named'\] holds \['a', 'b'\]"),
        ({**same, "named": {"b": x()}}, r"tree\['named'\] holds \['b'\]"),
    ):
        with pytest.raises(GuardError, match=text):
            gm(other)


def test_none_is_refused_where_the_model_would_see_it():
    def forward(x, scale=1):
        return x * 100 if scale is None else x * scale

    gm = symbolic_trace(forward, meta_args={"x": x()})
    assert gm(x()).shape == (4, 8)
    with pytest.raises(GuardError, match="scale is None"):
        gm(x(), scale=None)


@dataclasses.dataclass
class Result:
    loss: object = 0
    out: object = None


def test_a_field_that_is_none_against_its_default_stays_none():
    gm = trace(lambda model, x: Result(loss=None, out=model.linear(x)))
    assert gm(x()).loss is None


def test_dtypes_are_changed_as_the_model_writes_it():
    for forward in (
        lambda model, x: model.linear(x).type(torch.float64),
        lambda model, x: model.linear(x).type("torch.DoubleTensor"),
        lambda model, x: model.linear(x).to("cpu", torch.float64),
        lambda model, x: model.linear(x).to(x.device, torch.float64, True),
    ):
        model = Model(forward)
        gm = symbolic_trace(model, meta_args={"x": x()})
        given = x(3)
        torch.testing.assert_close(gm(given), model(given))
    gm = trace(lambda model, x: x * x.nbytes)
    with pytest.raises(GuardError, match="nbytes"):
        gm(x(5))


class Axis(enum.IntEnum):
    rows = 1


def test_numbers_of_numpy_and_enumerations_are_written_as_plain_ones():
    def forward(x):
        return (x * numpy.float64(2.5)).sum(Axis.rows)

    gm = symbolic_trace(forward, meta_args={"x": x()})
    given = x(3)
    torch.testing.assert_close(gm(given), forward(given))


def test_tensors_from_outside_the_model_are_no_part_of_its_state():
    outside = torch.ones(8)
    model = Model(lambda model, x: model.linear(x) + outside)
    gm = symbolic_trace(model, meta_args={"x": x()})
    assert list(copy.deepcopy(gm).state_dict()) == list(model.state_dict())


def test_inputs_in_one_memory_are_kept_once():
    def forward(model, pair):
        return (model.linear.weight * pair[0]).sum() + model.linear.weight[:, :4] * pair[1]

    memory = torch.randn(8, 8)
    for pair in ((memory, memory[:, :4]), (memory[:, :], memory[:, 4:])):
        model = Model(forward)
        gm = symbolic_trace(model, meta_args={"x": list(pair)})
        kerf.symbolic_profile(gm, list(pair), device_kind="cpu")
        assert kerf.profile_table(gm).totals["saved"] == memory.nbytes


def test_a_container_of_pytorch_that_reads_its_mask_is_followed():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 1
    )

    def forward(model, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return model.decoder(x, model.encoder(x, mask=mask), tgt_mask=mask)

    model = Model(forward, encoder=nn.TransformerEncoder(layer, 1), decoder=model)
    gm = symbolic_trace(model, meta_args={"x": torch.empty(2, 5, 8)})
    given = torch.randn(3, 5, 8)
    torch.testing.assert_close(gm(given), model(given))


def test_roots_that_cannot_be_traced_are_refused_in_words():
    with pytest.raises(TypeError, match="does not say what it takes"):
        symbolic_trace(torch.relu, meta_args={"x": x()})
    with pytest.raises(ValueError, match=r"'0\.weight' has no shape yet; .*call the model once"):
        symbolic_trace(nn.Sequential(nn.LazyLinear(4)), meta_args={"input": x()})
    scripted = torch.jit.script(nn.Sequential(nn.Linear(8, 8)))
    with pytest.raises(ExportError, match="TorchScript has compiled"):
        trace(lambda model, x: model.scripted(x), scripted=scripted)
