# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""How fast, and how good, is kerf.fx next to torch.fx's accelerator partitioner? See README.md."""

import argparse
import collections
import graphlib
import itertools
import math
import multiprocessing
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import fx, nn
from torch.fx.experimental import accelerator_partitioner as original
from torch.fx.experimental import partitioner_utils as utils
from torch.fx.passes.graph_manipulation import get_size_of_all_nodes
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.passes.split_module import split_module

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from timing import machine, table, timed

import kerf.fx
from kerf import _core
from kerf.fx import Device, NodeLatency, PartitionerConfig, PartitionMode
from kerf.fx._modules import Modules
from kerf.fx._request import request_default
from kerf.fx._sizes import tag_sizes

LEAVES = ("placeholder", "get_attr")
DEVICES = 4
ROOM = 1.5  # all devices together hold so many times the graph
RATE = 2.0
WIDTH = 4
TENSOR = 4 * WIDTH  # bytes
SLACK = 1 + 1e-9

# ---- graphs


class Builder:
    """One op after another: every fourth a Linear, the others elementwise."""

    KINDS = (torch.relu, torch.tanh, torch.neg)

    def __init__(self):
        self.graph = fx.Graph()
        self.root = nn.Module()
        self.count = 0
        self.x = self.graph.placeholder("x")

    def op(self, x):
        i = self.count
        self.count += 1
        if i % 4 == 1:
            setattr(self.root, f"linear{i}", nn.Linear(WIDTH, WIDTH))
            return self.graph.call_module(f"linear{i}", (x,))
        return self.graph.call_function(self.KINDS[i % 3], (x,))

    def add(self, x, y):
        self.count += 1
        return self.graph.call_function(torch.add, (x, y))


def chain(b, n):
    x = b.x
    for _ in range(n):
        x = b.op(x)
    return x


def wide(b, n):
    """Eight branches of one input, joined by seven additions."""
    ends = [b.x] * 8
    for i in range(n - 7):
        ends[i % 8] = b.op(ends[i % 8])
    x = ends[0]
    for end in ends[1:]:
        x = b.add(x, end)
    return x


def residual(b, n):
    """Blocks of two ops and the addition of what went in, one after another."""
    x = b.x
    while b.count < n:
        y = b.op(x)
        if b.count < n:
            y = b.op(y)
        x = b.add(x, y) if b.count < n else y
    return x


FAMILIES = {"chain": chain, "8-wide": wide, "residual": residual}


