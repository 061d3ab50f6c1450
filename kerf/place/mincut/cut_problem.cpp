// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/mincut/cut_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kerf::place {
namespace {

// What no useful load reaches: keeps sums small when a single time is absurd next to the rest.
constexpr double kLargest = 0x1p43;

Flow round_down(double time, double per_one) {
  const double whole = time > 0 ? time * per_one : 0;  // not 0 x infinity
  return static_cast<Flow>(std::floor(std::min(whole, kLargest)));
}

std::vector<Flow> round_down(const std::vector<double>& times, double factor) {
  std::vector<Flow> out;
  out.reserve(times.size());
  for (const double time : times) out.push_back(round_down(time, factor));
  return out;
}

// What no accelerator takes below the largest load is no part of the work that they share out: as
// large as it is, it would drown what is.
std::vector<Flow> shared_compute(const std::vector<Flow>& fastest,
                                 const std::vector<std::uint8_t>& accelerable) {
  std::vector<Flow> out;
  out.reserve(fastest.size());
  for (std::size_t c = 0; c < fastest.size(); ++c) {
    const bool shared = accelerable[c] != 0 && fastest[c] < static_cast<Flow>(kLargest);
    out.push_back(shared ? fastest[c] : 0);
  }
  return out;
}

// An accelerator and how slow it is.
struct Speed {
  double slowness = 1;
  double memory = 0;
  std::uint32_t device = 0;
  bool is_like(const Speed& other) const {
    return slowness == other.slowness && memory == other.memory;
  }
};

std::vector<Speed> by_speed(const Instance& problem) {
  std::vector<Speed> speeds;
  for (std::uint32_t d = 0; d < problem.cpu; ++d) {
    speeds.push_back({problem.slowness[d], problem.memory[d], d});
  }
  std::stable_sort(speeds.begin(), speeds.end(), [](const Speed& a, const Speed& b) {
    return a.slowness != b.slowness ? a.slowness < b.slowness : a.memory > b.memory;
  });
  return speeds;
}

// What the units of each class add up to.
struct ClassSums {
  std::vector<double> compute;
  std::vector<double> cpu;
  std::vector<double> bytes;
  std::vector<std::uint8_t> accelerable;
  std::vector<std::uint8_t> on_cpu;
};

ClassSums add_up(const Instance& problem, const std::vector<std::uint32_t>& group) {
  const std::size_t count =
      group.empty() ? 0 : *std::max_element(group.begin(), group.end()) + std::size_t{1};
  const std::vector<double> none(count, 0.0);
  const std::vector<std::uint8_t> all(count, 1);
  ClassSums sums{none, none, none, all, all};
  for (std::uint32_t u = 0; u < problem.num_tasks(); ++u) {
    const Task unit = problem.task(u);
    const std::uint32_t c = group[u];
    sums.compute[c] += unit.accelerator_time;
    sums.cpu[c] += unit.cpu_time;
    sums.bytes[c] += unit.bytes;
    if (!unit.on_accelerator) sums.accelerable[c] = 0;
    if (!unit.on_cpu) sums.on_cpu[c] = 0;
  }
  return sums;
}

void add_kinds(const Instance& problem, const ClassSums& sums, CutProblem& out) {
  const std::vector<Speed> speeds = by_speed(problem);
  for (std::size_t i = 0; i < speeds.size(); ++i) {
    if (i == 0 || !speeds[i].is_like(speeds[i - 1])) {
      out.kinds.push_back({{}, speeds[i].memory});
      out.kinds.back().time = round_down(sums.compute, out.per_one * speeds[i].slowness);
      out.kinds.back().holds = sums.accelerable;
    }
    out.kinds.back().devices.push_back(speeds[i].device);
  }
  if (problem.has_cpu()) {
    out.kinds.push_back(
        {{problem.cpu}, problem.memory[problem.cpu], problem.charging == Charging::link});
    out.kinds.back().time = round_down(sums.cpu, out.per_one);
    out.kinds.back().holds = sums.on_cpu;
  }
  for (DeviceKind& kind : out.kinds) {
    for (std::size_t c = 0; c < kind.holds.size(); ++c) {
      if (!kind.has_room(sums.bytes[c])) kind.holds[c] = 0;
    }
  }
  const std::vector<Flow> fastest =
      speeds.empty() ? round_down(sums.compute, out.per_one) : out.kinds.front().time;
  out.compute = shared_compute(fastest, sums.accelerable);
}

void add_classes(const Instance& problem, CutProblem& out) {
  ClassSums sums = add_up(problem, out.group);
  add_kinds(problem, sums, out);
  out.bytes = std::move(sums.bytes);
  out.by_compute.resize(out.compute.size());
  std::iota(out.by_compute.begin(), out.by_compute.end(), 0U);
  out.total_compute = std::accumulate(out.compute.begin(), out.compute.end(), Flow{0});
  std::stable_sort(
      out.by_compute.begin(), out.by_compute.end(),
      [&](std::uint32_t a, std::uint32_t b) { return out.compute[a] < out.compute[b]; });
}

// A net over classes, before equal ones are added up.
struct Pins {
  std::vector<std::uint32_t> classes;
  std::uint32_t source = 0;
  double cost = 0;
};

void add_nets(const Instance& problem, CutProblem& out) {
  std::vector<Pins> nets;
  for (std::uint32_t net = 0; net < problem.num_nets(); ++net) {
    Pins pins;
    for (const std::uint32_t unit : problem.pins[net]) pins.classes.push_back(out.group[unit]);
    std::sort(pins.classes.begin(), pins.classes.end());
    pins.classes.erase(std::unique(pins.classes.begin(), pins.classes.end()), pins.classes.end());
    if (pins.classes.size() < 2) continue;
    if (out.charging == Charging::link) pins.source = out.group[problem.source[net]];
    pins.cost = problem.cost[net];
    nets.push_back(std::move(pins));
  }
  std::stable_sort(nets.begin(), nets.end(), [](const Pins& a, const Pins& b) {
    return a.classes != b.classes ? a.classes < b.classes : a.source < b.source;
  });
  for (std::size_t i = 0; i < nets.size();) {
    std::size_t end = i;
    double cost = 0;
    for (; end < nets.size() && nets[end].classes == nets[i].classes &&
           nets[end].source == nets[i].source;
         ++end) {
      cost += nets[end].cost;
    }
    const Flow rounded = round_down(cost, out.per_one);
    if (rounded > 0) out.nets.push_back({std::move(nets[i].classes), nets[i].source, rounded});
    i = end;
  }
}

// Whoever holds a part of the net and not all of it pays. A net of two is one arc each way. A
// larger one gets two nodes of its own (Lawler 1973): flow leaves its classes into the first,
// passes `cost`, and leaves the second for its classes.
void add_shared_net(const CutProblem::Net& net, FlowGraph& graph) {
  if (net.classes.size() == 2) {
    graph.add_arc(net.classes[0], net.classes[1], net.cost, net.cost);
    return;
  }
  const std::uint32_t in = graph.add_node();
  const std::uint32_t back = graph.add_node();
  graph.add_arc(in, back, net.cost, 0);
  for (const std::uint32_t c : net.classes) {
    graph.add_arc(c, in, kEndless, 0);
    graph.add_arc(back, c, kEndless, 0);
  }
}

// Whoever holds a reader and not the source pays: flow leaves the readers for the source.
void add_read_net(const CutProblem::Net& net, FlowGraph& graph) {
  if (net.classes.size() == 2) {
    const bool first = net.classes[0] == net.source;
    graph.add_arc(net.classes[first ? 1 : 0], net.source, net.cost, 0);
    return;
  }
  const std::uint32_t read = graph.add_node();
  graph.add_arc(read, net.source, net.cost, 0);
  for (const std::uint32_t c : net.classes) {
    if (c != net.source) graph.add_arc(c, read, kEndless, 0);
  }
}

void add_arcs(CutProblem& out) {
  out.graph = FlowGraph(out.num_classes());
  for (const CutProblem::Net& net : out.nets) {
    (out.charging == Charging::link ? add_read_net : add_shared_net)(net, out.graph);
  }
  out.graph.freeze();
}

}  // namespace

CutProblem::CutProblem(const Instance& problem, std::span<const std::uint32_t> groups, double scale)
    : per_one(scale), charging(problem.charging), group(groups.begin(), groups.end()) {
  add_classes(problem, *this);
  add_nets(problem, *this);
  add_arcs(*this);
}

Flow CutProblem::to_limit(double time) const {
  return static_cast<Flow>(std::ceil(std::min(time * per_one, kLargest)));
}

std::vector<std::uint32_t> single_groups(const Instance& problem) {
  std::vector<std::uint32_t> group(problem.num_tasks());
  std::iota(group.begin(), group.end(), 0U);
  return group;
}

double scale_for(double time) {
  constexpr double kMost = 0x1p1000;
  return time > 0 && std::isfinite(time) ? std::min(0x1p40 / time, kMost) : 1;
}

std::int64_t building_steps(const Instance& problem) {
  return static_cast<std::int64_t>(problem.num_tasks() + problem.pins.num_values()) * 32;
}

MaxFlow load_network(const CutProblem& problem, const DeviceKind& kind) {
  MaxFlow flow(problem.graph);
  for (std::uint32_t c = 0; c < problem.num_classes(); ++c) flow.add_sink(c, kind.time[c]);
  return flow;
}

}  // namespace kerf::place
