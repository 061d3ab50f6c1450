# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Models that do not fit in the memory they are given run as they are, and stay what they are."""

import concurrent.futures
import copy
import os
import pickle
import signal
import subprocess
import sys
import threading

import models
import numpy
import pytest
import torch
from comparing import assert_same
from small import mlp
from torch import nn

import kerf

# One has all its weights in the model itself, where they are used at any time.
ALL = [name for name in (*models.FLOOR, *models.OTHERS) if name != "slice_writer"]


def total_bytes(model):
    return sum(p.nbytes for p in model.parameters())


def place_small(model, folder, share=3, **options):
    """In a part of its bytes, or in what its largest layers need at least."""
    for part in (share, 2.5, 2, 1.5, 1.1):
        try:
            limit = int(total_bytes(model) / part) + sum(b.nbytes for b in model.buffers())
            return kerf.place(model, max_memory={"cpu": limit, "disk": folder}, **options)
        except ValueError as error:
            assert "does not fit" in str(error)
    raise AssertionError("nothing fits")


@pytest.mark.parametrize("name", ALL)
def test_a_model_of_the_zoo_gives_what_it_gives(name, tmp_path):
    model, args, kwargs = models.build(name)
    with torch.no_grad():
        expected = copy.deepcopy(model)(*args, **kwargs)
        placed = place_small(model, tmp_path)
        assert any(unit.residence == "streamed" for unit in placed.placement.units)
        assert placed.placement.device_bytes <= placed.placement.memory
        for call in range(3):
            assert_same(model(*args, **kwargs), expected)
            if call == 0:
                misses = placed.stats["misses"]
        assert placed.stats["misses"] == misses or name == "mixtral"  # routed experts
    placed.remove()


@pytest.mark.parametrize("name", ["gpt2", "llama_tied", "qwen2", "mamba", "t5", "bart", "mixtral"])
@pytest.mark.parametrize("cache", [None, "static"])
def test_generate_gives_the_same_text(name, cache, tmp_path):
    if cache and name in ("mamba", "t5", "bart"):
        pytest.skip("the model has no such cache")
    model, _, _ = models.build(name)
    ids = models.ids(2, 9)
    how = {"max_new_tokens": 7, "do_sample": False, "pad_token_id": 0}
    how |= {"cache_implementation": cache} if cache else {}
    expected = copy.deepcopy(model).generate(ids, **how)
    placed = place_small(model, tmp_path)
    assert torch.equal(model.generate(ids, **how), expected)
    assert torch.equal(placed.generate(ids[:, :5], **how), model.generate(ids[:, :5], **how))
    placed.remove()
    assert torch.equal(model.generate(ids, **how), expected)


def test_the_model_is_its_own_at_any_time(tmp_path):
    model, x = mlp()
    calls = []
    own = model[2].register_forward_pre_hook(lambda m, a: calls.append(m.weight.sum().item()))
    state = {k: v.clone() for k, v in model.state_dict().items()}
    tensors = [id(t) for t in model.parameters()]
    hooks = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    placed = place_small(model, tmp_path)
    with torch.no_grad():
        model(x)
    assert calls == [state["2.weight"].sum().item()]
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    placed.remove()
    placed.remove()
    assert [id(t) for t in model.parameters()] == tensors
    assert hooks == [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    assert "_kerf_placed" not in model.__dict__
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert not os.listdir(tmp_path)
    own.remove()


def edits():
    def in_place(model):
        model[4].weight.mul_(2)

    def behind_autograd(model):
        model[4].weight.data.mul_(2)

    def other_data(model):
        model[4].weight.data = model[4].weight.data * 2

    def loaded(model):
        model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})

    return [in_place, behind_autograd, other_data, loaded]


@pytest.mark.parametrize("edit", edits(), ids=lambda e: e.__name__)
@pytest.mark.parametrize("calls", [0, 2])
def test_an_edit_is_seen_by_the_next_call(edit, calls, tmp_path):
    model, x = mlp()
    reference = copy.deepcopy(model)
    placed = place_small(model, tmp_path)
    with torch.no_grad():
        for _ in range(calls):
            model(x)
        for _ in range(2):
            edit(model)
            edit(reference)
            assert torch.equal(model(x), reference(x))
            assert torch.equal(model(x), reference(x))
    placed.remove()
    with torch.no_grad():
        assert torch.equal(model(x), reference(x))