class Case:
    """A module with shapes, devices it does not fit alone, latencies, and its plans' judge."""

    def __init__(self, family, n):
        torch.manual_seed(0)
        self.family, self.n = family, n
        builder = Builder()
        builder.graph.output(FAMILIES[family](builder, n))
        self.module = fx.GraphModule(builder.root, builder.graph)
        self.inputs = [torch.randn(WIDTH)]
        with torch.no_grad():
            ShapeProp(self.module).propagate(*self.inputs)
        self.nodes = [node for node in self.module.graph.nodes if node.op != "output"]
        self.ops = [node for node in self.nodes if node.op not in LEAVES]
        assert len(self.ops) == n
        tag_sizes(self.nodes, Modules(self.module))
        self.bytes = sum(node.size_bytes.total_size for node in self.nodes)
        # Half a tensor more: the original refuses what fills a device to the last byte (K5).
        memory = math.ceil(ROOM * self.bytes / DEVICES / TENSOR) * TENSOR + TENSOR // 2
        self.devices = [Device(f"dev_{i}", memory, i) for i in range(DEVICES)]
        self.latencies = {node: self.latency(i, node) for i, node in enumerate(self.ops)}

    @staticmethod
    def latency(i, node):
        """The specification's rule, times one of five factors."""
        own, factor = node.size_bytes, (4 + 7 * i % 5) / 4
        return NodeLatency(
            own.total_size * factor, own.output_size * factor if node.op == "call_module" else 1.0
        )

    def config(self, mode):
        if mode == "size_based":  # it reads neither rate nor latencies
            return PartitionerConfig(self.devices, PartitionMode[mode])
        return PartitionerConfig(self.devices, PartitionMode[mode], RATE, self.latencies)

    # -- the judge

    def limit(self):
        """The longest path of node times: a plan that transfers nothing on it costs this."""
        end = {}
        for node in self.ops:
            before = [end[i] for i in node.all_input_nodes if i in end]
            end[node] = max(before, default=0.0) + max(self.latencies[node])
        return max(end.values())

    def cost(self, partitions, library=kerf.fx, relate=kerf.fx.set_parents_and_children):
        relate(partitions)
        times = library.get_partition_to_latency_mapping(partitions, self.latencies)
        return library.get_latency_of_partitioned_graph(partitions, times, RATE)

    def faults(self, partitions):
        """Why a plan is none. Shares no code with the package."""
        found = []
        place = {n: i for i, p in enumerate(partitions) for n in p.nodes if n.op not in LEAVES}
        held = sum(n.op not in LEAVES for p in partitions for n in p.nodes)
        if held != self.n or len(place) != self.n:
            return ["ops lost"]
        before = {i: set() for i in range(len(partitions))}
        for node in self.ops:
            before[place[node]] |= {place[i] for i in node.all_input_nodes if i in place}
        try:
            graphlib.TopologicalSorter({i: b - {i} for i, b in before.items()}).prepare()
        except graphlib.CycleError:
            found.append("cyclic")
        if not all(p.logical_device_ids for p in partitions):
            return [*found, "unmapped"]
        for device in self.devices:
            on = [p.nodes for p in partitions if device.logical_id in p.logical_device_ids]
            if union_bytes(set().union(*on)) > device.available_mem_bytes:
                found.append("over memory")
                break
        return found


def union_bytes(nodes):
    """The original's count: all that is there, and what comes from elsewhere once a reader."""
    nodes = nodes | {i for n in nodes for i in n.all_input_nodes if i.op in LEAVES}
    outside = (i for n in nodes for i in n.all_input_nodes if i not in nodes)
    return sum(n.size_bytes.total_size for n in nodes) + sum(
        i.size_bytes.output_size for i in outside
    )


# ---- the two sides


def median_time(function, least=5, seconds=1.0):
    """Seconds, and the last answer: at least so many runs, and more while time is left."""
    function()
    times, answer, start = [], None, time.perf_counter()
    while len(times) < least or (len(times) < 51 and time.perf_counter() - start < seconds):
        begin = time.perf_counter()
        answer = function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), answer


def plan_ours(case, mode):
    """From the FX module to Partition objects: checks, sizes, conversion, planning."""
    partitioner = kerf.fx.Partitioner()
    partitioner.graph_module, partitioner.devices = case.module, case.devices
    partitioner._plan(case.config(mode))
    return partitioner


def plan_by_method(partitioner, case, mode, device=Device):
    """The method of one mode; sizes are on the nodes."""
    partitioner.graph_module = case.module
    partitioner.devices = [device(*d) for d in case.devices]
    arguments = () if mode == "size_based" else (RATE, case.latencies)
    getattr(partitioner, f"{mode}_partition")(*arguments)
    return partitioner


def plan_compat(case, mode):
    return plan_by_method(kerf.fx.Partitioner(compat=True), case, mode)


def plan_peer(case, mode):
    return plan_by_method(original.Partitioner(), case, mode, utils.Device)


