# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks of a model that does not fit in the caches are measured with caches emptied before."""

import json
import statistics

import pytest
import torch
import torch.nn as nn

import kerf

IDS = torch.tensor([1])


class Reader(nn.Module):
    """A layer whose time is that of reading 4 MiB of weights, behind a table of any size."""

    def __init__(self, rows):
        super().__init__()
        self.table = nn.Embedding(rows, 1024, _weight=torch.zeros(rows, 1024))
        self.layer = nn.Linear(1024, 1024)

    def forward(self, ids):
        return self.layer(self.table(ids))


SMALL, LARGE = 8, 1 << 17  # 512 MiB: more than most caches hold


def measured(rows, cache=False, training=False):
    model = Reader(rows).train(training)
    graph = kerf.trace(model, (IDS,))
    profile = kerf.profile(
        model,
        graph,
        (IDS,),
        isolate=True,
        cache=cache,
        budget_seconds=0.1,
        training=training,
    )
    return profile, next(block for block in profile.blocks if block.path == "layer")


def kept_conditions(folder):
    return {json.loads(path.read_text())["conditions"]["caches"] for path in folder.iterdir()}


@pytest.fixture(autouse=True)
def larger_than_the_caches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conditions")
    measured(LARGE, folder)
    if kept_conditions(folder) == {"as passes leave them"}:
        pytest.skip("the caches of this machine hold the model")


@pytest.mark.parametrize("training", [False, True])
def test_weights_come_from_memory_and_not_from_the_caches(training):
    ratios = []
    for _ in range(5):
        (_, hot), (_, cold) = measured(SMALL, False, training), measured(LARGE, False, training)
        ratios.append(cold.forward / hot.forward)
    assert statistics.median(ratios) > 1.25, ratios


def test_figures_of_cold_and_warm_caches_are_kept_apart(tmp_path):
    measured(SMALL, tmp_path)
    assert kept_conditions(tmp_path) == {"as passes leave them"}
    profile, _ = measured(LARGE, tmp_path)
    assert (profile.cache.hits, profile.cache.misses) == (0, 2)
    reasons = [reason for reason in profile.cache.reasons if reason.startswith("other caches")]
    assert len(reasons) == 1 and "emptied of" in reasons[0] and "as passes" in reasons[0]
    for rows in (SMALL, LARGE):
        profile, _ = measured(rows, tmp_path)
        assert (profile.cache.hits, profile.cache.misses) == (2, 0)


def test_figures_of_a_kerf_that_did_not_look_at_caches_are_not_used(tmp_path):
    measured(SMALL, tmp_path)
    for path in list(tmp_path.iterdir()):
        record = json.loads(path.read_text())
        del record["conditions"]["caches"]
        path.unlink()
        (tmp_path / f"{path.name.split('-')[0]}-0.json").write_text(json.dumps(record))
    profile, _ = measured(SMALL, tmp_path)
    assert profile.cache.reasons == [
        "other caches: 'as passes leave them', measured without a word of it: 2"
    ]


def test_nothing_but_times_depends_on_it():
    (small, hot), (large, cold) = measured(SMALL, False, True), measured(LARGE, False, True)
    assert hot.forward_peak_bytes == cold.forward_peak_bytes
    assert hot.backward_peak_bytes == cold.backward_peak_bytes
    for profile in (small, large):
        assert profile.total_backward > 0
        assert all(block.samples >= 5 for block in profile.blocks)