def test_what_forward_writes_into_a_weight_stays(tmp_path):
    class Clamps(nn.Linear):
        def forward(self, x):
            self.weight.data.clamp_(-0.1, 0.1)
            self.bias.mul_(0.5)
            return super().forward(x)

    torch.manual_seed(0)
    model = nn.Sequential(*[Clamps(64, 64) for _ in range(6)]).eval()
    reference, x = copy.deepcopy(model), torch.randn(4, 64)
    placed = place_small(model, tmp_path)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(model(x), reference(x))
    placed.remove()
    assert torch.equal(model[3].bias, reference[3].bias)


def test_results_and_attributes_that_are_views_of_weights_stay_right(tmp_path):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 64))

        def forward(self, n):
            self.last = self.weight[-1]
            return self.weight[:n], {"all": self.weight, "turned": self.weight.t()}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(Table() for _ in range(6))

        def forward(self, n):
            made = [table(n) for table in self.tables]
            return [(a.clone(), b["all"] + 0, b["turned"] + 0) for a, b in made], made[0][0]

    torch.manual_seed(0)
    model = Model().eval()
    with torch.no_grad():
        expected = copy.deepcopy(model)(5)
        placed = place_small(model, tmp_path)
        for _ in range(3):
            assert_same(model(5), expected, exact=True)
            rows = [table.weight[-1].clone() for table in model.tables]
            assert all(torch.equal(t.last, r) for t, r in zip(model.tables, rows, strict=True))
    placed.remove()


def test_gradients_through_streamed_weights_are_refused(tmp_path):
    model, x = mlp()
    placed = place_small(model, tmp_path)
    with pytest.raises(RuntimeError, match=r"module '\d+' is called with gradients"):
        model(x)
    model.requires_grad_(False)
    with pytest.raises(RuntimeError, match="with gradients to be taken"):
        model(x.requires_grad_())
    assert model(x.detach()).shape == x.shape
    placed(x)
    placed.remove()


class Breaks(nn.Linear):
    raises = None

    def forward(self, x):
        if self.raises is not None:
            raise self.raises
        return super().forward(x)


def breakable():
    torch.manual_seed(0)
    return nn.Sequential(*[Breaks(64, 64) for _ in range(6)]).eval(), torch.randn(4, 64)


def called_on_another_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(timeout=20)
    return found[0]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception_inside_forward_leaves_the_model_usable(kind, tmp_path):
    model, x = breakable()
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model, tmp_path)
        for number in range(6):
            model[number].raises = kind("on purpose")
            with pytest.raises(kind, match="on purpose"):
                model(x)
            model[number].raises = None
            assert torch.equal(model(x), expected)
        assert torch.equal(called_on_another_thread(lambda: placed(x)), expected)
    placed.remove()


def test_several_threads_take_turns(tmp_path):
    model, x = mlp()
    with torch.no_grad():
        expected = model(x)
    placed = place_small(model, tmp_path)
    wrong = []

    def run():
        for _ in range(25):
            if not torch.equal(placed(x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    placed.remove()


def test_a_copy_of_a_placed_model_is_a_model_of_its_own(tmp_path):
    model, x = mlp()
    (tmp_path / "again").mkdir()
    placed = place_small(model, tmp_path)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        expected = model(x)
        twin[0].weight.mul_(2)
        assert not torch.equal(twin(x), expected)
        assert torch.equal(model(x), expected)
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again(x), expected)
    second = place_small(again, tmp_path / "again")
    assert torch.equal(second(x), placed(x))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="handle of a placed model cannot be copied"):
            copied(placed)
    placed.remove()


