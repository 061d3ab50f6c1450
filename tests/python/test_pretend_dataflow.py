# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.DataFlow on two pretend accelerators, see pretend.py: streams that run late, memory that
ends, and models of the zoo with their layers anywhere."""

import contextlib
import copy
import dataclasses
import gc
import itertools
import random
import threading
import warnings

import models
import pytest
import torch
from comparing import assert_same
from torch import nn

import kerf


def chain(count=4, width=64):
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(count)])


def rows(width=64):
    return torch.randn(4, width)


def scatter(flow, seed):
    """Layers anywhere, and those that share a weight together."""
    rng = random.Random(seed)
    groups = {name: {name} for name in ("", *flow.layer_gpus)}
    for (a, _), (b, _) in flow._placement.ties():
        together = groups[a.name] | groups[b.name]
        groups.update(dict.fromkeys(together, together))
    for names in groups.values():  # what the model holds itself is on the output device
        device = flow.output_device if "" in names else rng.choice(flow.device_ids)
        flow.layer_gpus.update(dict.fromkeys(names - {""}, device))


@contextlib.contextmanager
def streams():
    """Other ones than PyTorch's defaults, on both devices."""
    with torch.Stream("pretend:0"), torch.Stream("pretend:1"):
        yield


def in_threads(*functions):
    failures = []

    def run(function):
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    for failure in failures:
        raise failure


def assert_equal(found, expected):
    assert torch.equal(found.detach().cpu(), expected)


# ---- models --------------------------------------------------------------------------------------

PARTS_ARE_CALLED = ("opt",)  # the model calls a child's child: fine_grained only
WEIGHTS_ARE_READ = ("mamba",)  # without calling their module: submodules only


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*models.FLOOR, *models.OTHERS])
def test_a_model_of_the_zoo_gives_what_it_gives(pretend_device, name):
    model, args, kwargs = models.build(name)
    twin = copy.deepcopy(model)
    ways = [(False, False)] if name not in PARTS_ARE_CALLED else []
    ways += [(True, False), (True, True)] if name not in WEIGHTS_ARE_READ else []
    for seed, (fine_grained, enable_clone) in enumerate(ways):
        with (
            torch.no_grad(),
            pretend_device.copy_delay(0.0002),
            kerf.DataFlow(
                model, 1, fine_grained=fine_grained, inference_only=True, enable_clone=enable_clone
            ) as flow,
        ):
            scatter(flow, seed)
            flow.update_flow()
            assert_same(flow(*args, **kwargs), twin(*args, **kwargs), wherever=True)
    with torch.no_grad():
        assert_same(model(*args, **kwargs), twin(*args, **kwargs))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("more", [{}, {"num_beams": 2}, {"cache_implementation": "static"}])
@pytest.mark.parametrize("name", ["gpt2", "llama_tied", "t5"])
def test_generate_gives_the_same_text(pretend_device, name, more):
    model, _, _ = models.build(name)
    ids = models.ids(2, 9)
    how = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0, **more}
    expected = copy.deepcopy(model).generate(ids, **how)
    with kerf.DataFlow(
        model, "cpu", fine_grained=True, inference_only=True, enable_clone=True
    ) as flow:
        scatter(flow, 3)
        flow.update_flow()
        assert_equal(flow.generate(ids, **how), expected)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training_gives_the_same_weights(pretend_device, optimizer):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 8)
    )
    twin, batches = copy.deepcopy(model), [rows(8) for _ in range(4)]
    flow = kerf.DataFlow(model, output_device=1)
    flow.layer_gpus.update({"1": 1, "2": "cpu"})
    flow.update_flow()
    for net in (flow, twin):
        steps = optimizer(net.parameters(), 0.1)
        with pretend_device.copy_delay(0.001):
            for batch in batches:
                steps.zero_grad()
                net(batch).square().sum().backward()
                steps.step()
    flow.remove()
    for found, expected in zip(model.state_dict().values(), twin.state_dict().values()):
        torch.testing.assert_close(found, expected)


# ---- streams -------------------------------------------------------------------------------------


