# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The model under a plan is the model that was traced, at every call."""

import contextlib
import copy
import dataclasses
import functools
import gc
import re
import time
import types
import weakref

import numpy as np
import pytest
import torch
from comparing import assert_same, eager
from models import build
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import kerf
from kerf._watch import ModelWatch


class Config:
    """Stands beside the modules, as configurations of transformers do."""

    def __init__(self):
        self.gain = 2.0
        self.unused = 1
        self.inner = types.SimpleNamespace(shift=0.5)


class Slotted:
    __slots__ = ("power",)

    def __init__(self):
        self.power = 2


class Block(nn.Module):
    sign = 1.0

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.slotted = Slotted()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.act = nn.ReLU()
        self.flag = False
        self.scale = 0.5
        self.steps = [1, 2]
        self.table = {"a": 1.0}
        self.names = {"x"}
        self.function = torch.tanh
        self.constants = [torch.ones(8)]
        self.unread = 3

    def helper(self, x):
        return self.sign * x

    def forward(self, x):
        y = self.act(self.norm(self.linear(x)))
        if self.flag or "y" in self.names:
            y = y + 1
        if getattr(self, "extra", None) is not None:
            y = y + self.extra
        for step in self.steps:
            y = y * step
        y = y * self.scale * self.config.gain + self.config.inner.shift + self.table["a"]
        y = y + self.constants[0]
        return self.function(self.helper(y)) ** self.slotted.power


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.blocks = nn.ModuleList([Block(self.config), Block(self.config)])
        self.plain = nn.Linear(8, 8, bias=False)
        self.head = nn.Linear(8, 8)
        self.head.weight = self.plain.weight

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.plain(x))


def net(seed=0):
    torch.manual_seed(seed)
    return Net().eval()


X = torch.randn(4, 8)


@pytest.fixture(scope="module")
def planned():
    graph = kerf.trace(net(), X)
    return kerf.plan(graph, devices=["cpu:0", "cpu:1"], method="even", n_microbatches=2)


def hook(module, args, output):
    return output + 1


def pre_hook(module, args, kwargs):
    return (args[0] + 1,), kwargs


def patched(self, x):
    return x


def change_class(model, cls, name, value):
    """Set on a class; put back when the test ends."""
    model.undo.callback(setattr, cls, name, cls.__dict__[name])
    setattr(cls, name, value)


def add_global_hook(model):
    handle = nn.modules.module.register_module_forward_hook(hook)
    model.undo.callback(handle.remove)


def untie(model):
    model.head.weight = nn.Parameter(model.plain.weight.detach().clone())


