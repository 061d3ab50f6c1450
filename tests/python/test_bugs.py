# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Bugs that were there once, each with its cause."""

import os
import signal
import subprocess
import sys

import pytest
import torch

import kerf


def pipeline(model, x, n_microbatches=2, batch_dims=None, **options):
    graph = kerf.trace(model, (x,), batch_dims=batch_dims)
    plan = kerf.plan(graph, ["cpu:0", "cpu:1"], n_microbatches=n_microbatches)
    return kerf.Pipeline(model, plan, **options)


class Linear(torch.nn.Module):
    """A layer, and then ``after`` with the layer's result and the input."""

    def __init__(self, after):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 8)
        self.after = after

    def forward(self, x):
        return self.after(self.layer(x), x)


# Whether a model mixes samples was read from the shapes of its outputs alone. These all have
# results of the right shape, and micro-batches gave other numbers without a word.
MIXING = {
    "centred": lambda y, x: y - y.mean(0),
    "attention along the batch": lambda y, x: torch.softmax(y @ y.t(), -1) @ x,
    "running sum": lambda y, x: y.cumsum(0),
    "shifted": lambda y, x: y.roll(1, 0),
    "softmax over the batch": lambda y, x: y.softmax(0),
    "first sample": lambda y, x: y - x[0],
    "positions in the batch": lambda y, x: y + torch.arange(x.shape[0])[:, None],
    "batch size": lambda y, x: y / x.shape[0],
    "largest of all": lambda y, x: y / y.max(),
    "batch statistics": lambda y, x: torch.nn.functional.batch_norm(y, None, None, training=True),
    "only in one of two outputs": lambda y, x: (y, y * y.sum()),
}


@pytest.mark.parametrize("after", MIXING.values(), ids=MIXING)
def test_a_model_that_mixes_samples_is_not_cut_into_micro_batches(after):
    model = Linear(after).eval()
    x = torch.randn(6, 8)
    with pytest.raises(NotImplementedError, match="output.*mixes samples.*n_microbatches=1"):
        pipeline(model, x)(x)
    with torch.no_grad():
        torch.testing.assert_close(pipeline(model, x, 1)(x), model(x))


def test_a_sequence_that_was_taken_for_the_batch_is_not_cut():
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(8, 2, 16).eval()
    x = torch.randn(4, 2, 8)
    with pytest.raises(NotImplementedError, match="batch_dims="):
        pipeline(model, x)(x)
    with torch.no_grad():
        torch.testing.assert_close(pipeline(model, x, batch_dims=1)(x), model(x))


def test_samples_that_are_alike_prove_nothing():
    model = Linear(lambda y, x: y.sort(0).values).eval()  # a step that the graph does not follow
    x = torch.randn(4, 8)
    with pytest.warns(UserWarning, match="could not prove.*sorts across the samples"):
        pipe = pipeline(model, x)
    with torch.no_grad():
        torch.testing.assert_close(pipe(torch.zeros(4, 8)), model(torch.zeros(4, 8)))
    with pytest.raises(NotImplementedError, match="mixes samples"):
        pipe(x)


def test_a_call_that_was_refused_proves_nothing():
    model = Linear(lambda y, x: y.sort(0).values).eval()
    x = torch.randn(4, 8)
    with pytest.warns(UserWarning, match="could not prove"):
        pipe = pipeline(model, x)
    with pytest.raises(ValueError, match="dimension 1 has size 7"):
        pipe(torch.randn(4, 7))
    with pytest.raises(NotImplementedError, match="mixes samples"):
        pipe(x)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.layer(x)


def test_a_counter_in_a_buffer_counts_calls_not_micro_batches():
    # Only buffers that take values of samples were refused; this one went up by two a call.
    model = Counter().eval()
    x = torch.randn(4, 8)
    with pytest.raises(NotImplementedError, match="buffer 'calls'"):
        pipeline(model, x)
    assert model.calls == 0
    pipeline(model, x, 1)(x)
    assert model.calls == 1


def test_trying_samples_leaves_inputs_and_random_numbers_alone():
    model = Linear(lambda y, x: x.mul_(2) + torch.nn.functional.dropout(y)).eval()
    x = torch.ones(4, 8)
    x[0] = 3
    pipe = pipeline(model, x.clone())
    torch.manual_seed(1)
    first = pipe(x)
    assert x[0, 0] == 6 and x[1, 0] == 2
    torch.manual_seed(1)
    torch.testing.assert_close(pipe(x / 2), first)


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)).eval()


