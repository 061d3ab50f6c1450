# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that ask for `pretend_device` run in a process of their own kind: see pretend.py."""

import pretend
import pretend_child
import pytest


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Measured blocks go to a folder of this run, not to the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERF_CACHE", str(tmp_path_factory.mktemp("blocks")))
        yield


@pytest.fixture
def pretend_device():
    """pretend.py with its devices registered, no limits, no delays. A race that the test leaves in
    pretend.races() is an error; one that it is about it takes out by take_races()."""
    if pretend.extension_path() is None:
        pytest.skip("the pretend device is not built (target kerf_pretend_device)")
    device = pretend.register()
    device.reset()
    yield device
    left = device.races()
    device.reset()
    assert not left, "\n".join(left)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if not pretend_child.is_for(item):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in [*pretend_child.run(item), *pretend_child.torn_down(item, nextitem)]:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_unconfigure():
    pretend_child.stop()