CHANGES = {
    "module 'blocks.1.norm' is in train mode": lambda m: m.blocks[1].norm.train(),
    "module 'blocks.0.norm' has eps=0.001; it was 1e-05": lambda m: vars(m.blocks[0].norm).update(
        eps=1e-3
    ),
    "module 'blocks.1' has flag=True; it was False": lambda m: setattr(m.blocks[1], "flag", True),
    "module 'blocks.0' has scale=0.25; it was 0.5": lambda m: setattr(m.blocks[0], "scale", 0.25),
    r"has steps=\[1, 3\]; it was \[1, 2\]": lambda m: m.blocks[0].steps.__setitem__(1, 3),
    r"has steps=\[1, 2, 3\]": lambda m: m.blocks[1].steps.append(3),
    "has table={'a': 2.0}; it was {'a': 1.0}": lambda m: m.blocks[1].table.update(a=2.0),
    "has names=": lambda m: m.blocks[0].names.add("y"),
    "has function=the function sin.*was the function tanh": lambda m: setattr(
        m.blocks[0], "function", torch.sin
    ),
    "has extra=1.0; it had none": lambda m: setattr(m.blocks[0], "extra", 1.0),
    "config' has gain=3.0; it was 2.0": lambda m: setattr(m.config, "gain", 3.0),
    "config' has inner=": lambda m: setattr(m.config.inner, "shift", 1.0),
    "'blocks.0.slotted' has power=3": lambda m: setattr(m.blocks[0].slotted, "power", 3),
    "module 'blocks.0.act' has the forward hooks the function hook": lambda m: m.blocks[
        0
    ].act.register_forward_hook(hook),
    "module 'head' has the forward pre-hooks": lambda m: m.head.register_forward_pre_hook(
        pre_hook, with_kwargs=True
    ),
    "PyTorch has the forward hooks": add_global_hook,
    "module 'head' has forward=the function patched of its own": lambda m: setattr(
        m.head, "forward", types.MethodType(patched, m.head)
    ),
    "class Block has forward=the function patched": lambda m: change_class(
        m, Block, "forward", patched
    ),
    "class Block has helper=": lambda m: change_class(m, Block, "helper", patched),
    "class Block has sign=-1.0; it was 1.0": lambda m: change_class(m, Block, "sign", -1.0),
    "module 'blocks.1.act' was replaced by a module of class GELU": lambda m: setattr(
        m.blocks[1], "act", nn.GELU()
    ),
    "module 'head' was replaced by another Linear": lambda m: setattr(
        m, "head", nn.Linear(8, 8).eval()
    ),
    "has a module 'more'": lambda m: m.add_module("more", nn.ReLU()),
    "has no module 'blocks.1'": lambda m: m.blocks.pop(1),
    "weight 'head.weight' is no longer tied|'plain.weight' is no longer tied": untie,
    "module 'plain' has bias=a tensor; it was None": lambda m: setattr(
        m.plain, "bias", nn.Parameter(torch.ones(8))
    ),
    "module 'blocks.0.linear.*Parametrized": lambda m: parametrizations.orthogonal(
        m.blocks[0].linear
    ),
    "tensor 'blocks.1.constants.0' was changed": lambda m: m.blocks[1].constants[0].add_(1),
    "module 'plain' is a Plainer": lambda m: setattr(m.plain, "__class__", Plainer),
}


class Plainer(nn.Linear):
    def forward(self, x):
        return -super().forward(x)


@pytest.mark.parametrize("words", CHANGES)
def test_a_change_after_the_trace_is_named(planned, words):
    model = net()
    with contextlib.ExitStack() as model.__dict__["undo"], kerf.Pipeline(model, planned) as pipe:
        assert_same(pipe(X), eager(model, (X,), {}))
        CHANGES[words](model)
        for _ in range(2):
            with pytest.raises(ValueError, match=words) as caught:
                pipe(X)
        assert "trace" in str(caught.value) and "\n" not in str(caught.value)
        # And before a pipeline was made: the graph knows it too.
        if "replaced by another Linear" not in words and "tensor" not in words:
            with pytest.raises(ValueError):
                kerf.Pipeline(model, planned)


def test_a_change_that_is_undone_is_none(planned):
    model = net()
    pipe = kerf.Pipeline(model, planned)
    head, forward = model.head, Block.forward
    undone = [
        (lambda: model.blocks[0].train(), lambda: model.blocks[0].eval()),
        (lambda: setattr(model, "head", nn.Linear(8, 8)), lambda: setattr(model, "head", head)),
        (lambda: setattr(Block, "forward", patched), lambda: setattr(Block, "forward", forward)),
        (lambda: model.blocks[0].steps.append(1), lambda: model.blocks[0].steps.pop()),
    ]
    for change, undo in undone:
        change()
        with pytest.raises(ValueError):
            pipe(X)
        undo()
        assert_same(pipe(X), eager(model, (X,), {}))
    handle = model.head.register_forward_hook(hook)
    with pytest.raises(ValueError, match="hook"):
        pipe(X)
    handle.remove()
    assert_same(pipe(X), eager(model, (X,), {}))


