# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever is given to a public function or to the program: a line that says what is wrong.

Calls that work are listed once; each of their arguments is then replaced by values that cannot
work. The answer is one of a few exceptions, with what was found, what was expected, and what to do;
never the text of pybind11, a KeyError, or an error from inside PyTorch.
"""

import copy
import math
import pickle
import re

import numpy as np
import pytest
import torch

import kerf
from kerf import _core

ERRORS = (TypeError, ValueError, OSError, NotImplementedError, RuntimeError)
KINDS = {*ERRORS, FileNotFoundError, IsADirectoryError, PermissionError}
KINDS |= {kerf.ExportError, kerf.InfeasibleError}
RAW = ("incompatible function arguments", "Invoked with", "_core.", "kerf::", "std::", " at 0x")
TWO = ["cpu:0", "cpu:1"]


class Odd:
    """An object that fails at everything it is asked."""

    def __getattr__(self, name):
        raise RuntimeError(f"odd {name}")

    def __repr__(self):
        raise RuntimeError("odd repr")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x, scale=None):
        return self.layers(x) if scale is None else self.layers(x) * scale


class Things:
    """One of each, made once."""

    def __init__(self):
        self.model = Net().eval()
        self.x = torch.zeros(4, 4)
        self.graph = kerf.trace(self.model, (self.x,))
        self.trained = kerf.trace(Net().train(), (self.x,))
        self.plan = kerf.plan(self.graph, TWO, n_microbatches=2)
        self.profile = kerf.estimate(self.graph)
        self.cluster = kerf.make_cluster(TWO)
        self.timeline = kerf.simulate(self.plan)
        self.pipe = kerf.Pipeline(self.model, self.plan)
        self.module = kerf.symbolic_trace(self.model, meta_args={"x": self.x})
        kerf.symbolic_profile(self.module, self.x)

    def unused(self):
        """Somebody's function."""


@pytest.fixture(scope="module")
def things():
    made = Things()
    yield made
    made.pipe.close()


def assert_one_line(message):
    first, *more = message.split("\n")
    assert re.match(r"\[[\w.]+\] \S", first), message
    assert "; " in first, f"nothing about what was expected: {message}"
    assert all(line.startswith("  ") for line in more), message  # a caret under what is wrong
    assert not any(raw in message for raw in RAW), message
    assert len(first) < 700, message


def refusal(call):
    with pytest.raises(ERRORS) as caught:
        call()
    kind = type(caught.value)
    assert kind in KINDS or kind.__module__.startswith("kerf."), repr(caught.value)
    assert_one_line(str(caught.value))
    return str(caught.value)


NUMBERS = ["4", None, [4], object(), Odd(), True, b"4", {}, 1j, ...]
WHOLE = [*NUMBERS, 1.5, math.nan]
COUNT = [*WHOLE, 0, -1, 2**30, 2**63, 10**30]
SEED = [*WHOLE, -1, 2**63, 10**30]
TEXT = [3, None, [], object(), Odd(), 1.5, True, b"name", {"a": 1}, torch.zeros(2)]
NAME = [*TEXT, "", "no such name", "caf\u00e9", "x" * 5000, "a\0b", "\ud800", "a\nb"]
FLAG = ["no", 2, [], object(), 0.5]
PATH = [3, [], object(), Odd(), 1.5, True, {"a": 1}, torch.zeros(2), "", "no/such/file", "a\0b"]
THING = [3, "model.graph", [], {}, object(), Odd(), 1.5, True, torch.zeros(2), Net, b"x"]
MAPPING = [3, "ab", [3], object(), Odd(), True, {3: 3}, {None: None}, torch.zeros(2)]
DEVICES = [3, object(), Odd(), 1.5, True, "", ",", "gpu:0", "cpu:-1", "cpu:x", "0xcpu", "9999xcpu"]
DEVICES += [[3], [None], ["gpu:0"], ["cpu:0", "cpu:0"], [""], [[]], ["cpu:0\0"], ["\ud800"]]
DEVICES += ["cpu:0=", "cpu:0=-1GiB", "cpu:0=nan", "cpu:0=2 parsecs", "\ud800", [], {"cpu:0": 1}]
LIMITS = [3, "2GiB", ["2GiB"], object(), Odd(), True, {0: "2GiB"}, {"cpu:7": 1}, {"cpu:0": -5}]
LIMITS += [{"cpu:0": 0}, {"cpu:0": math.nan}, {"cpu:0": math.inf}, {"cpu:0": None}, {None: 1}]
LIMITS += [{"cpu:0": ""}, {"cpu:0": "-1"}, {"cpu:0": "2 parsecs"}, {"cpu:0": [1]}, {"cpu:0": 2**70}]
LIMITS += [{"cpu:0": Odd()}, {"cuda": 5}, {"\ud800": 5}, {"cpu:0": "\ud800"}, {1.5: 1}]
SPEEDS = [3, "fast", [1.0], object(), Odd(), {"cpu:0": "fast"}, {"cpu:0": -1}, {"cpu:0": 0}]
SPEEDS += [{"cpu:0": math.nan}, {"cpu:0": math.inf}, {"cpu:7": 1.0}, {0: 1.0}, {"cpu:0": None}]
BUDGET = [*NUMBERS, 0, -1, math.nan, math.inf, 10**400]
GRAPHS = [*THING, None]

