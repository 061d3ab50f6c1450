# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.fx against the torch.fx partitioner that is installed, on small random modules.

Where the original fails or is undefined, the test says so by name: RecursionError on cyclic states,
no return where its levels meet a cycle.
"""

import collections
import copy
import functools
import inspect
import random

import pytest
import torch
from fx_graphs import (
    LEAVES,
    SHAPES,
    draw_case,
    exact_bytes,
    faults,
    ops,
    path_cost,
    total_bytes,
    union_bytes,
    with_leaves,
)
from fx_original import (
    Endless,
    attempt,
    attempt_original,
    call,
    call_original,
    ordered,
    original,
    time_limit,
    utils,
)
from torch.fx.passes.graph_manipulation import size_bytes

import kerf.fx
from kerf.fx import Partitioner, PartitionerConfig, PartitionMode

MODES = ["size_based", "sparse_nn", "cost_aware", "kl_based", "aot_based"]
SEEDS = 80  # for each shape and mode
SLACK = 1 + 1e-9


def draw_aot(rng, case):
    """Parts in order, mostly; sometimes a wild one, or a number that has no devices."""
    nodes = ops(case.module)
    count = rng.randint(1, 3)
    wild = rng.random() < 0.3
    mapping = {
        n: rng.randrange(count) if wild else i * count // len(nodes) for i, n in enumerate(nodes)
    }
    numbers = list(dict.fromkeys(mapping.values()))
    if rng.random() < 0.1:
        del mapping[rng.choice(nodes)]
    if rng.random() < 0.1:
        numbers.pop()
    ids = [d.logical_id for d in case.devices]
    return mapping, {n: [rng.choice(ids)] for n in numbers}


def config_of(case, mode, seed):
    rng = random.Random(f"{mode} {seed}")
    given = draw_aot(rng, case) if mode == "aot_based" else ({}, {})
    rate = 0.0 if rng.random() < 0.03 else case.rate
    latencies = dict(case.latencies)
    if rng.random() < 0.03:
        del latencies[rng.choice(list(latencies))]
    saturate = rng.random() < 0.25
    return PartitionerConfig(case.devices, PartitionMode[mode], rate, latencies, *given, saturate)


def cases(mode):
    shapes = (*SHAPES, *["embedding"] * len(SHAPES)) if mode == "sparse_nn" else SHAPES
    for seed in range(SEEDS * len(SHAPES)):
        case = draw_case(seed, shapes[seed % len(shapes)])
        yield seed, case, config_of(case, mode, seed)


def fresh(config):
    """The original changes the lists of a given plan."""
    return config._replace(
        partition_to_logical_device_mapping=copy.deepcopy(
            config.partition_to_logical_device_mapping
        )
    )


def plain_partitions(partitions):
    return [
        (
            p.partition_id,
            set(p.nodes),
            p.used_mem_bytes,
            list(p.logical_device_ids),
            {q.partition_id for q in p.parents},
            {q.partition_id for q in p.children},
            p.bfs_level,
        )
        for p in partitions
    ]


def plain_dag(dag):
    return [
        (
            str(node),
            [str(n) for n in node.input_nodes],
            [str(n) for n in node.output_nodes],
            list(node.logical_device_ids),
            node.size_bytes,
        )
        for node in dag.nodes
    ]


def plain_module(module):
    parts = [(name, str(sub.graph)) for name, sub in module.named_children() if "submod" in name]
    return [str(module.graph), *parts]


def shared_lists(partitions):
    first = {}
    return [first.setdefault(id(p.logical_device_ids), i) for i, p in enumerate(partitions)]


def plain_plan(outcome):
    """What a call left on the object, and what it printed."""
    partitions = outcome.partitioner.partitions
    return {
        "partitions": plain_partitions(partitions),
        "node_to_partition": dict(outcome.partitioner.node_to_partition),
        "shared lists": shared_lists(partitions),
        "printed": outcome.printed,
    }


def plain(outcome):
    """Everything that a call did, but its error."""
    result = outcome.result
    return {
        **plain_plan(outcome),
        "dag": plain_dag(result.dag),
        "module": plain_module(result.module_with_submodules),
    }


def same_error(theirs, ours):
    """The type, or one that is it too, and the text; how deep a recursion got is no text."""
    assert isinstance(ours, RuntimeError) and isinstance(ours, type(theirs)), (theirs, ours)
    if not isinstance(theirs, RecursionError):
        assert str(ours) == str(theirs)


@pytest.mark.parametrize("mode", MODES)
def test_compat_answers_as_the_original_bit_for_bit(mode):
    seen = collections.Counter()
    for seed, case, config in cases(mode):
        try:
            theirs = call_original(case.module, fresh(config))
        except Endless:
            seen["the original does not return"] += 1
            with pytest.raises(RuntimeError, match="would never return"):
                Partitioner(compat=True).partition_graph(case.module, case.module, config)
            continue
        ours = call(Partitioner(compat=True), case.module, fresh(config))
        if theirs.error:
            seen[f"{type(theirs.error).__name__}"] += 1
            assert ours.error, f"seed {seed}: the original raises {theirs.error!r}"
            same_error(theirs.error, ours.error)
            assert ours.printed == theirs.printed
            continue
        seen[f"{min(len(theirs.partitioner.partitions), 5)} partitions"] += 1
        assert ours.error is None, f"seed {seed}: {ours.error!r}"
        theirs, ours = plain(theirs), plain(ours)
        for key, value in theirs.items():
            assert ours[key] == value, f"seed {seed}: {key}"
    print(mode, dict(seen))
    assert sum(seen[f"{n} partitions"] for n in (2, 3, 4, 5)) > SEEDS // 4  # draws reach the mode


def readings(outcome, mode):
    """The plans that an answer of the original can be read as: see fault K2 for kl."""
    partitions = outcome.partitioner.partitions
    yield partitions
    if mode != "kl_based":
        return
    emitted = []
    for partition in partitions:
        number = partition.partition_id
        nodes = [n for n, p in outcome.partitioner.node_to_partition.items() if p == number]
        read = kerf.fx.Partition(number)
        read.nodes = with_leaves(n for n in nodes if n.op not in LEAVES)
        read.logical_device_ids = partition.logical_device_ids
        emitted.append(read)
    yield [p for p in emitted if p.nodes]


def unique_ids(devices):
    return len({d.logical_id for d in devices}) == len(devices)


@pytest.mark.parametrize("mode", ["size_based", "sparse_nn", "cost_aware", "kl_based"])
def test_default_is_valid_and_never_worse_than_a_valid_plan_of_the_original(mode):
    seen = collections.Counter()
    for seed, case, config in cases(mode):
        config = config._replace(
            transfer_rate_bytes_per_sec=case.rate,
            node_to_latency_mapping=case.latencies,
            saturate_host=False,
        )
        if not unique_ids(case.devices):
            continue
        theirs = call_original(case.module, config)
        valid = []
        if theirs.error is None:
            plans = readings(theirs, mode)
            valid = [p for p in plans if not faults(case.module, p, case.devices)]
        ours = call(Partitioner(), case.module, config)
        if ours.error is not None:
            seen[type(ours.error).__name__] += 1
            assert isinstance(ours.error, RuntimeError)
            assert not valid, f"seed {seed}: the original finds a plan; {ours.error}"
            continue
        partitions = ours.partitioner.partitions
        assert faults(case.module, partitions, case.devices) == [], f"seed {seed}"
        cost = path_cost(partitions, case.latencies, case.rate)
        assert ours.partitioner.cost == pytest.approx(cost, rel=1e-9), f"seed {seed}"
        for plan in valid:
            seen["compared"] += 1
            peer = path_cost(plan, case.latencies, case.rate)
            assert cost <= peer * SLACK, f"seed {seed}: {cost} > {peer}"
            seen["better"] += cost < peer / SLACK
    print(mode, dict(seen))
    assert seen["compared"] > SEEDS // 2


def test_split_modules_compute_what_the_traced_module_computes():
    for seed in range(0, 60):
        case = draw_case(seed, SHAPES[seed % len(SHAPES)])
        for mode in MODES[:4]:
            for compat in (True, False):
                config = config_of(case, mode, seed)
                outcome = call(Partitioner(compat), case.module, config)
                if outcome.error is None:
                    split = outcome.result.module_with_submodules
                    torch.testing.assert_close(
                        split(*case.inputs), case.module(*case.inputs), rtol=0, atol=0
                    )


def test_figures_of_compat_are_those_of_the_plan():
    seen = collections.Counter()
    for mode in MODES[:4]:
        for _, case, config in cases(mode):
            ours = call(Partitioner(compat=True), case.module, config)
            if ours.error or not unique_ids(case.devices):
                continue
            partitioner = ours.partitioner
            if faults(case.module, partitioner.partitions, case.devices):
                assert (partitioner.cost, partitioner.device_bytes) == (None, [])
                seen["invalid"] += 1
                continue
            for device, used in zip(case.devices, partitioner.device_bytes, strict=True):
                on = [
                    p.nodes
                    for p in partitioner.partitions
                    if device.logical_id in p.logical_device_ids
                ]
                nodes = set().union(*on)
                assert used.fx == union_bytes(nodes)
                assert used.exact == exact_bytes(case.module, nodes)
            if mode in ("cost_aware", "kl_based") and partitioner.cost is not None:
                cost = path_cost(partitioner.partitions, case.latencies, case.rate)
                assert partitioner.cost == pytest.approx(cost, rel=1e-9)
                seen["costs"] += 1
    print(dict(seen))
    assert seen["costs"] > SEEDS and seen["invalid"] > SEEDS // 4


# ---- the modes as methods


def aot_maps(case, seed):
    return draw_aot(random.Random(seed), case)


# By name, a call of it: a partitioner, a case, a seed.
METHODS = {
    "find_single_partition": lambda p, c, s: p.find_single_partition(
        total_bytes(c.module), c.devices[s % len(c.devices)].logical_id
    ),
    "size_based_partition": lambda p, c, s: p.size_based_partition(),
    "sparse_nn_partition": lambda p, c, s: p.sparse_nn_partition(
        c.devices[0].available_mem_bytes * (1 + s % 2)
    ),
    "cost_aware_partition": lambda p, c, s: p.cost_aware_partition(c.rate, c.latencies),
    "kl_based_partition": lambda p, c, s: p.kl_based_partition(c.rate, c.latencies),
    "aot_based_partition": lambda p, c, s: p.aot_based_partition(*aot_maps(c, s)),
}
METHOD_SEEDS = 60


def tag_by_hand(rng, module):
    """Sizes that no pass would give: a leaf has two, too."""
    for node in module.graph.nodes:
        output = node.size_bytes.output_size if node.op != "output" else 0
        node.size_bytes = size_bytes(output, output + rng.choice((0, 0, 16, 160)))


def method_case(name, seed):
    tables = name == "sparse_nn_partition" and seed % 3
    case = draw_case(seed, "embedding" if tables else SHAPES[seed % len(SHAPES)])
    if seed % 5 == 1:
        tag_by_hand(random.Random(seed), case.module)
        more = [d._replace(available_mem_bytes=3 * d.available_mem_bytes) for d in case.devices]
        case = case._replace(devices=more)
    if seed % 4 == 0:  # partition_graph would not get to the mode
        case = case._replace(
            devices=[d._replace(available_mem_bytes=total_bytes(case.module)) for d in case.devices]
        )
    return case


def prepared(case, compat):
    partitioner = Partitioner(compat)
    partitioner.graph_module, partitioner.devices = case.module, case.devices
    return partitioner


def test_every_public_attribute_of_the_original_is_there():
    theirs, ours = original.Partitioner, Partitioner
    for name in vars(theirs):
        if not name.startswith("_"):
            assert callable(getattr(ours, name)), name
            kinds = [
                [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
                for f in (getattr(theirs, name), getattr(ours, name))
            ]
            assert kinds[0] == kinds[1], name
    assert set(vars(theirs())) <= set(vars(ours()))


@pytest.mark.parametrize("copies", [False, True], ids=["alone", "saturated"])
@pytest.mark.parametrize("name", METHODS)
def test_methods_of_compat_do_what_the_originals_do(name, copies):
    seen = collections.Counter()
    for seed in range(METHOD_SEEDS):
        case = method_case(name, seed)

        def action(partitioner, case=case, seed=seed):
            assert METHODS[name](partitioner, case, seed) is None
            if copies:
                assert partitioner.saturate_host() is None

        try:
            theirs = attempt_original(case.module, case.devices, action)
        except Endless:
            with pytest.raises(RuntimeError, match="would never return"):
                action(prepared(case, True))
            continue
        ours = attempt(prepared(case, True), action)
        assert ours.printed == theirs.printed
        if theirs.error:
            seen[type(theirs.error).__name__] += 1
            assert ours.error, f"seed {seed}: the original raises {theirs.error!r}"
            same_error(theirs.error, ours.error)
            continue
        assert ours.error is None, f"seed {seed}: {ours.error!r}"
        assert plain_plan(ours) == plain_plan(theirs), f"seed {seed}"
        seen[f"{min(len(theirs.partitioner.partitions), 5)} partitions"] += 1
    print(name, dict(seen))
    assert sum(count for what, count in seen.items() if "partitions" in what) > METHOD_SEEDS // 5


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_the_default_answer_as_its_modes(name):
    """Through partition_graph, where a mode can be asked for that way."""
    mode = name.removesuffix("_partition")
    planned = 0
    for seed in range(METHOD_SEEDS):
        case = method_case(name, seed)
        if not unique_ids(case.devices):
            continue
        method = functools.partial(METHODS[name], c=case, s=seed)
        ours = attempt(prepared(case, False), method)
        if name != "find_single_partition" and seed % 5 != 1:  # it counts sizes anew
            given = aot_maps(case, seed) if mode == "aot_based" else ({}, {})
            costs = (case.rate, case.latencies)
            costs = costs if mode in ("cost_aware", "kl_based") else (0.0, {})
            config = PartitionerConfig(case.devices, PartitionMode[mode], *costs, *given)
            if mode == "sparse_nn":
                least = case.devices[0].available_mem_bytes * (1 + seed % 2)
                config = config._replace(
                    devices=[
                        d._replace(available_mem_bytes=min(d.available_mem_bytes, least))
                        for d in case.devices
                    ]
                )
            whole = call(Partitioner(), case.module, config)
            assert str(ours.error) == str(whole.error), f"seed {seed}"
            assert plain_plan(ours) == plain_plan(whole), f"seed {seed}"
        if ours.error:
            assert isinstance(ours.error, RuntimeError)
            assert ours.partitioner.partitions == []
            continue
        planned += 1
        assert faults(case.module, ours.partitioner.partitions, case.devices) == [], seed
    assert planned > METHOD_SEEDS // 5


@pytest.mark.parametrize("compat", [True, False], ids=["compat", "default"])
def test_no_method_sees_what_another_left(compat):
    case = method_case("cost_aware_partition", 4)
    used = prepared(case, compat)
    for name in [*METHODS, *reversed(METHODS)]:
        used.create_partition()
        used.create_single_node_partition(ops(case.module)[0])
        method = functools.partial(METHODS[name], c=case, s=4)
        after = attempt(used, method)
        fresh_one = attempt(prepared(case, compat), method)
        assert str(after.error) == str(fresh_one.error), name
        assert plain_plan(after) == plain_plan(fresh_one), name
        assert used.cost == fresh_one.partitioner.cost
        assert used.device_bytes == fresh_one.partitioner.device_bytes


@pytest.mark.parametrize("compat", [True, False], ids=["compat", "default"])
def test_partitions_are_created_at_the_end_of_the_list(compat):
    case = draw_case(7, "mixed")
    with ordered():
        theirs = original.Partitioner()
        ours = prepared(case, compat)
        for partitioner in (theirs, ours):
            assert partitioner.create_partition() is partitioner.partitions[-1]
            for node in ops(case.module):
                assert partitioner.create_single_node_partition(node) is None
    assert plain_partitions(ours.partitions) == plain_partitions(theirs.partitions)
    assert ours.node_to_partition == theirs.node_to_partition == {}


@pytest.mark.parametrize("compat", [True, False], ids=["compat", "default"])
def test_saturate_host_takes_partitions_made_by_hand(compat):
    """Two on one list object, as nobody should: the original appends to it for both."""
    case = draw_case(3, "chain", 8)
    devices = [kerf.fx.Device(f"dev_{i}", total_bytes(case.module), i) for i in range(6)]
    case = case._replace(devices=devices)
    one_list = attempt_original(case.module, devices, by_hand)
    ours = attempt(prepared(case, compat), by_hand)
    assert ours.error is None and one_list.error is None
    if compat:
        assert plain_plan(ours) == plain_plan(one_list)
        return
    partitions = ours.partitioner.partitions
    assert [p.logical_device_ids for p in partitions] == [[0, 2, 4], [0, 2, 4], [1, 3, 5]]
    assert ours.printed == "" and ours.partitioner.cost is None
    rows = ours.partitioner.device_bytes
    assert rows[0] == rows[2] == rows[4] and rows[1] == rows[3] == rows[5]
    assert rows[1].fx == union_bytes(partitions[2].nodes)


def by_hand(partitioner):
    nodes = ops(partitioner.graph_module)
    for own in (nodes[:2], nodes[2:4], nodes[4:]):
        partition = partitioner.create_partition()
        for node in own:
            partition.add_node(node)
    first, second, third = partitioner.partitions
    first.logical_device_ids = second.logical_device_ids = [0]
    third.logical_device_ids = [1]
    partitioner.saturate_host()


def test_compat_takes_nodes_of_another_graph():
    case, other = draw_case(2, "chain", 6), draw_case(3, "chain", 6)
    case = case._replace(devices=[kerf.fx.Device(f"dev_{i}", 10**6, i) for i in range(4)])
    mapping = dict.fromkeys(ops(case.module), 0) | {ops(other.module)[-1]: 1}

    def action(partitioner):
        partitioner.aot_based_partition(mapping, {0: [0], 1: [1]})
        partitioner.saturate_host()

    theirs = attempt_original(case.module, case.devices, action)
    ours = attempt(prepared(case, True), action)
    assert theirs.error is None and ours.error is None
    assert plain_plan(ours) == plain_plan(theirs)


def test_methods_take_the_sizes_that_are_on_the_nodes():
    case = draw_case(2, "chain", 6)
    config = PartitionerConfig([kerf.fx.Device("all", total_bytes(case.module), 0)])
    for node in case.module.graph.nodes:
        node.size_bytes = size_bytes(1, 10)
    size = 10 * (len(case.module.graph.nodes) - 1)
    case = case._replace(devices=[kerf.fx.Device(f"dev_{i}", size // 2 + 10, i) for i in range(3)])
    for compat in (True, False):
        partitioner = prepared(case, compat)
        partitioner.size_based_partition()
        assert compat or faults(case.module, partitioner.partitions, case.devices) == []
        assert sum(p.used_mem_bytes for p in partitioner.partitions) < 2 * size
    Partitioner().partition_graph(case.module, case.module, config)  # counts anew
    assert total_bytes(case.module) == config.devices[0].available_mem_bytes


def test_methods_name_what_is_missing():
    case = draw_case(2, "chain", 6)
    unsized = torch.fx.symbolic_trace(case.module)
    for node in unsized.graph.nodes:
        node.__dict__.pop("size_bytes", None)
    latencies = dict.fromkeys(ops(unsized), kerf.fx.NodeLatency(1, 1))
    bare = case._replace(module=unsized, latencies=latencies)
    for name, method in METHODS.items():
        if name != "find_single_partition":
            run = functools.partial(method, c=bare, s=0)
            theirs = attempt_original(unsized, case.devices, run)
            same_error(theirs.error, attempt(prepared(bare, True), run).error)
    with pytest.raises(kerf.fx.PartitionError, match="the module is a NoneType"):
        Partitioner().size_based_partition()
    with pytest.raises(kerf.fx.PartitionError, match="everything on device 99"):
        prepared(case, False).find_single_partition(0, 99)
    with pytest.raises(kerf.fx.PartitionError, match="the device 'dev_0'; expected its logical_id"):
        prepared(case, False).find_single_partition(0, "dev_0")
    with pytest.raises(kerf.fx.PartitionError, match="a size of None"):
        prepared(case, False).sparse_nn_partition(None)
    with pytest.raises(kerf.fx.PartitionError, match="more than 0"):
        prepared(case, False).sparse_nn_partition(0)
    none = prepared(case, False)
    none.create_single_node_partition(ops(case.module)[0])
    with pytest.raises(kerf.fx.PartitionError, match="partition 0 is on no device"):
        none.saturate_host()
    none.create_partition().add_node(next(iter(draw_case(5).module.graph.nodes)))
    with pytest.raises(kerf.fx.PartitionError, match="not in the module's graph"):
        none.saturate_host()
    small = case._replace(devices=[kerf.fx.Device("small", 16, 0)])
    with pytest.raises(kerf.fx.InfeasibleError, match="small"):
        prepared(small, False).find_single_partition(0)


# ---- where the original fails


def chain_partition(library, module):
    partition = library.Partition(0)
    for node in module.graph.nodes:
        if node.op != "output":
            partition.nodes.add(node)
    return partition


def test_the_original_runs_out_of_stack_on_a_long_partition():
    case = draw_case(0, "chain", 1200)
    times = dict.fromkeys(ops(case.module), kerf.fx.NodeLatency(1.0, 2.0))
    with pytest.raises(RecursionError):
        utils.get_latency_of_one_partition(chain_partition(utils, case.module), times)
    ours = kerf.fx.get_latency_of_one_partition(chain_partition(kerf.fx, case.module), times)
    assert ours == (1200.0, 2400.0, 2400.0)


def test_the_original_does_not_return_from_levels_of_a_cycle():
    def cycle(library):
        a, b, c = (library.Partition(i) for i in range(3))
        for parent, child in ((a, b), (b, c), (c, b)):
            parent.children.add(child)
            child.parents.add(parent)
        return [a, b, c]

    with pytest.raises(Endless), time_limit(0.2):
        original.get_bfs_level_partition(cycle(utils))
    with pytest.raises(RuntimeError, match="would never return"):
        kerf.fx.get_bfs_level_partition(cycle(kerf.fx))


# ---- the functions on partitions, on sets drawn by hand


def draw_partitions(rng, case, kind):
    """The same random node sets as partitions of one of the two libraries."""
    nodes = ops(case.module)
    count = rng.randint(1, min(4, len(nodes)))
    place = sorted(rng.randrange(count) for _ in nodes)
    if rng.random() < 0.3:
        rng.shuffle(place)  # cycles, mostly
    partitions = [kind(i) for i in range(count)]
    for node, p in zip(nodes, place):
        partitions[p].add_node(node)
    return partitions


FUNCTIONS = 150


@pytest.mark.parametrize("seed", range(FUNCTIONS))
def test_functions_on_partitions_answer_as_the_originals(seed):
    case = draw_case(seed)
    devices = case.devices
    answers = []
    for module, library in ((original, utils), (kerf.fx, kerf.fx)):
        rng = random.Random(seed)
        with ordered():
            partitions = draw_partitions(rng, case, library.Partition)
            module.set_parents_and_children(partitions)
            cyclic = [module.check_dependency(p) for p in partitions]
            before = plain_partitions(partitions)
            if not any(cyclic):
                module.get_bfs_level_partition(partitions)
            times = library.get_partition_to_latency_mapping(partitions, case.latencies)
            extras = [library.get_extra_size_of(n, partitions[0].nodes) for n in ops(case.module)]
            strict = {} if module is original else {"strict": True}
            mapped = module.get_device_to_partitions_mapping(partitions, devices, **strict)
            on, left, without = module.get_device_partition_stats(partitions, devices)
            stats = [(d, [p.partition_id for p in on[d]], left[d]) for d in on]
            sends = [
                library.get_comm_latency_between(a, b, case.rate)
                for a in partitions
                for b in partitions
            ]
            cost = None
            if not any(cyclic):
                cost = library.get_latency_of_partitioned_graph(partitions, times, case.rate)
            numbers = module.get_node_to_partition_mapping(partitions)
            after = plain_partitions(partitions)
            if len(partitions) > 1:
                module.combine_two_partitions(*rng.sample(partitions, 2), partitions)
            module.reset_partition_device(partitions)
            answers.append(
                [
                    cyclic,
                    before,
                    [tuple(times[p]) for p in times],
                    extras,
                    mapped,
                    stats,
                    [p.partition_id for p in without],
                    sends,
                    cost,
                    numbers,
                    after,
                    plain_partitions(partitions),
                    module.get_logical_id_to_device(devices),
                ]
            )
    assert answers[1] == answers[0]


def test_functions_take_the_originals_own_objects():
    case = draw_case(3, "mixed")
    with ordered():
        partitions = draw_partitions(random.Random(3), case, utils.Partition)
    kerf.fx.reorganize_partitions(partitions)
    kerf.fx.get_bfs_level_partition(partitions)
    devices = [utils.Device("all", 10**6, 7)]
    assert kerf.fx.get_device_to_partitions_mapping(partitions, devices)
    assert all(p.logical_device_ids == [7] for p in partitions)
    config = utils.PartitionerConfig(
        devices, utils.PartitionMode.cost_aware, case.rate, case.latencies
    )
    for compat in (True, False):
        partitioner = Partitioner(compat)
        partitioner.partition_graph(case.module, case.module, config)
        assert {i for p in partitioner.partitions for i in p.logical_device_ids} == {7}
