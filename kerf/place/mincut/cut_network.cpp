// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: the least load of a device that holds some units and not others, as a minimum cut.
// Method: a net is charged through two nodes of its own (Lawler 1973), or one where its maker does
// not pay. Exact but for rounding down. O(units + pins), sorting apart.
#include "kerf/place/mincut/cut_network.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "kerf/base/count_up.h"

namespace kerf::place {
namespace {

// What no useful load reaches: keeps sums small when a single time is absurd next to the rest.
constexpr double kLargest = 0x1p43;

std::vector<Flow> round_down(const std::vector<double>& times, double factor) {
  std::vector<Flow> out;
  out.reserve(times.size());
  for (const double time : times) {
    const double whole = time > 0 ? time * factor : 0;  // not 0 x infinity
    out.push_back(static_cast<Flow>(std::floor(std::min(whole, kLargest))));
  }
  return out;
}

// Accelerators, the fastest and then the largest first.
std::vector<SlotId> by_speed(const Instance& instance) {
  std::vector<SlotId> devices = count_up<SlotId>(instance.cpu);
  const auto& slowness = instance.slowness;
  std::stable_sort(devices.begin(), devices.end(), [&](SlotId a, SlotId b) {
    return slowness[a] != slowness[b] ? slowness[a] < slowness[b]
                                      : instance.memory[a] > instance.memory[b];
  });
  return devices;
}

std::vector<DeviceKind> find_kinds(const Instance& instance, double per_one) {
  std::vector<DeviceKind> kinds;
  for (const SlotId d : by_speed(instance)) {
    const SlotId last = kinds.empty() ? d : kinds.back().devices.back();
    const bool like_last = !kinds.empty() && instance.slowness[last] == instance.slowness[d] &&
                           instance.memory[last] == instance.memory[d];
    if (!like_last) {
      kinds.push_back({{}, instance.memory[d]});
      kinds.back().time = round_down(instance.accelerator_time, per_one * instance.slowness[d]);
      kinds.back().holds = instance.on_accelerator;
    }
    kinds.back().devices.push_back(d);
  }
  if (instance.has_cpu()) {
    const SlotId cpu = instance.cpu;
    kinds.push_back({{cpu}, instance.memory[cpu], instance.charging == Charging::link});
    kinds.back().time = round_down(instance.cpu_time, per_one);
    kinds.back().holds = instance.on_cpu;
  }
  for (DeviceKind& kind : kinds) {
    for (std::size_t t = 0; t < kind.holds.size(); ++t) {
      if (!kind.has_room(instance.bytes[t])) kind.holds[t] = 0;
    }
  }
  return kinds;
}

// What no accelerator takes below the largest load is no part of the work that they share out: as
// large as it is, it would drown what is.
std::vector<Flow> shared_compute(const CutNetwork& network) {
  const Instance& instance = *network.instance;
  std::vector<Flow> out = instance.cpu > 0 ? network.kinds.front().time
                                           : round_down(instance.accelerator_time, network.per_one);
  for (std::size_t t = 0; t < out.size(); ++t) {
    if (instance.on_accelerator[t] == 0 || out[t] >= static_cast<Flow>(kLargest)) out[t] = 0;
  }
  return out;
}

// Whoever holds a part of the net and not all of it pays. A net of two is one arc each way. A
// larger one gets two nodes of its own: flow leaves its units into the first, passes `cost`, and
// leaves the second for its units.
void add_shared_net(std::span<const UnitId> pins, Flow cost, FlowGraph& graph) {
  if (pins.size() == 2) {
    graph.add_arc(pins[0], pins[1], cost, cost);
    return;
  }
  const std::uint32_t in = graph.add_node();
  const std::uint32_t back = graph.add_node();
  graph.add_arc(in, back, cost, 0);
  for (const UnitId t : pins) {
    graph.add_arc(t, in, kEndless, 0);
    graph.add_arc(back, t, kEndless, 0);
  }
}

// Whoever holds a reader and not the source pays: flow leaves the readers for the source.
void add_read_net(std::span<const UnitId> pins, UnitId source, Flow cost, FlowGraph& graph) {
  if (pins.size() == 2) {
    graph.add_arc(pins[pins[0] == source ? 1 : 0], source, cost, 0);
    return;
  }
  const std::uint32_t read = graph.add_node();
  graph.add_arc(read, source, cost, 0);
  for (const UnitId t : pins) {
    if (t != source) graph.add_arc(t, read, kEndless, 0);
  }
}

FlowGraph make_graph(const CutNetwork& network) {
  const Instance& instance = *network.instance;
  FlowGraph graph(network.num_units());
  for (NetId net{0}; net < instance.num_nets(); ++net) {
    if (network.cost[net] == 0) continue;
    if (instance.charging == Charging::link) {
      add_read_net(instance.pins[net], instance.source[net], network.cost[net], graph);
    } else {
      add_shared_net(instance.pins[net], network.cost[net], graph);
    }
  }
  graph.freeze();
  return graph;
}

}  // namespace

CutNetwork::CutNetwork(const Instance& of, double scale)
    : instance(&of),
      per_one(scale),
      kinds(find_kinds(of, scale)),
      compute(shared_compute(*this)),
      total_compute(std::accumulate(compute.begin(), compute.end(), Flow{0})),
      by_compute(compute.size()),
      cost(round_down(of.cost, scale)),
      graph(make_graph(*this)) {
  std::iota(by_compute.begin(), by_compute.end(), UnitId{0});
  std::stable_sort(by_compute.begin(), by_compute.end(),
                   [&](UnitId a, UnitId b) { return compute[a] < compute[b]; });
}

Flow CutNetwork::to_limit(double time) const {
  return static_cast<Flow>(std::ceil(std::min(time * per_one, kLargest)));
}

double scale_for(double time) {
  constexpr double kMost = 0x1p1000;
  return time > 0 && std::isfinite(time) ? std::min(0x1p40 / time, kMost) : 1;
}

std::int64_t building_steps(const Instance& instance) {
  return static_cast<std::int64_t>(instance.num_units() + instance.pins.num_values()) * 32;
}

MaxFlow load_network(const CutNetwork& network, const DeviceKind& kind) {
  MaxFlow flow(network.graph);
  for (UnitId t{0}; t < network.num_units(); ++t) flow.add_sink(t, kind.time[t]);
  return flow;
}

}  // namespace kerf::place
