// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/load/load_problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "kerf/base/error.h"
#include "kerf/base/quantity.h"

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
             "edges that lead nowhere back");
    }
  }
}

}  // namespace

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
             "one each, or none");
    }
  }
  std::map<std::int64_t, const LoadNode*> by_colour;
  for (const LoadNode& node : problem.nodes) {
    check_number(node, "an accelerator time of", node.accelerator_time);
    check_number(node, "a CPU time of", node.cpu_time);
    check_number(node, "a size of", node.bytes);
    check_number(node, "a transfer cost of", node.transfer);
    const bool nowhere = (problem.num_cpus == 0 && !node.on_accelerator) ||
                         (problem.num_accelerators == 0 && problem.num_cpus == 0);
    if (nowhere) {
      refuse(fmt::format("node {} runs on CPUs alone and there are none", node.id), "a CPU");
    }
    if (node.colour == LoadNode::kNoColour) continue;
    const auto [found, fresh] = by_colour.try_emplace(node.colour, &node);
    if (!fresh && found->second->on_accelerator != node.on_accelerator && problem.num_cpus == 0) {
      refuse(fmt::format("nodes {} and {} share colour {} and no device supports both",
                         found->second->id, node.id, node.colour),
             "colour classes that one device can hold");
    }
  }
  check_acyclic(problem);
  double sum = 0;
  for (const LoadNode& node : problem.nodes) {
    sum += node.accelerator_time + node.cpu_time + node.bytes + 3 * node.transfer;
  }
  if (!std::isfinite(sum)) {
    refuse("times or sizes whose sum is too large to count", "smaller ones: use another unit");
  }
}

}  // namespace kerf
