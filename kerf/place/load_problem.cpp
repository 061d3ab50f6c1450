// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/load_problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "kerf/base/error.h"
#include "kerf/base/quantity.h"
#include "kerf/place/lower_load.h"

namespace kerf {
namespace {

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::invalid_graph,
              fmt::format("[plan.load_problem] {}; expected {}", found, expected));
}

void check_number(const LoadNode& node, std::string_view what, double value) {
  if (is_quantity(value)) return;
  refuse(fmt::format("node {} has {} {}", node.id, what, value), kQuantityText);
}

void check_has_device(const LoadProblem& problem, const LoadNode& node) {
  if (!node.on_accelerator && !node.on_cpu) {
    refuse(fmt::format("node {} runs neither on accelerators nor on CPUs", node.id),
           "at least one kind of device for every node");
  }
  if (problem.num_cpus == 0 && !node.on_accelerator) {
    refuse(fmt::format("node {} runs only on CPUs and there are none", node.id), "a CPU");
  }
  if (problem.num_accelerators == 0 && !node.on_cpu) {
    refuse(fmt::format("node {} runs only on accelerators and there are none", node.id),
           "an accelerator");
  }
}

// A colour class needs a kind of device that runs all of it.
void check_colours(const LoadProblem& problem) {
  struct Seen {
    const LoadNode* cpu_only = nullptr;
    const LoadNode* accelerator_only = nullptr;
  };
  std::map<std::int64_t, Seen> by_colour;
  for (const LoadNode& node : problem.nodes) {
    if (node.colour == LoadNode::kNoColour) continue;
    Seen& seen = by_colour[node.colour];
    if (!node.on_accelerator) seen.cpu_only = &node;
    if (!node.on_cpu) seen.accelerator_only = &node;
    if (seen.cpu_only == nullptr || seen.accelerator_only == nullptr) continue;
    refuse(fmt::format("nodes {} and {} share colour {} and no device supports both",
                       seen.cpu_only->id, seen.accelerator_only->id, node.colour),
           "colour classes that one device can hold");
  }
}

// Depth first with an explicit stack; the first cycle met is printed by ids.
void check_acyclic(const LoadProblem& problem) {
  enum class State : std::uint8_t { fresh, open, done };
  std::vector<State> state(problem.nodes.size(), State::fresh);
  std::vector<std::pair<std::uint32_t, std::size_t>> stack;
  for (std::uint32_t start = 0; start < problem.nodes.size(); ++start) {
    if (state[start] == State::fresh) stack.emplace_back(start, 0);
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      state[n] = State::open;
      if (next == problem.successors[n].size()) {
        state[n] = State::done;
        stack.pop_back();
        continue;
      }
      const std::uint32_t to = problem.successors[n][next++];
      if (state[to] == State::fresh) stack.emplace_back(to, 0);
      if (state[to] != State::open) continue;
      std::vector<std::int64_t> cycle;
      bool inside = false;
      for (const auto& [open, unused] : stack) {
        inside = inside || open == to;
        if (inside) cycle.push_back(problem.nodes[open].id);
      }
      cycle.push_back(problem.nodes[to].id);
      refuse(fmt::format("the nodes {} form a cycle", fmt::join(cycle, " -> ")),
             "edges without a cycle");
    }
  }
}

}  // namespace

double LoadProblem::memory_of(SlotId device) const {
  if (device == cpu()) return cpu_memory;
  return memories.empty() ? memory : memories[device];
}

double LoadProblem::time_on(const LoadNode& node, SlotId device) const {
  if (device == cpu()) return node.cpu_time;
  return node.accelerator_time * (slowness.empty() ? 1 : slowness[device]);
}

void check_load_problem(const LoadProblem& problem) {
  if (problem.num_accelerators < 0 || problem.num_cpus < 0 ||
      problem.num_accelerators + problem.num_cpus == 0) {
    refuse(fmt::format("{} accelerators and {} CPUs", problem.num_accelerators, problem.num_cpus),
           "at least one device");
  }
  if (std::isnan(problem.memory) || problem.memory < 0) {
    refuse(fmt::format("a memory of {} for each accelerator", problem.memory), "a number from 0");
  }
  if (problem.nodes.empty()) refuse("no nodes", "at least one: there is nothing to place");
  const auto accelerators = static_cast<std::size_t>(problem.num_accelerators);
  for (const std::vector<double>* list : {&problem.slowness, &problem.memories}) {
    if (!list->empty() && list->size() != accelerators) {
      refuse(fmt::format("{} figures for {} accelerators", list->size(), accelerators),
             "one per accelerator, or none");
    }
  }
  for (const LoadNode& node : problem.nodes) {
    check_number(node, "an accelerator time of", node.accelerator_time);
    check_number(node, "a CPU time of", node.cpu_time);
    check_number(node, "a size of", node.bytes);
    check_number(node, "a transfer cost of", node.transfer);
    check_has_device(problem, node);
  }
  check_colours(problem);
  check_acyclic(problem);
  double sum = 0;
  for (const LoadNode& node : problem.nodes) {
    sum += node.accelerator_time + node.cpu_time + node.bytes + 3 * node.transfer;
  }
  if (!std::isfinite(sum)) {
    refuse("times or sizes whose sum is too large to count", "smaller ones: use another unit");
  }
}

void forbid_large_times(LoadProblem& problem) {
  if (problem.num_accelerators == 0 || problem.num_cpus == 0) return;  // there is no choice
  const place::LoweredLoad lowered = place::lower_load(problem);
  const double fastest = problem.slowness.empty()
                             ? 1
                             : *std::min_element(problem.slowness.begin(), problem.slowness.end());
  std::vector<place::Unit> units;
  double best = 0;
  for (UnitId t{0}; t < lowered.instance.num_units(); ++t) {
    place::Unit& unit = units.emplace_back(lowered.instance.unit(t));
    unit.accelerator_time *= fastest;
    best += !unit.on_cpu           ? unit.accelerator_time
            : !unit.on_accelerator ? unit.cpu_time
                                   : std::min(unit.accelerator_time, unit.cpu_time);
  }
  if (!(best > 0)) return;  // nothing to compare with
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    const place::Unit& unit = units[lowered.unit_of[n]];
    LoadNode& node = problem.nodes[n];
    if (unit.on_cpu && unit.accelerator_time / best > kForbiddenTime) node.on_accelerator = false;
    if (unit.on_accelerator && unit.cpu_time / best > kForbiddenTime) node.on_cpu = false;
  }
}

}  // namespace kerf
