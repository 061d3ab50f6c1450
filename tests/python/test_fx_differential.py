# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""kerf.fx against the torch.fx partitioner that is installed, on small random modules.

Where the original fails or is undefined, the test says so by name: RecursionError on cyclic states,
no return where its levels meet a cycle.
"""

import collections
import copy
import random

import pytest
import torch
from fx_graphs import (
    LEAVES,
    SHAPES,
    draw_case,
    faults,
    ops,
    path_cost,
    with_leaves,
)
from fx_original import Endless, call, call_original, ordered, original, time_limit, utils

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


def plain(outcome):
    """Everything that a call did, but its error."""
    partitioner, result, _, printed = outcome
    return {
        "partitions": plain_partitions(partitioner.partitions),
        "node_to_partition": dict(partitioner.node_to_partition),
        "shared lists": shared_lists(partitioner.partitions),
        "dag": plain_dag(result.dag),
        "module": plain_module(result.module_with_submodules),
        "printed": printed,
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
