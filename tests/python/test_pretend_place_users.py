# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""What users do with models that are placed on a (pretend) accelerator: threads, hooks, errors,
caches, quantised layers, several models."""

import copy
import io
import threading

import generators
import models
import pytest
import torch
from comparing import assert_same
from torch import nn

import kerf

DEVICE = "pretend:0"
HOW = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}


def total_bytes(model):
    return sum(p.nbytes for p in model.parameters())


def place_small(model, share=3, **more):
    limit = int(total_bytes(model) / share) + sum(b.nbytes for b in model.buffers())
    return kerf.place(model, max_memory={0: limit}, **more)


class Breaks(nn.Linear):
    raises = None

    def forward(self, x):
        out = super().forward(x)
        if self.raises is not None:
            raise self.raises
        return out


def breakable(seed=0, layers=6):
    torch.manual_seed(seed)
    return nn.Sequential(*[Breaks(64, 64) for _ in range(layers)]).eval(), torch.randn(4, 64)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception_inside_forward_leaves_the_model_usable(pretend_device, kind):
    model, x = breakable()
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model)
        for number in range(6):
            model[number].raises = kind("on purpose")
            with pretend_device.copy_delay(0.002), pytest.raises(kind, match="on purpose"):
                model(x)
            model[number].raises = None
            assert torch.equal(model(x), expected)
            assert model(x).device.type == "cpu"
    placed.remove()


def test_several_threads_take_turns(pretend_device):
    model, x = breakable()
    with torch.no_grad():
        inputs = [torch.randn(3, 64) for _ in range(4)]
        expected = [model(each) for each in inputs]
    placed = place_small(model)
    wrong = []

    def run(number):
        try:
            for call in range(8):
                given = inputs[number].to(DEVICE) if call % 2 else inputs[number]
                if not torch.equal(placed(given).cpu(), expected[number]):
                    wrong.append(number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    placed.remove()


def test_two_placed_models_share_a_device(pretend_device):
    (a, x), (b, _) = breakable(0), breakable(1, layers=9)
    with torch.no_grad():
        expected = a(x), b(a(x))
        first, second = place_small(a), place_small(b)
        for _ in range(3):
            assert torch.equal(a(x), expected[0])
            there = a(x.to(DEVICE))
            assert there.device.type == "pretend"
            assert torch.equal(b(there).cpu(), expected[1])
        both = nn.Sequential(a, b)
        assert torch.equal(both(x), expected[1])
        first.remove()
        assert torch.equal(b(a(x)), expected[1])
        second.remove()
        assert torch.equal(both(x), expected[1])


def test_a_model_inside_of_a_placed_one_is_not_placed_again(pretend_device):
    model, x = breakable()
    outer = nn.Sequential(model, nn.Linear(64, 64)).eval()
    with torch.no_grad():
        expected = outer(x)
    placed = place_small(model)
    with pytest.raises(ValueError, match="is placed already|expected weights on the host"):
        place_small(outer)
    placed.remove()
    placed = place_small(outer)
    assert torch.equal(placed(x), expected)
    with pytest.raises(ValueError, match="is placed already|expected weights on the host"):
        place_small(model)
    placed.remove()


def test_hooks_of_the_users_own_see_weights_and_arguments_on_the_device(pretend_device):
    model, x = breakable()
    seen = []

    def before(module, args):
        seen.append(("before", module.weight.device.type, args[0].device.type))

    def after(module, args, out):
        seen.append(("after", module.weight.device.type, out.device.type))
        return out + 1

    early = [model[n].register_forward_pre_hook(before) for n in (0, 3)]
    early += [model[n].register_forward_hook(after) for n in (0, 3)]
    with torch.no_grad():
        expected = model(x)
        seen.clear()
        placed = place_small(model)
        late = model[4].register_forward_hook(lambda module, args, out: 2 * out)
        assert not torch.equal(model(x), expected)
        late.remove()
        kinds = [kind for kind, *_ in seen]
        assert kinds == ["before", "after"] * 2
        assert {kind for _, *where in seen for kind in where} == {"pretend"}
        assert torch.equal(model(x), expected)
    placed.remove()
    with torch.no_grad():
        assert torch.equal(model(x), expected)
    for hook in early:
        hook.remove()


def test_backward_hooks_stay_where_nothing_is_to_be_taken(pretend_device):
    model, x = breakable()
    calls = []
    hook = model[2].register_full_backward_hook(lambda *a: calls.append(1))
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model)
        assert torch.equal(model(x), expected)
    with pytest.raises(RuntimeError, match="with gradients to be taken"):
        model(x)
    placed.remove()
    model(x).sum().backward()
    assert calls == [1]
    hook.remove()


@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral", "gemma2"])
def test_caches_of_fixed_size_and_texts_of_other_lengths(pretend_device, name):
    model, call = generators.build(name)
    plain = copy.deepcopy(model)
    placed = place_small(model)
    for length in (9, 4, 7):
        some = {key: value[:, -length:] for key, value in call.items()}
        for more in ({}, {"cache_implementation": "static"}, {"num_beams": 2}):
            expected = plain.generate(**some, **HOW, **more)
            assert torch.equal(model.generate(**some, **HOW, **more).cpu(), expected)
    placed.remove()


@pytest.mark.parametrize("name", ["llama_untied", "gpt_neox"])
def test_a_loop_with_a_cache_of_ones_own(pretend_device, name):
    model, call = generators.build(name)
    plain, ids = copy.deepcopy(model), call["input_ids"][:1]
    placed = place_small(model)

    def decode(model):
        cache, step, logits = None, ids, []
        with torch.no_grad():
            for _ in range(4):
                out = model(step, past_key_values=cache, use_cache=True)
                cache, step = out.past_key_values, out.logits[:, -1:].argmax(-1)
                assert out.logits.device.type == "cpu"
                logits.append(out.logits)
        return torch.cat(logits, 1)

    assert torch.equal(decode(model), decode(plain))
    placed.remove()


def test_a_crop_of_a_transformers_model_is_called_by_itself(pretend_device):
    model, _, kwargs = models.build("llama_untied")
    with torch.no_grad():
        hidden = model.model.embed_tokens(kwargs["input_ids"])
        expected = model.lm_head(hidden)
        placed = place_small(model, 2)
        assert torch.equal(model.model.embed_tokens(kwargs["input_ids"]), hidden)
        assert torch.equal(model.lm_head(hidden), expected)
        there = model.lm_head(hidden.to(DEVICE))
        assert there.device.type == "pretend" and torch.equal(there.cpu(), expected)
    placed.remove()


def test_remove_frees_the_device_after_many_placements(pretend_device):
    model, x = breakable()
    with torch.no_grad():
        expected = model(x)
        before = pretend_device.memory_allocated(0)
        for _ in range(5):
            placed = place_small(model)
            assert torch.equal(model(x), expected)
            placed.remove()
    assert pretend_device.memory_allocated(0) <= before
    assert pretend_device.pinned_memory_allocated() == 0


def test_a_device_without_the_memory_says_so_and_the_model_stays(pretend_device):
    model, x = breakable()
    with torch.no_grad():
        expected = model(x)
    own = [p.data_ptr() for p in model.parameters()]
    pretend_device.set_limit(0, pretend_device.memory_allocated(0) + 20000)
    with pytest.raises(RuntimeError, match="memory"):
        place_small(model, link_bytes_per_second=1e9)
    pretend_device.set_limit(0, None)
    assert all(p.device.type == "cpu" and not p.is_pinned() for p in model.parameters())
    assert len(own) == len(list(model.parameters()))
    with torch.no_grad():
        assert torch.equal(model(x), expected)
    placed = place_small(model)
    assert torch.equal(placed(x), expected)
    placed.remove()


def saved_and_loaded(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, saved_and_loaded], ids=["copied", "saved"])
@pytest.mark.parametrize("name", ["gpt2", "lstm"])
def test_a_copy_has_all_its_weights_on_the_host(pretend_device, name, copied):
    model, args, kwargs = models.build(name)
    count = sum(p.numel() for p in model.parameters())
    with torch.no_grad():
        expected = model(*args, **kwargs)
        placed = place_small(model, 1.2 if name == "lstm" else 2)
        assert any(p.device.type == "pretend" for p in model.parameters())
        allocated = pretend_device.memory_allocated(0)
        made = copied(model)
        assert pretend_device.memory_allocated(0) == allocated
        assert all(t.device.type == "cpu" for t in made.state_dict().values())
        assert sum(p.numel() for p in made.parameters()) == count  # tied ones still are
        assert all(type(m._parameters) is dict for m in made.modules())
        assert_same(made(*args, **kwargs), expected)
        assert_same(model(*args, **kwargs), expected, wherever=True)
    placed.remove()
    assert all(type(m._parameters) is type(m._buffers) is dict for m in model.modules())


def test_a_copy_made_inside_of_a_call_is_whole(pretend_device):
    model, x = breakable()
    with torch.no_grad():
        expected = model(x)
    placed, made = place_small(model), []
    hook = model[3].register_forward_pre_hook(lambda *_: made.append(copy.deepcopy(model)))
    placed(x)
    hook.remove()
    with torch.no_grad():
        made[0][3]._forward_pre_hooks.clear()
        assert torch.equal(made[0](x), expected)
    placed.remove()


def test_modules_of_a_placed_model_are_not_placed_with_another(pretend_device):
    model, x = breakable()
    outer = nn.Sequential(nn.Linear(64, 64), model[2:4], nn.Linear(64, 64)).eval()
    tied = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])
    tied[3].weight = model[2].weight
    placed = place_small(model)
    for other, name in ((outer, "1.2"), (tied, "3.weight"), (model[2], "")):
        what = f"'{name}' is" if name else "it is"
        with pytest.raises(ValueError, match=f"{what} part of a Sequential that is placed already"):
            place_small(other, 2)
    with pytest.raises(ValueError, match="placed by kerf.place"):
        kerf.DataFlow(outer)
    placed.remove()
    with kerf.DataFlow(outer) as flow, pytest.raises(ValueError, match="is part of a DataFlow"):
        kerf.place(flow.module, max_memory={0: "1MiB"})
    place_small(outer, 2).remove()


def test_remove_waits_for_calls_and_is_refused_inside_of_one(pretend_device):
    model, x = breakable()
    with torch.no_grad():
        expected = model(x)
    for _ in range(5):
        placed, stop, found = place_small(model), threading.Event(), []

        def call(stop=stop, found=found):
            try:
                with torch.no_grad():
                    while not stop.is_set():
                        found.append(torch.equal(model(x), expected))
            except BaseException as error:
                found.append(error)

        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        while len(found) < 8:
            pass
        placed.remove()
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
        assert all(one is True for one in found), found
    placed = place_small(model)
    hook = model[3].register_forward_hook(lambda *_: placed.remove())
    with pytest.raises(RuntimeError, match=r"remove\(\) inside a call of the model"):
        placed(x)
    hook.remove()
    assert torch.equal(placed(x), expected)
    placed.remove()


class Halved(nn.Module):
    """A batch of several is cut, and each half is the model's own call again."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])

    def forward(self, x):
        if len(x) > 1:
            return torch.cat([self(half) for half in x.chunk(2)]) + x
        return self.body(x)


