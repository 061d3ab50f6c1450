# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Bad input to kerf.fx: one clear error each; with compat=True the original's own."""

import copy
import inspect
import pickle

import pytest
import torch
from fx_graphs import draw_case, ops, total_bytes
from fx_original import call, call_original, original, utils
from torch import nn
from torch.fx import symbolic_trace

import kerf
import kerf.fx
from kerf.fx import (
    Device,
    InfeasibleError,
    NodeLatency,
    Partition,
    Partitioner,
    PartitionerConfig,
    PartitionError,
    PartitionMode,
    combine_two_partitions,
    get_device_to_partitions_mapping,
    get_node_to_latency_mapping_template,
    get_size_of_all_nodes,
)

CASE = draw_case(11, "residual", 9)
NODES = ops(CASE.module)
LARGE = [Device("left", 10**6, 0), Device("right", 10**6, 1)]


def partition(
    module=CASE.module, devices=LARGE, mode="cost_aware", rate=1.0, latencies=None, **more
):
    latencies = CASE.latencies if latencies is None else latencies
    config = PartitionerConfig(devices, PartitionMode[mode], rate, latencies, **more)
    return Partitioner().partition_graph(module, module, config)


def refused(*words, **arguments):
    """The message of the one error, which has the house form and all the words."""
    with pytest.raises(PartitionError) as raised:
        partition(**arguments)
    text = str(raised.value)
    assert text.startswith("[kerf.fx] ") and "; expected" in text, text
    for word in words:
        assert word in text, text
    assert isinstance(raised.value, RuntimeError) and isinstance(raised.value, ValueError)
    return text


MODES = [mode.name for mode in PartitionMode]