def test_constructed_modules_run_in_streams_of_their_own(pretend_device):
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64)).eval(),
        rows(),
    )
    expected = model(x).detach()
    with pretend_device.copy_delay(0.002):
        flow = kerf.DataFlow(model, enable_clone=True, inference_only=True)
        made = [flow.construct_module({"0": 1 - n % 2, "1": n % 2}) for n in range(3)]

        def work(module):
            with streams():
                for _ in range(4):
                    assert_equal(module(x), expected)

        in_threads(*[lambda module=module: work(module) for module in made])


def test_a_flow_changes_while_the_work_of_streams_is_under_way(pretend_device):
    model, x = chain(), rows()
    expected = model(x).detach()
    flow = kerf.DataFlow(model, inference_only=True)
    flow.update_flow()
    with pretend_device.copy_delay(0.002):
        for turn in range(4):
            with streams():
                found = flow(x)
            flow.layer_gpus.update({"0": (turn + 1) % 2, "2": turn % 2})
            flow.update_flow()
            pretend_device.synchronize(0)
            assert_equal(found, expected)
            with streams():
                assert_equal(flow(x), expected)


def test_threads_in_streams_call_beside_changes(pretend_device):
    model, x = chain(), rows()
    expected = model(x).detach()
    flow = kerf.DataFlow(model, inference_only=True)

    def call():
        with streams():
            for _ in range(8):
                assert_equal(flow(x), expected)

    def change():
        for turn in range(5):
            flow.layer_gpus.update({"0": turn % 2, "2": 1 - turn % 2})
            flow.update_flow()

    with pretend_device.copy_delay(0.001), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of changes that wait
        in_threads(call, call, change)


def test_weights_that_are_written_reach_the_clones_before_any_stream_reads_them(pretend_device):
    model, x = chain(), rows()
    flow = kerf.DataFlow(model, enable_clone=True, inference_only=True)
    made = flow.construct_module({"0": 1, "3": 1})
    expected = chain(4).requires_grad_(False)
    with torch.no_grad(), pretend_device.copy_delay(0.002):
        for weight, other in zip(model.parameters(), expected.parameters()):
            weight.mul_(2)
            other.mul_(2)
        flow.layer_gpus.update({"0": 1, "2": 1})
        flow.update_flow()
        with streams():
            assert_equal(flow(x), expected(x))
            assert_equal(made(x), expected(x))


@pytest.mark.parametrize("output_device", [0, 1, "cpu"])
def test_batches_are_streamed_through_late_devices(pretend_device, output_device):
    model, batches = chain(), [rows() for _ in range(6)]
    expected = [model(batch).detach() for batch in batches]
    flow = kerf.DataFlow(model, output_device, inference_only=True)
    flow.layer_gpus.update({"0": 1, "2": "cpu"})
    flow.update_flow()
    with pretend_device.copy_delay(0.001), streams():
        for window in (None, 4):
            found = list(flow.stream(iter(batches), window=window))
            for y, good in zip(found, expected, strict=True):
                assert_equal(y, good)


# ---- memory --------------------------------------------------------------------------------------


def test_a_device_without_room_leaves_all_as_it_was(pretend_device):
    model, x = chain(), rows()
    expected = model(x).detach()
    flow = kerf.DataFlow(model, inference_only=True)
    flow.update_flow()
    gc.collect()
    pretend_device.set_limit(1, pretend_device.memory_allocated(1) + 35_000)  # for two of four
    flow.layer_gpus.update(dict.fromkeys(flow.layer_gpus, 1))
    before = pretend_device.memory_allocated(1)
    with pytest.raises(RuntimeError, match=r"layer '2' cannot be moved to pretend:1: .* short"):
        flow.update_flow()
    assert pretend_device.memory_allocated(1) == before
    with pytest.warns(UserWarning, match="still the old one"):
        assert_equal(flow(x), expected)
    pretend_device.set_limit(1, None)
    flow.update_flow()
    assert_equal(flow(x), expected)


def test_a_call_that_runs_out_of_memory_breaks_nothing(pretend_device):
    model, x = chain(), rows()
    expected = model(x).detach()
    flow = kerf.DataFlow(model, inference_only=True)
    flow.layer_gpus["2"] = 1
    flow.update_flow()
    pretend_device.set_limit(1, pretend_device.memory_allocated(1) + 100)
    with pytest.raises(torch.OutOfMemoryError):
        flow(x)
    pretend_device.set_limit(1, None)
    assert_equal(flow(x), expected)


