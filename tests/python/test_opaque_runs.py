# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Opaque blocks in a running pipeline: side by side, inside each other, failing, drawing."""

import subprocess
import sys
import threading
import traceback

import pytest
import torch
import torch.nn as nn
from comparing import hand_plan

import kerf
from kerf import _torch

DO = {}  # what a block does, by its name: no attribute of a module changes after the trace


class Block(nn.Module):
    """Runs as Python, and does what a test asks of it."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        if self.name in DO:
            DO[self.name](x)
        return self.linear(x)


class Noisy(Block):
    def forward(self, x):
        return super().forward(x) + torch.rand_like(x)


class SideBySide(nn.Module):
    def __init__(self, block=Block, names=("left", "right")):
        super().__init__()
        self.left, self.right = map(block, names)
        self.eval()

    def forward(self, x):
        return self.left(x) + self.right(x)


@pytest.fixture(autouse=True)
def nothing_asked():
    DO.clear()
    yield
    DO.clear()


def trace(model):
    graph = kerf.trace(model, (torch.randn(2, 4),), basic_blocks=[Block])
    assert [n["op"] for n in graph.nodes][:2] == ["opaque", "opaque"]
    return graph


def pipeline(model=None, devices=("cpu:0", "cpu:1"), stages=([0], [1], [2])):
    model = model or SideBySide()
    graph = trace(model)
    plan = hand_plan(graph, list(map(list, stages)), list(devices))
    return kerf.Pipeline(model, plan, graph=graph)


def test_blocks_of_two_stages_run_at_the_same_time():
    pipe = pipeline()
    meet = threading.Barrier(2, timeout=20)
    DO["left"] = DO["right"] = lambda x: meet.wait()
    pipe(torch.randn(2, 4))  # one after the other they would break the barrier


@pytest.mark.parametrize("block", [Block, Noisy])
def test_blocks_may_call_another_pipeline_with_blocks(block):
    inner = pipeline(SideBySide(block, ("inner left", "inner right")))
    outer, x = pipeline(SideBySide(block)), torch.randn(2, 4)
    for callers in ["left"], ["right"], ["left", "right"]:
        DO.clear()
        DO.update(dict.fromkeys(callers, inner))
        outer(x)


@pytest.mark.parametrize("devices", [["cpu:0", "cpu:1"], ["cpu:0"]], ids=["workers", "caller"])
def test_a_block_that_calls_its_own_pipeline_is_told_so(devices):
    pipe, x = pipeline(devices=devices), torch.randn(2, 4)
    expected = pipe(x)
    DO["right"] = pipe
    with pytest.raises(RuntimeError, match="already running and is called again from inside"):
        pipe(x)
    DO.clear()
    torch.testing.assert_close(pipe(x), expected)


def test_a_turn_that_python_code_holds_is_known_to_its_blocks():
    # A first call tries samples one call at a time, and its blocks may call the pipeline again.
    pipe, turns, refused = pipeline(), _torch.Turns(), []

    def enter(_):
        with pytest.raises(RuntimeError, match="called again from inside") as caught:
            with _torch.Turn(turns):
                pass
        refused.append(caught)

    DO["right"] = enter
    with _torch.Turn(turns):
        pipe(torch.randn(2, 4))
    assert refused
    with _torch.Turn(turns):  # free again
        pass


class OwnError(Exception):
    pass


@pytest.mark.parametrize("devices", [["cpu:0", "cpu:1"], ["cpu:0"]], ids=["workers", "caller"])
@pytest.mark.parametrize(
    "kind", [OwnError, StopIteration, SystemExit, KeyboardInterrupt, KeyError, RuntimeError]
)
def test_what_a_block_raises_comes_out_as_it_is(devices, kind):
    pipe, x, error = pipeline(devices=devices), torch.randn(2, 4), kind(3)
    expected = pipe(x)

    def fail(_):
        raise error from ValueError("the cause")

    DO["right"] = fail
    with pytest.raises(type(error)) as caught:
        pipe(x)
    assert caught.value is error
    assert isinstance(error.__cause__, ValueError)
    assert "in fail" in "".join(traceback.format_exception(error))
    (note,) = error.__notes__
    assert "stage 1 on " in note and "'right'" in note and "opaque" in note
    DO.clear()
    torch.testing.assert_close(pipe(x), expected)


class Passing(nn.Module):
    """Gives a new tensor, or what a test asks for."""

    def forward(self, x):
        return DO.get("pass", lambda x: x * 2)(x)


def write_result(block, x):
    y = block(x)
    y.add_(1)
    return y * 3


def write_input(block, x):
    h = x + 1
    y = block(h)
    h.add_(1)
    return y * 3


def write_before(block, x):
    h = x + 1
    h.add_(1)
    return block(h) * 3


NOTICED = {
    "result written": write_result,
    "input written": write_input,
    "caller's input": lambda block, x: block(x),
    "through two blocks": lambda block, x: block(block(x)),
}
NOT_NOTICED = {
    "of the model's own": lambda block, x: block(x + 1),
    "read alone": lambda block, x: block(x) * 3,
    "written before": write_before,
}


def passing(forward, devices):
    class Passes(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Passing()

        def forward(self, x):
            return forward(self.block, x)

    model = Passes().eval()
    graph = kerf.trace(model, (torch.randn(2, 4),), basic_blocks=[Passing])
    nodes = list(range(graph.num_nodes))
    cut = [i for i in nodes if graph.nodes[i]["op"] == "opaque"][0] + 1
    if devices == 1 or cut == len(nodes):
        plan = hand_plan(graph, [nodes], ["cpu:0"])
    else:
        plan = hand_plan(graph, [nodes[:cut], nodes[cut:]], ["cpu:0", "cpu:1"])
    return model, kerf.Pipeline(model, plan, graph=graph)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[:]], ids=["itself", "view"])
@pytest.mark.parametrize("case", [*NOTICED, *NOT_NOTICED])
def test_a_block_that_returns_its_input_after_all_is_refused_where_it_shows(case, part, devices):
    model, pipe = passing((NOTICED | NOT_NOTICED)[case], devices)

    def check_equal():
        x, own = torch.ones(2, 4), torch.ones(2, 4)
        with torch.no_grad():
            torch.testing.assert_close(pipe(x), model(own))
        torch.testing.assert_close(x, own)

    check_equal()
    DO["pass"] = part
    if case in NOT_NOTICED:
        check_equal()
    else:
        with pytest.raises(RuntimeError, match=r"Passing.*returned its input.*x\.clone\(\)"):
            pipe(torch.ones(2, 4))
    DO["pass"] = torch.clone
    check_equal()


def test_only_blocks_that_draw_count_as_random():
    quiet, noisy = trace(SideBySide()), trace(SideBySide(Noisy))
    assert [n["random"] for n in quiet.nodes] == [False, False, False]
    assert [n["random"] for n in noisy.nodes] == [True, True, False]
    pipe = pipeline()
    state = torch.get_rng_state()
    pipe(torch.ones(2, 4))
    assert torch.equal(torch.get_rng_state(), state)


def test_blocks_draw_the_same_numbers_wherever_the_model_is_cut():
    model, x, found = SideBySide(Noisy), torch.randn(2, 4), []
    for stages in ([0, 1, 2],), ([0], [1], [2]), ([0], [1, 2]):
        pipe = pipeline(model, stages=stages)
        torch.manual_seed(7)
        found.append(pipe(x))
        assert not torch.equal(pipe(x), found[0])
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


TRACED = """
import sys, torch, kerf
from torch import nn

class Branches(nn.Module):
    def forward(self, x):
        return x + 1 if float(x.sum()) < 1e9 else x

model = nn.Sequential(nn.Linear(4, 4), Branches()).eval()
x = torch.randn(2, 4)
pipe = kerf.Pipeline(model, kerf.plan(kerf.trace(model, (x,)), ["cpu:0"]))
pipe(x)

def step():
    return 1

sys.settrace(lambda *_: None)  # a debugger, or a measure of coverage
print("traced", sum(step() for _ in range(100)))
"""


# The interpreter was left looking for an exception that had been taken back, and CPython 3.11 does
# not go on tracing then.
def test_a_program_may_be_traced_after_a_block_ran():
    done = subprocess.run(
        [sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "traced 100", done.stderr[-2000:]