def test_what_makes_no_difference_is_no_change(planned):
    model = net()
    pipe = kerf.Pipeline(model, planned)

    def step():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(X).sum().backward()
        optimizer.step()

    harmless = [
        lambda: model.load_state_dict(net(1).state_dict()),
        lambda: model.load_state_dict(net(2).state_dict(), assign=True),
        step,
        lambda: setattr(model.blocks[0].linear, "weight", nn.Parameter(torch.eye(8))),
        lambda: model.requires_grad_(False),
        lambda: model.train().eval(),
        lambda: setattr(model.blocks[0], "unread", 4),
        lambda: setattr(model.config, "unused", 2),
        lambda: setattr(model.blocks[0], "steps", [1, 2]),  # another list, the same numbers
        lambda: setattr(model.blocks[1], "config", copy.deepcopy(model.config)),
        lambda: setattr(model.blocks[0], "scale", float("0.5")),
        lambda: model.head.register_full_backward_hook(lambda *_: None),
        lambda: model.head.register_state_dict_post_hook(lambda *_: None),
        lambda: copy.deepcopy(model),
        lambda: model.blocks[0].compile(),
        lambda: setattr(model, "note", "a new attribute"),
        lambda: kerf.trace(model, X),
    ]
    for change in harmless:
        change()
        found = pipe(X)
        for block in model.blocks:
            block._compiled_call_impl = None
        assert_same(found, eager(model, (X,), {}))


def test_an_object_in_the_place_of_a_shared_one_has_to_say_the_same(planned):
    model = net()
    pipe = kerf.Pipeline(model, planned)
    model.blocks[1].config = copy.deepcopy(model.config)
    pipe(X)
    model.blocks[1].config.gain = 9.0
    for make in (lambda: pipe(X), lambda: kerf.Pipeline(model, planned)):
        with pytest.raises(ValueError, match="'blocks.1.config' has gain=9.0; it was 2.0"):
            make()


def test_a_fresh_model_takes_a_saved_plan(planned, tmp_path):
    planned.save(tmp_path / "plan.json")
    planned.graph.save(tmp_path / "net.graph")
    plan, graph = kerf.load_plan(tmp_path / "plan.json"), kerf.load_graph(tmp_path / "net.graph")
    model = net(3)
    with kerf.Pipeline(model, plan, graph=graph) as pipe:
        assert_same(pipe(X), eager(model, (X,), {}))
        model.blocks[1].scale = 2.0
        with pytest.raises(ValueError, match="scale=2.0"):
            pipe(X)


def test_a_model_that_was_never_called_is_the_model_that_was_traced():
    """transformers installs hooks at the first call, and remembers that it has."""
    model, args, kwargs = build("segformer")
    graph = kerf.trace(model, args, kwargs)
    plan = kerf.plan(graph, devices=["cpu:0"])
    fresh, _, _ = build("segformer", seed=1)
    with kerf.Pipeline(fresh, plan) as pipe:
        first = pipe(*args, **kwargs)
        assert_same(first, eager(fresh, args, kwargs))  # now the hooks are there
        assert_same(pipe(*args, **kwargs), first)


def two(activation):
    return nn.Sequential(nn.Linear(8, 8), activation, nn.Linear(8, 8)).eval()


def test_another_model_under_a_plan_is_named():
    plan = kerf.plan(kerf.trace(two(nn.ReLU()), X), devices=["cpu:0"])
    others = {
        "module '1' is a GELU; it was a ReLU": two(nn.GELU()),
        "no module '2'": two(nn.ReLU())[:2],
        "has a module '3'": two(nn.ReLU()).append(nn.ReLU()),
        "the model is a ModuleList; it was a Sequential": nn.ModuleList(two(nn.ReLU())).eval(),
        "module '1' has inplace=True; it was False": two(nn.ReLU(inplace=True)),
        "in train mode": two(nn.ReLU()).train(),
    }
    for words, other in others.items():
        with pytest.raises(ValueError, match=words):
            kerf.Pipeline(other, plan)
    without_bias = two(nn.ReLU())
    without_bias[2] = nn.Linear(8, 8, bias=False).eval()
    with pytest.raises(ValueError, match=r"2\.bias"):
        kerf.Pipeline(without_bias, plan)
    same_names = two(nn.ReLU())
    same_names[1].forward = lambda x: x
    with pytest.raises(ValueError, match="module '1' has forward"):
        kerf.Pipeline(same_names, plan)
    kerf.Pipeline(two(nn.ReLU()), plan)(X)


