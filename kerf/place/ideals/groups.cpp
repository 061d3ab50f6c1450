// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/ideals/groups.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>

namespace kerf::place::ideals {
namespace {

std::uint32_t size_of(const auto& list) { return static_cast<std::uint32_t>(list.size()); }

// unit_of[node], numbered as to_units does, without the nets that only units need.
std::vector<std::uint32_t> number_units(const LoadProblem& problem) {
  std::unordered_map<std::int64_t, std::uint32_t> by_colour;
  std::vector<std::uint32_t> out;
  out.reserve(problem.nodes.size());
  std::uint32_t count = 0;
  for (const LoadNode& node : problem.nodes) {
    std::uint32_t number = count;
    if (node.colour != LoadNode::kNoColour) {
      number = by_colour.try_emplace(node.colour, count).first->second;
    }
    if (number == count) ++count;
    out.push_back(number);
  }
  return out;
}

// Edges that order the units.
Pairs find_order(const LoadProblem& problem, std::span<const std::uint32_t> unit_of,
                 std::uint32_t num_units) {
  std::vector<bool> has_forward(num_units, false);
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    if (!problem.nodes[n].backward) has_forward[unit_of[n]] = true;
  }
  Pairs out;
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    const std::uint32_t from = unit_of[n];
    for (const std::uint32_t next : problem.successors[n]) {
      const std::uint32_t to = unit_of[next];
      if (from == to) continue;
      const bool backward = problem.nodes[n].backward;
      if (backward != problem.nodes[next].backward) continue;
      if (!backward) out.emplace_back(from, to);
      // What runs late on the way back runs early on the way there.
      else if (!has_forward[from] || !has_forward[to])
        out.emplace_back(to, from);
    }
  }
  return out;
}

// Tarjan's strongly connected components with an explicit stack: component[vertex].
class Components {
 public:
  explicit Components(const Rows& successors)
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

std::vector<Group> sum_up(const LoadProblem& problem, std::span<const std::uint32_t> group_of_node,
                          std::uint32_t count) {
  std::vector<Group> out(count);
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    const LoadNode& node = problem.nodes[n];
    Group& group = out[group_of_node[n]];
    group.accelerator_time += node.accelerator_time;
    group.cpu_time += node.cpu_time;
    group.bytes += node.bytes;
    group.on_accelerator = group.on_accelerator && node.on_accelerator;
    group.on_cpu = group.on_cpu && node.on_cpu;
  }
  return out;
}

// Edges among groups from edges among units.
Rows lift(const Pairs& edges, std::span<const std::uint32_t> group_of, std::uint32_t count) {
  Pairs out;
  out.reserve(edges.size());
  for (const auto& [from, to] : edges) {
    if (group_of[from] != group_of[to]) out.emplace_back(group_of[from], group_of[to]);
  }
  return to_rows(count, out);
}

struct Nets {
  Rows pins;                          // by net, distinct, ascending, at least two
  std::vector<std::uint32_t> source;  // by net
  std::vector<double> cost;           // by net
};

Nets find_nets(const LoadProblem& problem, std::span<const std::uint32_t> group_of_node) {
  Nets out;
  std::vector<std::uint32_t> pins;
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    if (problem.nodes[n].transfer <= 0) continue;
    pins.assign(1, group_of_node[n]);
    for (const std::uint32_t next : problem.successors[n]) pins.push_back(group_of_node[next]);
    std::sort(pins.begin(), pins.end());
    pins.erase(std::unique(pins.begin(), pins.end()), pins.end());
    if (pins.size() < 2) continue;
    out.pins.append(pins);
    out.source.push_back(group_of_node[n]);
    out.cost.push_back(problem.nodes[n].transfer);
  }
  return out;
}

// Nets with the same pins are one, their costs added; where the maker does not pay as the others
// do, those of one maker.
Nets merge_equals(const Nets& nets, Charging charging) {
  const bool by_source = charging == Charging::link;
  std::vector<std::uint32_t> sorted(nets.cost.size());
  std::iota(sorted.begin(), sorted.end(), 0U);
  const auto is_before = [&](std::uint32_t a, std::uint32_t b) {
    const auto left = nets.pins[a];
    const auto right = nets.pins[b];
    if (left.front() != right.front()) return left.front() < right.front();
    const auto order = std::lexicographical_compare_three_way(left.begin(), left.end(),
                                                              right.begin(), right.end());
    if (order != 0) return order < 0;
    return by_source && nets.source[a] < nets.source[b];
  };
  std::stable_sort(sorted.begin(), sorted.end(), is_before);
  Nets out;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::uint32_t net = sorted[i];
    if (i > 0 && !is_before(sorted[i - 1], net)) {
      out.cost.back() += nets.cost[net];
      continue;
    }
    out.pins.append(nets.pins[net]);
    out.source.push_back(nets.source[net]);
    out.cost.push_back(nets.cost[net]);
  }
  return out;
}