# Of a public function: a right call's arguments, and for each name what cannot be given.
PLAN_OPTIONS = {
    "devices": DEVICES,
    "max_memory": LIMITS,
    "n_microbatches": [v for v in COUNT if v is not None],
    "chunks": [v for v in COUNT if v is not None],
    "batch": [v for v in COUNT if v is not None and v != 2**30],
    "objective": NAME,
    "profile": [3, [], object(), Odd(), "no/such/file", "", b"x\0", True],
    "model": [3, "model", Net, object(), torch.zeros(2)],
    "kwargs": MAPPING,
    "seed": SEED,
    "time_budget": BUDGET,
    "threads": [*COUNT],
    "schedule": NAME,
    "comm_model": NAME,
    "mixed": FLAG,
    "training": FLAG,
    "optimizer": NAME,
    "recompute": [v for v in NAME if v != []],
    "stages_per_device": [v for v in COUNT if v is not None],
}
PIPE_MODEL_PASSES_ON = (
    *("max_memory", "n_microbatches", "objective", "comm_model", "optimizer", "mixed"),
    *("seed", "time_budget", "threads"),
)
REGISTERED = {
    "func": [v for v in THING if v is not Net] + [Net, None],
    "registry": [v for v in THING if v is not None],
}
WRONG = {
    "plan": (
        lambda t: {"graph": t.graph, "devices": TWO},
        PLAN_OPTIONS
        | {
            "graph": GRAPHS,
            "method": NAME,
            "stages": [*WHOLE, -1, 10**30],
            "minimise": NAME,
            "imbalance": NUMBERS,
            "saturate_host": FLAG,
            "node_to_partition": MAPPING,
            "partition_to_device": [3, "ab", [3], object(), Odd(), {None: 3}, {"a": "cpu:0"}],
            "nothing": [3],
        },
    ),
    "compare": (
        lambda t: {"graph": t.graph, "devices": TWO, "methods": "chain"},
        PLAN_OPTIONS
        | {"graph": GRAPHS, "methods": [3, [], [3], "", "best", ["chain"] * 2, Odd(), object()]},
    ),
    "place": (
        lambda t: {"model": copy.deepcopy(t.model), "max_memory": {"cpu": "1GiB"}},
        {
            "model": THING,
            "max_memory": [
                *(3, "2GiB", ["2GiB"], object(), Odd(), {}, {"disk": "folder"}, {"cpu": -5}),
                *({"cpu": None}, {"cpu": 1.5}, {"cpu": "much"}, {0: "2GiB", "cpu": 1}),
                *({"cpu": 1, "disk": 3}, {"cpu": 1, "disk": "no/such/folder"}),
            ],
            "checkpoint": PATH,
            "no_split_module_classes": [3, object(), Odd(), [3], 1.5, True],
            "disk_bytes_per_second": [*NUMBERS[:1], *NUMBERS[2:5], 0, -1, math.nan, math.inf],
            "nothing": [3],
        },
    ),
    "pipe_model": (
        lambda t: {"model": t.model, "args": (t.x,), "devices": TWO, "profile": "estimate"},
        {name: PLAN_OPTIONS[name] for name in PIPE_MODEL_PASSES_ON}
        | {
            "model": [*THING, None],
            "kwargs": MAPPING,
            "batch_dim": [*("0", 1.5, [0], object(), Odd(), 7, -9, True, {"x": "0"}, {3: 0})],
            "nparts": [v for v in COUNT if v is not None] + [3],
            "devices": [v for v in DEVICES if v is not None],
            "depth": [v for v in WHOLE if v is not None] + [-1, 10**30],
            "basic_blocks": [3, "Linear", [3], ["Nothing"], [None], Odd(), [""]],
            "node_weight_function": [3, "ab", [3], object(), True, lambda node: None],
            "edge_weight_function": [3, "ab", [3], object(), True, lambda a, b: "much"],
            "output_file": [v for v in PATH if v != "no/such/file"] + ["no/such/folder/file.py"],
            "generate_explicit_del": FLAG,
            "generate_activation_propagation": FLAG,
            "recomputation": [*TEXT[:1], *TEXT[3:], True, "all"],
            "force_no_recomp_scopes": [3, "ab", [3], object(), True],
            "partitioning_method": NAME,
            "schedule": [v for v in NAME if v is not None],
            "METIS_opt": [*MAPPING, {"seed": "x"}, {"nothing": 1}],
            "acyclic_opt": [*MAPPING, {"epsilon": 1}, {"nothing": 1}],
            "binpack_opt": [*MAPPING, {"n_clusters": 3}],
            "mpipe_opt": [*MAPPING, {"L_list": [2]}],
            "graph": [v for v in GRAPHS if v is not None],
            "profile": [3, [], object(), Odd(), "no/such/file", "", b"x\0", True],
            "save_memory_mode": [*FLAG, True],
            "async_pipe": FLAG,
            "dont_use_async_meta_alg": FLAG,
            "trace_cache_name": PATH,
            "profiles_cache_name": PATH,
            "n_iter": [3],
            "nothing": [3],
        },
    ),
    "replan": (
        lambda t: {"plan": t.plan, "graph": t.graph},
        {
            "plan": GRAPHS,
            "graph": GRAPHS,
            "n_microbatches": [v for v in COUNT if v is not None],
            "batch": [v for v in COUNT if v is not None and v != 2**30],
            "profile": THING,
        },
    ),
    "verify": (
        lambda t: {"plan": t.plan, "graph": t.graph},
        {"plan": GRAPHS, "graph": GRAPHS, "profile": THING},
    ),
    "simulate": (
        lambda t: {"plan": t.plan},
        {"plan": GRAPHS, "n_microbatches": [v for v in COUNT if v is not None]},
    ),
    "compare_timelines": (
        lambda t: {"predicted": t.timeline, "measured": t.timeline},
        {"predicted": GRAPHS, "measured": GRAPHS},
    ),
    "estimate": (
        lambda t: {"graph": t.graph},
        {"graph": GRAPHS, "device_kind": NAME, "batch": [*WHOLE, -1, 10**30]},
    ),
    "memory": (
        lambda t: {"graph": t.trained},
        {
            "graph": GRAPHS,
            "batch": [*WHOLE, -1, 10**30],
            "training": FLAG,
            "optimizer": NAME,
            "recompute": [v for v in NAME if v != []],
            "device_kind": NAME,
        },
    ),
    "symbolic_trace": (
        lambda t: {"root": t.model, "meta_args": {"x": t.x}},
        {
            "root": [*THING, None],
            "meta_args": [*MAPPING, {"y": torch.zeros(2)}, {"x": 3}, {"x": {}}, {"x": Odd()}],
            "concrete_args": [*MAPPING, {"y": 3}, {"x": 3}],
            "trace_act_ckpt": FLAG,
            "bias_addition_split": FLAG,
            "registry": THING,
            "nothing": [3],
        },
    ),
    "symbolic_profile": (
        lambda t: {"gm": t.module, "kwargs": {"x": t.x}},
        {
            "gm": [*THING, None, Net()],
            "kwargs": [*MAPPING, {}, {"y": torch.zeros(2)}, {"x": 3}, {"x": Odd()}],
            "verbose": FLAG,
            "strict": FLAG,
            "device_kind": NAME,
            "recompute": [v for v in NAME if v != []],
            "registry": THING,
        },
    ),
    "profile_table": (
        lambda t: {"gm": t.module},
        {
            "gm": [*THING, None, Net()],
            "sort": [v for v in NAME if v not in ("", None)],
            "limit": [*WHOLE, -1, 2**31, 10**30],
        },
    ),
    "graph_of": (lambda t: {"gm": t.module}, {"gm": [*THING, None, Net()]}),
    "flop_count": (
        lambda t: {"module_or_fn": torch.relu, "input": t.x},
        {
            "module_or_fn": [v for v in THING if v is not Net],
            "verbose": FLAG,
        },
    ),
    "register_shape_impl": (lambda t: {"func": Things.unused}, REGISTERED),
    "register_flop_count_impl": (lambda t: {"func": Things.unused}, REGISTERED),
    "register_tracer_impl": (
        lambda t: {"func": Things.unused},
        REGISTERED | {"name": NAME},
    ),
    "register_leaf_module": (
        lambda t: {"cls": Net, "registry": kerf.symbolic.Registry()},
        {"cls": [3, "Net", None, object(), Odd()], "registry": THING},
    ),
    "register_non_leaf_module": (
        lambda t: {"cls": Net, "registry": kerf.symbolic.Registry()},
        {"cls": [3, "Net", None, object(), Odd()], "registry": THING},
    ),
    "MetaTensor": (
        lambda t: {"elem": t.x},
        {"elem": [*THING[:-3], None], "device": [3.5, [], object(), Odd(), "gpu", "cuda:x", b"x"]},
    ),
    "MetaTensorMode": (
        lambda t: {"device": "cuda:1"},
        {"device": [3.5, [], object(), Odd(), "gpu", "cuda:x", b"x"]},
    ),
    "MetaInfo": (
        lambda t: {"node": next(iter(t.module.graph.nodes))},
        {"node": [*THING, None]},
    ),
    "make_cluster": (
        lambda t: {"devices": TWO},
        {"devices": DEVICES, "max_memory": LIMITS, "speeds": SPEEDS},
    ),
    "Cluster": (
        lambda t: {"devices": TWO},
        {"devices": [*DEVICES, None], "max_memory": LIMITS, "speeds": SPEEDS},
    ),
    "allow_output_class": (lambda t: {"cls": Net}, {"cls": [3, "Net", None, object(), Odd()]}),
    "Cluster.parse": (
        lambda t: {"text": "cpu:0"},
        {"text": [*TEXT, "", "no such name", "a\0b", "\ud800", "a\nb"]},
    ),
    "Profile.from_times": (
        lambda t: {"graph": t.graph, "forward": [1.0] * 3},
        {
            "graph": GRAPHS,
            "forward": [3, "abc", [], [1.0], [1.0, 1.0, "x"], [None] * 3, object(), Odd()],
            "batch": [*WHOLE, -1, 10**30],
            "device_kind": TEXT,
            "source": NAME,
        },
    ),
    "trace": (
        lambda t: {"model": t.model, "args": (t.x,)},
        {
            "model": [*THING, None],
            "args": [(), (torch.zeros(4, 4),) * 9, 3, "x", object(), (torch.zeros(4, 7),), [[]]],
            "kwargs": [*MAPPING, {"nothing": 3}, {"x": torch.zeros(4, 4)}],
            "batch_dims": [
                "0",
                1.5,
                [0],
                object(),
                Odd(),
                7,
                -9,
                True,
                {"x": "0"},
                {"y": 0},
                {3: 0},
            ],
            "basic_blocks": [3, "Linear", torch.nn.Linear, [3], ["Nothing"], [None], Odd(), [""]],
            "opaque": [*NAME],
        },
    ),
    "coarsen": (
        lambda t: {"graph": t.graph},
        {
            "graph": GRAPHS,
            "depth": [v for v in WHOLE if v is not None] + [-1, 10**30],
            "basic_blocks": [3, "Linear", torch.nn.Linear, [3], ["Nothing"], [None], Odd(), [""]],
            "model": [3, "model", Net, object(), torch.zeros(2)],
        },
    ),
    "emit": (
        lambda t: {"plan": t.plan, "graph": t.graph, "path": "/dev/null"},
        {
            "plan": GRAPHS,
            "graph": GRAPHS,
            "path": PATH,
            "eval_graph": THING,
            "overwrite": FLAG,
        },
    ),
    "profile": (
        lambda t: {"model": t.model, "graph": t.graph, "args": (t.x,), "budget_seconds": 0.01},
        {
            "model": [*THING, None, torch.nn.Linear(2, 2)],
            "graph": GRAPHS,
            "args": [(), (torch.zeros(4, 4),) * 9, 3, "x", object(), (torch.zeros(4, 7),), [[]]],
            "kwargs": [*MAPPING, {"nothing": 3}],
            "batch": [v for v in WHOLE if v is not None] + [-1, 0, 10**30],
            "devices": DEVICES,
            "budget_seconds": BUDGET,
            "training": FLAG,
        },
    ),
    "Pipeline": (
        lambda t: {"model": t.model, "plan": t.plan},
        {
            "model": [*THING, None, torch.nn.Linear(2, 2)],
            "plan": GRAPHS,
            "graph": THING,
            "n_microbatches": [v for v in COUNT if v is not None],
            "reduce": [*MAPPING, {"": "x"}, {"no": "mean"}, {"no": 3}],
        },
    ),
}
METHODS = {
    "graph.save": ({}, {"path": PATH}),
    "plan.save": ({}, {"path": PATH}),
    "cluster.save": ({}, {"path": PATH}),
    "timeline.save": ({}, {"path": PATH}),
    "timeline.save_trace": ({}, {"path": PATH}),
    "timeline.busy": ({}, {"device": NAME}),
    "timeline.draw": ({}, {"width": [*COUNT]}),
    "cluster.link": ({"from_device": "cpu:0", "to_device": "cpu:0"}, {"to_device": NAME}),
    "profile.save": ({"path": "/nope/x"}, {"graph": GRAPHS}),
    "pipe.check": ({"x": torch.zeros(4, 4)}, {"tolerance": [*NUMBERS, -1, math.nan, math.inf]}),
    "pipe": (
        {"x": torch.zeros(4, 4)},
        {
            "x": [3, None, "x", [torch.zeros(4, 4)], object(), Odd(), torch.zeros(0, 4)]
            + [torch.zeros(4), torch.zeros(4, 4).to_sparse(), torch.zeros(4, 4, device="meta")],
            "nothing": [3],
            "scale": [2.0, torch.zeros(1), Odd()],
        },
    ),
}


