// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/order/line.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kerf/base/infinity.h"
#include "kerf/base/rng.h"
#include "kerf/base/topological_order.h"
#include "kerf/place/order/condense.h"
#include "kerf/place/order/orders.h"

namespace kerf::place {
namespace {

std::vector<double> crossing_costs(const Instance& units, const Order& order) {
  const std::vector<std::uint32_t> place = places_in(order);
  std::vector<double> change(order.size() + 1);
  for (NetId net{0}; net < units.num_nets(); ++net) {
    std::uint32_t first = kNoIndex;
    std::uint32_t last = 0;
    for (const UnitId unit : units.pins[net]) {
      first = std::min(first, place[unit]);
      last = std::max(last, place[unit]);
    }
    change[first + 1] += units.cost[net];
    change[last + 1] -= units.cost[net];
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  return change;
}

// Of the groups that are ready the one with the least unit first.
Order by_number(const Condensed& groups) {
  std::vector<UnitId> least_unit(groups.num_units());
  for (UnitId u{0}; u < groups.group_of.size(); ++u) {
    UnitId& least = least_unit[groups.group_of[u]];
    least = std::min(least, u);
  }
  const auto key = [&](UnitId group) { return least_unit[group]; };
  return least_first_order<UnitId>(groups.num_units(), each_next_of(groups.successors), key);
}

}  // namespace

Line make_line(const Instance& units, Order order) {
  Line line;
  const double time = units.total_accelerator_time();
  const double bytes = std::accumulate(units.bytes.begin(), units.bytes.end(), 0.0);
  // Nothing but zeros: every unit weighs the same.
  const double least = time + bytes > 0 ? 0 : 1;
  line.weight_before.push_back(0);
  for (const UnitId unit : order) {
    const double weight = std::max({least, time > 0 ? units.accelerator_time[unit] / time : 0.0,
                                    bytes > 0 ? units.bytes[unit] / bytes : 0.0});
    line.weight_before.push_back(line.weight_before.back() + weight);
  }
  const double total = line.weight_before.back();
  for (double& weight : line.weight_before) weight /= total > 0 ? total : 1;
  line.crossing = crossing_costs(units, order);
  line.order = std::move(order);
  return line;
}

Line own_line(const Instance& units) {
  const Condensed groups = condense(units);
  return make_line(units, groups.spread(units, by_number(groups)));
}

std::vector<Line> topological_lines(const Instance& units) {
  const Condensed groups = condense(units);
  std::vector<Line> lines;
  lines.push_back(make_line(units, groups.spread(units, by_number(groups))));
  Rng rng(0);
  StepClock clock(kInfinity);
  for (const OrderKind kind : {OrderKind::depth_first, OrderKind::least_crossing}) {
    Order order = groups.spread(units, make_order(groups, {}, kind, rng, clock));
    const bool known = std::any_of(lines.begin(), lines.end(),
                                   [&](const Line& line) { return line.order == order; });
    if (!known) lines.push_back(make_line(units, std::move(order)));
  }
  return lines;
}

}  // namespace kerf::place
