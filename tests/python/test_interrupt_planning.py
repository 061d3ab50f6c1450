# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C during planning and simulating is answered at once, and the process goes on."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent(
    """
    import os, signal, threading, time
    import torch
    import kerf

    # Started in the background of a shell, a process ignores the signal from the first.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(150)]).eval()
    graph = kerf.trace(model, (torch.randn(4, 16),))
    devices = ["cpu:0", "cpu:1", "cpu:2"]
    plan = kerf.plan(graph, devices, time_budget=0.2)
    long = {{"time_budget": 20}}

    def work():
        {work}

    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.5, interrupt).start()
    try:
        while True:
            work()
    except KeyboardInterrupt:
        print("answered after", time.monotonic() - sent[0])
    again = kerf.plan(graph, devices, time_budget=0.2)
    assert again.stages
    """
)


@pytest.mark.parametrize(
    "work",
    [
        'kerf.plan(graph, devices, method="auto", objective="step", n_microbatches=4, **long)',
        'kerf.plan(graph, devices, method="exact", n_microbatches=2, **long)',
        'kerf.compare(graph, devices, methods=["refine", "exact"], **long)',
        "kerf.simulate(plan, 20000)",
    ],
)
def test_ctrl_c_is_answered_at_once(work):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work=work)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # 0.2 s is what is promised; a busy machine gets more.
    assert float(done.stdout.split()[-1]) < 0.8
