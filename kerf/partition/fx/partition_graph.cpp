// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kerf/base/error.h"
#include "kerf/partition/fx/effects.h"
#include "kerf/partition/fx/judge.h"
#include "kerf/partition/fx/modes.h"
#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {
namespace {

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.fx] {}; expected {}", found, expected));
}

void check_devices(std::span<const Device> devices) {
  if (devices.empty()) refuse("no devices", "at least one");
  std::set<std::int64_t> ids;
  for (const Device& device : devices) {
    if (device.memory <= 0) {
      refuse(fmt::format("device '{}' has {} bytes of memory", device.name, device.memory),
             "more than 0");
    }
    if (!ids.insert(device.id).second) {
      refuse(fmt::format("two devices have the id {}, one of them '{}'", device.id, device.name),
             "a logical_id of its own for each device");
    }
  }
}

void check_graph(const OpGraph& graph) {
  if (graph.ops().empty()) refuse("a graph without operations", "at least one operation");
  std::vector<std::string> unsized;
  for (const OpNode& node : graph.nodes()) {
    if (node.output_size < 0 || node.total_size < 0) unsized.push_back(node.name);
  }
  if (!unsized.empty()) {
    refuse(fmt::format("{} of {} nodes have no size: {}", unsized.size(), graph.num_nodes(),
                       fmt::join(unsized, ", ")),
           "shapes for all; run shape propagation first");
  }
}

void check_costs(const Request& request) {
  if (std::isnan(request.rate) || request.rate <= 0) {
    refuse(fmt::format("a transfer rate of {} bytes per second with mode {}", request.rate,
                       to_string(request.mode)),
           "more than 0; infinity when transfers cost nothing");
  }
  std::vector<std::string> missing;
  std::vector<std::string> wrong;
  for (const OpIndex n : request.graph.ops()) {
    const OpNode& node = request.graph.node(n);
    if (std::isnan(node.mem_latency) || std::isnan(node.computer_latency)) {
      missing.push_back(node.name);
    } else if (node.mem_latency < 0 || node.computer_latency < 0 || std::isinf(node.latency())) {
      wrong.push_back(node.name);
    }
  }
  if (!missing.empty()) {
    refuse(fmt::format("{} of {} nodes have no latency: {}", missing.size(),
                       request.graph.ops().size(), fmt::join(missing, ", ")),
           "one for every node that runs, in node_to_latency_mapping");
  }
  if (!wrong.empty()) {
    refuse(fmt::format("negative or infinite latencies for {}", fmt::join(wrong, ", ")),
           "seconds from 0");
  }
}

// No device counts for more than what sparse_nn was told of each.
Request with_given_memory(Request request) {
  if (request.given_bytes <= 0) {
    refuse(fmt::format("devices of {} bytes of memory", request.given_bytes), "more than 0");
  }
  for (Device& device : request.devices) {
    device.memory = std::min(device.memory, request.given_bytes);
  }
  return request;
}

Outcome<Answer, Infeasible> by_mode(const Request& request) {
  switch (request.mode) {
    case Mode::size: return size(request);
    case Mode::sparse_nn:
      if (request.mode_alone) return sparse_nn(with_given_memory(request));
      return sparse_nn(request);
    case Mode::cost_aware: return cost_aware(request);
    case Mode::kl: return kl(request);
    case Mode::aot: return aot(request);
    case Mode::single: return single(request);
  }
  throw Error(ErrorKind::internal, "[partition.fx] unknown mode");
}

Outcome<Answer, Infeasible> by_mode_of_groups(const Request& request,
                                              const std::vector<std::vector<OpIndex>>& groups) {
  const Contracted contracted = contract(request, groups);
  Outcome<Answer, Infeasible> outcome = by_mode(contracted.request);
  if (!outcome) return outcome;
  return finish(request, expand(request, contracted, outcome->partitions));
}

void check_together(const Request& request, const std::vector<std::vector<OpIndex>>& groups) {
  std::vector<std::int64_t> partition(request.graph.num_nodes(), kNoPartition);
  for (const auto& [node, id] : request.node_to_partition) partition[node] = id;
  for (const std::vector<OpIndex>& group : groups) {
    for (const OpIndex n : group) {
      const OpIndex first = group.front();
      if (partition[n] == partition[first]) continue;
      refuse(fmt::format("nodes '{}' and '{}' are in partitions {} and {}, and one of their "
                         "neighbours changes in place what the other reads",
                         request.graph.node(first).name, request.graph.node(n).name,
                         partition[first], partition[n]),
             "one partition for both");
    }
  }
}

}  // namespace

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::size: return "size";
    case Mode::sparse_nn: return "sparse_nn";
    case Mode::cost_aware: return "cost_aware";
    case Mode::kl: return "kl";
    case Mode::aot: return "aot";
    case Mode::single: return "single";
  }
  return "?";
}

void check_request(const Request& request) {
  check_devices(request.devices);
  check_graph(request.graph);
  if (request.mode == Mode::cost_aware || request.mode == Mode::kl) check_costs(request);
}

Outcome<Answer, Infeasible> partition_graph(const Request& request) {
  check_request(request);
  const std::vector<std::vector<OpIndex>> groups = inseparable_ops(request.graph);
  if (request.mode == Mode::aot) check_together(request, groups);
  Outcome<Answer, Infeasible> outcome = groups.empty() || request.mode == Mode::aot
                                            ? by_mode(request)
                                            : by_mode_of_groups(request, groups);
  if (!outcome) return outcome;
  KERF_CHECK(is_valid(request, outcome->partitions), "the partitions break a rule");
  return outcome;
}

}  // namespace kerf::partition::fx
