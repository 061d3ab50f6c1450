// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "kerf/base/rng.h"
#include "kerf/simulate/make_plan.h"

namespace kerf {

// Random stages that do not wait for each other, on random devices, several to a device.
inline Plan random_plan(const Problem& problem, std::uint64_t seed) {
  Rng rng(seed);
  const std::size_t nodes = problem.graph.num_nodes();
  std::vector<std::size_t> cuts{0, nodes};
  for (int k = 0; k < 3; ++k) cuts.push_back(rng.below(nodes + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::vector<NodeId>> stages;
  std::vector<DeviceId> devices;
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    auto& stage = stages.emplace_back();
    for (std::size_t n = cuts[k]; n < cuts[k + 1]; ++n) stage.emplace_back(n);
    devices.emplace_back(rng.below(problem.cluster.num_devices()));
  }
  return make_plan(problem, std::move(stages), std::move(devices), "random");
}

}  // namespace kerf