class Peer:
    """One job of the original in a process of its own, ended at the limit."""

    def __init__(self, job, limit, pack=lambda answer: None):
        self.seconds = self.answer = self.error = None
        self.limit = limit
        here, there = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=self._run, args=(job, pack, there)
        )
        process.start()
        there.close()
        try:
            if here.poll(limit * 1.02 + 0.5):
                self.seconds, self.answer, self.error = here.recv()
        except EOFError:
            self.error = "died"
        process.kill()
        process.join()
        if self.seconds is not None and self.seconds > limit:
            self.seconds = self.answer = None

    @staticmethod
    def _run(job, pack, pipe):
        times, answer = [], None
        try:
            while not times or (len(times) < 5 and sum(times) < 1.0):
                begin = time.perf_counter()
                answer = job()
                times.append(time.perf_counter() - begin)
        except Exception as raised:
            pipe.send((None, None, type(raised).__name__))
            return
        pipe.send((statistics.median(times), pack(answer), None))

    def stopped(self):
        return self.seconds is None and self.error is None

    def text(self):
        return self.error or (f"> {self.limit:g} s" if self.stopped() else show(self.seconds))

    def ratio(self, ours):
        """How many times faster ours is, at least, or None."""
        if self.error:
            return None
        return (self.limit if self.stopped() else self.seconds) / ours

    def ratio_text(self, ours):
        if self.error:
            return ""
        return ("> " if self.stopped() else "") + f"{self.ratio(ours):,.0f}"


def plain_plan(partitioner):
    """What a pipe can carry: names, numbers."""
    parts = [
        (p.partition_id, [n.name for n in p.nodes], p.logical_device_ids)
        for p in partitioner.partitions
    ]
    return parts, {n.name: number for n, number in partitioner.node_to_partition.items()}


def read_plans(case, mode, plain):
    """A plan of the original as partitions. kl's is two: what it lists, what it emits (K2)."""
    by_name = {node.name: node for node in case.nodes}

    def make(number, names, devices):
        partition = kerf.fx.Partition(number)
        partition.nodes = {by_name[name] for name in names}
        partition.logical_device_ids = list(devices)
        return partition

    parts, numbers = plain
    yield [make(*part) for part in parts]
    if mode == "kl_based":
        emitted = collections.defaultdict(list)
        for node in case.ops:
            number = numbers[node.name]
            leaves = [i.name for i in node.all_input_nodes if i.op in LEAVES]
            emitted[number] += [node.name, *leaves]
        devices = {number: ids for number, _, ids in parts}
        yield [make(number, names, devices[number]) for number, names in emitted.items()]


def judge_peer(case, mode, peer):
    """The cost of its best valid reading, or None; and a text."""
    if peer.answer is None:
        return None, ""
    costs, faults = [], []
    for plan in read_plans(case, mode, peer.answer):
        found = case.faults(plan)
        faults.append(found)
        if not found:
            costs.append(case.cost(plan))
    if costs:
        return min(costs), number(min(costs))
    return None, "invalid: " + ", ".join(faults[0])


def judge_ours(case, partitioner, mode):
    faults = case.faults(partitioner.partitions)
    assert not faults, f"{case.family} {case.n} {mode}: our plan is none: {faults}"
    cost = case.cost(partitioner.partitions)
    if partitioner.cost is not None:
        assert math.isclose(cost, partitioner.cost, rel_tol=1e-9), (cost, partitioner.cost)
    assert cost >= case.limit() / SLACK
    return cost


# ---- output


def show(seconds):
    if seconds is None:
        return ""
    if seconds < 0.1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def number(cost):
    return f"{cost:.10g}"


class Verdicts:
    """Targets met and missed; a plan that costs more than the original's is the worst of these."""

    def __init__(self):
        self.missed = []
        self.costlier = []

    def target(self, what, met, text):
        if not met:
            self.missed.append(f"{what}: {text}")
        return f"{text}: {'met' if met else 'MISSED'}"

    def cost(self, what, ours, peer):
        if peer is not None and ours > peer * SLACK:
            self.costlier.append(f"{what}: cost {ours:g} > {peer:g}")
            return "MISSED: costs more"
        return ""


def section(title, header, rows):
    print(f"\n## {title}\n\n{table(header, rows)}", flush=True)


# ---- answers first


def key(partition):
    nodes, memory = partition.nodes, partition.used_mem_bytes
    return partition.partition_id, nodes, memory, partition.logical_device_ids