def test_a_checkpoint_gives_a_model_without_weights_its_own(tmp_path):
    original, _, kwargs = models.build("llama_untied")
    original.save_pretrained(tmp_path, max_shard_size="60KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    with kerf.empty_weights():
        empty = type(original)(original.config).eval()
    assert all(p.is_meta for p in empty.parameters())
    meta = [id(p) for p in empty.parameters()]
    placed = kerf.place(empty, max_memory={"cpu": total_bytes(original) // 2}, checkpoint=tmp_path)
    with torch.no_grad():
        expected = original(**kwargs)
        assert_same(empty(**kwargs), expected)
        assert_same(placed(**kwargs), expected)
    assert all(torch.equal(v, original.state_dict()[k]) for k, v in empty.state_dict().items())
    placed.remove()
    assert [id(p) for p in empty.parameters()] == meta


@pytest.mark.parametrize("differ", [False, True])
def test_a_checkpoint_may_name_a_tied_weight_twice_if_it_is_the_same(differ, tmp_path):
    from safetensors.torch import save_file

    model, x = mlp()
    model[6].weight = model[0].weight
    state = {name: t.clone() for name, t in model.state_dict().items()}
    assert {"0.weight", "6.weight"} < set(state)
    state["6.weight"][-1, -1] += differ
    save_file(state, tmp_path / "model.safetensors")
    limits, before = {"cpu": total_bytes(model) // 2}, model[0].weight.data_ptr()
    if differ:
        with pytest.raises(ValueError, match="other numbers for '0.weight' and '6.weight'"):
            kerf.place(model, max_memory=limits, checkpoint=tmp_path)
        assert model[0].weight.data_ptr() == before
    else:
        expected = model(x).detach()
        placed = kerf.place(model, max_memory=limits, checkpoint=tmp_path)
        assert torch.equal(placed(x), expected)
        placed.remove()


def test_bad_arguments_are_refused_and_the_model_stays(tmp_path):
    model, x = mlp()
    before = [id(p) for p in model.parameters()]
    with pytest.raises(ValueError, match="the memory for weights"):
        kerf.place(model)
    with pytest.raises(ValueError, match="an accelerator that this machine has"):
        kerf.place(model, max_memory={"cuda:99": "2GiB", "cpu": "4GiB"})
    with pytest.raises(ValueError, match="devices and 'disk'"):
        kerf.place(model, max_memory={"the card": "2GiB"})
    with pytest.raises(ValueError, match="a folder that exists"):
        kerf.place(model, max_memory={"cpu": "1MiB", "disk": tmp_path / "none"})
    with pytest.raises(ValueError, match="no file has them"):
        kerf.place(model, max_memory={"cpu": "64KiB"})
    with pytest.raises(ValueError, match="does not fit.*at least 16.2 KiB are needed"):
        kerf.place(model, max_memory={"cpu": "4KiB", "disk": tmp_path})
    with pytest.raises(ValueError, match="must be there is the model itself with 1.25 KiB"):
        kerf.place(nn.Linear(16, 16).eval(), max_memory={"cpu": "1KiB", "disk": tmp_path})
    (tmp_path / "model.safetensors").write_bytes(b"nonsense" * 9)
    with pytest.raises(ValueError, match="model.safetensors"):
        kerf.place(model, max_memory={"cpu": "64KiB"}, checkpoint=tmp_path)
    assert [id(p) for p in model.parameters()] == before
    placed = place_small(model, tmp_path)
    with pytest.raises(ValueError, match="is placed already"):
        kerf.place(model, max_memory={"cpu": "64KiB", "disk": tmp_path})
    placed.remove()
    with torch.no_grad():
        assert model(x).shape == x.shape


def test_a_folder_that_takes_no_files_is_named():
    model, _ = mlp()
    with pytest.raises(OSError, match="/proc/kerf-weights.*expected a folder that can be written"):
        kerf.place(model, max_memory={"cpu": "64KiB", "disk": "/proc"})


def test_two_models_in_one_folder_keep_their_own_weights(tmp_path):
    (a, x), (b, _) = mlp(), mlp()
    nn.init.normal_(b[0].weight)
    with torch.no_grad():
        expected = a(x), b(x)
        first, second = place_small(a, tmp_path), place_small(b, tmp_path)
        assert torch.equal(a(x), expected[0]) and torch.equal(b(x), expected[1])
        second.remove()
        assert torch.equal(a(x), expected[0])
    first.remove()
    assert first.stats["uses"] > 0


def test_what_was_assigned_after_place_stays(tmp_path):
    model, x = mlp()
    other, _ = mlp()
    nn.init.normal_(other[0].weight)
    placed = place_small(model, tmp_path)
    model.load_state_dict(other.state_dict(), assign=True)
    model.register_buffer("late", torch.ones(2))
    placed.remove()
    with torch.no_grad():
        assert torch.equal(model(x), other(x))
    assert "late" in dict(model.named_buffers())


def test_parameters_that_share_memory_go_on_doing_so(tmp_path):
    model, x = mlp()
    model[6].weight.data = model[0].weight.data
    reference = copy.deepcopy(model)
    reference[6].weight.data = reference[0].weight.data
    placed = place_small(model, tmp_path)
    with torch.no_grad():
        for each in (model, reference):
            each[0].weight.mul_(1.5)
        assert torch.equal(model(x), reference(x))
    placed.remove()
    assert model[6].weight.data_ptr() == model[0].weight.data_ptr()


class WithItsTranspose(nn.Linear):
    """A buffer that is a view of the weight."""

    def __init__(self):
        super().__init__(64, 64)
        self.register_buffer("turned", self.weight.detach().T)

    def forward(self, x):
        return super().forward(x) + x @ self.turned


def test_a_buffer_that_shares_memory_with_a_weight_goes_on_doing_so(tmp_path):
    torch.manual_seed(0)
    layers = [nn.Linear(64, 64) for _ in range(6)]
    model, x = nn.Sequential(*layers, WithItsTranspose()).eval(), torch.randn(4, 64)
    reference = copy.deepcopy(model)
    reference[6].turned = reference[6].weight.detach().T
    placed = place_small(model, tmp_path, 1.5)
    assert any(unit.residence == "streamed" for unit in placed.placement.units)
    with torch.no_grad():
        for end in (placed.remove, lambda: None):
            for each in (model, reference):
                each[6].weight.mul_(1.5)
            assert torch.equal(model(x), reference(x))
            end()


@pytest.mark.parametrize("form", [torch.channels_last, "transposed"])
def test_weights_keep_the_order_they_have_in_memory(form, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Conv2d(8, 8, 3, padding=1) for _ in range(6)]).eval()
    if form == "transposed":
        for layer in model:
            layer.weight.data = layer.weight.data.transpose(0, 1)
    else:
        model.to(memory_format=form)
    strides = [p.stride() for p in model.parameters()]
    x = torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model, tmp_path)
        for _ in range(2):
            found = model(x)
            assert torch.equal(found, expected) and found.stride() == expected.stride()
        assert [p.stride() for p in model.parameters()] == strides
        placed.remove()
    assert [p.stride() for p in model.parameters()] == strides


def test_threads_inside_a_forward_are_refused_and_do_not_hang(tmp_path):
    class Spread(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

        def forward(self, x):
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                return sum(pool.map(lambda layer: layer(x).detach(), self.layers))

    model = Spread().eval().requires_grad_(False)
    x = torch.randn(2, 64)
    placed = place_small(model, tmp_path)
    with pytest.raises(RuntimeError, match="is called on a thread of its own"):
        model(x)
    placed.remove()
    model(x)


def test_an_interrupted_call_does_not_keep_others_waiting(tmp_path):
    model, x = breakable()
    with torch.no_grad():
        expected = model(x)
    placed = place_small(model, tmp_path)
    model[4].raises = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        placed(x)
    model[4].raises = None
    assert torch.equal(called_on_another_thread(lambda: placed(x)), expected)
    placed.remove()


def test_a_forked_process_uses_the_weights_where_they_are(tmp_path):
    model, x = mlp()
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model, tmp_path)
        model(x)
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)  # the others were not forked
            signal.alarm(20)
            os._exit(0 if torch.allclose(model(x), expected) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert torch.equal(model(x), expected)
    placed.remove()


def test_a_module_inside_of_two_is_there_with_either(tmp_path):
    shared = nn.Linear(64, 64)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = shared
            self.blocks = nn.ModuleList(nn.Sequential(shared, nn.Linear(64, 64)) for _ in range(3))

        def forward(self, x):
            x = self.shared(x)
            for block in self.blocks:
                x = block(x)
            return x

    model = Model().eval()
    x = torch.randn(2, 64)
    with torch.no_grad():
        expected = model(x)
        placed = place_small(model, tmp_path, no_split_module_classes=["Sequential"])
        for _ in range(3):
            assert torch.equal(model(x), expected)
    placed.remove()


def odd_models():
    sparse = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])
    sparse[2].extra = nn.Parameter(torch.eye(64).to_sparse(), requires_grad=False)
    with torch.inference_mode():
        inference = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])
    quantised = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])
    weight = torch.quantize_per_tensor(torch.randn(64, 64), 0.05, 3, torch.qint8)
    quantised[2].extra = nn.Parameter(weight, requires_grad=False)
    return {"sparse": sparse, "inference": inference, "quantised": quantised}


