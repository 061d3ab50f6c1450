# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""No planner writes on standard output: what the commands print there is theirs alone."""

import random

import pytest
import torch

import kerf


@pytest.mark.parametrize("seed", range(3))
def test_metis_says_nothing_of_its_own(capfd, seed):
    rng = random.Random(seed)
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(9)]).eval()
    graph = kerf.trace(model, (torch.randn(2, 8),))
    # One node that outweighs all others leaves METIS with empty halves.
    times = [1e9 if i == seed else rng.random() for i, _ in enumerate(graph.nodes)]
    profile = kerf.Profile.from_times(graph, times)
    devices = [f"cpu:{i}" for i in range(7)]
    for method in ("metis", "auto"):
        try:
            kerf.plan(graph, devices, profile=profile, method=method, time_budget=0.2)
        except RuntimeError as error:
            assert "METIS" in str(error)  # built without it
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""