def torch_cost(case, plan):
    """By torch's own functions, from its own objects."""
    mirror = [utils.Partition(p.partition_id) for p in plan]
    for copy, partition in zip(mirror, plan):
        copy.nodes = set(partition.nodes)
        copy.logical_device_ids = list(partition.logical_device_ids)
    return case.cost(mirror, utils, original.set_parents_and_children)


def check_answer(case, mode):
    """Returns how many plans it costed."""
    what = (case.family, case.n, mode)
    peer, ours = plan_peer(case, mode), plan_ours(case, mode)
    valid = [p for p in read_plans(case, mode, plain_plan(peer)) if not case.faults(p)]
    for plan in (*valid, ours.partitions):
        assert case.cost(plan) == torch_cost(case, plan), what
    cost = judge_ours(case, ours, mode)
    assert all(cost <= case.cost(plan) * SLACK for plan in valid), what
    if mode != "kl_based":  # whose order of tries is that of hashes (K6)
        compat = plan_compat(case, mode)
        assert [*map(key, compat.partitions)] == [*map(key, peer.partitions)], what
    result = kerf.fx.Partitioner().partition_graph(case.module, case.module, case.config(mode))
    with torch.no_grad():
        split = result.module_with_submodules(*case.inputs)
        assert torch.equal(split, case.module(*case.inputs)), what
    return len(valid) + 1


def check_answers():
    """On small graphs: both cost functions agree, compat is the original, modules compute alike."""
    costed = 0
    for family in FAMILIES:
        for n in (16, 20, 24):
            case = Case(family, n)
            sizes = [node.size_bytes for node in case.nodes]
            get_size_of_all_nodes(case.module)  # torch's own
            assert sizes == [node.size_bytes for node in case.nodes]
            costed += sum(check_answer(case, m) for m in ("size_based", "cost_aware", "kl_based"))
    return costed


# ---- tables


def cost_modes(mode, sizes, target_n, limit, verdicts):
    rows = []
    for n in sizes:
        for family in FAMILIES:
            case = Case(family, n)
            what = f"{mode} {family} {n}"
            ours, partitioner = median_time(lambda c=case: plan_ours(c, mode))
            compat, _ = median_time(lambda c=case: plan_compat(c, mode), 1, 0.5)
            peer = Peer(lambda c=case: plan_peer(c, mode), limit, plain_plan)
            cost = judge_ours(case, partitioner, mode)
            peer_cost, peer_text = judge_peer(case, mode, peer)
            verdict = verdicts.cost(what, cost, peer_cost)
            ratio = peer.ratio(ours)
            if n == target_n and ratio is not None and not verdict:
                if ratio >= 1000 or not peer.stopped():
                    verdict = verdicts.target(what, ratio >= 1000, ">= 1,000x")
                else:
                    verdict = ">= 1,000x: open, the peer was stopped"
            rows.append(
                [family, n, peer.text(), show(ours), peer.ratio_text(ours), show(compat)]
                + [peer_text, number(cost), number(case.limit()), verdict]
            )
    header = ["family", "n", "torch.fx", "kerf.fx", "ratio", "compat", "cost torch.fx"]
    section(mode, [*header, "cost kerf.fx", "limit", "target"], rows)


def growth(sizes, verdicts):
    rows = []
    for mode, target in (("cost_aware", 1.0), ("kl_based", 0.5)):
        last = None
        for n in sizes:
            case = Case("residual", n)
            seconds, partitioner = median_time(lambda c=case, m=mode: plan_ours(c, m), 3, 2.0)
            cost = judge_ours(case, partitioner, mode)
            exponent = math.log(seconds / last[1]) / math.log(n / last[0]) if last else None
            last = (n, seconds)
            verdict = ""
            if n == 1000:
                what = f"{mode} residual {n}"
                verdict = verdicts.target(what, seconds <= target, f"<= {target:g} s")
            share = f"{cost / case.limit():.4f}"
            rows.append(
                [mode, n, show(seconds), "" if exponent is None else f"{exponent:.2f}"]
                + [len(partitioner.partitions), number(cost), number(case.limit()), share, verdict]
            )
    header = ["mode", "n", "kerf.fx", "local exponent", "partitions", "cost", "limit"]
    section("Growth: residual, kerf.fx alone", [*header, "cost / limit", "target"], rows)


