// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Partitions as the FX tool sees them, and what it computes about them: bytes, relations, levels,
// devices, latencies. These functions take any node sets, as users may build them by hand. The
// searches keep their own incremental figures and are checked against these in debug builds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kerf/partition/fx/op_graph.h"

namespace kerf::partition::fx {

struct Device {
  std::string name;
  std::int64_t memory = 0;  // bytes
  std::int64_t id = 0;      // the caller's number for it
  friend bool operator==(const Device&, const Device&) = default;
};

struct Partition {
  std::int64_t id = 0;
  std::vector<OpIndex> nodes;            // with the leaves its ops read; in order of insertion
  std::int64_t used_bytes = 0;           // the original's accounting
  std::vector<std::int64_t> device_ids;  // several: replicas
  std::vector<std::size_t> parents;      // positions in the list, ascending
  std::vector<std::size_t> children;
  std::int64_t level = -1;
};

// The node and the leaves it reads that are not there yet. Does not touch used_bytes.
void add_node(const OpGraph& graph, std::vector<OpIndex>& nodes, OpIndex node);
// Removes the node, and the leaves that nothing else in the set reads.
void remove_node(const OpGraph& graph, std::vector<OpIndex>& nodes, OpIndex node);
// The ops in graph order with the leaves they read.
std::vector<OpIndex> with_leaves(const OpGraph& graph, std::span<const OpIndex> ops);
// Both become one, at the end of the list; numbers and relations are set anew.
void combine(const OpGraph& graph, std::vector<Partition>& partitions, std::size_t a,
             std::size_t b);
// Numbers are positions, relations are set.
void reorganize(const OpGraph& graph, std::vector<Partition>& partitions);
// By node, the number of the last partition that holds it; kNoPartition where none does.
inline constexpr std::int64_t kNoPartition = -1;
std::vector<std::int64_t> node_to_partition(const OpGraph& graph,
                                            std::span<const Partition> partitions);

// extra(node, set): bytes of the node's inputs that are not in the set, and of the node itself.
// Throws OriginalError(runtime) when a size is missing.
std::int64_t extra_bytes(const OpGraph& graph, OpIndex node, std::span<const OpIndex> set);
// Sum of extra(n, nodes) over all n in nodes: an outside tensor is charged for every reader.
std::int64_t used_bytes(const OpGraph& graph, std::span<const OpIndex> nodes);

// B is a child of A when a node of A that B does not hold has a user in B.
void set_relations(const OpGraph& graph, std::vector<Partition>& partitions);
// The partitions that those without parents reach, each behind all that lead to it. On a cycle, and
// behind one, there is no such place: they are left out. Roots are those that know no parents:
// hand-made relations may be one-sided, and a root may be somebody's child.
struct ReachedOrder {
  std::vector<std::size_t> order;
  bool cyclic = false;
};
ReachedOrder reached_order(std::span<const Partition> partitions);
// Longest distance from a partition without parents. Throws OriginalError(endless) on a cycle that
// can be reached from one.
void set_levels(std::vector<Partition>& partitions);
// Does a path of children lead from the partition to itself?
bool depends_on_itself(std::span<const Partition> partitions, std::size_t which);

// Position of the first device with that id; devices.size() where none has it.
std::size_t find_device(std::span<const Device> devices, std::int64_t id);
// Position of the one with most memory, the first of equals. There must be some.
std::size_t largest_device(std::span<const Device> devices);

// Best fit of every partition that has no device, in list order; false at the first that finds
// none. `strict`: a partition that fills what is left does not fit (fault K5 of the original).
bool map_to_devices(const OpGraph& graph, std::vector<Partition>& partitions,
                    std::span<const Device> devices, bool strict);

// What lies where. Devices that are equal in every field are one: the first stands for them.
struct DeviceStats {
  std::vector<std::size_t> distinct;                 // positions in `devices`
  std::vector<std::vector<std::size_t>> partitions;  // by `distinct`
  std::vector<std::int64_t> left_bytes;              // by `distinct`
  std::vector<std::size_t> no_device;                // partitions
};
// Throws OriginalError(key_device) for an id that no device has.
DeviceStats device_stats(std::span<const Partition> partitions, std::span<const Device> devices);

// Bytes of one device in both accountings.
struct DeviceBytes {
  std::int64_t fx = 0;     // used_bytes of the union of its partitions' nodes
  std::int64_t exact = 0;  // weights once, tensors from elsewhere once, true element sizes
  std::int64_t peak = 0;   // the same with tensors released after their last use on the device
};
DeviceBytes device_bytes(const OpGraph& graph, std::span<const OpIndex> nodes);

// All three of the path with the largest sum of max(mem, computer); of equals the first in the
// order of nodes.
struct Latency {
  double mem = 0;
  double computer = 0;
  double overall = 0;
};
// One pass over the partition's nodes. Throws OriginalError(key_node) when a latency is missing.
Latency partition_latency(const OpGraph& graph, std::span<const OpIndex> nodes);
// `overall` of each.
std::vector<double> latencies(const OpGraph& graph, std::span<const Partition> partitions);
// Bytes of the parent's nodes that the child reads, over the rate; 0 when both are on the same
// devices. Throws OriginalError(zero_division).
double comm_latency(const OpGraph& graph, const Partition& parent, const Partition& child,
                    double rate);
// The longest path over partitions, from `children` as they are set. Throws
// OriginalError(recursion) on a cycle that can be reached.
double graph_latency(const OpGraph& graph, std::span<const Partition> partitions,
                     std::span<const double> overall, double rate);

}  // namespace kerf::partition::fx