def test_a_module_that_was_replaced_is_not_run_as_the_old_one():
    # Weights were looked up in the modules of the time of tracing: the old module's were used on.
    model, x = layers(), torch.randn(4, 8)
    pipe = pipeline(model, x)
    old = model[0]
    model[0] = torch.nn.Linear(8, 8).eval()
    with pytest.raises(ValueError, match="module '0' was replaced.*trace the model again"):
        pipe(x)
    model[0] = old
    with torch.no_grad():
        torch.testing.assert_close(pipe(x), model(x))


def test_weights_without_numbers_are_named():
    # What reached the workers was an undefined tensor.
    model, x = layers(), torch.randn(4, 8)
    pipe = pipeline(model, x)
    model.to("meta")
    with pytest.raises(ValueError, match="weight '0.weight' is on the meta device"):
        pipe(x)


# These ended in the signature of a C++ function, in an AttributeError or in a remark on profiles.
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"n_microbatches": 2.5},
            TypeError,
            "n_microbatches is 2.5, a float; expected a whole number",
        ),
        (
            {"n_microbatches": "4"},
            TypeError,
            "n_microbatches is '4', a str; expected a whole number",
        ),
        ({"n_microbatches": 10**12}, ValueError, "expected 1 to"),
        ({"batch": 2.0}, TypeError, "batch is 2.0, a float; expected a whole number"),
        ({"batch": -3}, ValueError, "batch is -3; expected"),
        ({"seed": -1}, ValueError, "seed is -1; expected"),
        (
            {"max_memory": "2GiB"},
            TypeError,
            "max_memory is '2GiB', a str; expected a dict.* limit per",
        ),
        ({"max_memory": ["2GiB", "1GiB"]}, TypeError, "a list; expected a dict.* limit per"),
        ({"max_memory": {"cpu:0": 10**30}}, ValueError, "below 2\\^60 bytes"),
        ({"devices": None}, TypeError, "devices is None; expected a list of names"),
        ({"graph": torch.nn.ReLU()}, TypeError, "graph is ReLU\\(\\); expected a graph"),
    ],
)
def test_wrong_arguments_of_plan_are_named(options, error, message):
    usual = {"graph": None, "devices": ["cpu:0", "cpu:1"]}
    if "graph" not in options:
        usual["graph"] = kerf.trace(layers(), (torch.randn(4, 8),))
    with pytest.raises(error, match=message):
        kerf.plan(**{**usual, **options})


def test_wrong_arguments_of_pipelines_are_named():
    model, x = layers(), torch.randn(4, 8)
    plan = kerf.plan(kerf.trace(model, (x,)), ["cpu:0", "cpu:1"])
    with pytest.raises(TypeError, match="model is kerf.Plan.*; expected the model"):
        kerf.Pipeline(plan, model)
    with pytest.raises(TypeError, match="plan is 'plan.json', a str; expected a plan"):
        kerf.Pipeline(model, "plan.json")
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"n_microbatches is {wrong}; expected 1 to"):
            kerf.Pipeline(model, plan, n_microbatches=wrong)


def in_a_forked_child(function):
    """The child's exit status; a child that hangs is ended by a signal."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(function())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_pipeline_in_a_forked_child_says_so_and_does_not_hang():
    # The child waited for worker threads, which only the parent has: when called, and at its end.
    model, x = layers(), torch.randn(4, 8)
    pipe = pipeline(model, x)
    expected = pipe(x)

    def call():
        try:
            pipe(x)
        except RuntimeError as error:
            return 7 if "before the process was forked" in str(error) else 1
        return 2

    def forget():
        nonlocal pipe
        pipe.close()
        del pipe
        return 7

    assert in_a_forked_child(call) == 7
    assert in_a_forked_child(forget) == 7
    torch.testing.assert_close(pipe(x), expected)


ENDS_DURING_A_CALL = """
import threading, time, torch, kerf
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)]).eval()
x = torch.randn(8, 64)
plan = kerf.plan(kerf.trace(model, (x,)), ["cpu:0", "cpu:1"], n_microbatches=2)
pipe = kerf.Pipeline(model, plan)
threading.Thread(target=lambda: [pipe(x) for _ in range(10**6)], daemon=True).start()
time.sleep(0.3)
"""


def test_a_program_may_end_while_a_daemon_thread_calls_a_pipeline():
    # The interpreter ends threads that ask for its lock; one that asked in a destructor took the
    # whole process with it: "terminate called without an active exception".
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", ENDS_DURING_A_CALL],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
