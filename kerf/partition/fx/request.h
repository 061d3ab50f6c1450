// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The one door to the FX family: a request in, partitions out.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kerf/base/outcome.h"
#include "kerf/partition/fx/op_graph.h"
#include "kerf/partition/fx/original_error.h"
#include "kerf/partition/fx/partition.h"
#include "kerf/plan/infeasible.h"

namespace kerf::partition::fx {

// The original's numbers, and `single`, which it has as a method alone: everything on one device.
enum class Mode : std::uint8_t { size, sparse_nn, cost_aware, kl, aot, single };
std::string_view to_string(Mode mode);

// critical_path: the original's. Only what lies on one path adds up; partitions of one device
//                overlap freely; an edge between devices costs its bytes over the one rate.
// serial:        a device does one thing at a time, a tensor goes to a device once, transfers
//                occupy their receiver (kerf/simulate, one micro-batch).
enum class CostModel : std::uint8_t { critical_path, serial };

// What must fit into a device.
// fx:    the original's sum over the union of a device's nodes (partition.h).
// exact: weights and buffers once a device, tensors from elsewhere once, true element sizes.
enum class Accounting : std::uint8_t { fx, exact };

struct Request {
  OpGraph graph;
  std::vector<Device> devices;
  Mode mode = Mode::size;
  double rate = 0;  // bytes a second between any two devices; infinity: transfers cost nothing
  double transfer_latency = 0;  // seconds before the first byte; the serial model alone counts it
  // aot: nodes in the map's order with their partition, and the devices of each partition.
  std::vector<std::pair<OpIndex, std::int64_t>> node_to_partition;
  std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> partition_to_devices;
  // The mode as the original's method of that name, called by itself. compat: without what its
  // partition_graph does before, so that a graph which one device holds is cut too.
  bool mode_alone = false;
  // What those methods are given. single: bytes of the graph, which compat believes, and the
  // device. sparse_nn alone: the memory of each device; where it has less, compat does not look.
  std::int64_t given_bytes = 0;
  std::int64_t device_id = 0;
  CostModel cost_model = CostModel::critical_path;
  Accounting accounting = Accounting::fx;
  std::int64_t work_limit = 0;  // search steps; 0: enough for the graph's size
};

// What counts of a device's bytes.
inline std::int64_t used_bytes(const Request& request, const DeviceBytes& bytes) {
  return request.accounting == Accounting::exact ? bytes.exact : bytes.fx;
}

struct Answer {
  std::vector<Partition> partitions;
  std::vector<std::int64_t> node_to_partition;  // by node; kNoPartition where it is in none
  // Seconds, critical_path and serial; kNoLatency when a latency or the rate is missing.
  double cost = kNoLatency;
  double serial_cost = kNoLatency;
  std::vector<DeviceBytes> device_bytes;  // by device of the request
  // compat: by partition, the first one whose device list is the same object (fault S2). Empty:
  // each has its own.
  std::vector<std::size_t> device_lists;
};

// The mended family. Throws Error(invalid_argument) for what is wrong with the request; Infeasible
// when the search found nothing that fits.
Outcome<Answer, Infeasible> partition_graph(const Request& request);

// The original, bit for bit, faults included. Throws OriginalError where it raises.
Answer partition_graph_compat(const Request& request);

// Copies of the partitions on devices of the request that hold nothing: ids of theirs are appended
// (partition/raise/replicate.h). Costs are left out, bytes are counted anew. Throws
// Error(invalid_argument), also for a partition that is on no device of the request.
Answer saturate_host(const Request& request, std::vector<Partition> partitions);
// The original's. `device_lists` as in Answer: an append to one shows in all that are the same.
Answer saturate_host_compat(const Request& request, std::vector<Partition> partitions,
                            std::vector<std::size_t> device_lists);

}  // namespace kerf::partition::fx
