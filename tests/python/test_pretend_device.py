# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The pretend accelerator itself: what tests with it may rely on."""

import queue
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
    with pretend_device.copies_held():
        there = source.to("pretend", non_blocking=True)
        event = torch.accelerator.current_stream().record_event()
        assert not event.query()
    event.synchronize()
    assert torch.equal(there.cpu(), source)


def test_a_copy_takes_as_long_as_it_is_told_to(pretend_device):
    source = torch.randn(100).pin_memory()
    with pretend_device.copy_delay(DELAY):
        start = time.perf_counter()
        source.to("pretend", non_blocking=True)
        torch.accelerator.synchronize()
        assert time.perf_counter() - start >= DELAY


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
    with pretend_device.copies_held():
        back.copy_(there, non_blocking=True)
        assert back.count_nonzero() == 0
    torch.accelerator.synchronize()
    assert back.count_nonzero() == 100
    assert there.to("cpu", non_blocking=True).is_pinned()


def test_a_write_to_pinned_memory_under_way_is_seen(pretend_device):
    source = torch.ones(100).pin_memory()
    with pretend_device.copies_held():
        there = source.to("pretend", non_blocking=True)
        source.zero_()
    assert there.cpu().count_nonzero() == 0


def test_pinned_memory_lives_until_it_is_copied(pretend_device):
    before = pretend_device.pinned_memory_allocated()
    with pretend_device.copies_held():
        there = torch.ones(100).pin_memory().to("pretend", non_blocking=True)
        assert pretend_device.pinned_memory_allocated() == before
    assert there.cpu().count_nonzero() == 100


def test_a_forgotten_wait_gives_wrong_numbers_and_is_told(pretend_device):
    source = torch.ones(100).pin_memory()
    there = torch.zeros(100, device="pretend")
    torch.accelerator.synchronize()
    side = torch.Stream(device="pretend:0")
    with pretend_device.copies_held():
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
    with pretend_device.copies_held():
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
    first = torch.ones(100, device="pretend:0") * 2
    with pretend_device.copies_held():
        second = first.to("pretend:1")
        third = second.to("pretend:0")
        events = [torch.accelerator.current_stream(i).record_event() for i in range(2)]
        assert not any(event.query() for event in events)
    assert (first + third).sum().item() == 400
    assert second.add_(1).sum().item() == 300


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


def test_work_of_one_stream_runs_in_order(pretend_device):
    source = torch.ones(100).pin_memory()
    back = torch.empty(100, pin_memory=True)
    with pretend_device.copy_delay(DELAY / 4), torch.Stream(device="pretend:0") as side:
        there = torch.zeros(100, device="pretend")
        there.copy_(source, non_blocking=True)
        there.mul_(2)
        there[:50].copy_(source[:50], non_blocking=True)
        back.copy_(there, non_blocking=True)
        there.zero_()
        side.synchronize()
    assert back.sum() == 150


@pytest.mark.parametrize("wait", ["block", "synchronize", "query", "forget"])
@pytest.mark.parametrize(("device", "new_stream"), [(0, False), (1, True)], ids=["pool", "new"])
def test_streams_events_and_raw_memory_in_cpp(pretend_device, device, wait, new_stream):
    before = pretend_device.memory_allocated(device), pretend_device.memory_allocated(1 - device)
    with pretend_device.copy_delay(DELAY):
        doubled, pinned, done = pretend_device._native.double_in_slot(device, wait, new_stream)
    assert doubled.device == torch.device("pretend", device)
    assert pinned and not done
    if wait == "forget":
        assert doubled.isnan().all().item()
        assert len(pretend_device.take_races()) == 1
    else:
        assert doubled.sum().item() == 200
    del doubled
    after = pretend_device.memory_allocated(device), pretend_device.memory_allocated(1 - device)
    assert after == before


def _through_slots(weights, x, forgotten=None):
    """Weights of pinned memory brought into two slots in turn, ahead of their use."""
    compute, side = torch.accelerator.current_stream(), torch.Stream(device="pretend:0")
    slots = [torch.empty(x.shape[1], x.shape[1], device="pretend") for _ in range(2)]
    free = [compute.record_event() for _ in slots]
    filled = []

    def bring(i):
        with side:
            if forgotten != "slot in use":
                side.wait_event(free[i % 2])
            slots[i % 2].copy_(weights[i], non_blocking=True)
            filled.append(side.record_event())

    side.wait_stream(compute)
    bring(0)
    for i in range(len(weights)):
        if i + 1 < len(weights):
            bring(i + 1)
        if forgotten != "weight under way":
            compute.wait_event(filled[i])
        x = torch.tanh(x @ slots[i % 2])
        free[i % 2] = compute.record_event()
    side.synchronize()
    return x


@pytest.mark.parametrize("forgotten", [None, "slot in use", "weight under way"])
def test_weights_streamed_through_two_slots(pretend_device, forgotten):
    torch.manual_seed(0)
    weights = [torch.randn(8, 8).pin_memory() for _ in range(6)]
    x = torch.randn(3, 8)
    expected = x
    for weight in weights:
        expected = torch.tanh(expected @ weight)
    with pretend_device.copy_delay(0.02):
        got = _through_slots(weights, x.to("pretend"), forgotten).cpu()
    if forgotten is None:
        assert torch.equal(expected, got)
    else:
        assert pretend_device.take_races()
    if forgotten == "weight under way":
        assert not torch.equal(expected, got)


def test_a_thread_of_its_own_may_issue_copies(pretend_device):
    sources = [torch.full((100,), float(i)).pin_memory() for i in range(8)]
    there = torch.empty(8, 100, device="pretend:1")
    compute, side = torch.accelerator.current_stream("pretend:1"), torch.Stream(device="pretend:1")
    side.wait_stream(compute)
    issued = queue.SimpleQueue()

    def issue():
        with side:
            for i, source in enumerate(sources):
                there[i].copy_(source, non_blocking=True)
                issued.put(side.record_event())

    with pretend_device.copy_delay(0.01):
        thread = threading.Thread(target=issue)
        thread.start()
        sums = []
        for i in range(8):
            compute.wait_event(issued.get())
            sums.append(there[i].sum())
        thread.join()
    assert [total.item() for total in sums] == [100.0 * i for i in range(8)]


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


def test_integers_are_counted(pretend_device):
    here = torch.tensor([0, 1, 1, 3], dtype=torch.int32, device="pretend")
    counts = torch.histc(here, bins=4, min=0, max=3)
    assert counts.dtype == torch.int32 and counts.tolist() == [1, 2, 0, 1]
    assert torch.histc(here.float(), bins=4, min=0, max=3).tolist() == [1, 2, 0, 1]


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


def test_modules_without_memory_are_given_some(pretend_device):
    with torch.device("meta"):
        layer = torch.nn.Linear(3, 3)
    layer.to_empty(device="pretend:1")
    layer.load_state_dict({"weight": torch.ones(3, 3), "bias": torch.zeros(3)})
    assert layer(torch.ones(3, device="pretend:1")).tolist() == [3, 3, 3]


def test_autocast_lowers_what_it_lowers_elsewhere(pretend_device):
    layer = torch.nn.Linear(3, 3, device="pretend")
    assert not torch.is_autocast_enabled("pretend")
    assert layer(torch.ones(2, 3, device="pretend")).dtype == torch.float32
    with torch.autocast("pretend", dtype=torch.bfloat16):
        out = layer(torch.ones(2, 3, device="pretend"))
        assert out.dtype == torch.bfloat16
        assert out.softmax(-1).dtype == torch.float32
