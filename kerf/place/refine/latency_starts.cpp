// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/refine/latency_starts.h"

#include <algorithm>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/place/cut/cut_order.h"
#include "kerf/place/order/grow.h"
#include "kerf/place/pack/memory_fill.h"

namespace kerf::place {

Order order_of_units(const LoweredLoad& lowered, std::span<const std::uint32_t> node_order) {
  std::vector<double> place(lowered.nodes.size(), 0);
  for (std::size_t i = 0; i < node_order.size(); ++i) {
    const UnitId u = lowered.unit_of[node_order[i]];
    place[u] += static_cast<double>(i) / static_cast<double>(lowered.nodes[u].size());
  }
  Order order = count_up<UnitId>(place.size());
  std::stable_sort(order.begin(), order.end(),
                   [&](UnitId a, UnitId b) { return place[a] < place[b]; });
  return order;
}

std::vector<Split> latency_starts(const Instance& units, std::span<const UnitId> order,
                                  const StopClock& clock, Rng& rng) {
  std::vector<Split> starts;
  if (units.has_cpu()) starts.emplace_back(units.num_units(), units.cpu);
  const auto cut = [&](std::span<const UnitId> line, CutAim aim) {
    if (auto split = cut_order(units, line, kInfinity, clock, aim)) {
      starts.push_back(*std::move(split));
    }
  };
  // Quadratic: very long lines go without.
  constexpr std::size_t kLongest = 4000;
  if (!order.empty() && order.size() <= kLongest) {
    cut(order, CutAim::least_sum);
    const UnitId end = far_unit(units, order.front());
    cut(grow_order(units, end, 0, clock, rng), CutAim::least_sum);
  }
  cut(order, CutAim::least_max);
  if (auto filled = fill_memory(units, clock, rng)) starts.push_back(*std::move(filled));
  return starts;
}

}  // namespace kerf::place
