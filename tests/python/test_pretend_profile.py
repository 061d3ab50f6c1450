# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks measured by themselves on an accelerator: one at a time is there."""

import json

import pytest
import torch
import torch.nn as nn

import kerf


def layers(count=8, width=128):
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(count)])


def weight_bytes(model):
    return sum(p.nbytes for p in model.parameters())


@pytest.fixture
def cluster(pretend_device, tmp_path):
    """No name that a user could give stands for this device: a file does."""
    device = {"name": "pretend:0", "kind": "pretend", "speed": 1.0, "host": False, "ordinal": 0}
    record = {
        "format": "kerf-cluster",
        "version": "1.0",
        "devices": [{**device, "memory_group": 0, "cores": []}],
        "links": [[{"latency_ns": 0.0, "bytes_per_second": 0.0}]],
        "notes": [],
    }
    (tmp_path / "cluster.json").write_text(json.dumps(record))
    return kerf.load_cluster(tmp_path / "cluster.json")


def measured(model, cluster, x, **options):
    graph = kerf.coarsen(kerf.trace(model, (x,)), depth=1)
    return kerf.profile(
        model,
        graph,
        (x,),
        devices=cluster,
        isolate=True,
        cache=False,
        budget_seconds=0.05,
        **options,
    )


def test_a_model_larger_than_the_device_is_measured(pretend_device, cluster):
    model, x = layers().train(), torch.randn(4, 128)
    pretend_device.set_limit(0, weight_bytes(model) // 2)
    for options in ({}, {"training": True}, {"training": True, "recompute": True}):
        profile = measured(model, cluster, x, **options)
        # The first one's input needs no gradient.
        assert [block.kind for block in profile.blocks] == [0] + [1] * (len(model) - 1)
        for block in profile.blocks:
            assert block.forward > 0
            assert block.forward_peak_bytes >= 4 * 128 * 4
    assert all(p.device.type == "cpu" and p.grad is None for p in model.parameters())


def test_blocks_that_differ_are_on_the_device_in_turns(pretend_device, cluster):
    model, x = layers().eval(), torch.randn(4, 128)
    for i, layer in enumerate(model):
        layer.append(nn.LeakyReLU(0.1 * (i + 1)))  # each a kind of its own
    pretend_device.set_limit(0, weight_bytes(model) // 2)
    profile = measured(model, cluster, x)
    assert len({block.kind for block in profile.blocks}) == len(model)
    assert profile.total_forward > 0