@pytest.mark.parametrize("mode", MODES)
def test_no_devices(mode):
    refused("no devices", devices=[], mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_two_devices_with_one_id(mode):
    refused("7", "'b'", devices=[Device("a", 100, 7), Device("b", 200, 7)], mode=mode)


@pytest.mark.parametrize("memory", [0, -5])
def test_memory_that_is_none(memory):
    refused("'right'", str(memory), devices=[LARGE[0], Device("right", memory, 1)])


@pytest.mark.parametrize("memory", ["2GiB", None, float("nan")])
def test_memory_that_is_no_number(memory):
    refused("'right'", repr(memory), devices=[LARGE[0], Device("right", memory, 1)])


@pytest.mark.parametrize("memory", [float("inf"), 2**63, 2**70, 1e30, 1e6])
@pytest.mark.parametrize("compat", [False, True])
def test_memory_may_be_unlimited_or_a_whole_float(memory, compat):
    config = PartitionerConfig([Device("all", memory, 0), Device("more", 10**6, 1)])
    partitioner = Partitioner(compat=compat)
    assert len(partitioner.partition_graph(CASE.module, CASE.module, config).dag.nodes) == 1


@pytest.mark.parametrize("compat", [False, True])
def test_memory_is_whole_bytes(compat):
    config = PartitionerConfig([Device("right", 1e6 + 0.5, 0)])
    with pytest.raises(PartitionError, match=r"'right'.*1000000\.5.*; expected whole bytes"):
        Partitioner(compat=compat).partition_graph(CASE.module, CASE.module, config)
    part = Partition(0)
    for function in (kerf.fx.get_device_partition_stats, get_device_to_partitions_mapping):
        with pytest.raises(PartitionError, match="whole bytes"):
            function([part], [Device("right", 0.5, 0)])


@pytest.mark.parametrize("memory", [float("-inf"), -(2**70)])
def test_memory_far_below_nothing(memory):
    refused("'right'", str(memory), devices=[LARGE[0], Device("right", memory, 1)])
    small = PartitionerConfig([Device("a", memory, 0)])
    with pytest.raises(RuntimeError, match="do not have enough memory"):
        Partitioner(compat=True).partition_graph(CASE.module, CASE.module, small)


@pytest.mark.parametrize("memory", [2**56, 2**63, 10**30, float("inf"), 1e30, 100.0, -3, -(2**70)])
def test_what_is_left_of_a_memory_is_the_originals(memory):
    left = []
    for functions, library in ((original, utils), (kerf.fx, kerf.fx)):
        part = library.Partition(0)
        part.used_mem_bytes, part.logical_device_ids = 48, [0]
        stats = functions.get_device_partition_stats([part], [library.Device("", memory, 0)])
        left.append(list(stats[1].values()))
    assert left[0] == left[1] and repr(left[0]) == repr(left[1])


@pytest.mark.parametrize("number", ["cpu:0", None, 1.5, 2**70])
def test_a_logical_id_that_is_no_number(number):
    refused("'right'", repr(number), devices=[LARGE[0], Device("right", 100, number)])


@pytest.mark.parametrize("mode", ["cost_aware", "kl_based"])
@pytest.mark.parametrize("rate", [0, 0.0, -2.0, float("nan"), "fast", None])
def test_rates_that_are_none(mode, rate):
    refused("rate", mode=mode, rate=rate)


@pytest.mark.parametrize("rate", [0.0, None, "fast", -1.0])
def test_rates_matter_to_the_cost_modes_only(rate):
    for mode in ("size_based", "sparse_nn"):
        partition(mode=mode, rate=rate)


@pytest.mark.parametrize("latency", [None, 3.0, (1.0,), ("slow", 1.0)])
def test_latencies_matter_to_the_cost_modes_only(latency):
    for mode in ("size_based", "sparse_nn"):
        partition(mode=mode, latencies=dict.fromkeys(NODES, latency))
    for mode in ("cost_aware", "kl_based"):
        refused(str(NODES[0]), repr(latency), mode=mode, latencies=dict.fromkeys(NODES, latency))


@pytest.mark.parametrize("mode", MODES[:4])
def test_latencies_and_devices_may_be_plain_tuples(mode):
    half = total_bytes(CASE.module) * 3 // 4
    answers = []
    for kind, device in ((NodeLatency, Device), (lambda *pair: pair, lambda *three: three)):
        times = {n: kind(*CASE.latencies[n]) for n in NODES}
        devices = [device("a", half, 0), device("b", half, 1)]
        partitioner = Partitioner()
        config = PartitionerConfig(devices, PartitionMode[mode], 2.0, times)
        partitioner.partition_graph(CASE.module, CASE.module, config)
        plan = {str(n): i for n, i in partitioner.node_to_partition.items()}
        answers.append((plan, partitioner.cost, partitioner.device_bytes))
    assert answers[0] == answers[1] and answers[0][1] is not None


@pytest.mark.parametrize("devices", [None, 3, "cpu:0", [1], [("a", 5)], [None]])
def test_devices_that_are_none(devices):
    refused("device", devices=devices, mode="size_based")


@pytest.mark.parametrize("config", [None, 3, "size_based", [Device("a", 100, 0)]])
def test_a_configuration_that_is_none(config):
    with pytest.raises(PartitionError, match="expected a PartitionerConfig"):
        Partitioner().partition_graph(CASE.module, CASE.module, config)
    with pytest.raises(AttributeError, match="has no attribute 'devices'") as raised:
        Partitioner(compat=True).partition_graph(CASE.module, CASE.module, config)
    assert isinstance(raised.value, RuntimeError)


@pytest.mark.parametrize("mode", ["cost_aware", "kl_based"])
def test_missing_latencies_are_all_listed(mode):
    refused(*map(str, NODES), mode=mode, latencies={})


@pytest.mark.parametrize("mode", ["cost_aware", "kl_based"])
def test_latencies_for_nodes_of_another_graph(mode):
    other = draw_case(12, "chain", 4)
    text = refused(
        "node_to_latency_mapping", mode=mode, latencies={**CASE.latencies, **other.latencies}
    )
    assert all(str(node) in text for node in other.latencies)
    partition(mode="size_based", latencies=other.latencies)  # not read there


def test_latencies_that_are_none():
    refused(str(NODES[1]), latencies={**CASE.latencies, NODES[1]: NodeLatency(-1.0, 0.0)})
    refused(str(NODES[1]), latencies={**CASE.latencies, NODES[1]: 3.0})


def test_a_map_may_make_what_it_lacks():
    class Everything(dict):
        def __missing__(self, node):
            return NodeLatency(1.0, 1.0)

    partition(latencies=Everything())


def test_no_shape_metadata_names_the_nodes_and_the_pass():
    module = symbolic_trace(nn.Sequential(*[nn.ReLU() for _ in range(20)]))
    refused(
        "21 of 21", "and 13 more", "ShapeProp", "get_size_of_all_nodes", module=module, latencies={}
    )


class Nothing(nn.Module):
    def forward(self, x):
        return x


@pytest.mark.parametrize("mode", MODES)
def test_no_operations(mode):
    module = symbolic_trace(Nothing())
    get_size_of_all_nodes(module, [torch.rand(4)])
    refused("a graph without operations", module=module, mode=mode, latencies={})


def test_a_node_larger_than_any_device_with_bytes_and_device():
    module = symbolic_trace(nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))
    get_size_of_all_nodes(module, [torch.rand(4)])
    for mode in ("size_based", "sparse_nn", "cost_aware", "kl_based"):
        times = {n: NodeLatency(1.0, 1.0) for n in ops(module)}
        small = [Device("small", 100, 0), Device("less", 90, 1)]
        with pytest.raises(RuntimeError) as raised:
            partition(module, small, mode, latencies=times)
        text = str(raised.value)
        assert "112" in text and "'small'" in text.replace("small:", "'small'"), text


