# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""A line about long work, on terminals alone."""

import io
import sys
import threading
import time

import pytest
import torch
import torch.nn as nn

import kerf
from kerf import _progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(_progress, "_AFTER_SECONDS", 0)
    monkeypatch.setattr(_progress, "_EVERY_SECONDS", 0.01)


def lines(stream):
    return [line.strip() for line in stream.getvalue().split("\r") if line.strip()]


def test_a_bar_shows_steps_and_is_wiped_out(at_once):
    stream = Terminal()
    with _progress.progress_bar("profile", stream) as told:
        for done in range(4):
            told(done, 3)
    assert lines(stream)[0] == f"profile [{'.' * 30}] 0/3"
    assert lines(stream)[-1] == f"profile [{'#' * 30}] 3/3"
    assert stream.getvalue().endswith("\r" + " " * len(lines(stream)[-1]) + "\r")


def test_a_long_step_is_shown_before_it_ends(monkeypatch):
    monkeypatch.setattr(_progress, "_AFTER_SECONDS", 0.2)
    stream, patience = Terminal(), time.monotonic() + 20
    with _progress.progress_bar("profile", stream) as told:
        told(0, 1)
        assert stream.getvalue() == ""
        while not lines(stream):
            assert time.monotonic() < patience
            time.sleep(0.01)
    assert lines(stream) == [f"profile [{'.' * 30}] 0/1"]


def test_short_work_shows_nothing():
    stream = Terminal()
    with _progress.progress_bar("profile", stream) as told:
        told(1, 2)
    with _progress.clock_bar("profile", 2, stream):
        pass
    assert stream.getvalue() == ""


def test_work_that_tells_nobody_shows_its_seconds(at_once):
    stream = Terminal()
    with _progress.clock_bar("profile", 0.01, stream):
        while not any("#" * 30 in line for line in lines(stream)):
            time.sleep(0.01)
    assert lines(stream)[-1].endswith(" s")
    assert stream.getvalue().endswith(" \r")


def test_an_error_ends_the_line_and_its_thread(at_once):
    stream, before = Terminal(), threading.active_count()
    with pytest.raises(KeyboardInterrupt), _progress.clock_bar("profile", 1, stream):
        while not stream.getvalue():
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert stream.getvalue().endswith(" \r") and threading.active_count() == before


def test_nothing_is_written_where_nobody_looks(at_once, capsys):
    with _progress.clock_bar("profile", 0.1):
        time.sleep(0.05)
    with _progress.progress_bar("profile") as told:
        assert told is None
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("isolate", [False, True])
def test_measuring_shows_how_far_it_has_come(at_once, monkeypatch, isolate):
    monkeypatch.setattr("sys.stderr", Terminal())
    model, x = nn.Sequential(nn.Linear(512, 512), nn.GELU()).eval(), torch.randn(1024, 512)
    how = {"isolate": True, "cache": False} if isolate else {"budget_seconds": 0.2}
    kerf.profile(model, kerf.trace(model, (x,)), (x,), **how)
    assert lines(sys.stderr)[-1].startswith("profile [")
