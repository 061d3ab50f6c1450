// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/raise/form_stages.h"

#include <algorithm>
#include <map>

#include "kerf/base/topological_order.h"
#include "kerf/base/union_find.h"

namespace kerf::partition {
namespace {

// Stages as sets of units, and which of them come right after which.
class StageGraph {
 public:
  StageGraph(const std::vector<Unit>& units, const std::vector<std::size_t>& stage_of,
             std::size_t num_stages)
      : after_(num_stages), joined_(num_stages), seen_(num_stages) {
    for (std::size_t u = 0; u < units.size(); ++u) {
      for (const std::size_t before : units[u].before) {
        if (stage_of[before] != stage_of[u]) after_[stage_of[before]].push_back(stage_of[u]);
      }
    }
    for (std::vector<std::size_t>& list : after_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }

  std::size_t find(std::size_t stage) { return joined_.find(static_cast<std::uint32_t>(stage)); }

  bool is_acyclic() const {
    const auto each_next = [&](std::uint32_t stage, const auto& visit) {
      for (const std::size_t next : after_[stage]) visit(static_cast<std::uint32_t>(next));
    };
    const auto count = static_cast<std::uint32_t>(after_.size());
    return first_come_order(count, each_next).size() == count;
  }

  // Joins `b` into `a` unless a path leads from one to the other through a third. Counts its steps.
  bool join(std::size_t a, std::size_t b, std::size_t& steps) {
    if (path_through_others(a, b, steps) || path_through_others(b, a, steps)) return false;
    joined_.join_to(static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b));
    after_[a].insert(after_[a].end(), after_[b].begin(), after_[b].end());
    after_[b].clear();
    return true;
  }

 private:
  bool path_through_others(std::size_t from, std::size_t to, std::size_t& steps) {
    ++round_;
    std::vector<std::size_t> stack;
    for (const std::size_t next : after_[from]) {
      const std::size_t stage = find(next);
      if (stage != to && stage != from) stack.push_back(stage);
    }
    while (!stack.empty()) {
      const std::size_t stage = stack.back();
      stack.pop_back();
      if (stage == to) return true;
      if (seen_[stage] == round_) continue;
      seen_[stage] = round_;
      for (const std::size_t next : after_[stage]) {
        ++steps;
        stack.push_back(find(next));
      }
    }
    return false;
  }

  std::vector<std::vector<std::size_t>> after_;  // by stage; numbers as they were before joining
  UnionFind joined_;
  std::vector<std::size_t> seen_;
  std::size_t round_ = 0;
};

std::vector<std::size_t> crossings(const std::vector<Unit>& units,
                                   const std::vector<std::size_t>& order,
                                   std::span<const DeviceId> device) {
  std::vector<std::size_t> level(units.size());
  for (const std::size_t u : order) {
    for (const std::size_t before : units[u].before) {
      const std::size_t crosses = device[before] != device[u] ? 1 : 0;
      level[u] = std::max(level[u], level[before] + crosses);
    }
  }
  return level;
}

Stages collect(const std::vector<Unit>& units, const std::vector<std::size_t>& stage_of,
               std::span<const DeviceId> device) {
  Stages out;
  std::map<std::size_t, std::size_t> number;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const auto [found, fresh] = number.try_emplace(stage_of[u], out.nodes.size());
    if (fresh) {
      out.nodes.emplace_back();
      out.devices.push_back(device[u]);
    }
    std::vector<NodeId>& nodes = out.nodes[found->second];
    nodes.insert(nodes.end(), units[u].nodes.begin(), units[u].nodes.end());
  }
  return out;
}

}  // namespace

Stages form_stages(const std::vector<Unit>& units, const std::vector<std::size_t>& order,
                   std::span<const DeviceId> device) {
  std::size_t num_devices = 0;
  std::vector<std::size_t> stage_of(units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    stage_of[u] = device[u].index();
    num_devices = std::max(num_devices, stage_of[u] + 1);
  }
  if (StageGraph(units, stage_of, num_devices).is_acyclic()) {
    return collect(units, stage_of, device);
  }

  const std::vector<std::size_t> level = crossings(units, order, device);
  // By device and level: the stages of one device, first to last, follow each other.
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> numbers;
  for (std::size_t u = 0; u < units.size(); ++u) numbers[{device[u].index(), level[u]}] = 0;
  std::size_t count = 0;
  for (auto& [key, number] : numbers) number = count++;
  for (std::size_t u = 0; u < units.size(); ++u) {
    stage_of[u] = numbers[{device[u].index(), level[u]}];
  }
  StageGraph graph(units, stage_of, count);
  constexpr std::size_t kMostSteps = 20'000'000;
  std::size_t steps = 0;
  auto last = numbers.begin();
  for (auto next = std::next(last); next != numbers.end() && steps < kMostSteps; ++next) {
    const bool same_device = next->first.first == last->first.first;
    if (same_device && graph.join(graph.find(last->second), next->second, steps)) continue;
    last = next;
  }
  for (std::size_t& stage : stage_of) stage = graph.find(stage);
  return collect(units, stage_of, device);
}

Stages form_short_stages(const std::vector<Unit>& units, const std::vector<std::size_t>& order,
                         std::span<const DeviceId> device) {
  std::vector<bool> sends(units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (const std::size_t before : units[u].before) {
      if (device[before] != device[u]) sends[before] = true;
    }
  }
  constexpr std::size_t kClosed = static_cast<std::size_t>(-1);
  std::map<DeviceId, std::size_t> open;  // the stage that a device's next unit would join
  std::vector<std::size_t> stage_of(units.size());
  std::size_t count = 0;
  for (const std::size_t u : order) {
    const bool receives =
        std::any_of(units[u].before.begin(), units[u].before.end(),
                    [&](std::size_t before) { return device[before] != device[u]; });
    std::size_t& stage = open.try_emplace(device[u], kClosed).first->second;
    if (receives || stage == kClosed) stage = count++;
    stage_of[u] = stage;
    if (sends[u]) stage = kClosed;
  }
  return collect(units, stage_of, device);
}

}  // namespace kerf::partition
