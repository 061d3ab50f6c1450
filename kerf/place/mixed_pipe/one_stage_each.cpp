// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/mixed_pipe/one_stage_each.h"

#include <algorithm>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/place/cut/cut_order.h"
#include "kerf/place/order/condense.h"
#include "kerf/place/order/orders.h"

namespace kerf::place {
namespace {

// Devices by the mean place of their groups in the order: rank by device.
std::vector<std::uint32_t> ranks_of(const std::vector<SlotId>& device_of_group,
                                    std::size_t num_devices) {
  std::vector<double> sum(num_devices);
  std::vector<double> count(num_devices);
  for (std::size_t g = 0; g < device_of_group.size(); ++g) {
    sum[device_of_group[g]] += static_cast<double>(g);
    count[device_of_group[g]] += 1;
  }
  std::vector<SlotId> order = count_up<SlotId>(num_devices);
  const auto mean = [&](SlotId d) { return count[d] > 0 ? sum[d] / count[d] : 0; };
  std::stable_sort(order.begin(), order.end(),
                   [&](SlotId a, SlotId b) { return mean(a) < mean(b); });
  std::vector<std::uint32_t> rank(num_devices);
  for (std::uint32_t r = 0; r < num_devices; ++r) rank[order[r]] = r;
  return rank;
}

}  // namespace

LoadAnswer one_stage_each(const Instance& units, std::span<const SlotId> device,
                          const LoadOptions& options) {
  const Condensed groups = condense(units);
  std::vector<SlotId> device_of_group(groups.num_units());
  for (std::size_t u = device.size(); u-- > 0;) device_of_group[groups.group_of[u]] = device[u];
  const std::vector<std::uint32_t> rank = ranks_of(device_of_group, units.num_devices);
  Stages stages(groups.num_units());
  for (UnitId g{0}; g < groups.num_units(); ++g) {
    stages[g] = rank[device_of_group[g]];
    for (const UnitId before : groups.predecessors[g]) {
      stages[g] = std::max(stages[g], stages[before]);
    }
  }
  Rng rng(options.seed);
  StepClock no_clock(kInfinity);
  const Order order = make_order(groups, stages, OrderKind::least_number, rng, no_clock);
  const Order line = groups.spread(units, order);
  LoadAnswer out;
  out.objective = kInfinity;
  const StopClock clock(options.safety_stop());
  if (auto split = cut_order(units, line, out.objective, clock)) {
    out.objective = find_loads(units, *split).busiest;
    out.device = *std::move(split);
  }
  out.truncated = clock.has_struck();
  return out;
}

}  // namespace kerf::place
