// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/baseline/baseline.h"

#include <algorithm>
#include <optional>

#include "kerf/base/count_up.h"
#include "kerf/partition/lower/contiguous.h"
#include "kerf/partition/raise/finish.h"

namespace kerf::partition {

Outcome<Plan, Infeasible> single(const Problem& problem, const Options&) {
  const std::vector<Device>& devices = problem.cluster.devices;
  auto order = count_up<std::size_t>(devices.size());
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return devices[a].speed > devices[b].speed;
  });
  std::vector<NodeId> all;
  for (std::size_t n = 0; n < problem.graph.num_nodes(); ++n) all.emplace_back(n);
  std::optional<Infeasible> least;
  for (const std::size_t device : order) {
    auto outcome = finish_plan(problem, {all}, {DeviceId{device}}, "single");
    if (outcome) return outcome;
    keep_closest(least, outcome.reason());
  }
  return *least;
}

Outcome<Plan, Infeasible> even(const Problem& problem, const Options&) {
  const std::size_t nodes = problem.graph.num_nodes();
  const std::size_t devices = problem.cluster.num_devices();
  const std::vector<bool> cuttable = cut_positions(problem.graph);
  std::vector<std::size_t> cuts{0};
  for (std::size_t k = 1; k < devices; ++k) {
    const std::size_t wanted = nodes * k / devices;
    std::size_t below = wanted;
    std::size_t above = wanted;
    while (!cuttable[below]) --below;  // the ends are always cuttable
    while (!cuttable[above]) ++above;
    cuts.push_back(std::max(cuts.back(), wanted - below <= above - wanted ? below : above));
  }
  cuts.push_back(nodes);
  std::vector<DeviceId> order;
  for (std::size_t d = 0; d < devices; ++d) order.emplace_back(d);
  return finish_plan(problem, intervals(cuts), order, "even");
}

}  // namespace kerf::partition
