// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/mincut/cut_problem.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace kerf::partition {
namespace {

// What no useful load reaches: keeps sums small when a single time is absurd next to the rest.
constexpr double kLargest = 1099511627776.0 * 64;  // 2^46

Flow round_down(double time, double per_one) {
  return static_cast<Flow>(std::floor(std::min(time * per_one, kLargest)));
}

void add_classes(const UnitProblem& problem, CutProblem& out) {
  const std::uint32_t count =
      out.group.empty() ? 0 : *std::max_element(out.group.begin(), out.group.end()) + 1;
  std::vector<double> compute(count, 0);
  std::vector<double> cpu(count, 0);
  out.bytes.assign(count, 0);
  out.accelerable.assign(count, 1);
  for (std::size_t u = 0; u < problem.units.size(); ++u) {
    const LoadUnit& unit = problem.units[u];
    const std::uint32_t c = out.group[u];
    compute[c] += unit.accelerator_time;
    cpu[c] += unit.cpu_time;
    out.bytes[c] += unit.bytes;
    if (!unit.on_accelerator) out.accelerable[c] = 0;
  }
  for (std::uint32_t c = 0; c < count; ++c) {
    out.compute.push_back(round_down(compute[c], out.per_one));
    out.cpu.push_back(round_down(cpu[c], out.per_one));
    out.total_compute += out.compute[c];
    out.by_compute.push_back(c);
  }
  std::stable_sort(
      out.by_compute.begin(), out.by_compute.end(),
      [&](std::uint32_t a, std::uint32_t b) { return out.compute[a] < out.compute[b]; });
}

void add_nets(const UnitProblem& problem, CutProblem& out) {
  std::map<std::vector<std::uint32_t>, double> nets;
  for (const LoadNet& net : problem.nets) {
    std::vector<std::uint32_t> pins;
    for (const std::uint32_t unit : net.units) pins.push_back(out.group[unit]);
    std::sort(pins.begin(), pins.end());
    pins.erase(std::unique(pins.begin(), pins.end()), pins.end());
    if (pins.size() > 1) nets[std::move(pins)] += net.cost;
  }
  for (const auto& [pins, cost] : nets) {
    const Flow rounded = round_down(cost, out.per_one);
    if (rounded > 0) out.nets.push_back({pins, rounded});
  }
}

// A net of two is one arc each way. A larger one gets two nodes of its own (Lawler 1973): flow
// leaves its classes into the first, passes `cost`, and leaves the second for its classes.
void add_arcs(CutProblem& out) {
  out.graph = FlowGraph(out.num_classes());
  for (const CutProblem::Net& net : out.nets) {
    if (net.classes.size() == 2) {
      out.graph.add_arc(net.classes[0], net.classes[1], net.cost, net.cost);
      continue;
    }
    const std::uint32_t in = out.graph.add_node();
    const std::uint32_t back = out.graph.add_node();
    out.graph.add_arc(in, back, net.cost, 0);
    for (const std::uint32_t c : net.classes) {
      out.graph.add_arc(c, in, kEndless, 0);
      out.graph.add_arc(back, c, kEndless, 0);
    }
  }
  out.graph.freeze();
}

}  // namespace

CutProblem::CutProblem(const UnitProblem& problem, std::span<const std::uint32_t> groups,
                       double scale)
    : per_one(scale),
      num_accelerators(problem.num_accelerators),
      has_cpu(problem.has_cpu),
      memory(problem.memory),
      group(groups.begin(), groups.end()) {
  add_classes(problem, *this);
  add_nets(problem, *this);
  add_arcs(*this);
}

Flow CutProblem::to_limit(double time) const {
  return static_cast<Flow>(std::ceil(std::min(time * per_one, kLargest)));
}

std::vector<std::uint32_t> single_groups(const UnitProblem& problem) {
  std::vector<std::uint32_t> group(problem.units.size());
  std::iota(group.begin(), group.end(), 0U);
  return group;
}

double scale_for(double time) { return time > 0 && std::isfinite(time) ? 0x1p40 / time : 1; }

MaxFlow load_network(const CutProblem& problem) {
  MaxFlow flow(problem.graph);
  for (std::uint32_t c = 0; c < problem.num_classes(); ++c) {
    flow.add_sink(c, problem.compute[c]);
  }
  return flow;
}

}  // namespace kerf::partition
