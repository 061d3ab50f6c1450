// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/order/condense.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kerf/base/infinity.h"
#include "kerf/base/topological_order.h"
#include "kerf/base/union_find.h"

namespace kerf::place {
namespace {

// Tarjan's strongly connected components with an explicit stack: component[vertex].
class Components {
 public:
  explicit Components(const Rows& successors)
      : successors_(successors),
        index_(successors.size(), kNoIndex),
        low_(successors.size()),
        component(successors.size(), kNoIndex) {
    for (std::uint32_t v = 0; v < successors.size(); ++v) {
      if (index_[v] == kNoIndex) search(v);
    }
  }

 private:
  void open(std::uint32_t v) {
    index_[v] = low_[v] = next_index_++;
    path_.push_back(v);
    calls_.emplace_back(v, 0);
  }
  void close(std::uint32_t v) {
    if (low_[v] == index_[v]) {
      std::uint32_t member = 0;
      do {
        member = path_.back();
        path_.pop_back();
        component[member] = count;
      } while (member != v);
      ++count;
    }
    calls_.pop_back();
    if (!calls_.empty()) lower(calls_.back().first, low_[v]);
  }
  void lower(std::uint32_t v, std::uint32_t to) { low_[v] = std::min(low_[v], to); }
  void search(std::uint32_t root) {
    open(root);
    while (!calls_.empty()) {
      auto& [v, next] = calls_.back();
      if (next == successors_[v].size()) {
        close(v);
        continue;
      }
      const std::uint32_t to = successors_[v][next++];
      if (index_[to] == kNoIndex) {
        open(to);
      } else if (component[to] == kNoIndex) {
        lower(v, index_[to]);
      }
    }
  }

  const Rows& successors_;
  std::vector<std::uint32_t> index_;
  std::vector<std::uint32_t> low_;
  std::vector<std::uint32_t> path_;
  std::vector<std::pair<std::uint32_t, std::size_t>> calls_;
  std::uint32_t next_index_ = 0;

