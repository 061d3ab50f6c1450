# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The process in which tests of the pretend device run, and the pytest process's end of it.

The parent names a test, the child runs it with pytest.main and answers with the reports. It is
started for the first such test and kept: importing PyTorch takes longer than most tests. It is
spawned and not forked, since PyTorch's threads do not survive a fork. Fixtures live as long as one
test there, whatever their scope.
"""

import atexit
import contextlib
import faulthandler
import io
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import pretend
import pytest

# A stream that waits for ever is a likely fault here: all stacks are then written to stderr.
SECONDS = float(os.environ.get("KERF_PRETEND_SECONDS", "300"))
INSIDE = "KERF_PRETEND_CHILD"
HERE = "KERF_PRETEND_HERE"


def is_for(item):
    """Whether the test is the child's: not when we are the child, and not when there is no device,
    for then the fixture skips it."""
    return (
        "pretend_device" in getattr(item, "fixturenames", ())
        and not os.environ.get(INSIDE)
        and not os.environ.get(HERE)
        and pretend.extension_path() is not None
    )


class _Child:
    def __init__(self, directory):
        answers, child_answers = os.pipe()
        child_questions, questions = os.pipe()
        environment = {
            name: value
            for name, value in os.environ.items()
            if name != "PYTEST_ADDOPTS" and not name.startswith("PYTEST_XDIST")
        }
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(child_questions), str(child_answers)],
            pass_fds=(child_questions, child_answers),
            cwd=directory,
            env=environment | {INSIDE: "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # pytest's progress; what tests print is in their reports
        )
        os.close(child_answers)
        os.close(child_questions)
        self.questions = os.fdopen(questions, "w")
        self.answers = os.fdopen(answers)

    def ask(self, question):
        """The answer, or None when the child is dead."""
        with contextlib.suppress(BrokenPipeError):
            self.questions.write(json.dumps(question) + "\n")
            self.questions.flush()
        line = self.answers.readline()
        return json.loads(line) if line else None

    def stop(self):
        with contextlib.suppress(BrokenPipeError):
            self.questions.close()
        self.answers.close()
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


_child = None


def run(item):
    """The reports of the test, made in the child."""
    global _child
    config = item.config
    if _child is None:
        _child = _Child(config.rootpath)
    options = [f"--rootdir={config.rootpath}", f"--tb={config.option.tbstyle}"]
    if config.inipath:
        options.append(f"--config-file={config.inipath}")
    answer = _child.ask({"test": item.nodeid, "options": options})
    if answer is None:
        status = stop()
        return [_failed(item, f"the child process ended with status {status}; see stderr")]
    reports = [
        config.hook.pytest_report_from_serializable(config=config, data=data)
        for data in answer["reports"]
    ]
    for report in reports:
        if isinstance(report.longrepr, list):  # why and where it was skipped: JSON has no tuples
            report.longrepr = tuple(report.longrepr)
    return reports or [_failed(item, f"the child process ran no test:\n{answer['said']}")]


def torn_down(item, nextitem):
    """Ends what a test of this process set up, for its module say, and left for ours: the next one
    may be of another module. Returns a report when that fails."""
    try:
        item.session._setupstate.teardown_exact(nextitem)
    except Exception:
        return [_failed(item, traceback.format_exc())]
    return []


def stop():
    """Ends the child, when there is one; returns its exit status."""
    global _child
    child, _child = _child, None
    return child.stop() if child else None


def _failed(item, why):
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=why,
        when="call",
    )


# ---- the child ---------------------------------------------------------------------------------


class _Collector:
    def __init__(self):
        self.reports = []
        self.config = None

    def pytest_configure(self, config):
        self.config = config

    def pytest_runtest_logreport(self, report):
        self.reports.append(
            self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        )


def _serve(questions, answers):
    stacks = os.fdopen(os.dup(2), "w")  # stderr, which pytest turns elsewhere while a test runs
    scratch = tempfile.TemporaryDirectory(prefix="kerf_pretend_")
    atexit.register(scratch.cleanup)
    for number, line in enumerate(questions):
        question = json.loads(line)
        collector = _Collector()
        said = io.StringIO()
        faulthandler.dump_traceback_later(SECONDS, exit=True, file=stacks)
        with contextlib.redirect_stdout(said):
            pytest.main(
                [
                    *question["options"],
                    "-p",
                    "no:cacheprovider",
                    f"--basetemp={Path(scratch.name) / str(number)}",
                    question["test"],
                ],
                plugins=[collector],
            )
        faulthandler.cancel_dump_traceback_later()
        answers.write(
            json.dumps({"reports": collector.reports, "said": said.getvalue()}, default=str) + "\n"
        )
        answers.flush()


if __name__ == "__main__":
    pretend.register()
    _serve(os.fdopen(int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "w"))
