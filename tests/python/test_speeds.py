# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Speeds of the machine are measured once, and kept for the next process."""

import json

import pytest
import torch

from kerf import _speeds

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KERF_CACHE", str(tmp_path))
    return tmp_path / "speeds"


def speeds(*numbers, of="copies", count=2):
    """What is kept, and whether ``numbers`` were measured for it."""
    calls = []

    def measure():
        calls.append(1)
        return numbers

    return _speeds.kept(of, CPU, count, measure), bool(calls)


def test_what_was_measured_is_not_measured_again(folder):
    assert speeds(1.5, 2) == ([1.5, 2.0], True)
    assert speeds(3, 4) == ([1.5, 2.0], False)
    assert speeds(3, 4, of="products") == ([3.0, 4.0], True)
    torch.set_num_threads(torch.get_num_threads() + 1)
    try:
        assert speeds(5, 6) == ([5.0, 6.0], True)
    finally:
        torch.set_num_threads(torch.get_num_threads() - 1)
    assert speeds(7, 8) == ([1.5, 2.0], False)
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-9],
        lambda text: "[1, 2]",
        lambda text: json.dumps({**json.loads(text), "numbers": [1, -2]}),
        lambda text: json.dumps({**json.loads(text), "numbers": [1, "2"]}),
        lambda text: json.dumps({**json.loads(text), "numbers": [1]}),
        lambda text: json.dumps({**json.loads(text), "numbers": 1}),
        lambda text: json.dumps({**json.loads(text), "numbers": [1, float("nan")]}),
        lambda text: json.dumps({**json.loads(text), "torch": "1.0"}),
    ],
)
def test_a_file_that_will_not_do_is_written_again(folder, damage):
    speeds(1, 2)
    (file,) = folder.iterdir()
    file.write_text(damage(file.read_text()))
    assert speeds(3, 4) == ([3.0, 4.0], True)
    assert speeds(5, 6) == ([3.0, 4.0], False)


def test_a_folder_that_takes_no_files_is_done_without(folder):
    folder.parent.joinpath("speeds").write_text("a file")
    assert speeds(1, 2) == ([1.0, 2.0], True)
    assert speeds(3, 4) == ([3.0, 4.0], True)