def test_a_class_of_the_same_name_with_other_code_is_another():
    def made(sign):
        if sign > 0:

            class Layer(nn.Module):
                def forward(self, x):
                    return x + 1

        else:

            class Layer(nn.Module):
                def forward(self, x):
                    return x - 1

        return nn.Sequential(Layer()).eval()

    plan = kerf.plan(kerf.trace(made(1), X), devices=["cpu:0"])
    with pytest.raises(ValueError, match="class Layer has forward"):
        kerf.Pipeline(made(-1), plan)
    kerf.Pipeline(made(1), plan)(X)


def test_hooks_of_the_time_of_tracing_are_part_of_the_graph():
    model = two(nn.ReLU())
    handle = model[0].register_forward_hook(hook)
    plan = kerf.plan(kerf.trace(model, X), devices=["cpu:0"])
    with kerf.Pipeline(model, plan) as pipe:
        assert_same(pipe(X), eager(model, (X,), {}))
        handle.remove()
        with pytest.raises(ValueError, match="module '0' has the forward hooks none; it had"):
            pipe(X)
    with pytest.raises(ValueError, match="forward hooks"):
        kerf.Pipeline(two(nn.ReLU()), plan)


def test_hooks_that_add_other_numbers_are_others():
    def adding(vector):
        return lambda module, args, output: output + vector

    model = two(nn.ReLU())
    handle = model[0].register_forward_hook(adding(torch.ones(8)))
    plan = kerf.plan(kerf.trace(model, X), devices=["cpu:0"])
    pipe = kerf.Pipeline(model, plan)
    handle.remove()
    model[0].register_forward_hook(adding(torch.zeros(8)))
    with pytest.raises(ValueError, match="hook"):
        pipe(X)
    with pytest.raises(ValueError, match="adding.*; it had others with these names"):
        kerf.Pipeline(model, plan)