def test_an_infeasible_answer_is_both_kinds_of_error_and_survives_pickling():
    with pytest.raises(InfeasibleError) as raised:
        partition(devices=[Device("a", total_bytes(CASE.module) // 2, 0)], mode="size_based")
    error = raised.value
    assert isinstance(error, kerf.InfeasibleError) and isinstance(error, RuntimeError)
    assert error.infeasible.device == "a"
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and type(again) is InfeasibleError


def test_a_mode_that_is_none():
    config = PartitionerConfig(LARGE, "fastest")
    with pytest.raises(PartitionError, match="size_based, sparse_nn"):
        Partitioner().partition_graph(CASE.module, CASE.module, config)


def test_words_that_are_none():
    for word in ("cost_model", "memory"):
        with pytest.raises(PartitionError, match=word):
            Partitioner(**{word: "best"})


def test_something_that_is_no_module():
    with pytest.raises(PartitionError, match="symbolic_trace"):
        Partitioner().partition_graph(nn.ReLU(), nn.ReLU(), PartitionerConfig(LARGE))


# ---- given plans


def aot(mapping, devices=None, *words):
    devices = {n: [0] for n in set(mapping.values())} if devices is None else devices
    return refused(
        *words,
        mode="aot_based",
        node_to_partition_mapping=mapping,
        partition_to_logical_device_mapping=devices,
    )


ALL_IN_0 = dict.fromkeys(NODES, 0)


def test_aot_refuses_nodes_of_another_graph():
    other = draw_case(12, "chain", 4)
    aot({**ALL_IN_0, **dict.fromkeys(ops(other.module), 0)}, None, "node_to_partition_mapping")


def test_aot_lists_nodes_that_have_no_partition():
    aot({n: 0 for n in NODES[2:]}, None, str(NODES[0]), str(NODES[1]))


def test_aot_refuses_partitions_without_devices():
    aot({**ALL_IN_0, NODES[-1]: 4}, {0: [0]}, "4")
    aot(ALL_IN_0, {0: []}, "0")


def test_aot_refuses_devices_that_are_not_there():
    aot(ALL_IN_0, {0: [9]}, "9")


def test_aot_prints_the_cycle():
    first, second = NODES[0], NODES[1]
    text = aot({**ALL_IN_0, first: 2, second: 5, NODES[-1]: 2}, None)
    assert "2 -> " in text or "5 -> " in text or "0 -> " in text, text


def test_aot_refuses_numbers_that_are_none():
    aot({**ALL_IN_0, NODES[0]: "first"}, {0: [0]}, "'first'")
    aot({**ALL_IN_0, NODES[0]: -1}, {0: [0], -1: [0]}, "-1")
    aot({**ALL_IN_0, NODES[0]: 2**70}, {0: [0], 2**70: [0]}, str(2**70))
    aot(ALL_IN_0, {0: [2**70]}, str(2**70))


def test_aot_refuses_devices_that_are_no_lists():
    aot(ALL_IN_0, {0: 0}, "partition 0", "list of logical ids")
    aot(ALL_IN_0, {0: "0"}, "partition 0", "list of logical ids")
    aot(ALL_IN_0, {0: None}, "partition 0", "list of logical ids")
    refused("expected a dict", mode="aot_based", node_to_partition_mapping=[0])


def test_aot_takes_maps_with_leaves_and_outputs():
    everything = dict.fromkeys(CASE.module.graph.nodes, 3)
    result = partition(
        mode="aot_based",
        node_to_partition_mapping=everything,
        partition_to_logical_device_mapping={3: [1]},
    )
    assert [str(node) for node in result.dag.nodes] == ["submod_3"]


# ---- results that are no tensors


class Mixed(nn.Module):
    """Tuples, numbers, None and dicts as results of nodes, and several outputs."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        rows = x.size(0)
        parts = torch.split(y, 1)
        return parts[0] + h, c * rows, y


@pytest.mark.parametrize("mode", ["size_based", "sparse_nn", "cost_aware", "kl_based"])
def test_tuples_and_numbers_are_accepted_and_several_outputs_come_back(mode):
    model, x = Mixed(), torch.rand(3, 2, 4)
    module = symbolic_trace(model)
    torch.fx.passes.shape_prop.ShapeProp(module).propagate(x)
    times = {n: NodeLatency(1.0, 1.0) for n in ops(module)}
    total = 4000
    result = partition(module, [Device(str(i), total, i) for i in range(2)], mode, 1.0, times)
    for got, want in zip(result.module_with_submodules(x), module(x)):
        torch.testing.assert_close(got, want)
    size = {str(n): n.size_bytes for n in module.graph.nodes if n.op != "output"}
    assert size["size"] == (0, 0)
    hidden = 2 * 4 * 4
    assert size["lstm"].output_size == 3 * hidden + 2 * hidden
    assert size["lstm"].total_size == 5 * hidden + 4 * sum(p.numel() for p in model.parameters())
    assert size["split"].output_size == 3 * hidden


def test_none_and_dicts_have_sizes_too():
    def table(x):
        return {"a": x, "b": [x, None, 3]}

    def nothing(x):
        return None

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(table, (x,))
    graph.call_function(nothing, (x,))
    graph.output(made)
    module = torch.fx.GraphModule(nn.Module(), graph)
    torch.fx.passes.shape_prop.ShapeProp(module).propagate(torch.rand(4))
    partition(module, latencies={n: NodeLatency(1.0, 1.0) for n in ops(module)})
    assert [n.size_bytes.output_size for n in module.graph.nodes if n.op != "output"] == [16, 32, 0]


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x)) + x


@pytest.mark.parametrize("dims", [None, {"x": {0: torch.export.Dim("rows")}}])
def test_fake_tensors_of_an_export_are_enough(dims):
    exported = torch.export.export(Small(), (torch.rand(6, 4),), dynamic_shapes=dims).module()
    times = {n: NodeLatency(1.0, 1.0) for n in ops(exported)}
    result = partition(exported, [Device("a", 400, 0), Device("b", 400, 1)], latencies=times)
    assert {i for node in result.dag.nodes for i in node.logical_device_ids} == {0, 1}
    relu = next(n for n in exported.graph.nodes if n.name == "relu")
    assert relu.size_bytes == (96, 96)  # symbolic sizes are the example's
    x = torch.rand(6, 4)
    torch.testing.assert_close(result.module_with_submodules(x), exported(x))


# ---- sizes


def test_sizes_are_torchs_where_torch_has_any():
    for seed in range(12):
        case = draw_case(seed)
        ours = [getattr(n, "size_bytes", None) for n in case.module.graph.nodes]
        torch.fx.passes.graph_manipulation.get_size_of_all_nodes(case.module, case.inputs)
        assert ours == [getattr(n, "size_bytes", None) for n in case.module.graph.nodes]


def test_sizes_of_any_result_by_the_function_of_the_docs():
    module, x = symbolic_trace(Mixed()), torch.rand(3, 2, 4)
    assert get_size_of_all_nodes(module, [x]) is None
    size = {str(n): n.size_bytes.output_size for n in module.graph.nodes if n.op != "output"}
    assert (size["x"], size["lstm"], size["size"]) == (96, 96 + 64, 0)
    fresh = symbolic_trace(Mixed())
    with pytest.raises(PartitionError, match="no shape metadata"):
        get_size_of_all_nodes(fresh)
    with pytest.raises(PartitionError, match="GraphModule"):
        get_size_of_all_nodes(nn.ReLU(), [x])
    with pytest.raises(RuntimeError):
        get_size_of_all_nodes(fresh, [])


# ---- the face


def test_every_public_name_of_the_original_is_here():
    names = {n for module in (original, utils) for n in dir(module) if not n.startswith("_")}
    assert names - set(dir(kerf.fx)) == set()
    assert names - set(kerf.fx.__all__) == set()


def test_types_have_the_originals_fields_defaults_and_texts():
    for name in ("Device", "NodeLatency", "PartitionLatency", "PartitionerConfig"):
        ours, theirs = getattr(kerf.fx, name), getattr(utils, name)
        assert ours._fields == theirs._fields
        values = list(range(len(ours._fields)))
        assert repr(ours(*values)) == repr(theirs(*values))
        assert ours(*values) == theirs(*values)
    assert list(PartitionerConfig([])[2:]) == list(utils.PartitionerConfig([])[2:])
    for name in ("Device", "NodeLatency", "PartitionerConfig"):
        ours, theirs = getattr(kerf.fx, name), getattr(utils, name)
        assert repr(ours._field_defaults) == repr(theirs._field_defaults)
        defaults = [
            [(p.name, repr(p.default)) for p in inspect.signature(kind).parameters.values()]
            for kind in (ours, theirs)
        ]
        assert defaults[0] == defaults[1]
    assert {m.name: m.value for m in PartitionMode} == {
        m.name: m.value for m in utils.PartitionMode
    }
    assert repr(PartitionMode.kl_based) == repr(utils.PartitionMode.kl_based)
    assert vars(Partition(3)) == vars(utils.Partition(3))
    assert str(Partition(3)) == "3"
    fields = set(vars(original.DAGNode(*"abcde")))
    assert set(vars(kerf.fx.DAGNode(*"abcde"))) == fields | {"consumer_nodes"}
    assert kerf.fx.PartitionResult._fields == original.PartitionResult._fields


def test_maps_that_are_not_given_are_never_shared():
    first, second = PartitionerConfig([]), PartitionerConfig([])
    for field in ("node_to_latency_mapping", "partition_to_logical_device_mapping"):
        getattr(first, field)["a"] = 1
        assert getattr(second, field) == getattr(PartitionerConfig([]), field) == {}
    assert PartitionerConfig._field_defaults["node_to_latency_mapping"] == {}


def test_configurations_are_values():
    config = PartitionerConfig(LARGE, PartitionMode.kl_based, saturate_host=True)
    for again in (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert again == config and type(again) is PartitionerConfig
    assert config._replace(transfer_rate_bytes_per_sec=2.0)[2] == 2.0


def test_the_template_has_every_node_that_needs_a_latency():
    template = get_node_to_latency_mapping_template(CASE.module)
    assert list(template) == NODES
    assert set(template.values()) == {NodeLatency(0.0, 0.0)}
    partition(latencies=template)


def test_a_partition_is_combined_with_another_one():
    parts = [Partition(0), Partition(1)]
    for first, second in ((parts[0], parts[0]), (parts[0], Partition(2))):
        with pytest.raises(PartitionError, match="two different ones from the list"):
            combine_two_partitions(first, second, parts)
    assert [p.partition_id for p in parts] == [0, 1]


def test_a_node_is_removed_with_its_leaves_or_not_at_all():
    module = trace(Small(), torch.rand(4))
    get_size_of_all_nodes(module)
    x, linear = list(module.graph.nodes)[:2]
    for library in (utils, kerf.fx):
        part = library.Partition(0)
        part.nodes = {linear}
        with pytest.raises(KeyError, match="x") as raised:
            part.remove_node(linear)
        assert raised.value.args == (x,)
    assert isinstance(raised.value, RuntimeError)


# ---- the original's errors, in compat mode


def original_and_compat(module, config):
    theirs = call_original(module, config).error
    ours = call(Partitioner(compat=True), module, config).error
    assert isinstance(ours, RuntimeError) and isinstance(ours, type(theirs)), (theirs, ours)
    assert str(ours) == str(theirs)
    again = pickle.loads(pickle.dumps(ours)) if not isinstance(ours, KeyError) else ours
    assert str(again) == str(ours)
    return ours


def trace(model, *inputs):
    module = symbolic_trace(model)
    torch.fx.passes.shape_prop.ShapeProp(module).propagate(*inputs)
    return module


def test_compat_no_devices():
    assert str(original_and_compat(CASE.module, PartitionerConfig([]))) == "No devices"


def test_compat_no_operations():
    module = trace(Nothing(), torch.rand(4))
    original_and_compat(module, PartitionerConfig(LARGE))


def test_compat_tuples_and_numbers():
    class Tuple(nn.Module):
        def forward(self, x):
            return torch.split(x, 1)[0]

    class Number(nn.Module):
        def forward(self, x):
            return x * x.size(0)

    for model, kind in ((Tuple(), AttributeError), (Number(), RuntimeError)):
        module = trace(model, torch.rand(4))
        assert isinstance(original_and_compat(module, PartitionerConfig(LARGE)), kind)


def test_compat_no_metadata():
    original_and_compat(symbolic_trace(Nothing()), PartitionerConfig(LARGE))


def test_compat_rate_of_zero_latency_missing():
    module = trace(nn.Sequential(*[nn.ReLU() for _ in range(4)]), torch.rand(4))
    get_size_of_all_nodes(module)
    two = [Device("a", 60, 0), Device("b", 60, 1)]
    times = {n: NodeLatency(1.0, 1.0) for n in ops(module)}
    for mode in (PartitionMode.cost_aware, PartitionMode.kl_based):
        for rate in (0, 0.0):
            config = PartitionerConfig(two, mode, rate, times)
            assert isinstance(original_and_compat(module, config), ZeroDivisionError)
        some = {n: t for n, t in times.items() if str(n) != "_2"}
        assert isinstance(
            original_and_compat(module, PartitionerConfig(two, mode, 1.0, some)), KeyError
        )


def test_compat_given_plans():
    module = trace(nn.Sequential(*[nn.ReLU() for _ in range(4)]), torch.rand(4))
    get_size_of_all_nodes(module)
    a, b, c, d = ops(module)
    aot = PartitionMode.aot_based

    def given(mapping, devices):
        return original_and_compat(module, PartitionerConfig(LARGE, aot, 0.0, {}, mapping, devices))

    assert isinstance(given({a: 0, b: 0, c: 1, d: 1}, {0: [0]}), KeyError)
    assert isinstance(given({a: 0, b: 0, c: 0}, {0: [0]}), KeyError)
    assert isinstance(given({a: 5, b: 5, c: 7, d: 7}, {5: [0], 7: [1]}), IndexError)
    assert "cycle" in str(given({a: 0, b: 1, c: 0, d: 1}, {0: [0], 1: [1]}))
    output = list(module.graph.nodes)[-1]
    given({a: 0, b: 0, c: 0, d: 0, output: 0}, {0: [0]})
    other = ops(draw_case(12, "chain", 4).module)
    given(dict.fromkeys(other, 0), {0: [0]})


def test_functions_on_partitions_raise_what_the_originals_raise():
    module = symbolic_trace(nn.Sequential(nn.ReLU(), nn.ReLU()))
    a, b = ops(module)
    for library in (utils, kerf.fx):
        with pytest.raises(RuntimeError, match="^node has no size_bytes attr$"):
            library.Partition(0).add_node(a)
    torch.fx.passes.shape_prop.ShapeProp(module).propagate(torch.rand(4))
    get_size_of_all_nodes(module)
    for library, functions in ((utils, original), (kerf.fx, kerf.fx)):
        first, second = library.Partition(0), library.Partition(1)
        first.add_node(a)
        second.add_node(b)
        functions.set_parents_and_children([first, second])
        with pytest.raises(KeyError, match="^_0$"):
            library.get_latency_of_one_partition(first, {})
        with pytest.raises(ZeroDivisionError, match="^float division by zero$"):
            library.get_comm_latency_between(first, second, 0.0)
        with pytest.raises(KeyError):
            library.get_latency_of_partitioned_graph([first, second], {}, 1.0)
        first.logical_device_ids = [3]
        with pytest.raises(KeyError, match="^3$"):
            functions.get_device_partition_stats([first], [library.Device("", 10, 0)])
        second.children, first.parents = {first}, set()
        times = {p: library.PartitionLatency(1, 1, 1) for p in (first, second)}
        with pytest.raises(RecursionError):
            library.get_latency_of_partitioned_graph([first, second], times, 1.0)


def test_the_original_is_not_touched():
    assert not hasattr(original, "set") and not hasattr(utils, "set")
    assert kerf.fx.Partitioner is not original.Partitioner
