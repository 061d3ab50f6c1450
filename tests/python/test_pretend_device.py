# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The pretend accelerator itself: what tests with it may rely on."""

import copy
import sys
import threading
import time

import pretend
import pytest
import torch

DELAY = 0.2


def test_it_is_built_where_it_should_be():
    if not pretend.expected_to_be_built():
        pytest.skip("build/release is no developer's build with PyTorch")
    assert pretend.extension_path() is not None


def test_other_tests_do_not_see_it():
    assert not pretend.registered()
    assert torch._C._get_privateuse1_backend_name() == "privateuseone"


def test_it_is_the_accelerator(pretend_device):
    assert torch.accelerator.current_accelerator() == torch.device("pretend")
    assert torch.accelerator.device_count() == 2
    assert torch.get_device_module("pretend") is pretend_device is torch.pretend
    assert torch.accelerator.current_device_index() == 0
    with torch.accelerator.device_index(1):
        assert torch.empty(1, device="pretend").device == torch.device("pretend:1")
    with pytest.raises(RuntimeError, match="there is no device 2"):
        torch.empty(1, device="pretend:2")


# ---- streams and copies ------------------------------------------------------------------------


def test_a_copy_from_pinned_memory_does_not_wait(pretend_device):
    source = torch.randn(100).pin_memory()
    with pretend_device.copy_delay(DELAY):
        start = time.perf_counter()
        there = source.to("pretend", non_blocking=True)
        issued = time.perf_counter() - start
        torch.accelerator.synchronize()
        done = time.perf_counter() - start
    assert issued < DELAY / 2 < DELAY <= done
    assert torch.equal(there.cpu(), source)


def test_a_copy_from_other_memory_waits(pretend_device):
    source = torch.randn(100)
    with pretend_device.copy_delay(DELAY):
        start = time.perf_counter()
        there = source.to("pretend", non_blocking=True)
        assert time.perf_counter() - start >= DELAY
        source.zero_()
    assert there.cpu().count_nonzero() == 100


def test_a_copy_to_pinned_memory_does_not_wait(pretend_device):
    there = torch.ones(100, device="pretend")
    back = torch.zeros(100, pin_memory=True)
    with pretend_device.copy_delay(DELAY):
        back.copy_(there, non_blocking=True)
        assert back.count_nonzero() == 0
        torch.accelerator.synchronize()
    assert back.count_nonzero() == 100
    assert there.to("cpu", non_blocking=True).is_pinned()


def test_a_write_to_pinned_memory_under_way_is_seen(pretend_device):
    source = torch.ones(100).pin_memory()
    with pretend_device.copy_delay(DELAY):
        there = source.to("pretend", non_blocking=True)
        source.zero_()
    assert there.cpu().count_nonzero() == 0


def test_pinned_memory_lives_until_it_is_copied(pretend_device):
    before = pretend_device.pinned_memory_allocated()
    with pretend_device.copy_delay(DELAY):
        there = torch.ones(100).pin_memory().to("pretend", non_blocking=True)
        assert pretend_device.pinned_memory_allocated() == before
    assert there.cpu().count_nonzero() == 100


def test_a_forgotten_wait_gives_wrong_numbers_and_is_told(pretend_device):
    source = torch.ones(100).pin_memory()
    there = torch.zeros(100, device="pretend")
    torch.accelerator.synchronize()
    side = torch.Stream(device="pretend:0")
    with pretend_device.copy_delay(DELAY):
        with side:
            there.copy_(source, non_blocking=True)
        wrong = there * 2
    assert wrong.cpu().count_nonzero() == 0
    (race,) = pretend_device.take_races()
    assert race.startswith("aten::mul on pretend:0 stream 0 reads")
    assert "a copy on pretend:0 stream" in race


def test_a_race_is_told_when_the_numbers_are_right(pretend_device):
    there = torch.zeros(100, device="pretend")
    torch.accelerator.synchronize()
    with torch.Stream(device="pretend:0"):
        there.add_(1)
    assert (there * 2).cpu().sum() == 200
    assert len(pretend_device.take_races()) == 1