@pytest.mark.parametrize("kind", ["sparse", "inference", "quantised"])
def test_weights_that_cannot_be_streamed_stay(kind, tmp_path):
    model = odd_models()[kind].eval()
    x = torch.randn(2, 64)
    with torch.inference_mode():
        expected = model(x)
        limit = total_bytes(nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]))
        limit = limit if kind == "inference" else limit // 2
        placed = kerf.place(model, max_memory={"cpu": limit, "disk": tmp_path})
        assert torch.equal(model(x), expected)
    placed.remove()


def test_weights_that_are_not_there_yet_are_named():
    for model in (nn.LazyLinear(8), nn.Sequential(nn.Linear(8, 8), nn.LazyLinear(8))):
        for wrap in (lambda m: kerf.place(m, max_memory={"cpu": "1MiB"}), kerf.DataFlow):
            with pytest.raises(ValueError, match="weight' has no shape before the first call"):
                wrap(model)
    with torch.device("meta"):
        empty = nn.Linear(8, 8)
    with pytest.raises(ValueError, match="'weight' is on the meta device and has no numbers"):
        kerf.DataFlow(empty)


def test_a_model_without_weights_is_placed_at_once():
    placed = kerf.place(nn.Identity(), max_memory={"cpu": numpy.int64(1024)})
    assert placed(3) == 3
    placed.remove()


