// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/mixed_pipe/line.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "kerf/base/rng.h"
#include "kerf/base/topological_order.h"
#include "kerf/place/ideals/orders.h"

namespace kerf::place {
namespace {

std::vector<double> crossing_costs(const Instance& units, std::span<const std::uint32_t> order) {
  std::vector<std::uint32_t> place(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  std::vector<double> change(order.size() + 1);
  for (std::uint32_t net = 0; net < units.num_nets(); ++net) {
    std::uint32_t first = std::numeric_limits<std::uint32_t>::max();
    std::uint32_t last = 0;
    for (const std::uint32_t unit : units.pins[net]) {
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
ideals::Order by_number(const ideals::Groups& groups,
                        const std::vector<std::vector<std::uint32_t>>& members) {
  const auto least_unit = [&](std::uint32_t group) {
    return *std::min_element(members[group].begin(), members[group].end());
  };
  return least_first_order(groups.num_tasks(), each_next_of(groups.successors), least_unit);
}

}  // namespace

std::vector<std::vector<std::uint32_t>> units_by_group(const Instance& instance,
                                                       const ideals::Groups& groups) {
  std::vector<std::vector<std::uint32_t>> members(groups.num_tasks());
  for (const std::uint32_t unit : instance.own_order) {
    members[groups.group_of[unit]].push_back(unit);
  }
  return members;
}

std::vector<std::uint32_t> in_line(const std::vector<std::vector<std::uint32_t>>& members,
                                   std::span<const std::uint32_t> groups) {
  std::vector<std::uint32_t> out;
  for (const std::uint32_t group : groups) {
    out.insert(out.end(), members[group].begin(), members[group].end());
  }
  return out;
}

Line make_line(const Instance& units, std::vector<std::uint32_t> order) {
  Line line;
  const double time =
      std::accumulate(units.accelerator_time.begin(), units.accelerator_time.end(), 0.0);
  const double bytes = std::accumulate(units.bytes.begin(), units.bytes.end(), 0.0);
  // Nothing but zeros: every unit weighs the same.
  const double least = time + bytes > 0 ? 0 : 1;
  line.weight_before.push_back(0);
  for (const std::uint32_t unit : order) {
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
  const ideals::Groups groups = ideals::to_groups(units);
  const std::vector<std::vector<std::uint32_t>> members = units_by_group(units, groups);
  return make_line(units, in_line(members, by_number(groups, members)));
}

std::vector<Line> topological_lines(const Instance& units) {
  const ideals::Groups groups = ideals::to_groups(units);
  const std::vector<std::vector<std::uint32_t>> members = units_by_group(units, groups);
  constexpr int kKinds[] = {0, 1};  // depth first; little crossing
  std::vector<Line> lines;
  lines.push_back(make_line(units, in_line(members, by_number(groups, members))));
  Rng rng(0);
  ideals::Clock clock(kInfinity);
  for (const int kind : kKinds) {
    std::vector<std::uint32_t> order =
        in_line(members, ideals::make_order(groups, {}, kind, rng, clock));
    const bool known = std::any_of(lines.begin(), lines.end(),
                                   [&](const Line& line) { return line.order == order; });
    if (!known) lines.push_back(make_line(units, std::move(order)));
  }
  return lines;
}

std::vector<std::uint32_t> cut_blocks(const Line& line, std::size_t count) {
  const std::size_t end = line.order.size();
  std::vector<std::uint32_t> block(end);
  if (count >= end) {
    for (std::size_t i = 0; i < end; ++i) block[line.order[i]] = static_cast<std::uint32_t>(i);
    return block;
  }
  const double share = 1 / static_cast<double>(std::max<std::size_t>(count, 1));
  const auto place_of = [&](double weight) {
    const auto at = std::lower_bound(line.weight_before.begin(), line.weight_before.end(), weight);
    return std::min(end, static_cast<std::size_t>(at - line.weight_before.begin()));
  };
  constexpr double kPlay = 0.25;  // of a share, either way
  std::uint32_t number = 0;
  std::size_t start = 0;
  for (std::size_t i = 1; start < end; ++i) {
    std::size_t best = end;
    if (i < count) {
      const double middle = share * static_cast<double>(i);
      const std::size_t low = std::max(start + 1, place_of(middle - kPlay * share));
      const std::size_t high = std::max(low, place_of(middle + kPlay * share));
      best = std::min(low, end);
      for (std::size_t place = low; place <= high && place < end; ++place) {
        if (line.crossing[place] < line.crossing[best]) best = place;
      }
    }
    for (; start < best; ++start) block[line.order[start]] = number;
    ++number;
  }
  return block;
}

}  // namespace kerf::place