@pytest.mark.parametrize("how", ["event", "stream", "host", "query"])
def test_a_wait_orders_a_copy(pretend_device, how):
    source = torch.ones(100).pin_memory()
    there = torch.zeros(100, device="pretend")
    torch.accelerator.synchronize()
    side, main = torch.Stream(device="pretend:0"), torch.accelerator.current_stream()
    with pretend_device.copy_delay(DELAY):
        with side:
            there.copy_(source, non_blocking=True)
            event = side.record_event()
        assert not event.query()
        if how == "event":
            main.wait_event(event)
        elif how == "stream":
            main.wait_stream(side)
        elif how == "host":
            event.synchronize()
        else:
            while not event.query():
                time.sleep(0.01)
        right = there * 2
    assert right.cpu().sum() == 200


def test_slots_of_one_block_are_told_apart(pretend_device):
    slab = torch.zeros(2, 100, device="pretend")
    source = torch.ones(100).pin_memory()
    torch.accelerator.synchronize()
    with torch.Stream(device="pretend:0") as side:
        slab[1].copy_(source, non_blocking=True)
    slab[0].add_(1)
    assert pretend_device.races() == []
    slab[1].add_(1)
    assert len(pretend_device.take_races()) == 1
    side.synchronize()


def test_overwriting_what_is_being_read_is_told(pretend_device):
    there = torch.ones(100, device="pretend")
    back = torch.zeros(100, pin_memory=True)
    torch.accelerator.synchronize()
    with pretend_device.copy_delay(DELAY):
        with torch.Stream(device="pretend:0") as side:
            back.copy_(there, non_blocking=True)
        there.zero_()
        side.synchronize()
    assert back.count_nonzero() == 0
    assert len(pretend_device.take_races()) == 1


def test_memory_freed_while_another_stream_reads_it_is_rubbish(pretend_device):
    back = torch.zeros(100, pin_memory=True)
    side = torch.Stream(device="pretend:0")
    with pretend_device.copy_delay(DELAY):
        for told in (False, True):
            there = torch.ones(100, device="pretend")
            side.wait_stream(torch.accelerator.current_stream())
            with side:
                back.copy_(there, non_blocking=True)
            if told:
                there.record_stream(side)
            del there
            side.synchronize()
            assert bool(back.isnan().all()) == (not told)
            assert len(pretend_device.take_races()) == (not told)


def test_memory_must_be_waited_for_on_another_stream_before_its_first_use(pretend_device):
    there = torch.empty(100, device="pretend")
    with torch.Stream(device="pretend:0"):
        there.zero_()
    (race,) = pretend_device.take_races()
    assert "allocation on pretend:0 stream 0" in race
    torch.accelerator.synchronize()


def test_copies_between_devices_wait_for_both(pretend_device):
    source = torch.ones(100).pin_memory()
    with pretend_device.copy_delay(DELAY):
        start = time.perf_counter()
        first = source.to("pretend:0", non_blocking=True)
        second = (first * 2).to("pretend:1")
        third = second.to("pretend:0")
        assert time.perf_counter() - start < 2 * DELAY  # the product waits for the first copy alone
        total = (first + third).cpu()
    assert total.sum() == 300


def test_streams_are_of_threads(pretend_device):
    side = torch.Stream(device="pretend:0")
    seen = []
    with side:
        thread = threading.Thread(target=lambda: seen.append(torch.accelerator.current_stream()))
        thread.start()
        thread.join()
        assert torch.accelerator.current_stream() == side
    assert seen[0] != side


def test_events_tell_the_time_between_them(pretend_device):
    source = torch.ones(100).pin_memory()
    first, last = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
    with pretend_device.copy_delay(DELAY):
        first.record()
        there = source.to("pretend", non_blocking=True)
        last.record()
        last.synchronize()
    assert first.elapsed_time(last) >= DELAY * 1000
    del there


# ---- memory ------------------------------------------------------------------------------------


def test_memory_is_counted(pretend_device):
    before = [pretend_device.memory_allocated(i) for i in range(2)]
    here = torch.empty(1000, device="pretend:1")
    view = here[10:]
    assert pretend_device.memory_allocated(1) == before[1] + 4000
    assert torch.accelerator.memory_allocated(1) == before[1] + 4000
    assert pretend_device.memory_allocated(0) == before[0]
    del here
    assert pretend_device.memory_allocated(1) == before[1] + 4000
    del view
    assert pretend_device.memory_allocated(1) == before[1]
    assert pretend_device.max_memory_allocated(1) == before[1] + 4000
    pretend_device.reset_peak(1)
    assert pretend_device.max_memory_allocated(1) == before[1]


