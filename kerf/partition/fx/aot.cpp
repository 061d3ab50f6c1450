// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "kerf/base/error.h"
#include "kerf/partition/fx/compat.h"
#include "kerf/partition/fx/judge.h"
#include "kerf/partition/fx/modes.h"

namespace kerf::partition::fx {
namespace {

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.aot] {}; expected {}", found, expected));
}

std::string some_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  const std::size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

void check_nodes(const Request& request) {
  std::vector<int> times(request.graph.num_nodes(), 0);
  for (const auto& [node, id] : request.node_to_partition) {
    ++times[node];
    if (id < 0) {
      refuse(fmt::format("node '{}' is in partition {}", request.graph.node(node).name, id),
             "a number from 0");
    }
  }
  std::vector<std::string> missing;
  for (const OpIndex n : request.graph.ops()) {
    if (times[n] == 0) missing.push_back(request.graph.node(n).name);
  }
  if (!missing.empty()) {
    refuse(fmt::format("{} of {} nodes have no partition: {}", missing.size(),
                       request.graph.ops().size(), some_names(missing)),
           "one for every node that runs");
  }
}

void check_devices(const Request& request) {
  std::set<std::int64_t> used;
  for (const auto& [node, id] : request.node_to_partition) used.insert(id);
  std::map<std::int64_t, std::vector<std::int64_t>> devices(request.partition_to_devices.begin(),
                                                            request.partition_to_devices.end());
  for (const std::int64_t id : used) {
    const auto found = devices.find(id);
    if (found == devices.end() || found->second.empty()) {
      refuse(fmt::format("partition {} has no device", id),
             "a list of device ids for every partition");
    }
    std::set<std::int64_t> seen;
    for (const std::int64_t device : found->second) {
      if (find_device(request.devices, device) == request.devices.size()) {
        std::vector<std::int64_t> known;
        for (const Device& each : request.devices) known.push_back(each.id);
        refuse(fmt::format("partition {} is on device {}", id, device),
               fmt::format("one of the devices {}", fmt::join(known, ", ")));
      }
      if (!seen.insert(device).second) {
        refuse(fmt::format("partition {} is on device {} twice", id, device), "each device once");
      }
    }
  }
}

// "0 -> 1 -> 0 (add_1 feeds linear, linear feeds add_2)".
void check_cycles(const Request& request, const std::vector<Partition>& partitions) {
  enum class State : std::uint8_t { fresh, open, done };
  std::vector<State> state(partitions.size(), State::fresh);
  for (std::size_t start = 0; start < partitions.size(); ++start) {
    std::vector<std::pair<std::size_t, std::size_t>> stack;  // partition, next child
    if (state[start] == State::fresh) stack.emplace_back(start, 0);
    while (!stack.empty()) {
      auto& [p, next] = stack.back();
      state[p] = State::open;
      if (next == partitions[p].children.size()) {
        state[p] = State::done;
        stack.pop_back();
        continue;
      }
      const std::size_t child = partitions[p].children[next++];
      if (state[child] == State::fresh) stack.emplace_back(child, 0);
      if (state[child] != State::open) continue;
      std::vector<std::size_t> cycle;
      bool inside = false;
      for (const auto& [open, unused] : stack) {
        inside = inside || open == child;
        if (inside) cycle.push_back(open);
      }
      cycle.push_back(child);
      std::vector<std::int64_t> ids;
      std::vector<std::string> reasons;
      for (std::size_t i = 0; i < cycle.size(); ++i) {
        ids.push_back(partitions[cycle[i]].id);
        if (i == 0) continue;
        const std::vector<OpIndex>& reader = partitions[cycle[i]].nodes;
        for (const OpIndex n : partitions[cycle[i - 1]].nodes) {
          const auto users = request.graph.users(n);
          const auto user = std::find_if(users.begin(), users.end(), [&](OpIndex u) {
            return !request.graph.node(n).leaf &&
                   std::find(reader.begin(), reader.end(), u) != reader.end();
          });
          if (user == users.end()) continue;
          reasons.push_back(fmt::format("{} feeds {}", request.graph.node(n).name,
                                        request.graph.node(*user).name));
          break;
        }
      }
      refuse(fmt::format("partitions wait for each other in a cycle: {} ({})",
                         fmt::join(ids, " -> "), fmt::join(reasons, ", ")),
             "an order in which they can run; move a node of the cycle to another partition");
    }
  }
}

}  // namespace

Outcome<Answer, Infeasible> aot(const Request& request) {
  check_nodes(request);
  check_devices(request);
  std::vector<Partition> partitions = compat::aot(request).partitions;
  set_relations(request.graph, partitions);
  check_cycles(request, partitions);
  Answer answer = finish(request, std::move(partitions));
  for (std::size_t d = 0; d < request.devices.size(); ++d) {
    const std::int64_t used = used_bytes(request, answer.device_bytes[d]);
    if (used <= request.devices[d].memory) continue;
    return too_small(request, d, used,
                     "move nodes to another partition or the partition to another device");
  }
  return answer;
}

}  // namespace kerf::partition::fx
