# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""``kerf place``: which weights stay on a device, from a file of units."""

import json
import subprocess

import pytest
from test_cli import BAD_INPUT, NO, OK, PROGRAM, find_program

pytestmark = pytest.mark.skipif(find_program() is None, reason="the program kerf is not built")
MIB = 1 << 20


def units(count=32, **more):
    layers = [
        {"path": f"layers.{i}", "bytes": 200 * MIB, "device_ns": 1.5e5, "host_ns": 3.1e6, **more}
        for i in range(count)
    ]
    table = {"path": "embed", "bytes": 500 * MIB, "device_ns": 5e4, "stays": True}
    return {"format": "kerf-units", "version": "1.0", "units": [table, *layers]}


@pytest.fixture
def place(tmp_path):
    def run(content, *arguments):
        (tmp_path / "units.json").write_text(json.dumps(content))
        return subprocess.run(
            [PROGRAM, "place", "units.json", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_host_and_link_share_the_layers(place, tmp_path):
    devices = ["--devices", "cuda:0=2GiB,cpu:0=100GiB", "--link", "55GB/s"]
    done = place(units(), *devices, "--out", "placement.json")
    assert done.returncode == OK, done.stderr
    assert "cuda:0 holds 1.86 GiB of 2.00 GiB allowed" in done.stdout
    found = json.loads((tmp_path / "placement.json").read_text())
    kinds = [unit["residence"] for unit in found["units"]]
    assert kinds[0] == "resident" and {"streamed", "host"} < set(kinds)
    used = sum(u["bytes"] for u in found["units"] if u["residence"] == "resident")
    assert used + found["slots"] * found["slot_bytes"] <= 2 << 30
    assert found["lower_bound_ns"] <= found["time_ns"] < 1.1 * found["lower_bound_ns"]
    # All on the link, or all on the host, takes far longer.
    assert found["time_ns"] < 0.6 * 27 * 3.1e6


def test_without_a_host_everything_streams(place):
    done = place(units(), "--devices", "cuda:0=2GiB", "--link", "55GB/s")
    assert done.returncode == OK
    assert " host " not in done.stdout and "come from disk in every call" in done.stdout


def test_what_does_not_fit_is_an_honest_no(place):
    done = place(units(), "--devices", "cuda:0=400MiB", "--link", "55GB/s")
    assert done.returncode == NO
    assert "at least 700 MiB are needed, 300 MiB more" in done.stderr
    done = place(units(), "--devices", "cuda:0=2GiB,cpu:0=1GiB", "--link", "55GB/s")
    assert done.returncode == NO
    assert "of weights are left for cpu:0, which has 1.00 GiB" in done.stderr


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (units(), ["--devices", "cuda:0", "--link", "55GB/s"], "no memory is given for cuda:0"),
        (units(), ["--devices", "cuda:0=2GiB", "--link", "0"], "the link moves nothing"),
        (units(), ["--devices", "cuda:0=2GiB", "--link", "fast"], "fast"),
        (units(), ["--devices", "cuda:0=2GiB", "--link", "55"], "a unit that ends in B"),
        (units(), ["--devices", "cuda:0=2GiB", "--link", "55Gb/s"], "a byte has 8 bits"),
        (
            units(),
            ["--devices", "cuda:0=2GiB,cpu:0=1GiB,cuda:1=2GiB", "--link", "1GB"],
            "3 devices; expected the one that computes and the host; leave out 'cuda:1'",
        ),
        ({"units": []}, ["--devices", "cuda:0=2GiB", "--link", "1GB"], "format"),
        (units(1, bytes=-1), ["--devices", "cuda:0=2GiB", "--link", "1GB"], "bytes"),
        (units(1, host_ns="x"), ["--devices", "cuda:0=2GiB", "--link", "1GB"], "host_ns"),
    ],
)
def test_bad_input_is_named(place, content, arguments, message):
    done = place(content, *arguments)
    assert done.returncode == BAD_INPUT
    assert message in done.stderr


def test_a_model_without_units_takes_no_time(place):
    empty = {"format": "kerf-units", "version": "1.0", "units": []}
    done = place(empty, "--devices", "cuda:0=2GiB", "--link", "1GB")
    assert done.returncode == OK
