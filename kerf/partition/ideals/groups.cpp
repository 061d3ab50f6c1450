// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/ideals/groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <utility>

namespace kerf::partition::ideals {
namespace {

using Lists = std::vector<std::vector<std::uint32_t>>;

std::uint32_t size_of(const auto& list) { return static_cast<std::uint32_t>(list.size()); }

void make_distinct(std::vector<std::uint32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

// successors[unit]: the order among units.
Lists find_order(const LoadProblem& problem, const UnitProblem& units) {
  std::vector<bool> has_forward(units.units.size(), false);
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    if (!problem.nodes[n].backward) has_forward[units.unit_of[n]] = true;
  }
  Lists out(units.units.size());
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    const std::uint32_t from = units.unit_of[n];
    for (const std::uint32_t next : problem.successors[n]) {
      const std::uint32_t to = units.unit_of[next];
      if (from == to) continue;
      const bool backward = problem.nodes[n].backward;
      if (backward != problem.nodes[next].backward) continue;
      if (!backward) out[from].push_back(to);
      // What runs late on the way back runs early on the way there.
      else if (!has_forward[from] || !has_forward[to])
        out[to].push_back(from);
    }
  }
  for (auto& list : out) make_distinct(list);
  return out;
}

// Tarjan's strongly connected components with an explicit stack: component[vertex].
class Components {
 public:
  explicit Components(const Lists& successors)
      : successors_(successors),
        index_(successors.size(), kFresh),
        low_(successors.size()),
        component(successors.size(), kFresh) {
    for (std::uint32_t v = 0; v < successors.size(); ++v) {
      if (index_[v] == kFresh) search(v);
    }
  }

 private:
  static constexpr std::uint32_t kFresh = ~0U;

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
      if (index_[to] == kFresh) {
        open(to);
      } else if (component[to] == kFresh) {
        lower(v, index_[to]);
      }
    }
  }

  const Lists& successors_;
  std::vector<std::uint32_t> index_;
  std::vector<std::uint32_t> low_;
  std::vector<std::uint32_t> path_;
  std::vector<std::pair<std::uint32_t, std::size_t>> calls_;
  std::uint32_t next_index_ = 0;

 public:
  std::vector<std::uint32_t> component;
  std::uint32_t count = 0;
};

std::vector<Group> sum_up(const UnitProblem& units, std::span<const std::uint32_t> group_of,
                          std::uint32_t count) {
  std::vector<Group> out(count);
  for (std::uint32_t u = 0; u < units.units.size(); ++u) {
    const LoadUnit& unit = units.units[u];
    Group& group = out[group_of[u]];
    group.accelerator_time += unit.accelerator_time;
    group.cpu_time += unit.cpu_time;
    group.bytes += unit.bytes;
    group.on_accelerator = group.on_accelerator && unit.on_accelerator;
  }
  return out;
}

// Edges among groups from edges among units.
Lists lift(const Lists& edges, std::span<const std::uint32_t> group_of, std::uint32_t count) {
  Lists out(count);
  for (std::uint32_t u = 0; u < edges.size(); ++u) {
    for (const std::uint32_t to : edges[u]) {
      if (group_of[u] != group_of[to]) out[group_of[u]].push_back(group_of[to]);
    }
  }
  for (auto& list : out) make_distinct(list);
  return out;
}

// Groups without time join their only neighbour when all their nets hold it too: on its device they
// cut nothing that was whole. Memory must not care.
class Joining {
 public:
  Joining(const UnitProblem& units, std::vector<Group> groups, const Lists& edges,
          std::span<const std::uint32_t> group_of)
      : groups_(std::move(groups)), neighbours_(groups_.size()), nets_(groups_.size()) {
    parent_.resize(groups_.size());
    std::iota(parent_.begin(), parent_.end(), 0U);
    double bytes = 0;
    for (const Group& group : groups_) bytes += group.bytes;
    memory_binds_ = bytes > units.memory;
    for (std::uint32_t g = 0; g < edges.size(); ++g) {
      for (const std::uint32_t to : edges[g]) {
        neighbours_[g].insert(to);
        neighbours_[to].insert(g);
      }
    }
    for (const LoadNet& net : units.nets) {
      std::vector<std::uint32_t> pins;
      for (const std::uint32_t unit : net.units) pins.push_back(group_of[unit]);
      make_distinct(pins);
      for (const std::uint32_t pin : pins) nets_[pin].push_back(size_of(pins_));
      pins_.push_back(std::move(pins));
    }
    run();
  }
  std::uint32_t find(std::uint32_t g) const {
    while (parent_[g] != g) g = parent_[g];
    return g;
  }