class Holder(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return x if self.value is None else x + 1


def closing_over(number):
    return lambda: number


LOOK_ALIKE = {
    "a set": ({1, 2}, {1, 3}),
    "an empty set": (frozenset(), frozenset({1})),
    "a set in a list": ([{1}], [{2}]),
    "a class": (nn.ReLU, nn.GELU),
    "a long list": (list(range(100)), [*range(99), 7]),
    "a list that is longer": (list(range(100)), list(range(101))),
    "a list too long to be kept": (list(range(5000)), [*range(4999), 7]),
    "a long text": ("a" * 200, "a" * 199 + "b"),
    "a large dictionary": ({i: i for i in range(50)}, {i: i % 49 for i in range(50)}),
    "an array": (np.ones(3), np.zeros(3)),
    "a number of an array": (np.float32(1), np.float64(1)),
    "a partial": (functools.partial(torch.add, alpha=1), functools.partial(torch.add, alpha=2)),
    "a function of the same name": (closing_over(1), closing_over(2)),
    "an integer": (1, True),
}


@pytest.mark.parametrize("kind", LOOK_ALIKE)
def test_what_was_and_what_is_read_differently(kind):
    was, now = LOOK_ALIKE[kind]
    model = nn.Sequential(Holder(was)).eval()
    pipe = kerf.Pipeline(model, kerf.plan(kerf.trace(model, X), devices=["cpu:0"]))
    model[0].value = now
    with pytest.raises(ValueError, match="has value=(.*); it was (.*) when the model") as caught:
        pipe(X)
    has, had = re.search("has value=(.*); it was (.*) when the model", str(caught.value)).groups()
    assert has != had
    assert len(has) <= 80 and len(had) <= 80


@dataclasses.dataclass
class Table:
    rows: object
    gain: float = 2.0


@dataclasses.dataclass(slots=True)
class SlottedTable:
    rows: object


class Owner:
    def __init__(self):
        self.table = Table(torch.ones(8))

    def rows(self):
        return self.table.rows


class Reader(nn.Module):
    def __init__(self, held, read):
        super().__init__()
        self.held = held
        self.read = read

    def forward(self, x):
        return x + self.read(self.held)


def rows(held):
    return held.rows


def ones():
    return torch.ones(8)


# What a module holds, how its forward gets at a tensor there, and what is done to it afterwards.
HELD = {
    "an object, replaced": (Table(ones()), rows, lambda h: setattr(h, "rows", 2 * ones())),
    "an object, written": (Table(ones()), rows, lambda h: h.rows.add_(1)),
    "an object's list": (Table([ones()]), lambda h: h.rows[0], lambda h: h.rows[0].add_(1)),
    "slots, replaced": (SlottedTable(ones()), rows, lambda h: setattr(h, "rows", 2 * ones())),
    "slots, written": (SlottedTable(ones()), rows, lambda h: h.rows.add_(1)),
    "a namespace": (types.SimpleNamespace(rows=ones()), rows, lambda h: h.rows.add_(1)),
    "an object in an object": (Owner(), lambda h: h.table.rows, lambda h: h.table.rows.add_(1)),
    "a method": (Owner(), Owner.rows, lambda h: setattr(h.table, "rows", 2 * ones())),
    "lists in lists": ([[ones()]], lambda h: h[0][0], lambda h: h[0][0].add_(1)),
    "objects in a list": ([Table(ones())], lambda h: h[0].rows, lambda h: h[0].rows.add_(1)),
}


@pytest.mark.parametrize("kind", HELD)
def test_tensors_that_objects_hold_may_not_change(kind):
    held, read, change = copy.deepcopy(HELD[kind])
    model = nn.Sequential(Reader(held, read)).eval()
    plan = kerf.plan(kerf.trace(model, X), devices=["cpu:0"])
    pipe = kerf.Pipeline(model, plan)
    fresh = copy.deepcopy(model)
    assert_same(pipe(X), X + 1)
    change(held)
    with pytest.raises(ValueError, match=r"the tensor '0\.held\..* was changed"):
        pipe(X)
    with pytest.raises(ValueError, match="tensor"):
        kerf.Pipeline(model, plan)
    assert_same(kerf.Pipeline(fresh, plan)(X), X + 1)


def test_tensors_of_objects_that_are_not_read_may_change():
    held = Table(ones())
    held.other = ones()
    model = nn.Sequential(Reader(held, rows)).eval()
    pipe = kerf.Pipeline(model, kerf.plan(kerf.trace(model, X), devices=["cpu:0"]))
    held.other.add_(1)
    held.gain = 3.0
    assert_same(pipe(X), X + 1)


def test_what_code_closes_over_may_not_change():
    def made():
        number, numbers, table = 1.0, [1.0], ones()

        class Closing(nn.Module):
            def forward(self, x, more=[1.0]):  # noqa: B006
                return x + number + numbers[0] + table + more[0]

        def rebind():
            nonlocal number
            number = 2.0

        changes = {
            "forward=.*; it was another of that name": rebind,
            "forward=.*; it was another of": lambda: numbers.append(1.0),
            "forward=.*; it was another": Closing.forward.__defaults__[0].clear,
            "the tensor 'forward.table' was changed": lambda: table.add_(1),
        }
        return Closing().eval(), changes

    for words in made()[1]:
        model, changes = made()
        pipe = kerf.Pipeline(model, kerf.plan(kerf.trace(model, X), devices=["cpu:0"]))
        assert_same(pipe(X), eager(model, (X,), {}))
        changes[words]()
        with pytest.raises(ValueError, match=words):
            pipe(X)


def test_a_class_named_like_one_of_torch_is_another():
    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.eye(8))
            self.bias = nn.Parameter(torch.zeros(8))

        def forward(self, x):
            return -x

    Linear.forward.__qualname__ = "Linear.forward"
    plan = kerf.plan(kerf.trace(nn.Sequential(nn.Linear(8, 8)).eval(), X), devices=["cpu:0"])
    with pytest.raises(ValueError, match="forward=the function Linear.forward; it was another"):
        kerf.Pipeline(nn.Sequential(Linear()).eval(), plan)


