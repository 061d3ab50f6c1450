# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Code with gradients of its own, in train mode: kept whole or refused, and never lost."""

import threading

import gradients
import pytest
import reference
import torch
import torch.nn as nn
from torch.autograd import graph as autograd_graph
from torch.autograd.function import Function, _SingleLevelFunction
from torch.utils.checkpoint import checkpoint

from kerf._errors import ExportError
from kerf._trace import trace


class Scale(Function):
    """Its gradient is not that of its operators."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 100


bound_early = Scale.apply  # as user code often does


class Calls(nn.Module):
    def forward(self, x):
        return Scale.apply(x)


class CallsEarly(nn.Module):
    def forward(self, x):
        return bound_early(x)


class Deep(nn.Module):
    """The call is in a function of another class, and in two layers of modules."""

    def __init__(self):
        super().__init__()
        self.inner = CallsEarly()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(self.inner(x))


class HooksTensor(nn.Module):
    def forward(self, x):
        y = x * 2
        y.register_hook(lambda gradient: gradient * 100)
        return y + 1


class HooksTensors(nn.Module):
    def forward(self, x):
        y = x * 2
        autograd_graph.register_multi_grad_hook([y], lambda gradients: None)
        return y + 1


class HooksNode(nn.Module):
    def forward(self, x):
        y = x * 2
        y.grad_fn.register_prehook(lambda gradients: (gradients[0] * 100,))
        return y + 1


class Packs(nn.Module):
    def forward(self, x):
        with autograd_graph.saved_tensors_hooks(lambda t: t * 3, lambda t: t):
            return x.sin()


class Differentiates(nn.Module):
    def forward(self, x):
        (slope,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
        return x + slope


BLOCKS = {
    Calls: "torch.autograd.Function 'Scale'",
    CallsEarly: "torch.autograd.Function 'Scale'",
    HooksTensor: "register_hook",
    HooksTensors: "register_hook",
    HooksNode: "grad_fn",
    Packs: "saved_tensors_hooks",
    Differentiates: "torch.autograd.grad",
}


def around(block):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), block, nn.Linear(4, 4)).train()


def operators(recording):
    return [r["op"] for r in recording.nodes]


def line_of(cls, text):
    """Where ``text`` stands in the code of a forward, as "file.py:12"."""
    import inspect

    lines, first = inspect.getsourcelines(cls.forward)
    at = next(i for i, line in enumerate(lines) if text in line)
    return f"test_trace_gradients.py:{first + at}"


@pytest.mark.parametrize("block", BLOCKS)
def test_the_smallest_module_around_becomes_a_block_with_its_gradients(block):
    recording = gradients.check(around(block()), torch.randn(3, 4))
    assert operators(recording) == ["aten.linear.default", "opaque", "aten.linear.default"]
    (note,) = recording.graph.notes
    assert note.startswith("module '1' runs as Python, as one block: it ")
    assert BLOCKS[block] in note
    assert "test_trace_gradients.py:" in note


def test_the_note_names_class_file_and_line():
    recording = gradients.check(around(Deep()), torch.randn(3, 4))
    assert recording.graph.notes == [
        "module '1.inner' runs as Python, as one block: it calls the torch.autograd.Function "
        f"'Scale' at {line_of(CallsEarly, 'bound_early')}"
    ]
    assert operators(recording).count("opaque") == 1


def test_all_reasons_of_a_module_are_named():
    class Both(nn.Module):
        def forward(self, x):
            x = Scale.apply(x)
            x.register_hook(lambda gradient: gradient * 2)
            return x + 1

    (note,) = gradients.check(around(Both()), torch.randn(3, 4)).graph.notes
    assert "'Scale'" in note and "register_hook" in note


@pytest.mark.parametrize("block", BLOCKS)
def test_the_root_is_refused_with_file_and_line(block):
    with pytest.raises(
        ExportError, match="the model's own forward at .*put it into a sub"
    ) as caught:
        trace(block().train(), torch.randn(3, 4, requires_grad=True))
    assert "test_trace_gradients.py:" in caught.value.location
    assert BLOCKS[block] in str(caught.value)


def test_without_blocks_it_is_refused_with_file_and_line():
    with pytest.raises(ExportError, match=r"module '1' at .*Function 'Scale'.*opaque='auto'") as e:
        trace(around(Calls()), torch.randn(3, 4), opaque="never")
    assert e.value.location.endswith(line_of(Calls, "Scale.apply"))
    assert e.value.module == "1"
    assert "`return Scale.apply(x)`" in str(e.value)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_function_inside_a_checkpoint_region_stays_in_its_region(reentrant):
    class Region(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.deep = nn.Linear(4, 4), Deep()

        def forward(self, x):
            return checkpoint(self.deep, self.first(x), use_reentrant=reentrant)

    recording = gradients.check(Region().train(), torch.randn(3, 4))
    assert [(r["op"], r["region"]) for r in recording.nodes] == [
        ("aten.linear.default", ""),
        ("opaque", "0"),
        ("aten.linear.default", "0"),
    ]


def test_a_function_in_a_checkpointed_function_of_the_root_is_refused():
    class Root(nn.Module):
        def forward(self, x):
            return checkpoint(bound_early, x, use_reentrant=False)

    with pytest.raises(ExportError, match="the model's own forward at .*'Scale'"):
        trace(Root().train(), torch.randn(3, 4, requires_grad=True))


def test_a_block_that_is_called_by_its_forward_alone_is_not_enough():
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Calls()

        def forward(self, x):
            return self.inner.forward(x)

    recording = gradients.check(around(Around()), torch.randn(3, 4))
    assert [r["kwargs"].get("module") for r in recording.nodes] == [None, "1", None]


def test_eval_mode_is_traced_as_ever():
    graph = trace(around(Calls()).eval(), torch.randn(3, 4))
    assert [n["op"] for n in graph.nodes][1] == "aten.mul.Tensor"
    assert graph.notes == []


def test_without_gradients_there_is_none_to_lose():
    class Off(nn.Module):
        def forward(self, x):
            with torch.no_grad():
                return Scale.apply(x)

    recording = gradients.check(around(Off()), torch.randn(3, 4))
    assert "opaque" not in operators(recording)


def test_frozen_parameters_hide_no_function():
    """They may be trained later, with the same graph."""
    model = around(Calls()).requires_grad_(False)
    assert operators(reference.record(model, torch.randn(3, 4))).count("opaque") == 1


def test_what_changes_no_gradient_is_traced():
    class Harmless(nn.Module):
        def forward(self, x):
            with autograd_graph.save_on_cpu():
                x = x.sin()
            x.retain_grad()
            return x

    recording = gradients.check(around(Harmless()), torch.randn(3, 4))
    assert "opaque" not in operators(recording)


@torch.library.custom_op("kerf_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


scaled.register_fake(torch.empty_like)
scaled.register_autograd(lambda ctx, gradient: gradient * 100)


def test_an_operator_with_a_backward_stays_an_operator():
    """Torch makes a Function of it, which is none of the user's."""

    class Calls(nn.Module):
        def forward(self, x):
            return scaled(x)

    recording = gradients.check(around(Calls()), torch.randn(3, 4))
    assert operators(recording)[1] == "kerf_tests.scaled.default"
    assert recording.graph.notes == []


