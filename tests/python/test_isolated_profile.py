# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.profile(isolate=True): a block at a time, twins once, and what was measured kept."""

import json
import os
import pickle
import re
import statistics
import time

import models
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import kerf


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(F.gelu(self.up(self.norm(x)))))


class Net(nn.Module):
    def __init__(self, layers=4, width=32):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 50)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Statistics(nn.Module):
    """In-place activations, running statistics and a view."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(8 * 8 * 8, 10)

    def forward(self, x):
        x = self.relu(self.norm1(self.conv1(x)))
        x = self.relu(self.norm2(self.conv2(x)))
        return self.head(x.flatten(1))


IDS = torch.randint(0, 50, (4, 8), generator=torch.Generator().manual_seed(0))


def net(**sizes):
    torch.manual_seed(0)
    return Net(**sizes).train()


def measure(model, *args, graph=None, cache=False, **options):
    args = args or (IDS,)
    graph = kerf.trace(model, args) if graph is None else graph
    options.setdefault("budget_seconds", 0.05)
    return kerf.profile(model, graph, args, devices=["cpu:0"], isolate=True, cache=cache, **options)


def coarse(model, *args, depth=None, basic_blocks=()):
    return kerf.coarsen(kerf.trace(model, args or (IDS,)), depth=depth, basic_blocks=basic_blocks)


# Blocks


def test_a_block_that_repeats_is_measured_once():
    model = net(layers=6)
    profile = measure(model, graph=coarse(model, basic_blocks=[Block]), training=True)
    assert [block.path for block in profile.blocks] == [
        "embed",
        *(f"layers.{i}" for i in range(6)),
        "head",
    ]
    assert [block.kind for block in profile.blocks] == [0, 1, 1, 1, 1, 1, 1, 2]
    assert profile.cache.misses == 3
    twins = profile.blocks[1:7]
    assert len({(twin.forward, twin.backward, twin.samples) for twin in twins}) == 1


def test_blocks_of_another_width_are_measured_apart():
    model = net(layers=3)
    model.layers[1].up = nn.Linear(32, 64)
    model.layers[1].down = nn.Linear(64, 32)
    profile = measure(model, graph=coarse(model, basic_blocks=[Block]))
    kinds = [block.kind for block in profile.blocks]
    assert kinds[1] == kinds[3] != kinds[2]


def test_without_coarsening_modules_without_modules_are_the_blocks():
    model = net(layers=2)
    profile = measure(model)
    paths = [block.path for block in profile.blocks]
    assert {"embed", "layers.0.norm", "layers.0.up", "layers.1.down", "head"} <= set(paths)
    by_path = {block.path: block for block in profile.blocks}
    assert by_path["layers.0.up"].kind == by_path["layers.1.up"].kind
    assert by_path["layers.0.up"].name == "Linear"
    assert sorted(n for block in profile.blocks for n in block.nodes) == list(range(len(profile)))


def test_sizes_of_a_block_follow_from_its_border():
    model = net(layers=2)
    profile = measure(model, graph=coarse(model, basic_blocks=[Block]))
    block = profile.blocks[1]
    assert block.weight_bytes == 4 * sum(p.numel() for p in model.layers[0].parameters())
    assert block.input_bytes == block.output_bytes == 4 * 4 * 8 * 32
    assert profile.blocks[0].input_bytes == IDS.numel() * 8


def test_times_of_nodes_add_up_to_those_of_their_block():
    model = net()
    for options in ({}, {"training": True}):
        profile = measure(model, graph=coarse(model, basic_blocks=[Block]), **options)
        for block in profile.blocks:
            for phase in ("forward", "backward"):
                nodes = sum(getattr(profile.nodes[n], phase) for n in block.nodes)
                assert nodes == pytest.approx(getattr(block, phase), rel=1e-6, abs=1e-12)
        assert profile.source == "measured"
        assert all(
            cost.samples == profile.blocks[0].samples or cost.samples for cost in profile.nodes
        )


# Training


def test_only_training_has_a_backward():
    model = net(layers=2)
    graph = coarse(model, basic_blocks=[Block])
    assert all(block.backward == 0 for block in measure(model, graph=graph).blocks)
    trained = measure(model, graph=graph, training=True)
    assert all(block.backward > 0 for block in trained.blocks)
    assert trained.training and trained.total_backward > 0


def test_what_needs_no_gradient_has_no_backward():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(16, 16)
            self.second = nn.Linear(16, 16)

        def forward(self, x):
            mask = (x > 0).float() * 2
            return self.second(self.first(x) * mask)

    torch.manual_seed(0)
    model, x = Masked().train(), torch.randn(4, 16)
    profile = measure(model, x, training=True)
    by_name = {block.name: block for block in profile.blocks if len(block.nodes) == 1}
    assert by_name["aten.gt.Scalar"].backward == 0
    assert by_name["aten.gt.Scalar"].backward_peak_bytes == 0
    assert by_name["Linear"].backward > 0


SLEEP = 0.01  # seconds
CALLS = {"forward": 0, "backward": 0}


@torch.library.custom_op("kerf_isolated::slow", mutates_args=())
def slow(x: torch.Tensor) -> torch.Tensor:
    CALLS["forward"] += 1
    time.sleep(SLEEP)
    return x * 2


def slow_backward(_, grad):
    CALLS["backward"] += 1
    return grad * 2


slow.register_fake(torch.empty_like)
slow.register_autograd(slow_backward)


class Slow(nn.Module):
    """Its forward takes long and its backward does not."""

    def __init__(self, width=32):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)

    def forward(self, x):
        return self.outer(torch.tanh(torch.tanh(slow(self.inner(x)))))


def test_with_recomputation_backward_includes_a_forward():
    torch.manual_seed(0)
    model, x = nn.Sequential(Slow(), Slow()).train(), torch.randn(64, 32)
    graph = kerf.coarsen(kerf.trace(model, (x,)), basic_blocks=[Slow])

    def forwards_per_backward(**options):
        CALLS.update(forward=0, backward=0)
        profile = measure(model, x, graph=graph, training=True, budget_seconds=1.0, **options)
        return CALLS["forward"] / CALLS["backward"], profile

    ratio, plain = forwards_per_backward()
    assert ratio < 1.3, CALLS  # the model runs once for inputs
    ratio, again = forwards_per_backward(recompute=True)
    assert ratio > 1.4, CALLS  # passes that look at nodes compute nothing again
    assert again.recompute and not plain.recompute
    for one, two in zip(plain.blocks, again.blocks, strict=True):
        assert one.forward > SLEEP and two.forward > SLEEP and two.backward > SLEEP
        # Without autograd a block keeps nothing.
        assert two.forward_peak_bytes < one.forward_peak_bytes
    # Whoever plans adds the second forward: it is not in the times of the nodes.
    assert again.total_backward < sum(block.backward for block in again.blocks)


def test_peaks_are_what_the_block_allocates():
    model = net(layers=2)
    graph = coarse(model, basic_blocks=[Block])
    tensor = 4 * 4 * 8 * 32  # bytes of a hidden state
    inference = measure(model, graph=graph).blocks[1]
    # up and gelu are four times as wide, both alive at a time.
    assert 8 * tensor <= inference.forward_peak_bytes <= 12 * tensor
    training = measure(model, graph=graph, training=True).blocks[1]
    assert training.forward_peak_bytes > inference.forward_peak_bytes
    assert training.backward_peak_bytes > training.forward_peak_bytes


def test_gradients_of_an_embedding_may_be_sparse():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(1000, 16, sparse=True), nn.Linear(16, 4)).train()
    profile = measure(model, torch.randint(0, 1000, (4, 8)), training=True)
    assert profile.blocks[0].backward > 0
    assert profile.blocks[0].backward_peak_bytes < 1000 * 16 * 4


# What is left as it was


def test_state_is_as_before():
    torch.manual_seed(0)
    model = Statistics().train()
    x = torch.randn(2, 3, 8, 8)
    graph = kerf.trace(model, (x,))
    model(x).sum().backward()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = [p.grad.clone() for p in model.parameters()]
    given = x.clone()
    random = torch.get_rng_state()
    profile = measure(model, x, graph=graph, training=True)
    assert profile.total_backward > 0
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.equal(x, given)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert all(torch.equal(a, p.grad) for a, p in zip(gradients, model.parameters(), strict=True))


def test_a_block_that_writes_its_input_is_measured_on_copies():
    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(8, 8)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x, cache):
            cache[:, 0].add_(1.0)
            return self.relu(self.lin(x)) + cache

    torch.manual_seed(0)
    model, x, cache = Writer().eval(), torch.randn(2, 8), torch.zeros(2, 8)
    profile = measure(model, x, cache)
    assert torch.equal(cache, torch.zeros(2, 8))
    assert all(block.forward > 0 for block in profile.blocks)


def test_models_of_every_kind_can_be_measured():
    for build in (models.gpt2, models.t5, models.lstm, models.view_writer, models.mixtral):
        torch.manual_seed(0)
        model, args, kwargs = build()
        graph = kerf.trace(model, args, kwargs)
        profile = kerf.profile(
            model, graph, args, kwargs, isolate=True, cache=False, budget_seconds=0.05
        )
        assert sum(len(block.nodes) for block in profile.blocks) == len(graph.nodes)
        assert profile.total_forward > 0


def test_blocks_that_run_as_python_are_measured_each_time(tmp_path):
    class Chooser(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(8, 8)

        def forward(self, x):
            return self.lin(x) if x.sum() > 0 else -self.lin(x)

    class Choosing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Chooser(), Chooser()
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            return self.head(self.second(self.first(x)))

    torch.manual_seed(0)
    model, x = Choosing().train(), torch.randn(4, 8)
    with pytest.warns(kerf.KerfWarning):
        graph = kerf.trace(model, (x,), opaque="auto")
    first = measure(model, x, graph=graph, cache=tmp_path, training=True)
    again = measure(model, x, graph=graph, cache=tmp_path, training=True)
    assert [block.name for block in first.blocks[:2]] == ["opaque", "opaque"]
    assert first.blocks[0].kind != first.blocks[1].kind
    assert all(block.backward > 0 for block in first.blocks)
    assert (again.cache.hits, again.cache.misses) == (1, 2)
    assert again.cache.reasons == ["what runs as Python is measured each time: 2"]
    assert all(p.grad is None for p in model.parameters())


# The cache


def test_what_was_measured_is_not_measured_again(tmp_path):
    model = net()
    graph = coarse(model, basic_blocks=[Block])
    first = measure(model, graph=graph, cache=tmp_path, training=True)
    assert (first.cache.hits, first.cache.misses) == (0, 3)
    assert first.cache.reasons == ["new block: 3"]
    assert len(list(tmp_path.iterdir())) == 3
    again = measure(net(), graph=graph, cache=tmp_path, training=True)
    assert (again.cache.hits, again.cache.misses) == (3, 0)
    assert again.nodes == first.nodes or [b.forward for b in again.blocks] == [
        b.forward for b in first.blocks
    ]
    assert [n.peak_bytes for n in again.nodes] == [n.peak_bytes for n in first.nodes]


def test_a_changed_block_alone_is_measured_again(tmp_path):
    model = net()
    measure(model, graph=coarse(model, basic_blocks=[Block]), cache=tmp_path)
    model.layers[2].drop = nn.Identity()
    changed = measure(model, graph=coarse(model, basic_blocks=[Block]), cache=tmp_path)
    assert (changed.cache.hits, changed.cache.misses) == (3, 1)
    assert changed.cache.reasons == ["new block: 1"]


def test_a_miss_says_what_is_another(tmp_path):
    model = net(layers=1)
    graph = coarse(model, basic_blocks=[Block])
    measure(model, graph=graph, cache=tmp_path)
    trained = measure(model, graph=graph, cache=tmp_path, training=True)
    assert trained.cache.reasons == ["other options: 'training', measured on 'inference': 3"]
    for path in list(tmp_path.iterdir()):
        text = path.read_text().replace(torch.__version__, "1.0")
        path.unlink()
        (tmp_path / f"{path.name.split('-')[0]}-0.json").write_text(text)
    older = measure(model, graph=graph, cache=tmp_path)
    assert older.cache.reasons == [f"other torch: '{torch.__version__}', measured on '1.0': 3"]


def test_a_damaged_file_is_measured_again(tmp_path):
    model = net(layers=1)
    graph = coarse(model, basic_blocks=[Block])
    measure(model, graph=graph, cache=tmp_path)
    files = sorted(tmp_path.iterdir())
    files[0].write_text(files[0].read_text()[:40])
    record = json.loads(files[1].read_text())
    record["block"]["forward_ns"] = -1
    files[1].write_text(json.dumps(record))
    again = measure(model, graph=graph, cache=tmp_path)
    assert (again.cache.hits, again.cache.misses) == (1, 2)
    assert again.cache.reasons == ["damaged file: 2"]
    assert sum("is damaged" in note for note in again.notes) == 2
    assert measure(model, graph=graph, cache=tmp_path).cache.hits == 3


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    for folder in (blocked / "cache", tmp_path / ("n" * 300)):  # no folder, nor a name of one
        profile = measure(net(layers=1), cache=folder)
        assert profile.cache.hits == 0
        assert any("nothing was kept in the cache" in note for note in profile.notes)


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KERF_CACHE", str(tmp_path / "here"))
    assert measure(net(layers=1), cache=None).cache.folder == str(tmp_path / "here")
    assert list((tmp_path / "here").iterdir())
    monkeypatch.delenv("KERF_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert measure(net(layers=1), cache=None).cache.folder == str(tmp_path / "user/kerf/blocks")
    assert measure(net(layers=1), cache=False).cache.folder == ""


# What it is for


def test_plans_are_made_with_it(tmp_path):
    model = net()
    graph = coarse(model, basic_blocks=[Block])
    profile = measure(model, graph=graph, training=True)
    plan = kerf.plan(
        graph, profile=profile, devices=["cpu:0", "cpu:1"], n_microbatches=2, training=True
    )
    assert len(plan.stages) >= 2 or plan.step_time > 0
    kerf.verify(plan, graph, profile) if hasattr(kerf, "verify") else None


def test_it_is_saved_and_pickled(tmp_path):
    model = net(layers=2)
    graph = coarse(model, basic_blocks=[Block])
    profile = measure(model, graph=graph, training=True, recompute=True, cache=tmp_path / "cache")
    profile.save(tmp_path / "profile.json", graph)
    loaded = kerf.load_profile(tmp_path / "profile.json", graph)
    assert loaded == profile
    assert loaded.table(depth=1) == profile.table(depth=1)
    assert pickle.loads(pickle.dumps(profile)) == profile
    assert json.loads((tmp_path / "profile.json").read_text())["version"] == "1.2"


def test_files_of_the_version_before_are_read(tmp_path):
    graph = coarse(net(layers=1))
    profile = kerf.estimate(graph)
    profile.save(tmp_path / "profile.json", graph)
    record = json.loads((tmp_path / "profile.json").read_text())
    assert "blocks" not in record
    record["version"] = "1.1"
    (tmp_path / "profile.json").write_text(json.dumps(record))
    assert kerf.load_profile(tmp_path / "profile.json", graph) == profile


@pytest.mark.parametrize(
    "change",
    [
        lambda blocks: blocks.pop(),
        lambda blocks: blocks.append(blocks[0]),
        lambda blocks: blocks[0].update(nodes=[]),
        lambda blocks: blocks[0].update(forward_ns=-1),
        lambda blocks: blocks[0].update(nodes=["nobody"]),
    ],
)
def test_files_with_wrong_blocks_are_refused(tmp_path, change):
    model = net(layers=1)
    graph = coarse(model, basic_blocks=[Block])
    measure(model, graph=graph).save(tmp_path / "profile.json", graph)
    record = json.loads((tmp_path / "profile.json").read_text())
    change(record["blocks"])
    (tmp_path / "profile.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="profile.json"):
        kerf.load_profile(tmp_path / "profile.json", graph)


# The table


def test_the_table_has_a_row_a_block_and_seven_figures():
    model = net(layers=2)
    table = measure(model, graph=coarse(model, basic_blocks=[Block]), training=True).table()
    lines = table.splitlines()
    assert re.split(r"  +", lines[0].strip()) == [
        "block",
        "module",
        "forward ms",
        "+-",
        "backward ms",
        "+-",
        "fwd peak MiB",
        "bwd peak MiB",
        "weights",
        "inputs",
        "outputs",
        "samples",
    ]
    first = [line.split()[:2] for line in lines[1:]]
    assert first == [
        ["embed", "Embedding"],
        ["layers.0", "Block"],
        ["layers.1", "Block"],
        ["head", "Linear"],
        ["total", "4"],
    ]


def test_the_table_adds_up_modules_of_any_depth():
    model = net(layers=2)
    profile = measure(model, training=True)

    def rows(depth):
        return [line.split() for line in profile.table(depth=depth).splitlines()[1:-1]]

    assert [row[:2] for row in rows(0)] == [["(model)", "Net"]]
    assert [row[0] for row in rows(1)] == ["embed", "layers.0", "layers.1", "head"]
    assert len(rows(2)) == len(rows(100)) == len(profile.blocks)
    total = sum(block.forward for block in profile.blocks) * 1e3
    for depth in (0, 1, 2):
        assert sum(float(row[2]) for row in rows(depth)) == pytest.approx(total, abs=0.02)
    weights = sum(p.numel() for p in model.parameters()) * 4 / 2**20
    assert float(rows(0)[0][8]) == pytest.approx(weights, abs=0.01)


def test_the_table_is_sorted_by_a_figure():
    model = net(layers=2)
    profile = measure(model, graph=coarse(model, basic_blocks=[Block]))
    paths = [line.split()[0] for line in profile.table(sort="weights").splitlines()[1:-1]]
    assert paths[:2] == ["layers.0", "layers.1"]
    with pytest.raises(ValueError, match="did you mean 'forward'"):
        profile.table(sort="forwards")


def test_profiles_without_blocks_have_no_table():
    graph = coarse(net(layers=1))
    with pytest.raises(ValueError, match="isolate=True"):
        kerf.estimate(graph).table()
    assert kerf.estimate(graph).blocks == []


# Wrong inputs


def test_wrong_arguments_are_named():
    model = net(layers=1)
    graph = kerf.trace(model, (IDS,))
    with pytest.raises(ValueError, match="recompute=True without isolate=True"):
        kerf.profile(model, graph, (IDS,), training=True, recompute=True)
    with pytest.raises(ValueError, match="a cache without isolate=True"):
        kerf.profile(model, graph, (IDS,), cache="folder")
    with pytest.raises(ValueError, match="recompute=True without training=True"):
        kerf.profile(model, graph, (IDS,), isolate=True, recompute=True)
    with pytest.raises(TypeError, match="cache is 3"):
        kerf.profile(model, graph, (IDS,), isolate=True, cache=3)
    with pytest.raises(TypeError, match="isolate is 'yes'"):
        kerf.profile(model, graph, (IDS,), isolate="yes")
    with pytest.raises(ValueError, match="depth is -1"):
        measure(model, graph=graph).table(depth=-1)


def test_training_needs_a_graph_in_train_mode():
    model = net(layers=1).eval()
    with pytest.raises(ValueError, match="train mode"):
        measure(model, training=True)


# Times


def test_block_times_add_up_to_the_model(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        model, ids = Net(layers=4, width=256).eval(), IDS.repeat(8, 4)
        graph = coarse(model, ids, basic_blocks=[Block])
        devices = [f"cpu:{i}" for i in range(len(os.sched_getaffinity(0)))]

        def ratio():
            profile = kerf.profile(
                model, graph, (ids,), devices=devices, isolate=True, cache=False, budget_seconds=1
            )

            def run():
                start = time.perf_counter()
                with torch.no_grad():
                    model(ids)
                return time.perf_counter() - start

            run()
            return profile.total_forward / statistics.median(run() for _ in range(7))

        ratios = [ratio() for _ in range(3)]
        assert any(0.67 < r < 1.5 for r in ratios), ratios
    finally:
        torch.set_num_threads(before)