def test_clones_that_do_not_fit_after_all_leave_nothing(pretend_device):
    class Unsure(kerf._transfer.Mover):
        def free_bytes(self, device):
            return None

    model = chain()
    gc.collect()
    before = [pretend_device.memory_allocated(n) for n in range(2)]
    pretend_device.set_limit(1, before[1] + 20_000)
    with pytest.raises(RuntimeError, match=r"on every device, and pretend:1 has no room for it"):
        kerf.DataFlow(model, enable_clone=True, mover=Unsure())
    gc.collect()
    assert [pretend_device.memory_allocated(n) for n in range(2)] == before
    assert not model._forward_hooks


def test_weights_that_cannot_go_home_stay_in_the_flow(pretend_device):
    model, x = chain().to("pretend:1"), rows()
    flow = kerf.DataFlow(model, inference_only=True)
    expected = flow(x).cpu()
    gc.collect()
    pretend_device.set_limit(1, pretend_device.memory_allocated(1) + 20_000)
    with pytest.raises(RuntimeError, match=r"cannot go back to pretend:1, .* remove\(\) again"):
        flow.remove()
    assert {str(p.device) for p in model.parameters()} == {"pretend:0"}
    assert_equal(flow(x), expected)
    pretend_device.set_limit(1, None)
    flow.remove()
    assert {str(p.device) for p in model.parameters()} == {"pretend:1"}
    assert not model._forward_hooks and model[0].weight.requires_grad


@pytest.mark.parametrize("enable_clone", [False, True])
def test_memory_is_free_as_soon_as_nobody_holds_the_model(pretend_device, enable_clone):
    gc.collect()
    before = [pretend_device.memory_allocated(n) for n in range(2)]
    gc.disable()
    try:
        model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64))
        flow = kerf.DataFlow(model, inference_only=True, enable_clone=enable_clone)
        flow.layer_gpus["2"] = 1
        flow(rows())
        del flow, model
        assert [pretend_device.memory_allocated(n) for n in range(2)] == before
    finally:
        gc.enable()


# ---- edits of the model --------------------------------------------------------------------------


def replaced(model):
    model[1].weight = nn.Parameter(torch.ones(64, 64))