def test_a_module_of_torch_that_calls_a_function_is_a_block():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.CrossMapLRN2d(3), nn.Conv2d(8, 2, 1)).train()
    recording = gradients.check(model, torch.randn(2, 3, 4, 4))
    assert operators(recording)[1] == "opaque"
    assert "'CrossMapLRN2d' at torch/nn/modules/normalization.py:" in recording.graph.notes[0]


# Hooks of modules and weights


def tenfold(module, given, *got):
    return tuple(g if g is None else g * 10 for g in given)


@pytest.mark.parametrize("how", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_a_module_with_a_backward_hook_is_a_block(how):
    model = around(nn.Tanh())
    getattr(model[1], how)(tenfold)
    recording = gradients.check(model, torch.randn(3, 4))
    assert operators(recording)[1] == "opaque"
    line = tenfold.__code__.co_firstlineno
    assert recording.graph.notes == [
        f"module '1' runs as Python, as one block: it has the backward hook 'tenfold' ({how}) at "
        f"test_trace_gradients.py:{line}"
    ]


def test_a_backward_hook_that_forward_registers_makes_a_block():
    class Registers(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.Tanh()

        def forward(self, x):
            handle = self.act.register_full_backward_hook(tenfold)
            y = self.act(x)
            handle.remove()
            return y

    recording = gradients.check(around(Registers()), torch.randn(3, 4))
    assert operators(recording)[1] == "opaque"


def test_a_backward_hook_of_the_root_is_refused():
    model = around(nn.Tanh())
    model.register_full_backward_hook(tenfold)
    with pytest.raises(ExportError, match="the model's own forward at .*backward hook 'tenfold'"):
        trace(model, torch.randn(3, 4))
    model.eval()
    trace(model, torch.randn(3, 4))


def test_a_backward_hook_of_a_module_that_is_not_called_says_nothing():
    model = around(nn.Tanh())
    model[1].spare = nn.Linear(4, 4)
    model[1].spare.register_full_backward_hook(tenfold)
    assert reference.record(model, torch.randn(3, 4)).graph.notes == []


def test_backward_hooks_of_all_modules_are_refused():
    handle = nn.modules.module.register_module_full_backward_hook(tenfold)
    try:
        with pytest.raises(ExportError, match="all modules have the backward hook 'tenfold'"):
            trace(around(nn.Tanh()), torch.randn(3, 4))
    finally:
        handle.remove()


@pytest.mark.parametrize("how", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_parameters_are_refused_by_name(how):
    model = around(nn.Tanh())
    handle = getattr(model[2].weight, how)(lambda value: None)
    with pytest.raises(ExportError, match=rf"weight '2\.weight' has the hook .*\({how}\) at "):
        trace(model, torch.randn(3, 4))
    trace(model.eval(), torch.randn(3, 4))
    handle.remove()
    trace(model.train(), torch.randn(3, 4))


# What a trace puts in place is gone after it


def in_place():
    """What a trace replaces, to be compared by identity."""
    import numpy
    import torch.utils.checkpoint as torch_checkpoint

    classes = [Function, _SingleLevelFunction, autograd_graph.saved_tensors_hooks, torch.Tensor]
    classes.append(nn.Module)
    found = {(cls, name): value for cls in classes for name, value in vars(cls).items()}
    found.update({("checkpoint", n): v for n, v in vars(torch_checkpoint).items()})
    found.update({("random", n): v for n, v in vars(__import__("random")).items()})
    found.update({("numpy", n): v for n, v in vars(numpy.random).items()})
    found["modes"] = torch.overrides._get_current_function_mode()
    return found


def assert_in_place(before):
    after = in_place()
    assert before.keys() == after.keys()
    assert all(after[name] is value for name, value in before.items())


class Fails(nn.Module):
    def forward(self, x):
        Scale.apply(x)
        raise ValueError("as it was asked to")


def test_everything_is_back_in_place_after_a_trace():
    model = around(Calls())
    trace(model, torch.randn(3, 4))
    before = in_place()
    trace(model, torch.randn(3, 4))
    assert_in_place(before)


@pytest.mark.parametrize("block", [Fails, HooksNode])
@pytest.mark.parametrize("opaque", ["auto", "never"])
def test_everything_is_back_in_place_after_a_failure(block, opaque):
    before = in_place()
    model = nn.Sequential(block()) if block is Fails else block()
    state = {n: dict(m.__dict__) for n, m in model.named_modules()}
    with pytest.raises(ExportError):
        trace(model.train(), torch.randn(3, 4, requires_grad=True), opaque=opaque)
    assert_in_place(before)
    for name, module in model.named_modules():
        assert module.__dict__ == state[name]


def test_two_threads_trace_at_once_while_a_third_one_trains():
    before = in_place()
    done = threading.Event()
    graphs, slopes = {}, []

    def train():
        while not done.is_set():
            x = torch.ones(2, requires_grad=True)
            Scale.apply(x).sum().backward()
            slopes.append(x.grad[0].item())

    def tracing(name, block):
        graphs[name] = [trace(around(block()), torch.randn(3, 4)) for _ in range(3)]

    trainer = threading.Thread(target=train)
    tracers = [
        threading.Thread(target=tracing, args=("calls", Calls)),
        threading.Thread(target=tracing, args=("plain", nn.Tanh)),
    ]
    for thread in [trainer, *tracers]:
        thread.start()
    for thread in tracers:
        thread.join()
    done.set()
    trainer.join()
    assert set(slopes) == {100.0}
    assert [[n["op"] == "opaque" for n in g.nodes] for g in graphs["calls"]] == [
        [False, True, False]
    ] * 3
    assert all(g.notes == [] for g in graphs["plain"])
    assert len(graphs["plain"]) == 3
    assert_in_place(before)


# Models of transformers


def of_transformers(name):
    import transformers as t

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 99}
    torch.manual_seed(0)
    if name == "bloom":
        config = t.BloomConfig(**sizes, n_layer=2, n_head=4)
        return t.BloomForCausalLM(config), "GeLUFunction", 2
    if name == "recurrent_gemma":
        config = t.RecurrentGemmaConfig(**sizes, num_attention_heads=4, attention_window_size=8)
        return t.RecurrentGemmaForCausalLM(config), "SqrtBoundDerivative", 2
    config = t.PhimoeConfig(
        **sizes, num_attention_heads=4, num_key_value_heads=2, num_local_experts=4
    )
    return t.PhimoeForCausalLM(config), "PhimoeMultiplier", 2


@pytest.mark.parametrize("name", ["bloom", "recurrent_gemma", "phimoe"])
def test_functions_of_transformers_keep_their_gradients(name):
    model, function, count = of_transformers(name)
    ids = torch.randint(0, 99, (2, 8))
    kwargs = {"input_ids": ids, "use_cache": False}
    recording = gradients.check(model.train(), (), kwargs, relative=1e-5)
    assert operators(recording).count("opaque") == count
    notes = [n for n in recording.graph.notes if "runs as Python" in n]
    assert len(notes) == count
    assert all(f"'{function}'" in n and f"modeling_{name}.py:" in n for n in notes)