def one_partition(case, library):
    partition = library.Partition(0)
    partition.nodes = set(case.nodes)
    return partition


def partition_latency(blocks, limit, verdicts):
    rows, gone = [], False
    for family, n in [*(("residual", 3 * k) for k in blocks), ("chain", 1200)]:
        case = Case(family, n)
        mine, theirs = one_partition(case, kerf.fx), one_partition(case, utils)
        ours, answer = median_time(
            lambda c=case, p=mine: kerf.fx.get_latency_of_one_partition(p, c.latencies)
        )
        mapping, _ = median_time(
            lambda c=case, p=mine: kerf.fx.get_partition_to_latency_mapping([p], c.latencies)
        )
        assert answer.overall_latency_sec == case.limit()
        peer_text, ratio = "not tried: doubles per block", ""
        if family == "chain" or not gone:
            peer = Peer(
                lambda c=case, p=theirs: utils.get_latency_of_one_partition(p, c.latencies),
                limit,
                tuple,
            )
            gone |= peer.stopped()
            peer_text, ratio = peer.text(), peer.ratio_text(ours)
            assert peer.answer in (None, tuple(answer)), (peer.answer, answer)
        verdict = ""
        if (family, n) == ("residual", 192):
            met = max(ours, mapping) <= 1e-3
            verdict = verdicts.target("latency of 64 blocks", met, "<= 1 ms")
        blocks_text = n // 3 if family == "residual" else ""
        rows.append([family, blocks_text, n, peer_text, show(ours), show(mapping), ratio, verdict])
    header = ["family", "blocks", "n", "torch.fx", "kerf.fx", "by the mapping function"]
    section("Latency of one partition", [*header, "ratio", "target"], rows)


def steps_of_ours(case, least):
    """Medians: sizes and conversion, planning in C++, Partition objects, forgetting the request."""
    columns, config = [], case.config("size_based")

    def run():
        partitioner = kerf.fx.Partitioner()
        times = [time.perf_counter()]
        request = request_default(case.module, config, "critical_path", "fx")
        times.append(time.perf_counter())
        answer = _core.fx_partition_graph(request.core)
        times.append(time.perf_counter())
        partitioner._take(request, answer)
        times.append(time.perf_counter())
        del request, answer
        times.append(time.perf_counter())
        columns.append([b - a for a, b in itertools.pairwise(times)])

    median_time(run, least)
    return [statistics.median(column) for column in zip(*columns)]


def split_time(case, partitioner):
    place = {n: p.partition_id for p in partitioner.partitions for n in p.nodes}
    return timed(lambda: split_module(case.module, case.module, place.__getitem__))