def test_order_and_sharing_of_modules_count():
    def named(*order):
        layers = {"a": nn.ReLU(), "b": nn.Tanh()}
        model = nn.Sequential()
        for name in order:
            model.add_module(name, layers[name])
        return model.eval()

    plan = kerf.plan(kerf.trace(named("a", "b"), X), devices=["cpu:0"])
    with pytest.raises(ValueError, match="is in another place"):
        kerf.Pipeline(named("b", "a"), plan)
    layer = nn.Linear(8, 8)
    plan = kerf.plan(kerf.trace(nn.Sequential(layer, layer).eval(), X), devices=["cpu:0"])
    with pytest.raises(ValueError, match="modules '0' and '2' are one module"):
        kerf.Pipeline(nn.Sequential(layer, layer, layer).eval(), plan)
    kerf.Pipeline(nn.Sequential(layer, layer).eval(), plan)(X)


def test_a_frozen_pipeline_looks_once(planned):
    model = net()
    pipe = kerf.Pipeline(model, planned, frozen=True)
    before = pipe(X)
    model.blocks[0].scale = 3.0
    assert_same(pipe(X), before)
    with pytest.raises(ValueError, match="scale"):
        kerf.Pipeline(model, planned, frozen=True)


def test_attributes_that_opaque_blocks_read_may_change():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.scale = 1.0

        def forward(self, x):
            self.calls += 1
            if x.sum() > 1e9:
                return x
            return x * self.scale * self.calls

    model = nn.Sequential(nn.Linear(8, 8), Counting()).eval()
    graph = kerf.trace(model, X)
    with kerf.Pipeline(model, kerf.plan(graph, devices=["cpu:0"])) as pipe:
        for scale in (1.0, 2.0):
            model[1].scale, model[1].calls = scale, 0
            found = pipe(X)
            model[1].calls = 0
            assert_same(found, eager(model, (X,), {}))


def test_a_pipeline_in_its_own_model_is_collected(planned):
    model = net()
    model.__dict__["pipe"] = kerf.Pipeline(model, planned)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_the_check_takes_microseconds():
    """Documented: 30 us for 200 modules; here with room for a busy machine."""
    model = nn.Sequential(*[nn.ReLU() for _ in range(199)]).eval()
    watch = ModelWatch(model, kerf.trace(model, X))
    times = []
    for _ in range(50):
        started = time.perf_counter()
        watch.check()
        times.append(time.perf_counter() - started)
    print(f"\n200 modules: {1e6 * sorted(times)[25]:.1f} us")
    assert sorted(times)[25] < 150e-6


def test_parametrizations_that_were_traced_stay():
    model = two(nn.ReLU())
    parametrizations.weight_norm(model[0])
    plan = kerf.plan(kerf.trace(model, X), devices=["cpu:0"])
    with kerf.Pipeline(model, plan) as pipe:
        assert_same(pipe(X), eager(model, (X,), {}))
        parametrize.remove_parametrizations(model[0], "weight")
        with pytest.raises(ValueError, match="module '0"):
            pipe(X)


class Counts(nn.Module):
    """Writes a buffer and the caller's tensor, or neither."""

    def __init__(self, writes):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.writes = writes
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        if self.writes:
            self.calls.add_(1)
            x.mul_(2)
        return self.linear(x)


@pytest.mark.parametrize("writes", [False, True])
def test_a_refused_call_leaves_nothing_behind(writes):
    model = Counts(writes).eval()
    graph = kerf.trace(model, X.clone())
    assert graph.is_pure != writes
    with kerf.Pipeline(model, kerf.plan(graph, devices=["cpu:0"])) as pipe:
        before, x = model.calls.clone(), X.clone()
        model.linear.register_forward_hook(hook)
        with pytest.raises(ValueError, match="module 'linear' has the forward hooks"):
            pipe(x)
        assert torch.equal(x, X) and torch.equal(model.calls, before)