def test_past_the_limit_it_is_out_of_memory(pretend_device):
    limit = pretend_device.memory_allocated(0) + 4000
    pretend_device.set_limit(0, limit)
    assert pretend_device.mem_get_info(0) == torch.accelerator.get_memory_info(0) == (4000, limit)
    here = torch.ones(600, device="pretend:0")
    with pytest.raises(torch.OutOfMemoryError, match="limit"):
        here + 1
    torch.ones(6000, device="pretend:1")
    del here
    torch.ones(1000, device="pretend:0")


def test_a_storage_may_be_emptied_and_filled(pretend_device):
    before = pretend_device.memory_allocated()
    here = torch.ones(1000, device="pretend")
    here.untyped_storage().resize_(0)
    assert pretend_device.memory_allocated() == before
    here.untyped_storage().resize_(4000)
    here.fill_(2)
    assert here.cpu().sum() == 2000


# ---- kernels -----------------------------------------------------------------------------------


def test_writes_in_place_and_through_views_are_seen(pretend_device):
    here = torch.zeros(4, 6, device="pretend")
    here[1].add_(1)
    here.t()[2].mul_(5).add_(1)
    here.view(-1)[0] = 7
    here.unfold(1, 2, 2)[3, 0, 1] = 9
    torch.add(here[0], 1, out=here[2])
    there = here.cpu()
    expected = torch.zeros(4, 6)
    expected[1].add_(1)
    expected.t()[2].mul_(5).add_(1)
    expected.view(-1)[0] = 7
    expected.unfold(1, 2, 2)[3, 0, 1] = 9
    torch.add(expected[0], 1, out=expected[2])
    assert torch.equal(there, expected)


def test_results_go_where_out_says(pretend_device):
    here = torch.arange(6.0, device="pretend")
    out = torch.empty(0, device="pretend")
    assert torch.add(here, 1, out=out) is out
    assert out.shape == (6,) and out.cpu().sum() == 21
    values, indices = torch.empty(0, device="pretend"), torch.empty(0, dtype=int, device="pretend")
    torch.sort(here, descending=True, out=(values, indices))
    assert indices.tolist() == [5, 4, 3, 2, 1, 0]


def test_lists_and_optional_tensors(pretend_device):
    here = [torch.full((2,), float(i), device="pretend") for i in range(3)]
    assert torch.cat(here).tolist() == [0, 0, 1, 1, 2, 2]
    torch._foreach_add_(here, 1)
    assert torch.stack(here).sum().item() == 12
    matrix = torch.arange(12, device="pretend").view(3, 4)
    assert matrix[:, torch.tensor([1, 3], device="pretend")].tolist() == [[1, 3], [5, 7], [9, 11]]
    parts = matrix.split(2, dim=1)
    parts[1].zero_()
    assert matrix.sum().item() == 0 + 1 + 4 + 5 + 8 + 9


def test_devices_do_not_mix(pretend_device):
    here, there = torch.ones(3, device="pretend:0"), torch.ones(3, device="pretend:1")
    for other in (there, torch.ones(3)):
        with pytest.raises(RuntimeError, match="at least two devices"):
            here + other
    assert (here + torch.tensor(2)).sum().item() == 9
    assert there.to("pretend:0").add(here).device == here.device


def test_random_numbers_are_the_devices_own(pretend_device):
    torch.manual_seed(3)
    host = torch.randn(5)
    device = [torch.randn(5, device=f"pretend:{i}") for i in range(2)]
    assert torch.equal(torch.randn(5, device="cpu"), torch.randn(5, generator=_after(3, 5)))
    assert torch.equal(device[0].cpu(), device[1].cpu())
    assert torch.equal(device[0].cpu(), host)  # the same kind of generator
    torch.manual_seed(3)
    dropped = torch.nn.functional.dropout(torch.ones(100, device="pretend"))
    assert torch.equal(torch.randn(5), host)
    assert 0 < dropped.count_nonzero().item() < 100
    state = torch.pretend.get_rng_state(1)
    first = torch.rand(3, device="pretend:1")
    torch.pretend.set_rng_state(state, 1)
    assert torch.equal(first, torch.rand(3, device="pretend:1"))
    generator = torch.Generator("pretend:1").manual_seed(3)
    assert torch.equal(torch.randn(5, device="pretend:1", generator=generator).cpu(), host)


def _after(seed, numbers):
    generator = torch.Generator().manual_seed(seed)
    torch.randn(numbers, generator=generator)
    return generator


