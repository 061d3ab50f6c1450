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

enum class Mode : std::uint8_t { size, sparse_nn, cost_aware, kl, aot };  // the original's numbers
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
  bool saturate_host = false;
  // aot: nodes in the map's order with their partition, and the devices of each partition.
  std::vector<std::pair<OpIndex, std::int64_t>> node_to_partition;
  std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> partition_to_devices;
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
  // compat, sparse_nn: partitions whose device lists are one and the same object (fault S2).
  std::vector<std::size_t> one_device_list;
};

// The mended family. Throws Error(invalid_argument) for what is wrong with the request; Infeasible
// when the search found nothing that fits.
Outcome<Answer, Infeasible> partition_graph(const Request& request);

// The original, bit for bit, faults included. Throws OriginalError where it raises.
Answer partition_graph_compat(const Request& request);

}  // namespace kerf::partition::fx