def cases(table):
    for name, (_, wrong) in table.items():
        for argument, values in wrong.items():
            for number, _ in enumerate(values):
                yield pytest.param(name, argument, number, id=f"{name}-{argument}-{number}")


@pytest.mark.parametrize(("name", "argument", "number"), list(cases(WRONG)))
def test_wrong_arguments_of_functions(things, name, argument, number):
    right, wrong = WRONG[name]
    function = kerf
    for part in name.split("."):
        function = getattr(function, part)
    refusal(lambda: function(**{**right(things), argument: wrong[argument][number]}))


@pytest.mark.parametrize(("name", "argument", "number"), list(cases(METHODS)))
def test_wrong_arguments_of_methods(things, name, argument, number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    right, wrong = METHODS[name]
    function = things
    for part in name.split("."):
        function = getattr(function, part)
    refusal(lambda: function(**{**right, argument: wrong[argument][number]}))
    assert list(tmp_path.iterdir()) == []


GIVE_NOTHING = {"emit", "register_leaf_module", "register_non_leaf_module"}


def test_right_calls_are_right(things):
    """Else the tests above would pass whatever is refused."""
    for name, (right, _) in WRONG.items():
        function = kerf
        for part in name.split("."):
            function = getattr(function, part)
        found = function(**right(things))
        assert found is not None or name in GIVE_NOTHING


LOADERS = ["graph", "plan", "profile", "cluster", "timeline"]
FILES = {
    "empty": b"",
    "binary": bytes(range(256)) * 20,
    "zeros": b"\0" * 4096,
    "latin1": "caf\u00e9 \u00fc".encode("latin1"),
    "text": b"hello\nworld\n",
    "number": b"3",
    "list": b"[]",
    "object": b"{}",
    "deep": b"[" * 100_000,
    "elf": b"\x7fELF\x02\x01\x01" + bytes(64),
}


def load(things, kind, path):
    more = (things.graph,) if kind == "profile" else ()
    return getattr(kerf, f"load_{kind}")(path, *more)


@pytest.mark.parametrize("content", FILES)
@pytest.mark.parametrize("kind", LOADERS)
def test_files_that_are_something_else(things, kind, content, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(FILES[content])
    message = refusal(lambda: load(things, kind, path))
    assert "file" in message
    assert path.read_bytes() == FILES[content]


@pytest.mark.parametrize("number", range(len(PATH)))
@pytest.mark.parametrize("kind", LOADERS)
def test_paths_that_lead_nowhere(things, kind, number):
    refusal(lambda: load(things, kind, PATH[number]))


@pytest.mark.parametrize("kind", LOADERS)
def test_folders_are_no_files(things, kind, tmp_path):
    assert "irectory" in refusal(lambda: load(things, kind, tmp_path))


@pytest.mark.parametrize("kind", LOADERS)
def test_what_cannot_be_written_changes_nothing(things, kind, tmp_path):
    thing, more = getattr(things, kind), (things.graph,) if kind == "profile" else ()
    refusal(lambda: thing.save(tmp_path, *more))
    refusal(lambda: thing.save(tmp_path / "no" / "such", *more))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["Graph", "Plan", "Profile", "Timeline", "Infeasible", "Comparison"]
)
def test_what_is_not_made_by_hand_says_where_it_comes_from(name):
    assert "kerf." in refusal(getattr(kerf, name))
    refusal(lambda: getattr(kerf, name)(3))


@pytest.mark.parametrize("value", [3, "graph", object()])
def test_a_plan_takes_no_other_graph(things, value):
    plan = pickle.loads(pickle.dumps(things.plan))

    def assign():
        plan.graph = value

    refusal(assign)
    assert plan.graph == things.graph


def test_things_that_others_call_the_same_are_told_by_their_modules(things):
    with pytest.raises(TypeError, match="an object of class torch.fx.graph.Graph; expected a gra"):
        kerf.plan(torch.fx.Graph(), TWO)
    with pytest.raises(TypeError, match="np.True_, a numpy.bool; expected True or False"):
        kerf.Pipeline(things.model, things.plan, frozen=np.True_)


def test_a_key_that_names_no_device_lists_those_there_are():
    message = refusal(lambda: kerf.make_cluster(TWO, {0: "2GiB"}))
    assert "cpu:0, cpu:1" in message


def test_too_many_and_too_few_arguments(things):
    refusal(lambda: kerf.simulate())
    refusal(lambda: kerf.simulate(things.plan, 1, 2))
    refusal(lambda: kerf.simulate(things.plan, nothing=1))
    refusal(lambda: kerf.plan())
    refusal(lambda: kerf.trace())
    refusal(lambda: kerf.Pipeline(things.model))
    refusal(lambda: things.plan.save())


def test_every_public_function_is_tried():
    tried = {name.partition(".")[0] for name in WRONG} | {f"load_{kind}" for kind in LOADERS}
    # take nothing; is no function
    untried = {"methods", "schedules", "empty_weights", "__version__"}
    names = {n for n in kerf.__all__ if not isinstance(getattr(kerf, n), type)}
    assert names - tried - untried == set()


def test_compiled_functions_keep_names_and_documents(things):
    assert kerf.simulate.__name__ == "simulate"
    assert kerf.load_graph.__doc__
    assert pickle.loads(pickle.dumps(kerf.simulate)) is kerf.simulate
    assert _core.Plan.save.__qualname__ == "Plan.save"
