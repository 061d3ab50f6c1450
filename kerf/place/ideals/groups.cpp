// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/ideals/groups.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "kerf/base/topological_order.h"

namespace kerf::place::ideals {
namespace {

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

std::vector<Task> sum_up(const Instance& instance, std::span<const std::uint32_t> group_of,
                         std::uint32_t count) {
  std::vector<Task> out(count);
  for (std::uint32_t t = 0; t < instance.num_tasks(); ++t) out[group_of[t]].join(instance.task(t));
  return out;
}

// Edges among groups from edges among tasks.
Rows lift(const Rows& successors, std::span<const std::uint32_t> group_of, std::uint32_t count) {
  Pairs out;
  out.reserve(successors.num_values());
  for (std::uint32_t from = 0; from < successors.size(); ++from) {
    for (const std::uint32_t to : successors[from]) {
      if (group_of[from] != group_of[to]) out.emplace_back(group_of[from], group_of[to]);
    }
  }
  return to_rows(count, out);
}

struct Nets {
  Rows pins;                          // by net, groups, distinct, at least two
  std::vector<std::uint32_t> source;  // by net
};

Nets lift_nets(const Instance& instance, std::span<const std::uint32_t> group_of) {
  Nets out;
  std::vector<std::uint32_t> pins;
  for (std::uint32_t net = 0; net < instance.num_nets(); ++net) {
    pins.clear();
    for (const std::uint32_t t : instance.pins[net]) pins.push_back(group_of[t]);
    std::sort(pins.begin(), pins.end());
    pins.erase(std::unique(pins.begin(), pins.end()), pins.end());
    if (pins.size() < 2) continue;
    out.pins.append(pins);
    out.source.push_back(group_of[instance.source[net]]);
  }
  return out;
}

// Groups without time join their only neighbour when all their nets hold it too: on its device they
// cut nothing that was whole. Where only readers pay, nobody else may read what they make, or a
// reader that had it at home would come to pay. Memory must not care.
class Joining {
 public:
  Joining(const Devices& devices, std::vector<Task> groups, const Rows& successors,
          const Nets& nets)
      : groups_(std::move(groups)),
        successors_(successors),
        predecessors_(transpose(successors, successors.size())),
        net_(nets),
        nets_(transpose(nets.pins, successors.size())),
        is_link_(devices.charging == Charging::link) {
    parent_.resize(groups_.size());
    std::iota(parent_.begin(), parent_.end(), 0U);
    double bytes = 0;
    for (const Task& group : groups_) bytes += group.bytes;
    for (const double memory : devices.memory) memory_binds_ = memory_binds_ || bytes > memory;
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      num_neighbours_.push_back(successors_[g].size() + predecessors_[g].size());
    }
    run();
  }
  static bool takes_no_time(const Task& group) {
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
    const Task& group = groups_[g];
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

  std::vector<Task> groups_;
  const Rows& successors_;
  Rows predecessors_;
  const Nets& net_;
  Rows nets_;
  bool is_link_;
  std::vector<std::size_t> num_neighbours_;
  std::vector<std::uint32_t> parent_;
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

// From group_of[task] by cycles alone to the groups that are searched.
std::uint32_t join_groups(const Instance& instance, std::uint32_t count,
                          std::vector<std::uint32_t>& group_of) {
  std::vector<Task> groups = sum_up(instance, group_of, count);
  if (std::ranges::none_of(groups, Joining::takes_no_time)) return count;
  const Rows successors = lift(instance.successors, group_of, count);
  const Nets nets = lift_nets(instance, group_of);
  const Joining joining(instance, std::move(groups), successors, nets);
  for (std::uint32_t& g : group_of) g = joining.find(g);
  return close_gaps(group_of, count);
}

}  // namespace

double Groups::greatest_slowness() const {
  double out = 0;
  for (const DeviceClass& device : classes) {
    if (!device.is_cpu) out = std::max(out, device.slowness);
  }
  return out > 0 ? out : 1;
}

Groups to_groups(const Instance& instance) {
  const Components components(instance.successors);
  std::vector<std::uint32_t> group_of = components.component;
  const std::uint32_t count = join_groups(instance, components.count, group_of);
  const Rows edges = lift(instance.successors, group_of, count);
  renumber(group_of, places_in(least_first_order(count, each_next_of(edges), by_own_number())));
  Groups out{merge(instance, group_of, count), {}, {}};
  out.successors = lift(instance.successors, group_of, count);
  out.predecessors = transpose(out.successors, count);
  out.classes = find_classes(out);
  out.group_of = std::move(group_of);
  return out;
}

}  // namespace kerf::place::ideals
