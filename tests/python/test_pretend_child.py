# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The child process in which tests of the pretend accelerator run: what pytest tells of them is
what it tells of any other."""

import os
import subprocess
import sys
from pathlib import Path

import pretend
import pytest

TESTS = """
import os, sys, time
import pytest, torch

def test_elsewhere():
    assert "KERF_PRETEND_CHILD" not in os.environ and not torch.accelerator.is_available()

def test_passes(pretend_device, tmp_path, monkeypatch):
    monkeypatch.setenv("EXAMPLE", "1")
    (tmp_path / "file").write_text("")
    assert torch.accelerator.is_available() and "KERF_PRETEND_CHILD" in os.environ

@pytest.mark.parametrize("text", ["a b", "[x]"])
def test_names(pretend_device, text):
    print("said in the child")
    assert text == "a b"

def test_skips(pretend_device):
    pytest.skip("for a reason")

@pytest.mark.xfail(strict=True)
def test_xfails(pretend_device):
    raise ValueError

def test_leaves_a_race(pretend_device):
    there = torch.empty(3, device="pretend")
    with torch.Stream(device="pretend:0"):
        there.zero_()

def test_leaves_limits_and_delays(pretend_device):
    pretend_device.set_limit(0, 1)
    pretend_device.set_copy_delay(100.0)

def test_finds_none(pretend_device):
    assert torch.ones(3).to("pretend").sum().item() == 3

def test_dies(pretend_device):
    os._exit(7)

def test_hangs(pretend_device):
    time.sleep(100)

def test_goes_on(pretend_device):
    assert "EXAMPLE" not in os.environ
"""

EXPECTED = {
    "test_elsewhere": "PASSED",
    "test_passes": "PASSED",
    "test_names[a b]": "PASSED",
    "test_names[[x]]": "FAILED",
    "test_skips": "SKIPPED",
    "test_xfails": "XFAIL",
    "test_leaves_a_race": "ERROR",
    "test_leaves_limits_and_delays": "PASSED",
    "test_finds_none": "PASSED",
    "test_dies": "FAILED",
    "test_hangs": "FAILED",
    "test_goes_on": "PASSED",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What pytest writes about TESTS."""
    if pretend.extension_path() is None:
        pytest.skip("the pretend device is not built (target kerf_pretend_device)")
    build = pretend.extension_path().parents[1]
    folder = tmp_path_factory.mktemp("pretend")
    here = Path(__file__).parent
    (folder / "test_them.py").write_text(TESTS)
    (folder / "conftest.py").write_text((here / "conftest.py").read_text())
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {here}\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "test_them.py"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        | {
            "KERF_PRETEND_SECONDS": "8",
            "KERF_BUILD_DIR": str(build),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_each_test_has_its_outcome(told):
    for name, expected in EXPECTED.items():
        assert f"test_them.py::{name} {expected}" in told.stdout, told.stdout


def test_reports_say_what_happened(told):
    assert "said in the child" in told.stdout
    assert "for a reason" in told.stdout
    assert "without waiting for it" in told.stdout
    assert "the child process ended with status 7" in told.stdout
    assert "time.sleep(100)" in told.stdout or "test_hangs" in told.stderr