def test_a_model_may_call_itself(pretend_device):
    model, x = Halved().eval(), torch.randn(5, 64)
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model)
        for _ in range(2):
            found = model(x)
            assert torch.equal(found, expected) and found.device.type == "cpu"
        model.body[3].register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(x)
        model.body[3]._forward_pre_hooks.popitem()
        assert torch.equal(model(x), expected)
    placed.remove()


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("called", [0, 1, "all"])
def test_after_an_interrupt_any_module_may_be_called_from_outside(pretend_device, called):
    parts = [breakable(seed)[0] for seed in range(2)]
    model, x = nn.Sequential(*parts), torch.randn(4, 64)
    module = model if called == "all" else model[called]
    with torch.no_grad():
        expected = module(x)
        placed = place_small(model)
        for cut_short in (model[0], model):
            parts[0][3].raises = KeyboardInterrupt()
            with pytest.raises(KeyboardInterrupt):
                cut_short(x)
            parts[0][3].raises = None
            found = module(x)
            assert found.device.type == "cpu" and torch.equal(found, expected)
    placed.remove()


class GivesItsWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self):
        return self.weight


class Asks(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleList([GivesItsWeight() for _ in range(6)])

    def forward(self, x):
        for weight in [part() for part in self.parts]:
            x = x @ weight
        return x


@pytest.mark.filterwarnings("ignore:.*is read while the module does not run")
def test_a_module_may_give_its_weight_away(pretend_device):
    model, x = Asks().eval(), torch.randn(4, 64)
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model)
        assert torch.equal(model(x), expected)
        model.parts[2].weight.mul_(2)
        assert torch.equal(model(x), 2 * expected)
    placed.remove()


