// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// First placements for the searches to improve. All but least_overflow keep every memory limit;
// there is none when their rule finds no room. Without one of them some plans get more expensive
// (8-wide: of benchmarks/fx_partitioner; random: of tests/partition/random_op_graph.h).
#pragma once

#include <optional>

#include "kerf/partition/fx/placement.h"

namespace kerf::partition::fx {

// Partitions that are valid and have one device each, as they are.
std::optional<Placement> as_given(const OpTable& table, std::span<const Device> devices,
                                  std::span<const Partition> partitions);

// Intervals of an order of the ops, the devices in theirs: the cut with the least sum of its
// largest transfers. Exact for that rule, quadratic in the ops; none where that takes too long. The
// orders are the graph's own and depth first, without which 8-wide with 20 ops is 6 % more
// expensive under the serial model; those of devices as given and by memory, up and down, without
// which random graphs on unequal devices are up to 26 %.
std::vector<Placement> interval_starts(const OpTable& table, std::span<const Device> devices);

// Neighbours joined by their dearest transfers while they fit `bytes`, then put on the device that
// they talk to most of those with room. 8-wide under the serial model: up to 17 % more expensive
// without; some random graphs fit in no other way. Quadratic in the ops.
std::optional<Placement> by_clusters(const OpTable& table, std::span<const Device> devices,
                                     std::int64_t bytes);

// Each op where it would end soonest, devices doing one thing at a time. For graphs that are too
// large for clusters: without both, 8-wide with 256 ops is 26 % more expensive under the serial
// model.
std::optional<Placement> by_finish_time(const OpTable& table, std::span<const Device> devices);

// Op after op in graph order, back where there is no room: finds room wherever there is any, unless
// `work_limit` placements were tried first. Bytes only grow along the order. Some random graphs
// with little room fit in no other way.
std::optional<Placement> by_backtracking(const OpTable& table, std::span<const Device> devices,
                                         std::int64_t work_limit);

// Each op where most room is left; may exceed limits. Tells what is short when nothing fits, and
// finds room for large ops that come after many small ones.
Placement least_overflow(const OpTable& table, std::span<const Device> devices);

}  // namespace kerf::partition::fx