// Groups without time join their only neighbour when all their nets hold it too: on its device they
// cut nothing that was whole. Where only readers pay, nobody else may read what they make, or a
// reader that had it at home would come to pay. Memory must not care.
class Joining {
 public:
  Joining(const LoadProblem& problem, std::vector<Group> groups, const Rows& successors,
          const Nets& nets)
      : groups_(std::move(groups)),
        successors_(successors),
        predecessors_(transpose(successors, successors.size())),
        net_(nets),
        nets_(transpose(nets.pins, size_of(groups_))),
        is_link_(problem.charging == Charging::link) {
    parent_.resize(groups_.size());
    std::iota(parent_.begin(), parent_.end(), 0U);
    double bytes = 0;
    for (const Group& group : groups_) bytes += group.bytes;
    for (std::uint32_t d = 0; d < problem.num_devices(); ++d) {
      memory_binds_ = memory_binds_ || bytes > problem.memory_of(d);
    }
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      num_neighbours_.push_back(successors_[g].size() + predecessors_[g].size());
    }
    run();
  }
  static bool takes_no_time(const Group& group) {
    return group.accelerator_time <= 0 && group.cpu_time <= 0 && group.on_accelerator &&
           group.on_cpu;
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
      const std::uint32_t to = only_neighbour(g);
      parent_[g] = to;
      --num_neighbours_[to];
      groups_[to].bytes += groups_[g].bytes;
      todo.push_back(to);
    }
  }
  // The others have joined it: who joins has no neighbour else.
  std::uint32_t only_neighbour(std::uint32_t g) const {
    for (const Rows* rows : {&successors_, &predecessors_}) {
      for (const std::uint32_t other : (*rows)[g]) {
        if (parent_[other] == other) return other;
      }
    }
    return g;
  }
  bool can_join(std::uint32_t g) const {
    const Group& group = groups_[g];
    if (!takes_no_time(group)) return false;
    if ((memory_binds_ && group.bytes > 0) || num_neighbours_[g] != 1) return false;
    const std::uint32_t to = only_neighbour(g);
    // Nets of what joined g before hold g too.
    const auto nets = nets_[g];
    return std::all_of(nets.begin(), nets.end(),
                       [&](std::uint32_t net) { return allows(net, g, to); });
  }
  bool allows(std::uint32_t net, std::uint32_t g, std::uint32_t to) const {
    const auto pins = net_.pins[net];
    const auto is_at_home = [&](std::uint32_t pin) { return find(pin) == to; };
    if (is_link_ && find(net_.source[net]) == g) {
      return std::all_of(pins.begin(), pins.end(),
                         [&](std::uint32_t pin) { return find(pin) == g || is_at_home(pin); });
    }
    return std::any_of(pins.begin(), pins.end(), is_at_home);
  }

  std::vector<Group> groups_;
  const Rows& successors_;
  Rows predecessors_;
  const Nets& net_;
  Rows nets_;
  bool is_link_;
  std::vector<std::size_t> num_neighbours_;
  std::vector<std::uint32_t> parent_;
  bool memory_binds_ = false;
};

// number[vertex] along a topological order, the least first.
std::vector<std::uint32_t> topological_numbers(const Rows& successors) {
  std::vector<std::uint32_t> missing(successors.size(), 0);
  for (std::uint32_t v = 0; v < successors.size(); ++v) {
    for (const std::uint32_t to : successors[v]) ++missing[to];
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
std::uint32_t close_gaps(std::vector<std::uint32_t>& group_of, std::uint32_t count) {
  std::vector<std::uint32_t> number(count, 0);
  for (const std::uint32_t g : group_of) number[g] = 1;
  std::exclusive_scan(number.begin(), number.end(), number.begin(), 0U);
  const std::uint32_t last = group_of.empty() ? 0 : *std::ranges::max_element(group_of);
  renumber(group_of, number);
  return group_of.empty() ? 0 : number[last] + 1;
}

std::vector<std::uint32_t> compose(std::span<const std::uint32_t> unit_of,
                                   std::span<const std::uint32_t> group_of) {
  std::vector<std::uint32_t> out;
  out.reserve(unit_of.size());
  for (const std::uint32_t unit : unit_of) out.push_back(group_of[unit]);
  return out;
}

// From group_of[unit] by cycles alone to the groups that are searched.
std::uint32_t join_groups(const LoadProblem& problem, const Pairs& order, std::uint32_t count,
                          std::span<const std::uint32_t> unit_of,
                          std::vector<std::uint32_t>& group_of) {
  const std::vector<std::uint32_t> of_node = compose(unit_of, group_of);
  std::vector<Group> groups = sum_up(problem, of_node, count);
  if (std::ranges::none_of(groups, Joining::takes_no_time)) return count;
  const Rows successors = lift(order, group_of, count);
  const Nets nets = find_nets(problem, of_node);
  const Joining joining(problem, std::move(groups), successors, nets);
  for (std::uint32_t& g : group_of) g = joining.find(g);
  return close_gaps(group_of, count);
}

}  // namespace

double Groups::total_accelerator_time() const {
  double total = 0;
  for (const Group& group : groups) total += group.accelerator_time;
  return total;
}

double Groups::greatest_slowness() const {
  double out = 0;
  for (const DeviceClass& device : classes) {
    if (!device.is_cpu) out = std::max(out, device.slowness);
  }
  return out > 0 ? out : 1;
}

Groups to_groups(const LoadProblem& problem) {
  Groups out;
  out.unit_of = number_units(problem);
  const std::uint32_t num_units =
      out.unit_of.empty() ? 0 : *std::ranges::max_element(out.unit_of) + 1;
  const Pairs order = find_order(problem, out.unit_of, num_units);
  const Rows unit_order = to_rows(num_units, order);
  const Components components(unit_order);
  out.group_of = components.component;
  const std::uint32_t count =
      join_groups(problem, order, components.count, out.unit_of, out.group_of);
  renumber(out.group_of, topological_numbers(lift(order, out.group_of, count)));

  const std::vector<std::uint32_t> of_node = compose(out.unit_of, out.group_of);
  out.groups = sum_up(problem, of_node, count);
  out.successors = lift(order, out.group_of, count);
  out.predecessors = transpose(out.successors, count);
  out.classes = find_classes(problem, out.groups);
  out.charging = problem.charging;
  Nets nets = merge_equals(find_nets(problem, of_node), problem.charging);
  out.nets = transpose(nets.pins, count);
  out.pins = std::move(nets.pins);
  out.source = std::move(nets.source);
  out.cost = std::move(nets.cost);
  return out;
}

}  // namespace kerf::place::ideals