def test_a_checkpoint_is_loaded_into_the_parameters_there_are(tmp_path):
    from safetensors.torch import save_model

    (original, x), (model, _) = mlp(), mlp()
    nn.init.normal_(original[0].weight)
    save_model(original, str(tmp_path / "model.safetensors"))
    own = [id(p) for p in model.parameters()]
    placed = kerf.place(model, max_memory={"cpu": total_bytes(model) // 2}, checkpoint=tmp_path)
    with torch.no_grad():
        assert torch.equal(model(x), original(x))
        assert [id(p) for p in model.parameters()] == own
        placed.remove()
        assert torch.equal(model(x), original(x))
    with pytest.raises(ValueError, match="as torch.float32; expected torch.int8"):
        model[0].weight = nn.Parameter(torch.ones(64, 64, dtype=torch.int8), requires_grad=False)
        kerf.place(model, max_memory={"cpu": "64KiB"}, checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_memory": {"cpu": float("nan")}}, "expected bytes"),
        ({"max_memory": {"cpu": -1}}, "expected bytes"),
        ({"max_memory": {"cpu": True}}, "expected bytes"),
        ({"max_memory": {"cpu": "1MiB", "disk": 5}}, "the path of a folder"),
        ({"max_memory": {"cpu": "1MiB", "disk": ""}}, "the path of a folder"),
        ({"max_memory": {"cpu": "1MiB", "cpu:0": "2MiB"}}, "names cpu twice, as 'cpu' and 'cpu:0'"),
        ({"max_memory": {0: "2GiB"}}, r"names 0; .*this machine has \(none\).*let the CPU compute"),
        ({"max_memory": {10**20: "2GiB"}}, "expected devices and 'disk'"),
        ({"device_map": "balanced"}, "which spreads a model over several accelerators"),
        ({"max_memory": {"cpu": "1MiB"}, "disk_bytes_per_second": 0}, "a positive number"),
        ({"max_memory": {"cpu": "1MiB"}, "disk_bytes_per_second": float("nan")}, "a positive"),
    ],
)
def test_odd_numbers_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        kerf.place(mlp()[0], **arguments)


MEMORY = """
import resource, sys
import torch
import kerf
from torch import nn

width, layers = 1024, 24  # 4 MiB each
def make():
    return nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)]).eval()

def anonymous():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return sum(int(lines[key].split()[0]) for key in ("RssAnon", "RssFile")) / 1024

with kerf.empty_weights():
    model = make()
x = torch.randn(2, width)
torch.mm(torch.ones(64, 64), torch.ones(64, 64))
before = anonymous()
placed = kerf.place(model, max_memory={"cpu": "20MiB"}, checkpoint=sys.argv[1])
peak = 0
with torch.no_grad():
    for _ in range(4):
        out = model(x)
        peak = max(peak, anonymous() - before)
print(peak)
"""


def test_a_model_from_a_file_takes_no_more_memory_than_allowed(tmp_path):
    from safetensors.torch import save_model

    torch.manual_seed(0)
    layers = [nn.Linear(1024, 1024, bias=False) for _ in range(24)]
    save_model(nn.Sequential(*layers), str(tmp_path / "model.safetensors"))  # 96 MiB
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert float(done.stdout) < 55  # MiB, of 96: 20, and what PyTorch loads of itself meanwhile
