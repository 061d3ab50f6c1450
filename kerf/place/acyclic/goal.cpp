// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/acyclic/goal.h"

#include <algorithm>
#include <numeric>

#include "kerf/base/infinity.h"

namespace kerf::place::acyclic {

Instance with_parts(const Instance& groups, const AcyclicOptions& options) {
  Instance out = groups;
  out.cpu = SlotId{options.parts.size()};
  out.num_devices = out.cpu;
  out.slowness.clear();
  out.memory.clear();
  for (const PartLimit& part : options.parts) {
    out.slowness.push_back(part.slowness);
    out.memory.push_back(part.memory);
  }
  return out;
}

Goal find_goal(const Instance& level, const AcyclicOptions& options) {
  Goal out;
  out.minimise = options.minimise;
  out.total_time = level.total_accelerator_time();
  out.total_bytes = std::accumulate(level.bytes.begin(), level.bytes.end(), 0.0);
  double speed = 0;
  for (const PartLimit& part : options.parts) {
    out.memory_binds = out.memory_binds || part.memory < out.total_bytes;
    speed += 1 / part.slowness;
  }
  for (const PartLimit& part : options.parts) {
    const double share = out.total_time / part.slowness / speed;
    // Sums in another order must not fall on the wrong side.
    constexpr double kRounding = 1 + 1e-9;
    out.limit.push_back(out.is_cut() ? share * (1 + options.imbalance) * kRounding : kInfinity);
  }
  out.least_load = out.total_time / speed;
  return out;
}

bool is_better(const Score& a, const Score& b) {
  const auto differs = [](double x, double y) {
    return std::abs(x - y) > 1e-10 * std::max(std::abs(x), std::abs(y));
  };
  if (differs(a.memory, b.memory)) return a.memory < b.memory;
  if (differs(a.time, b.time)) return a.time < b.time;
  if (a.empty != b.empty) return a.empty < b.empty;
  if (differs(a.value, b.value)) return a.value < b.value;
  return differs(a.second, b.second) && a.second < b.second;
}

}  // namespace kerf::place::acyclic