def by_size(with_peer, alone, limit, verdicts):
    rows, parts = [], []
    for n in (*with_peer, *alone):
        for family in FAMILIES if n in with_peer else ("residual",):
            case, what = Case(family, n), f"size_based {family} {n}"
            ours, partitioner = median_time(lambda c=case: plan_ours(c, "size_based"))
            cost = judge_ours(case, partitioner, "size_based")
            peer_text = ratio = peer_cost_text = torch_sizes = verdict = ""
            if n in with_peer:
                peer = Peer(lambda c=case: plan_peer(c, "size_based"), limit, plain_plan)
                peer_text, ratio = peer.text(), peer.ratio_text(ours)
                peer_cost, peer_cost_text = judge_peer(case, "size_based", peer)
                verdict = verdicts.cost(what, cost, peer_cost)
            if n == 100_000:
                verdict = verdicts.target(what, ours <= 0.5, "<= 0.5 s")
            rows.append(
                [family, n, peer_text, show(ours), ratio, peer_cost_text]
                + [number(cost), number(case.limit()), verdict]
            )
            if family == "residual":
                split = Peer(lambda c=case, p=partitioner: split_time(c, p), limit).text()
                if n <= 10_000:  # it takes quadratic time
                    torch_sizes = Peer(lambda c=case: get_size_of_all_nodes(c.module), limit)
                    torch_sizes = torch_sizes.text()
                steps = map(show, steps_of_ours(case, 5))
                parts.append([n, show(ours), *steps, torch_sizes, split])
    header = ["family", "n", "torch.fx", "kerf.fx", "ratio", "cost torch.fx", "cost kerf.fx"]
    section("size_based", [*header, "limit", "target"], rows)
    header = ["n", "kerf.fx", "sizes + conversion", "planning", "Partition objects", "clean-up"]
    header += ["torch.fx's sizes", "split_module of both"]
    section("Where the time of size_based goes: residual", header, parts)


def whole(cases, limit):
    """partition_graph of both, with sizes, split and DAG."""
    rows = []
    for mode, family, n in cases:
        case = Case(family, n)
        config = case.config(mode)
        theirs = utils.PartitionerConfig(
            [utils.Device(*d) for d in case.devices], utils.PartitionMode[mode], *config[2:]
        )

        def run_peer(case=case, config=theirs):
            original.Partitioner().partition_graph(case.module, case.module, config)

        def run_ours(case=case, config=config):
            kerf.fx.Partitioner().partition_graph(case.module, case.module, config)

        peer = Peer(run_peer, limit)
        ours, _ = median_time(run_ours)
        _, partitioner = median_time(lambda c=case, m=mode: plan_ours(c, m), 1, 0)
        split = statistics.median(split_time(case, partitioner) for _ in range(5))
        rows.append([mode, family, n, peer.text(), show(ours), peer.ratio_text(ours), show(split)])
    header = ["mode", "family", "n", "torch.fx", "kerf.fx", "ratio", "of ours, split_module"]
    section("The whole of partition_graph", header, rows)


FULL = dict(
    cost_aware=(16, 32, 64),
    kl=(64, 256),
    growth=(1000, 2000, 5000, 10_000),
    blocks=(8, 12, 16, 20, 24, 32, 48, 64),
    size=((256, 1024, 2048), (10_000, 100_000)),
    whole=[
        ("cost_aware", "chain", 32),
        ("cost_aware", "residual", 32),
        ("kl_based", "8-wide", 64),
        ("size_based", "chain", 256),
        ("size_based", "residual", 2048),
    ],
)
QUICK = dict(
    cost_aware=(16,),
    kl=(64,),
    growth=(1000, 2000),
    blocks=(8, 16, 64),
    size=((256, 1024), (10_000,)),
    whole=[("cost_aware", "chain", 16), ("size_based", "residual", 256)],
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a part of it, in less than a minute")
    parser.add_argument("--limit", type=float, help="seconds after which torch.fx is stopped")
    options = parser.parse_args()
    chosen = QUICK if options.quick else FULL
    limit = options.limit or (4 if options.quick else 60)
    start, verdicts = time.perf_counter(), Verdicts()
    print(machine())
    print(f"answers: the cost functions agree on {check_answers()} plans", flush=True)
    cost_modes("cost_aware", chosen["cost_aware"], 64, limit, verdicts)
    cost_modes("kl_based", chosen["kl"], 256, limit, verdicts)
    growth(chosen["growth"], verdicts)
    partition_latency(chosen["blocks"], limit, verdicts)
    by_size(*chosen["size"], limit, verdicts)
    whole(chosen["whole"], limit)
    print(f"\n{time.perf_counter() - start:.0f} s in all")
    for line in verdicts.missed + verdicts.costlier:
        print(f"MISSED: {line}")
    assert not verdicts.costlier, "a plan costs more than the original's"


if __name__ == "__main__":
    main()