def test_tensors_are_saved_and_loaded(pretend_device, tmp_path):
    torch.save({"here": torch.arange(3, device="pretend:1")}, tmp_path / "file")
    assert torch.load(tmp_path / "file")["here"].device == torch.device("pretend:1")
    assert torch.load(tmp_path / "file", map_location="cpu")["here"].tolist() == [0, 1, 2]
    moved = torch.load(tmp_path / "file", map_location="pretend:0")["here"]
    assert moved.device == torch.device("pretend:0") and moved.tolist() == [0, 1, 2]


def test_modules_move_and_stay_tied(pretend_device):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    weight = model[0].weight
    model.to("pretend:1")
    assert model[0].weight is model[1].weight is weight
    assert weight.device == torch.device("pretend:1")
    weight.data = weight.data.cpu()
    assert weight.device.type == "cpu"
    assert model.pretend()[0].bias.device == torch.device("pretend:0")


def test_autocast_lowers_what_it_lowers_elsewhere(pretend_device):
    layer = torch.nn.Linear(3, 3, device="pretend")
    with torch.autocast("pretend", dtype=torch.bfloat16):
        out = layer(torch.ones(2, 3, device="pretend"))
        assert out.dtype == torch.bfloat16
        assert out.softmax(-1).dtype == torch.float32


# ---- models: on the device as on the CPU, bit for bit ------------------------------------------


def _conv_net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 8, 3, groups=2),
        torch.nn.ConvTranspose2d(8, 4, 2, stride=2),
        torch.nn.GroupNorm(2, 4),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 5),
    )


def _train(model, optimizer, batches, loss_of):
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model(batch))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_convolutional_net_trains_as_on_the_cpu(pretend_device, optimizer):
    torch.manual_seed(0)
    model = _conv_net()
    moved = copy.deepcopy(model).to("pretend:1")
    batches = [torch.randn(2, 3, 8, 8) for _ in range(3)]
    on_cpu = _train(model, optimizer(model.parameters(), lr=0.01), batches, torch.Tensor.sum)
    there = [batch.to("pretend:1") for batch in batches]
    on_it = _train(moved, optimizer(moved.parameters(), lr=0.01), there, torch.Tensor.sum)
    assert on_cpu == on_it
    for (name, value), other in zip(model.state_dict().items(), moved.state_dict().values()):
        assert torch.equal(value, other.cpu()), name


def _gpt2(transformers):
    config = transformers.GPT2Config(
        vocab_size=90,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    return transformers.GPT2LMHeadModel(config)


def _llama(transformers):
    config = transformers.LlamaConfig(
        vocab_size=90,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return transformers.LlamaForCausalLM(config)


def _t5(transformers):
    config = transformers.T5Config(
        vocab_size=90,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def _outputs(model, ids):
    """Logits, gradients and generated tokens, all on the CPU."""
    out = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)
    out.loss.backward()
    gradients = {name: p.grad.cpu() for name, p in model.named_parameters()}
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False, pad_token_id=0
    )
    return {"logits": out.logits.detach().cpu(), "made": made.cpu(), **gradients}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("make", [_gpt2, _llama, _t5])
def test_a_transformer_computes_as_on_the_cpu(pretend_device, make, attention):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = make(transformers).eval()
    if make is not _t5:
        model.set_attn_implementation(attention)
    ids = torch.randint(3, 90, (2, 7))
    expected = _outputs(model, ids)
    model.zero_grad()
    got = _outputs(model.to("pretend:1"), ids.to("pretend:1"))
    assert expected.keys() == got.keys()
    assert [name for name, value in expected.items() if not torch.equal(value, got[name])] == []


def test_layers_on_two_devices_with_gradients(pretend_device):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16) for _ in range(4)]
    moved = [copy.deepcopy(layer).to(f"pretend:{i % 2}") for i, layer in enumerate(layers)]
    x = torch.randn(3, 16)

    def loss_of(layers, x):
        for layer in layers:
            x = torch.tanh(layer(x.to(layer.weight.device)))
        return x.square().sum()

    loss_of(layers, x).backward()
    with pretend_device.copy_delay(0.01):
        loss_of(moved, x).backward()
        torch.accelerator.synchronize()
    for layer, other in zip(layers, moved):
        assert torch.equal(layer.weight.grad, other.weight.grad.cpu())


# ---- the child process -------------------------------------------------------------------------


def test_the_child_process_has_the_fixtures_and_the_package(pretend_device, tmp_path, monkeypatch):
    import kerf

    monkeypatch.setenv("KERF_EXAMPLE", "1")
    (tmp_path / "file").write_text("")
    assert "pretend" in sys.modules and kerf.__version__