 private:
  void run() {
    std::vector<std::uint32_t> todo(groups_.size());
    std::iota(todo.begin(), todo.end(), 0U);
    while (!todo.empty()) {
      const std::uint32_t g = todo.back();
      todo.pop_back();
      if (parent_[g] != g || !can_join(g)) continue;
      const std::uint32_t to = *neighbours_[g].begin();
      parent_[g] = to;
      neighbours_[to].erase(g);
      groups_[to].bytes += groups_[g].bytes;
      todo.push_back(to);
    }
  }
  bool can_join(std::uint32_t g) const {
    const Group& group = groups_[g];
    if (group.accelerator_time > 0 || group.cpu_time > 0 || !group.on_accelerator) return false;
    if ((memory_binds_ && group.bytes > 0) || neighbours_[g].size() != 1) return false;
    const std::uint32_t to = *neighbours_[g].begin();
    return std::all_of(nets_[g].begin(), nets_[g].end(), [&](std::uint32_t net) {
      return std::any_of(pins_[net].begin(), pins_[net].end(),
                         [&](std::uint32_t pin) { return find(pin) == to; });
    });
  }

  std::vector<Group> groups_;
  std::vector<std::set<std::uint32_t>> neighbours_;
  Lists nets_;
  Lists pins_;
  std::vector<std::uint32_t> parent_;
  bool memory_binds_ = false;
};

// number[vertex] along a topological order, the least first.
std::vector<std::uint32_t> topological_numbers(const Lists& successors) {
  std::vector<std::uint32_t> missing(successors.size(), 0);
  for (const auto& list : successors) {
    for (const std::uint32_t to : list) ++missing[to];
  }
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t v = 0; v < successors.size(); ++v) {
    if (missing[v] == 0) ready.push(v);
  }
  std::vector<std::uint32_t> number(successors.size(), 0);
  std::uint32_t next = 0;
  while (!ready.empty()) {
    const std::uint32_t v = ready.top();
    ready.pop();
    number[v] = next++;
    for (const std::uint32_t to : successors[v]) {
      if (--missing[to] == 0) ready.push(to);
    }
  }
  return number;
}

void renumber(std::vector<std::uint32_t>& group_of, std::span<const std::uint32_t> number) {
  for (std::uint32_t& g : group_of) g = number[g];
}

// Numbers without gaps for the groups that are left.
std::uint32_t close_gaps(std::vector<std::uint32_t>& group_of) {
  std::vector<std::uint32_t> left = group_of;
  make_distinct(left);
  for (std::uint32_t& g : group_of) {
    g = static_cast<std::uint32_t>(std::lower_bound(left.begin(), left.end(), g) - left.begin());
  }
  return size_of(left);
}

void add_nets(Groups& out, const UnitProblem& units) {
  std::map<std::vector<std::uint32_t>, double> nets;
  for (const LoadNet& net : units.nets) {
    std::vector<std::uint32_t> pins;
    for (const std::uint32_t unit : net.units) pins.push_back(out.group_of[unit]);
    make_distinct(pins);
    if (pins.size() > 1) nets[std::move(pins)] += net.cost;
  }
  Lists pins_of;
  Lists nets_of(out.groups.size());
  for (const auto& [pins, cost] : nets) {
    for (const std::uint32_t pin : pins) nets_of[pin].push_back(size_of(pins_of));
    pins_of.push_back(pins);
    out.cost.push_back(cost);
  }
  out.nets = Rows(nets_of);
  out.pins = Rows(pins_of);
}

}  // namespace

Rows::Rows(const std::vector<std::vector<std::uint32_t>>& rows) {
  for (const auto& row : rows) {
    values_.insert(values_.end(), row.begin(), row.end());
    starts_.push_back(size_of(values_));
  }
}

double Groups::total_accelerator_time() const {
  double total = 0;
  for (const Group& group : groups) total += group.accelerator_time;
  return total;
}

Groups to_groups(const LoadProblem& problem, const UnitProblem& units) {
  const Lists order = find_order(problem, units);
  const Components components(order);
  Groups out;
  out.group_of = components.component;
  const Joining joining(units, sum_up(units, out.group_of, components.count),
                        lift(order, out.group_of, components.count), out.group_of);
  for (std::uint32_t& g : out.group_of) g = joining.find(g);
  const std::uint32_t count = close_gaps(out.group_of);
  renumber(out.group_of, topological_numbers(lift(order, out.group_of, count)));

  const Lists successors = lift(order, out.group_of, count);
  Lists predecessors(count);
  for (std::uint32_t g = 0; g < count; ++g) {
    for (const std::uint32_t to : successors[g]) predecessors[to].push_back(g);
  }
  out.groups = sum_up(units, out.group_of, count);
  out.successors = Rows(successors);
  out.predecessors = Rows(predecessors);
  // More accelerators than groups help nobody.
  out.num_accelerators = std::min(units.num_accelerators, static_cast<int>(count));
  out.has_cpu = units.has_cpu;
  out.memory = units.memory;
  add_nets(out, units);
  return out;
}

}  // namespace kerf::partition::ideals
