// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/order/condense.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/base/strong_components.h"
#include "kerf/base/topological_order.h"
#include "kerf/base/union_find.h"
#include "kerf/place/coarsen/contraction.h"

namespace kerf::place {
namespace {

bool takes_no_time(const Instance& instance, UnitId t) {
  const Unit unit = instance.unit(t);
  return unit.accelerator_time <= 0 && unit.cpu_time <= 0 && unit.on_accelerator && unit.on_cpu;
}

bool is_one_without_time(const Instance& instance) {
  for (UnitId t{0}; t < instance.num_units(); ++t) {
    if (takes_no_time(instance, t)) return true;
  }
  return false;
}

// Groups without time join their only neighbour when all their nets hold it too: on its device they
// cut nothing that was whole. Where only readers pay, nobody else may read what they make, or a
// reader that had it at home would come to pay. Memory must not care.
class Joining {
 public:
  explicit Joining(const Instance& groups) : groups_(groups), sets_(groups.num_units()) {
    const double bytes = std::accumulate(groups.bytes.begin(), groups.bytes.end(), 0.0);
    memory_binds_ = std::ranges::any_of(groups.memory, [&](double limit) { return bytes > limit; });
    bytes_ = groups.bytes;
    for (UnitId g{0}; g < groups.num_units(); ++g) {
      num_neighbours_.push_back(groups.successors.length(g) + groups.predecessors.length(g));
    }
  }
  // By group, the one that it has joined.
  std::vector<UnitId> run() {
    std::vector<UnitId> todo = count_up<UnitId>(groups_.num_units());
    std::vector<UnitId> joined = todo;
    while (!todo.empty()) {
      const UnitId g = todo.back();
      todo.pop_back();
      if (!is_left(g) || !can_join(g)) continue;
      const UnitId to = only_neighbour(g);
      sets_.join_to(to, g);
      --num_neighbours_[to];
      bytes_[to] += bytes_[g];
      todo.push_back(to);
    }
    for (UnitId& g : joined) g = UnitId{sets_.find(g)};
    return joined;
  }

 private:
  bool is_left(UnitId g) { return sets_.find(g) == g; }
  // The others have joined it: who joins has no neighbour else.
  UnitId only_neighbour(UnitId g) {
    for (const UnitRows* rows : {&groups_.successors, &groups_.predecessors}) {
      for (const UnitId other : (*rows)[g]) {
        if (is_left(other)) return other;
      }
    }
    return g;
  }
  bool can_join(UnitId g) {
    if (!takes_no_time(groups_, g)) return false;
    if ((memory_binds_ && bytes_[g] > 0) || num_neighbours_[g] != 1) return false;
    const UnitId to = only_neighbour(g);
    // Nets of what joined g before hold g too.
    return std::ranges::all_of(groups_.nets[g], [&](NetId net) { return allows(net, g, to); });
  }
  bool allows(NetId net, UnitId g, UnitId to) {
    const auto pins = groups_.pins[net];
    const auto is_at_home = [&](UnitId pin) { return sets_.find(pin) == to; };
    if (groups_.charging == Charging::link && sets_.find(groups_.source[net]) == g) {
      return std::ranges::all_of(
          pins, [&](UnitId pin) { return sets_.find(pin) == g || is_at_home(pin); });
    }
    return std::ranges::any_of(pins, is_at_home);
  }

  const Instance& groups_;
  UnionFind sets_;
  std::vector<double> bytes_;  // by group, with those that joined it
  std::vector<std::uint32_t> num_neighbours_;
  bool memory_binds_ = false;
};

template <class Number>
void renumber(std::vector<UnitId>& group_of, const std::vector<Number>& number) {
  for (UnitId& g : group_of) g = UnitId{number[g]};
}

// Numbers without gaps for the groups that are left.
std::uint32_t close_gaps(std::vector<UnitId>& group_of, std::uint32_t count) {
  std::vector<std::uint32_t> number(count, 0);
  for (const UnitId g : group_of) number[g] = 1;
  std::exclusive_scan(number.begin(), number.end(), number.begin(), 0U);
  const UnitId last = group_of.empty() ? UnitId{0} : *std::ranges::max_element(group_of);
  renumber(group_of, number);
  return group_of.empty() ? 0 : number[last] + 1;
}

// From group_of[unit] by cycles alone to the groups that are left.
std::uint32_t join_groups(const Instance& instance, std::uint32_t count,
                          std::vector<UnitId>& group_of) {
  if (!is_one_without_time(instance)) return count;
  const Instance groups = merge_ordered(instance, group_of, count);
  renumber(group_of, Joining(groups).run());
  return close_gaps(group_of, count);
}

}  // namespace

Order Condensed::spread(const Instance& instance, std::span<const UnitId> groups) const {
  std::vector<Order> members(num_units());
  for (const UnitId unit : instance.own_order) members[group_of[unit]].push_back(unit);
  std::vector<UnitId> out;
  out.reserve(instance.num_units());
  for (const UnitId group : groups) {
    out.insert(out.end(), members[group].begin(), members[group].end());
  }
  return out;
}

Condensed condense(const Instance& instance) {
  std::vector<UnitId> group_of = strong_components(instance.successors);
  const std::uint32_t cycles = close_gaps(group_of, instance.num_units());
  const std::uint32_t count = join_groups(instance, cycles, group_of);
  const UnitRows edges = between_groups(instance.successors, group_of, count);
  renumber(group_of,
           places_in(least_first_order<UnitId>(count, each_next_of(edges), by_own_number())));
  return {merge_ordered(instance, group_of, count), std::move(group_of)};
}

}  // namespace kerf::place