def assigned(model):
    state = {name: torch.full(t.shape, 0.01) for name, t in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def loaded(model):
    model.load_state_dict({n: torch.full(t.shape, 0.01) for n, t in model.state_dict().items()})


def other_memory(model):
    model[1].weight.data = torch.ones(64, 64)


def narrower(model):
    model.bfloat16()


def with_a_buffer(model):
    model[1].register_buffer("more", torch.ones(64))


def with_a_parameter(model):
    model[1].register_parameter("more", nn.Parameter(torch.full((64,), 2.0)))
    model[1].register_forward_hook(lambda module, args, out: out * module.more)


def without_a_bias(model):
    model[1].bias = None


def without_a_layer(model):
    del model[3]


def moved(model):
    model.to(model[1].weight.device)


EDITS = (
    *(replaced, assigned, loaded, other_memory, narrower, with_a_buffer, with_a_parameter),
    *(without_a_bias, without_a_layer, moved),
)


@pytest.mark.parametrize("remap", [False, True])
@pytest.mark.parametrize("enable_clone", [False, True])
@pytest.mark.parametrize("edit", EDITS)
def test_a_model_that_was_edited_is_right_after_update_flow(
    pretend_device, edit, enable_clone, remap
):
    model, x = chain(), rows()
    twin = copy.deepcopy(model)
    flow = kerf.DataFlow(model, "cpu", inference_only=True, enable_clone=enable_clone)
    flow.layer_gpus["1"] = 1
    flow(x)
    made = flow.construct_module({"0": 1}) if enable_clone else None
    for net in (model, twin):
        edit(net)
    if remap:
        flow.layer_gpus.update({"0": 1, "1": 0})
    flow.update_flow()
    x = x.to(twin[0].weight.dtype)
    with torch.no_grad():
        expected = twin(x)
        assert torch.equal(flow(x), expected)
        if enable_clone:
            assert torch.equal(flow.construct_module({"2": 1})(x), expected)
        if enable_clone and edit in (replaced, assigned, loaded, other_memory, narrower, moved):
            assert torch.equal(made(x), expected)  # it has the weights in common
        flow.remove()
        assert torch.equal(model(x), expected)


def test_modules_that_come_later_are_refused(pretend_device):
    model, x = chain(), rows()
    flow = kerf.DataFlow(model, inference_only=True, enable_clone=True)
    flow(x)
    model[1] = nn.Linear(64, 64)
    for call in (flow.update_flow, flow.construct_module):
        with pytest.raises(RuntimeError, match="module '1' came into the model after the flow"):
            call()
    with pytest.raises(RuntimeError) as error:
        flow(x)
    assert "module '1' came into the model" in error.value.__notes__[0]
    flow.remove()
    expected = model(x).detach()
    with kerf.DataFlow(model, inference_only=True) as flow:
        assert_equal(flow(x), expected)


def test_weights_that_were_moved_are_named(pretend_device):
    model, x = chain(), rows()
    expected = model(x).detach()
    flow = kerf.DataFlow(model, inference_only=True)
    flow(x)
    model[2].to("pretend:1")
    with pytest.raises(RuntimeError) as error:
        flow(x)
    assert "'2.weight' is on pretend:1, and layer '2' on pretend:0" in error.value.__notes__[0]
    flow.update_flow()
    assert_equal(flow(x), expected)


class Collects(nn.Module):
    """Layers that leave what they have computed in the containers they are given."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Leaves(), Leaves()

    def forward(self, x):
        notes, box = [], Box()
        for layer in (self.first, self.second):
            x = layer(x, notes, {"notes": notes}, box)
            x = x + notes[-1] + box.last
        return x, notes, box.last


@dataclasses.dataclass
class Box:
    last: torch.Tensor = None


class Leaves(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)

    def forward(self, x, notes, named, box):
        y = super().forward(x)
        notes.append(y)
        box.last = 2 * y
        assert named["notes"] is notes
        return y


def test_what_layers_leave_in_empty_containers_comes_to_the_caller(pretend_device):
    torch.manual_seed(0)
    model, x = Collects().eval(), torch.randn(3, 8)
    with torch.no_grad():
        expected = model(x)
        with kerf.DataFlow(model, output_device="cpu") as flow:
            for places in itertools.product([0, 1, "cpu"], repeat=2):
                flow.layer_gpus.update(zip(["first", "second"], places, strict=True))
                flow.update_flow()
                found = flow(x)
                assert {t.device.type for t in (found[0], *found[1], found[2])} == {"cpu"}
                torch.testing.assert_close(found, expected, rtol=0, atol=0)


class CountsFrom(nn.Module):
    """Has no tensors of its own before it is called first."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        if not hasattr(self, "shift"):
            self.register_buffer("shift", torch.ones(8, device=x.device))
        return self.layer(x) + self.shift


def test_modules_are_constructed_of_a_model_that_made_its_buffers_when_called(pretend_device):
    model, x = nn.Sequential(CountsFrom(), CountsFrom()), torch.randn(4, 8)
    expected = copy.deepcopy(model)(x).detach()
    flow = kerf.DataFlow(model, fine_grained=True, inference_only=True, enable_clone=True)
    flow.layer_gpus["0.layer"] = 1
    assert list(flow.layer_gpus) == ["0.layer", "1.layer"]
    for each in (flow, flow.construct_module({"1.layer": 1}), flow):
        assert torch.equal(each(x).cpu(), expected)
    made = flow.construct_module({"1.layer": 1})
    assert torch.equal(made(x).cpu(), expected)
    flow.remove()


class ReadsWeights(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        function = nn.functional.conv1d if x.dim() == 3 else nn.functional.linear
        return function(x, self.inner.weight)


@pytest.mark.parametrize("kind", ["conv", "linear"])
@pytest.mark.parametrize("output_device", [0, "cpu"])
def test_weights_that_are_read_without_a_call_are_explained(pretend_device, kind, output_device):
    inner, x = nn.Linear(8, 8), torch.randn(2, 8)
    if kind == "conv":
        inner, x = nn.Conv1d(8, 8, 1), torch.randn(2, 8, 3)
    flow = kerf.DataFlow(ReadsWeights(inner), output_device)
    flow.layer_gpus["inner"] = 1
    with pytest.raises(RuntimeError) as error:
        flow(x)
    assert "whose weights another one reads" in error.value.__notes__[0]
    with pytest.raises(RuntimeError) as error:
        flow(x.half())  # is that a matter of types alone
    flow.output_device = 1
    flow.update_flow()
    with pytest.raises(RuntimeError) as error:
        flow(x.half())
    assert not hasattr(error.value, "__notes__")


class Positions(nn.Module):
    """Makes tensors where its caller says, as the position embeddings of transformers do."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, size, device, like=None):
        options = like or {"device": device}
        return torch.arange(size, **options) * self.scale, device, options


class Positioned(nn.Module):
    def __init__(self):
        super().__init__()
        self.given, self.named = Positions(), Positions()
        self.inner = nn.Sequential(nn.Linear(8, 8))

    def forward(self, x):
        x = self.inner(x)
        for made, device, options in (
            self.given(8, x.device),
            self.named(8, device=None, like={"device": x.device, "dtype": x.dtype}),
        ):
            assert device in (None, x.device) and options["device"] == x.device
            x = x + made + torch.ones(8, device=options["device"])
        return x


def test_a_device_among_the_arguments_of_a_layer_is_the_layers_own(pretend_device):
    torch.manual_seed(0)
    model, x = Positioned().eval(), torch.randn(3, 8)
    expected = model(x).detach()
    for fine_grained, output_device in itertools.product((False, True), (0, 1, "cpu")):
        with kerf.DataFlow(
            model, output_device, fine_grained=fine_grained, inference_only=True
        ) as flow:
            for seed in range(6):
                scatter(flow, seed)
                flow.update_flow()
                assert_equal(flow(x), expected)


@pytest.mark.parametrize("enable_clone", [False, True])
@pytest.mark.parametrize("inference_only", [False, True])
@pytest.mark.parametrize("removed_in_it", [False, True])
def test_weights_that_moved_in_inference_mode_can_be_trained(
    pretend_device, enable_clone, inference_only, removed_in_it
):
    model, twin, x = chain(3), chain(3), rows()
    model.register_buffer("row", model[0].weight.detach()[0])  # of one memory with a weight
    for parameter in (*model.parameters(), *twin.parameters()):
        parameter.grad = torch.ones_like(parameter)
    with torch.inference_mode():
        flow = kerf.DataFlow(model, 1, enable_clone=enable_clone, inference_only=inference_only)
        flow.layer_gpus.update({"0": 1, "2": "cpu"})
        assert_equal(flow(x), twin(x))
        if enable_clone:
            assert_equal(flow.construct_module({"1": 1})(x), twin(x))
        if removed_in_it:
            flow.remove()
    if not removed_in_it:
        flow.inference_only = False
    net = model if removed_in_it or enable_clone else flow
    if enable_clone:
        flow.remove()
    for each in (net, twin):
        each(x).square().sum().backward()
    flow.remove()
    for a, b in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("enable_clone", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_model_made_in_inference_mode_keeps_to_it(pretend_device, enable_clone, mode):
    x = rows()
    with torch.inference_mode():
        model = chain(3)
        expected = model(x)
    flow = kerf.DataFlow(model, enable_clone=enable_clone, inference_only=True)
    for seed in range(4):
        scatter(flow, seed)
        flow.update_flow()
        with mode():
            assert_equal(flow(x), expected)
        if enable_clone:
            assert_equal(flow.construct_module({"1": 1})(x), expected)
    flow.remove()
    with torch.no_grad():
        assert_equal(model(x), expected)
    assert all(p.requires_grad and p.is_inference() for p in model.parameters())


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(64, 64), None

    def forward(self, x):
        if self.seen is None:
            self.register_buffer("shift", torch.ones(64, device=x.device))
            self.seen = torch.ones(64, device=x.device)
        return self.layer(x) * self.seen + self.shift


@pytest.mark.parametrize("enable_clone", [False, True])
def test_what_a_call_in_inference_mode_leaves_moves_later(pretend_device, enable_clone):
    torch.manual_seed(0)
    model, x = nn.Sequential(Remembers(), Remembers()), rows()
    expected = copy.deepcopy(model)(x).detach()
    flow = kerf.DataFlow(model, enable_clone=enable_clone, inference_only=True)
    with torch.inference_mode():
        assert_equal(flow(x), expected)
    for seed in range(4):
        scatter(flow, seed)
        flow.update_flow()
        assert_equal(flow(x), expected)
    flow.remove()
    with torch.no_grad():
        assert_equal(model(x), expected)