 public:
  std::vector<std::uint32_t> component;
  std::uint32_t count = 0;
};

Rows edges_among(const Instance& instance, std::span<const std::uint32_t> group_of,
                 std::uint32_t count) {
  Pairs edges;
  edges.reserve(instance.successors.num_values());
  for (std::uint32_t from = 0; from < instance.num_units(); ++from) {
    for (const std::uint32_t to : instance.successors[from]) {
      if (group_of[from] != group_of[to]) edges.emplace_back(group_of[from], group_of[to]);
    }
  }
  return to_rows(count, edges);
}

Instance merge_with_edges(const Instance& instance, std::span<const std::uint32_t> group_of,
                          std::uint32_t count) {
  Instance out = merge(instance, group_of, count);
  out.successors = edges_among(instance, group_of, count);
  out.predecessors = transpose(out.successors, count);
  return out;
}

bool takes_no_time(const Instance& instance, std::uint32_t t) {
  const Unit unit = instance.unit(t);
  return unit.accelerator_time <= 0 && unit.cpu_time <= 0 && unit.on_accelerator && unit.on_cpu;
}

bool is_one_without_time(const Instance& instance) {
  for (std::uint32_t t = 0; t < instance.num_units(); ++t) {
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
    for (std::uint32_t g = 0; g < groups.num_units(); ++g) {
      num_neighbours_.push_back(groups.successors.length(g) + groups.predecessors.length(g));
    }
  }
  // By group, the one that it has joined.
  std::vector<std::uint32_t> run() {
    std::vector<std::uint32_t> todo(groups_.num_units());
    std::iota(todo.begin(), todo.end(), 0U);
    std::vector<std::uint32_t> joined = todo;
    while (!todo.empty()) {
      const std::uint32_t g = todo.back();
      todo.pop_back();
      if (!is_left(g) || !can_join(g)) continue;
      const std::uint32_t to = only_neighbour(g);
      sets_.join_to(to, g);
      --num_neighbours_[to];
      bytes_[to] += bytes_[g];
      todo.push_back(to);
    }
    for (std::uint32_t& g : joined) g = sets_.find(g);
    return joined;
  }

 private:
  bool is_left(std::uint32_t g) { return sets_.find(g) == g; }
  // The others have joined it: who joins has no neighbour else.
  std::uint32_t only_neighbour(std::uint32_t g) {
    for (const Rows* rows : {&groups_.successors, &groups_.predecessors}) {
      for (const std::uint32_t other : (*rows)[g]) {
        if (is_left(other)) return other;
      }
    }
    return g;
  }
  bool can_join(std::uint32_t g) {
    if (!takes_no_time(groups_, g)) return false;
    if ((memory_binds_ && bytes_[g] > 0) || num_neighbours_[g] != 1) return false;
    const std::uint32_t to = only_neighbour(g);
    // Nets of what joined g before hold g too.
    return std::ranges::all_of(groups_.nets[g],
                               [&](std::uint32_t net) { return allows(net, g, to); });
  }
  bool allows(std::uint32_t net, std::uint32_t g, std::uint32_t to) {
    const auto pins = groups_.pins[net];
    const auto is_at_home = [&](std::uint32_t pin) { return sets_.find(pin) == to; };
    if (groups_.charging == Charging::link && sets_.find(groups_.source[net]) == g) {
      return std::ranges::all_of(
          pins, [&](std::uint32_t pin) { return sets_.find(pin) == g || is_at_home(pin); });
    }
    return std::ranges::any_of(pins, is_at_home);
  }

  const Instance& groups_;
  UnionFind sets_;
  std::vector<double> bytes_;  // by group, with those that joined it
  std::vector<std::uint32_t> num_neighbours_;
  bool memory_binds_ = false;
};

void renumber(std::vector<std::uint32_t>& group_of, std::span<const std::uint32_t> number) {
  for (std::uint32_t& g : group_of) g = number[g];
}

// Numbers without gaps for the groups that are left.
std::uint32_t close_gaps(std::vector<std::uint32_t>& group_of, std::uint32_t count) {
  std::vector<std::uint32_t> number(count, 0);
  for (const std::uint32_t g : group_of) number[g] = 1;
  std::exclusive_scan(number.begin(), number.end(), number.begin(), 0U);
  const std::uint32_t last = group_of.empty() ? 0 : *std::ranges::max_element(group_of);
  renumber(group_of, number);
  return group_of.empty() ? 0 : number[last] + 1;
}

// From group_of[unit] by cycles alone to the groups that are left.
std::uint32_t join_groups(const Instance& instance, std::uint32_t count,
                          std::vector<std::uint32_t>& group_of) {
  if (!is_one_without_time(instance)) return count;
  const Instance groups = merge_with_edges(instance, group_of, count);
  renumber(group_of, Joining(groups).run());
  return close_gaps(group_of, count);
}

}  // namespace

std::vector<std::uint32_t> Condensed::spread(const Instance& instance,
                                             std::span<const std::uint32_t> groups) const {
  std::vector<std::vector<std::uint32_t>> members(num_units());
  for (const std::uint32_t unit : instance.own_order) members[group_of[unit]].push_back(unit);
  std::vector<std::uint32_t> out;
  out.reserve(instance.num_units());
  for (const std::uint32_t group : groups) {
    out.insert(out.end(), members[group].begin(), members[group].end());
  }
  return out;
}

Condensed condense(const Instance& instance) {
  const Components components(instance.successors);
  std::vector<std::uint32_t> group_of = components.component;
  const std::uint32_t count = join_groups(instance, components.count, group_of);
  const Rows edges = edges_among(instance, group_of, count);
  renumber(group_of, places_in(least_first_order(count, each_next_of(edges), by_own_number())));
  return {merge_with_edges(instance, group_of, count), std::move(group_of)};
}

}  // namespace kerf::place