class Scaled(nn.Module):
    """Calls its layers with other weights than they have, by PyTorch's own function."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(6)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.func.functional_call(layer, {"weight": layer.weight * 2}, (x,))
        return x


@pytest.mark.filterwarnings("ignore:.*is read while the module does not run")
def test_weights_that_are_put_back_are_those_of_the_model(pretend_device):
    model, x = Scaled().eval(), torch.randn(4, 64)
    with torch.no_grad():
        expected = model(x)
        before = [(name, id(p)) for name, p in model.named_parameters()]
        placed = place_small(model)
        assert torch.equal(model(x), expected)
        assert [(name, id(p)) for name, p in model.named_parameters()] == before
        model.layers[0].weight.zero_()
        edited = model(x)
        placed.remove()
        assert torch.equal(model(x), edited) and not torch.equal(edited, expected)


class Late(nn.Linear):
    """Makes a buffer when it is called first, where the call is, and a new weight each time."""

    def forward(self, x):
        if not hasattr(self, "scale"):
            scale = torch.full((64,), 0.5, device=x.device)
            self.register_buffer("scale", scale, persistent=False)
        out = super().forward(x) * self.scale
        self.bias = nn.Parameter(self.bias.detach() + 1)
        return out


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_buffers_and_weights_that_come_later_go_home(pretend_device, mode):
    torch.manual_seed(0)
    model, x = nn.Sequential(*[Late(64, 64) for _ in range(6)]).eval(), torch.randn(4, 64)
    plain = copy.deepcopy(model)
    with mode():
        expected = [plain(x) for _ in range(3)]
        placed = place_small(model)
        assert torch.equal(model(x), expected[0])
    copied = copy.deepcopy(model)
    placed.remove()
    for made in (copied, model):
        assert all(t.device.type == "cpu" for t in (*made.parameters(), *made.buffers()))
        with mode():
            assert [torch.equal(made(x), y) for y in expected[1:]] == [True, True]
    place_small(model, 0.5).remove()


def test_weights_that_are_put_in_place_of_others_are_on_the_device(pretend_device):
    model, x = breakable()
    reference = copy.deepcopy(model)
    state = {name: torch.randn_like(p) for name, p in model.state_dict().items()}
    placed = place_small(model)
    for each in (model, reference):
        each.load_state_dict({name: t.clone() for name, t in state.items()}, assign=True)
    with torch.no_grad():
        expected = reference(x)
        with pytest.warns(UserWarning, match="'0.weight' and 11 more came into the model after"):
            assert torch.equal(model(x), expected)
        model.append(nn.Linear(64, 64))
        with pytest.warns(UserWarning, match="'6.weight' and 1 more came into the model after"):
            expected = reference.append(copy.deepcopy(model[6]).cpu())(x)
            assert torch.equal(model(x), expected)
        placed.remove()
        assert all(p.is_cpu for p in model.parameters()) and torch.equal(model(x), expected)


class ReadsInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        return self.last(nn.functional.linear(x, self.layer.weight) + self.layer(x))


@pytest.mark.filterwarnings("ignore:.*is read while the module does not run")
def test_a_module_called_by_itself_may_read_weights_of_others(pretend_device):
    torch.manual_seed(0)
    model = nn.Sequential(*[ReadsInside() for _ in range(4)]).eval()
    plain, x = copy.deepcopy(model), torch.randn(4, 64)
    placed = kerf.place(model, max_memory={0: "20KB"})  # one linear layer
    with torch.no_grad():
        for number in (0, 3, 1, 1):
            found = model[number](x)
            assert torch.equal(found, plain[number](x)) and found.device.type == "cpu"
            for each in (model, plain):
                each[number].layer.weight.mul_(2)
        assert torch.equal(model(x), plain(x))
    placed.remove()


def test_gradients_of_a_model_that_fits_go_home_with_its_weights(pretend_device):
    model, x = breakable()
    plain = copy.deepcopy(model)
    placed = place_small(model, 0.5)
    for each in (model, plain):
        each(x).sum().backward()
    placed.remove()
    for found, expected in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)


def test_what_torch_compile_made_is_placed_by_what_is_inside(pretend_device):
    model, x = breakable()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        expected = model(x)
        with pytest.raises(ValueError, match="place model._orig_mod"):
            place_small(compiled)
        placed = place_small(compiled._orig_mod)
        for _ in range(2):
            assert torch.equal(compiled(x), expected)
        placed.remove()
        assert torch.equal(compiled(x), expected)


@pytest.mark.parametrize("where", ["cpu", "pretend:0", "pretend:1"])
@pytest.mark.parametrize("has_buffers", [False, True])
def test_a_model_that_is_moved_as_a_whole_is_refused_until_it_is_removed(
    pretend_device, where, has_buffers
):
    model, x = breakable()
    if has_buffers:
        model.append(nn.BatchNorm1d(64).eval())
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model)
        model(x)
        model.to(where)
        for _ in range(2):
            with pytest.raises(ValueError, match="moved to .* while the model is placed; .*remove"):
                model(x)
        placed.remove()
        assert {t.device.type for t in model.state_dict().values()} == {"cpu"}
        assert torch.equal(model(x), expected)


class Lists(nn.Module):
    """Reads weights from a list: those of a module, and one that no module has."""

    def __init__(self, registered=True):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(32, 32) for _ in range(8)])
        self.more = nn.ParameterList([nn.Parameter(torch.randn(32)) for _ in range(2)])
        self.ws = [self.layers[5].weight, self.more[1]]
        if not registered:
            self.ws.append(nn.Parameter(torch.randn(32)))

    def forward(self, x):
        x = self.layers(x) @ torch.stack([self.ws[0], self.ws[0]]).sum(0)
        for w in self.ws[1:]:
            x = x * w
        return x


@pytest.mark.parametrize("how", ["max_memory", "device_map"])
@pytest.mark.parametrize("registered", [True, False])
def test_weights_that_are_read_from_a_list_are_on_the_device(pretend_device, registered, how):
    model = Lists(registered).eval()
    x = torch.randn(3, 32)
    own = [*model.parameters(), *model.ws]
    with torch.no_grad():
        expected = model(x)
        if how == "max_memory":
            placed = place_small(model, 2)
        else:
            placed = kerf.place(model, device_map={"": "cpu", "layers.0": 0})
        assert any(unit.residence == "streamed" for unit in placed.placement.units)
        assert all(w.device == torch.device(DEVICE) for w in model.ws)
        for _ in range(2):
            torch.testing.assert_close(model(x), expected)
        placed.remove()
        assert all(a is b for a, b in zip([*model.parameters(), *model.ws], own, strict=True))
        assert all(w.device.type == "cpu" for w in own)
        assert torch.equal(model(x), expected)


def test_a_list_of_all_weights_does_not_keep_them_on_the_device(pretend_device):
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(8)]).eval()
    model.trained = list(model.parameters())  # for an optimizer
    x = torch.randn(3, 32)
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model)
        torch.testing.assert_close(model(x), expected)
        placed.remove()


class CallsInside(nn.Linear):
    inner = None

    def forward(self, x):
        return super().forward(x if self.inner is None else self.inner[0](x))


def test_an_error_names_the_module_that_finds_no_slot(pretend_device):
    layers = [CallsInside(64, 64) for _ in range(12)]
    for layer, following in zip(layers, layers[1:], strict=False):
        layer.inner = [following]
    model = nn.Sequential(*layers).eval()
    model.forward = layers[0].__call__
    placed = place_small(model, 4, host_computes=False)
    with torch.no_grad(), pytest.raises(RuntimeError, match=r"module '\d+' is used while all"):
        model(torch.randn(2, 64))
    placed.remove()
