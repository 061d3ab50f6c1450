// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kerf/partition/fx/starts.h"

namespace kerf::partition::fx {
namespace {

// Is there a latency for every op, and a rate? Only then is there a cost.
bool known_costs(const Request& request) {
  if (!(request.rate > 0)) return false;
  return std::none_of(request.graph.ops().begin(), request.graph.ops().end(), [&](OpIndex n) {
    return std::isnan(request.graph.node(n).mem_latency) ||
           std::isnan(request.graph.node(n).computer_latency);
  });
}

}  // namespace

std::vector<DeviceBytes> bytes_by_device(const Request& request,
                                         std::span<const Partition> partitions) {
  std::vector<DeviceBytes> out;
  for (const Device& device : request.devices) {
    std::vector<OpIndex> nodes;
    for (const Partition& partition : partitions) {
      const auto& ids = partition.device_ids;
      if (std::find(ids.begin(), ids.end(), device.id) == ids.end()) continue;
      nodes.insert(nodes.end(), partition.nodes.begin(), partition.nodes.end());
    }
    out.push_back(device_bytes(request.graph, nodes));
  }
  return out;
}

bool is_valid(const Request& request, std::span<const Partition> partitions) {
  std::vector<int> times(request.graph.num_nodes(), 0);
  for (const Partition& partition : partitions) {
    if (partition.device_ids.empty()) return false;
    for (const std::int64_t id : partition.device_ids) {
      if (find_device(request.devices, id) == request.devices.size()) return false;
    }
    for (const OpIndex n : partition.nodes) ++times[n];
  }
  for (const OpIndex n : request.graph.ops()) {
    if (times[n] != 1) return false;
  }
  std::vector<Partition> related(partitions.begin(), partitions.end());
  set_relations(request.graph, related);
  if (reached_order(related).order.size() < related.size()) return false;  // they wait in a circle
  const std::vector<DeviceBytes> bytes = bytes_by_device(request, partitions);
  for (std::size_t d = 0; d < bytes.size(); ++d) {
    if (used_bytes(request, bytes[d]) > request.devices[d].memory) return false;
  }
  return true;
}

Answer finish(const Request& request, std::vector<Partition> partitions) {
  Answer answer;
  set_relations(request.graph, partitions);
  set_levels(partitions);
  answer.device_bytes = bytes_by_device(request, partitions);
  answer.node_to_partition = node_to_partition(request.graph, partitions);
  if (known_costs(request)) {
    answer.cost = graph_latency(request.graph, partitions, latencies(request.graph, partitions),
                                request.rate);
    answer.serial_cost = serial_latency(request, partitions);
  }
  answer.partitions = std::move(partitions);
  return answer;
}

Infeasible too_small(const Request& request, std::size_t device, std::int64_t bytes,
                     std::string help) {
  Infeasible reason;
  reason.method = to_string(request.mode);
  reason.tightest = DeviceId{device};
  reason.device = request.devices[device].name;
  reason.needed = Bytes{bytes};
  reason.limit = Bytes{request.devices[device].memory};
  reason.short_by = reason.needed - reason.limit;
  reason.what_would_help = std::move(help);
  return reason;
}

Infeasible no_room(const Request& request, const OpTable& table) {
  Placement alone(table, request.devices);
  const SlotId device{largest_device(request.devices)};
  for (std::size_t op = 0; op < table.size(); ++op) {
    alone.move(op, device);
    if (!alone.over(device)) {
      alone.move(op, Placement::kNowhere);
      continue;
    }
    return too_small(
        request, device, alone.bytes(device),
        fmt::format(
            "node '{}' with its inputs is larger than any device; give one device at least {}",
            request.graph.node(table.node[op]).name, to_string(Bytes{alone.bytes(device)})));
  }
  const Placement spread = least_overflow(table, request.devices);
  std::size_t tightest = 0;
  for (std::size_t d = 1; d < request.devices.size(); ++d) {
    if (spread.bytes(d) - spread.limit(d) > spread.bytes(tightest) - spread.limit(tightest)) {
      tightest = d;
    }
  }
  const std::int64_t needed = std::max(spread.bytes(tightest), spread.limit(tightest) + 1);
  return too_small(request, tightest, needed, "give the devices more memory, or add a device");
}

}  // namespace kerf::partition::fx
