// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/raise/replicate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kerf/simulate/make_plan.h"
#include "kerf/simulate/memory.h"

namespace kerf {
namespace partition {

std::vector<std::vector<std::size_t>> find_replicas(std::span<const std::int64_t> used_bytes,
                                                    std::span<const std::uint8_t> used,
                                                    std::span<const std::int64_t> capacity) {
  std::vector<std::size_t> originals;
  std::vector<std::size_t> idle;
  for (std::size_t d = 0; d < used.size(); ++d) (used[d] != 0 ? originals : idle).push_back(d);
  std::vector<std::vector<std::size_t>> copies;
  // The original asks 2 |used| + |taken| <= |devices|, which says the same.
  while (!originals.empty() && idle.size() >= originals.size()) {
    std::vector<std::size_t>& copy = copies.emplace_back();
    for (const std::size_t original : originals) {
      auto best = idle.end();
      for (auto device = idle.begin(); device != idle.end(); ++device) {
        if (capacity[*device] < used_bytes[original]) continue;
        if (best == idle.end() || capacity[*device] < capacity[*best]) best = device;
      }
      if (best == idle.end()) {
        copies.pop_back();
        return copies;
      }
      copy.push_back(*best);
      idle.erase(best);
    }
  }
  return copies;
}

}  // namespace partition

namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

bool fits(std::span<const DeviceMemory> memory) {
  return std::all_of(memory.begin(), memory.end(), [](const DeviceMemory& each) {
    return !each.limited || each.predicted <= each.limit;
  });
}

// By copy the device of each stage; `memory` is the plan's without replicas.
std::vector<std::vector<DeviceId>> candidates(const Plan& plan,
                                              std::span<const DeviceMemory> memory) {
  const std::size_t devices = plan.cluster.num_devices();
  std::vector<std::uint8_t> used(devices);
  for (const Stage& stage : plan.stages) used[stage.device.index()] = 1;
  std::vector<std::int64_t> bytes;
  std::vector<std::int64_t> capacity;
  for (const DeviceMemory& each : memory) {
    bytes.push_back((each.weights + each.activations).count);
    capacity.push_back(each.limited ? (each.limit - each.predicted).count : kUnlimited);
  }
  std::vector<std::size_t> position(devices);  // of a used device among the used ones
  for (std::size_t d = 0, next = 0; d < devices; ++d) position[d] = used[d] != 0 ? next++ : 0;
  std::vector<std::vector<DeviceId>> copies;
  for (const std::vector<std::size_t>& found : partition::find_replicas(bytes, used, capacity)) {
    std::vector<DeviceId>& copy = copies.emplace_back();
    for (const Stage& stage : plan.stages) copy.emplace_back(found[position[stage.device.index()]]);
  }
  return copies;
}

}  // namespace

Plan saturate_host(const Problem& problem, Plan plan) {
  const PlanMemory footprints = plan_footprints(problem.graph, plan, problem.profile);
  const std::vector<std::vector<DeviceId>> own{plan.stage_devices()};
  std::vector<DeviceMemory> memory = copies_memory(problem.graph, plan, own, footprints).front();
  const std::vector<std::vector<DeviceId>> copies = candidates(plan, memory);
  const auto needs = copies_memory(problem.graph, plan, copies, footprints);
  std::vector<std::vector<DeviceId>> replicas;
  for (std::size_t c = 0; c < copies.size(); ++c) {
    std::vector<DeviceMemory> more = memory;
    add_memory(more, needs[c]);
    if (!fits(more)) continue;
    memory = std::move(more);
    replicas.push_back(copies[c]);
  }
  if (replicas.empty()) {
    plan.notes.emplace_back(
        "saturate_host: the idle devices have no room for a replica of the plan");
  }
  return with_replicas(problem, std::move(plan), std::move(replicas));
}

}  // namespace kerf
