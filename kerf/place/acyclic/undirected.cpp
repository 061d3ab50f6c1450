// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/acyclic/undirected.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kerf/place/metis/kway.h"

namespace kerf::place::acyclic {
namespace {

// A net as a star from its source; weights in whole numbers.
KwayGraph to_kway(const Instance& level, const Goal& goal) {
  const double mean_cost =
      std::accumulate(level.cost.begin(), level.cost.end(), 0.0) / std::max(1U, level.num_nets());
  std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> rows(level.num_units());
  for (NetId net{0}; net < level.num_nets(); ++net) {
    const auto pins = level.pins[net];
    const double each =
        100 * level.cost[net] / mean_cost / std::sqrt(static_cast<double>(pins.size() - 1));
    const auto weight = static_cast<std::int32_t>(std::clamp(each, 1.0, 1e5));
    const UnitId source = level.source[net];
    for (const UnitId pin : pins) {
      if (pin == source) continue;
      rows[pin].emplace_back(static_cast<std::int32_t>(source), weight);
      rows[source].emplace_back(static_cast<std::int32_t>(pin), weight);
    }
  }
  KwayGraph out;
  out.first.push_back(0);
  const double total = std::max(goal.total_time, 1e-300);
  const double scale = std::min(1e8, 1e4 * level.num_units());
  for (UnitId v{0}; v < level.num_units(); ++v) {
    for (const auto& [to, weight] : rows[v]) {
      out.neighbours.push_back(to);
      out.edge_weights.push_back(weight);
    }
    out.first.push_back(static_cast<std::int32_t>(out.neighbours.size()));
    out.vertex_weights.push_back(
        static_cast<std::int32_t>(level.accelerator_time[v] / total * scale));
  }
  return out;
}

}  // namespace

Split pulled_up(const Instance& level, Split half) {
  for (UnitId v{level.num_units()}; v-- > 0;) {
    if (half[v] == 0) continue;
    const auto after = level.successors[v];
    if (std::ranges::any_of(after, [&](UnitId u) { return half[u] == 0; })) half[v] = SlotId{0};
  }
  return half;
}

Split pushed_down(const Instance& level, Split half) {
  for (UnitId v{0}; v < level.num_units(); ++v) {
    if (half[v] == 1) continue;
    const auto before = level.predecessors[v];
    if (std::ranges::any_of(before, [&](UnitId u) { return half[u] == 1; })) half[v] = SlotId{1};
  }
  return half;
}

std::vector<Split> undirected_halves(const Instance& level, const Goal& goal, std::uint64_t seed) {
  if (!has_metis() || goal.parts() != 2 || level.num_units() < 4) return {};
  KwayOptions options;
  const double speed = 1 / level.slowness[0] + 1 / level.slowness[1];
  options.shares = {1 / level.slowness[0] / speed, 1 / level.slowness[1] / speed};
  // A little less than is allowed: what is mended afterwards may add to it.
  const double room = goal.limit[0] / (options.shares[0] * std::max(goal.total_time, 1e-300));
  options.imbalance = std::clamp(0.7 * (room - 1), 0.001, 0.5);
  options.seed = seed;
  const KwayGraph graph = to_kway(level, goal);
  Split half = metis_kway(graph, options);
  if (half.empty()) return {};
  Split turned = half;
  if (options.shares[0] != options.shares[1]) {
    std::swap(options.shares[0], options.shares[1]);
    turned = metis_kway(graph, options);
    if (turned.empty()) return {};
  }
  for (SlotId& h : turned) h = SlotId{1 - h};
  return {std::move(half), std::move(turned)};
}

}  // namespace kerf::place::acyclic
