// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/bounds/bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kerf/partition/lower/units.h"

namespace kerf::partition {
namespace {

struct UnitLoad {
  NodeId first;
  std::size_t nodes = 0;
  double time = 0;           // on the profiled kind
  std::int64_t weights = 0;  // storages that no other unit uses
};

std::vector<UnitLoad> unit_loads(const Problem& problem) {
  const Graph& graph = problem.graph;
  const std::vector<std::size_t> unit_of = indivisible_units(graph);
  std::vector<UnitLoad> units;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    if (unit_of[n] >= units.size()) units.resize(unit_of[n] + 1);
    UnitLoad& unit = units[unit_of[n]];
    if (unit.nodes++ == 0) unit.first = NodeId{n};
    unit.time += problem.node_time(NodeId{n}).count;
  }
  // A storage that several units use may be anywhere: it counts for none of them.
  constexpr std::size_t kUnused = static_cast<std::size_t>(-1);
  constexpr std::size_t kShared = static_cast<std::size_t>(-2);
  std::vector<std::size_t> owner(graph.storages().size(), kUnused);
  for (const Weight& weight : graph.weights()) {
    const Value& value = graph.value(weight.value);
    if (value.scalar) continue;
    for (const NodeId user : graph.consumers(weight.value)) {
      std::size_t& own = owner[value.storage.index()];
      own = own == kUnused || own == unit_of[user.index()] ? unit_of[user.index()] : kShared;
    }
  }
  for (std::size_t s = 0; s < owner.size(); ++s) {
    if (owner[s] < units.size()) {
      units[owner[s]].weights += graph.storages()[s].bytes.eval(problem.micro_batch());
    }
  }
  return units;
}

LowerBound work_bound(const Problem& problem, double total) {
  double speed = 0;
  for (const Device& device : problem.cluster.devices) speed += device.speed;
  return {
      "work", total / speed,
      fmt::format(
          "all nodes take {} on a device of speed 1, and the {} devices together have speed {:.4g}",
          to_string(Nanoseconds{total}), problem.cluster.num_devices(), speed)};
}

LowerBound unit_bound(const Problem& problem, const std::vector<UnitLoad>& units) {
  const auto largest =
      std::max_element(units.begin(), units.end(),
                       [](const UnitLoad& a, const UnitLoad& b) { return a.time < b.time; });
  double speed = 0;
  for (const Device& device : problem.cluster.devices) speed = std::max(speed, device.speed);
  const std::string others =
      largest->nodes > 1 ? fmt::format(" and the {} glued to it", largest->nodes - 1) : "";
  return {"unit", largest->time / speed,
          fmt::format("node '{}'{} cannot be cut and takes {}; the fastest device has speed {:.4g}",
                      problem.graph.node(largest->first).name, others,
                      to_string(Nanoseconds{largest->time}), speed)};
}

// What moving a tensor costs at least: the fastest figures of any link.
struct FastestLink {
  explicit FastestLink(const Cluster& cluster) {
    const std::size_t count = cluster.num_devices();
    for (std::size_t a = 0; a < count; ++a) {
      for (std::size_t b = 0; b < count; ++b) {
        if (a == b) continue;
        const Link& link = cluster.link(DeviceId{a}, DeviceId{b});
        latency = std::min(latency, link.latency.count);
        const double rate = link.bytes_per_second;
        per_byte = std::min(per_byte, rate > 0 ? 1e9 / rate : 0);
      }
    }
  }
  double time(Bytes bytes) const { return latency + per_byte * static_cast<double>(bytes.count); }
  double latency = std::numeric_limits<double>::infinity();
  double per_byte = std::numeric_limits<double>::infinity();
};

// A device's first piece in any order of the graph needs either nothing, or a tensor from another
// device: all but as many devices as there are pieces that need nothing must receive one.
LowerBound receive_bound(const Problem& problem, double total) {
  const Graph& graph = problem.graph;
  const std::size_t devices = problem.cluster.num_devices();
  LowerBound bound{"receive", 0, "transfers cost nothing"};
  if (problem.comm_model != CommModel::link || devices < 2) return bound;
  const std::vector<std::size_t> unit_of = indivisible_units(graph);
  const FastestLink link(problem.cluster);
  std::vector<bool> needs(graph.num_nodes());  // by unit: a tensor of another
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t v = 0; v < graph.num_values(); ++v) {
    const Value& value = graph.values()[v];
    if (value.scalar || value.origin != Origin::node) continue;
    const std::size_t maker = unit_of[value.producer.index()];
    for (const NodeId user : graph.consumers(ValueId{v})) {
      const std::size_t unit = unit_of[user.index()];
      if (unit == maker) continue;
      needs[unit] = true;
      least = std::min(least, link.time(value.bytes(problem.micro_batch())));
    }
  }
  const std::size_t units = 1 + *std::max_element(unit_of.begin(), unit_of.end());
  const auto sources = static_cast<std::size_t>(
      std::count(needs.begin(), needs.begin() + static_cast<std::ptrdiff_t>(units), false));
  if (least == std::numeric_limits<double>::infinity()) return bound;
  std::vector<double> speeds;
  for (const Device& device : problem.cluster.devices) speeds.push_back(device.speed);
  std::sort(speeds.begin(), speeds.end());
  // Of k devices in use the slowest may be those that receive, and all may be the fastest.
  bound.value = std::numeric_limits<double>::infinity();
  double fastest = 0;
  double receiving = 0;
  for (std::size_t k = 1; k <= devices; ++k) {
    fastest += speeds[devices - k];
    if (k > sources) receiving += speeds[k - sources - 1];
    bound.value = std::min(bound.value, (total + receiving * least) / fastest);
  }
  bound.argument = fmt::format(
      "all nodes take {}; {} can start without a tensor from another device, and every other "
      "device receives for at least {}",
      to_string(Nanoseconds{total}),
      sources == 1 ? "only 1 device" : fmt::format("only {} devices", sources),
      to_string(Nanoseconds{least}));
  return bound;
}

// The most work whose own weights fit into `limit`: pieces with most time a byte first, the last
// one in part. No set of whole pieces does more.
double most_work_within(const std::vector<UnitLoad>& by_density, std::int64_t limit) {
  double work = 0;
  double room = static_cast<double>(limit);
  for (const UnitLoad& unit : by_density) {
    const auto weights = static_cast<double>(unit.weights);
    if (weights <= room) {
      work += unit.time;
      room -= weights;
    } else {
      work += unit.time * room / weights;
      break;
    }
  }
  return work;
}

struct Memory {
  double speed = 0;
  double most_work = 0;
};

// The least T at which the memories, each doing at most T x speed and at most what fits into it,
// can do everything; negative when even without a limit on T they cannot.
double least_time(std::vector<Memory> memories, double total) {
  std::sort(memories.begin(), memories.end(), [](const Memory& a, const Memory& b) {
    return a.most_work / a.speed < b.most_work / b.speed;
  });
  // speed[i]: of the memories from i on, added up from the end: a slow one is not lost beside a
  // fast one that has been used up.
  std::vector<double> speed(memories.size() + 1, 0);
  for (std::size_t i = memories.size(); i-- > 0;) speed[i] = speed[i + 1] + memories[i].speed;
  for (std::size_t i = 0; i < memories.size(); ++i) {
    const Memory& memory = memories[i];
    if (total <= memory.most_work / memory.speed * speed[i]) return total / speed[i];
    // Differences of large numbers: what rounding may have left is taken off.
    constexpr double kRounding = 1e-12;
    total = std::max(0.0, total - memory.most_work - kRounding * total);
  }
  return -1;
}

LowerBound memory_bound(const Problem& problem, std::vector<UnitLoad> units, double total) {
  std::sort(units.begin(), units.end(), [](const UnitLoad& a, const UnitLoad& b) {
    // Without weights: first, whatever the time.
    const auto density = [](const UnitLoad& unit) {
      return unit.weights > 0 ? unit.time / static_cast<double>(unit.weights)
                              : std::numeric_limits<double>::infinity();
    };
    return density(a) > density(b);
  });
  const Cluster& cluster = problem.cluster;
  std::vector<Memory> memories;
  for (int g = 0; g < cluster.num_memory_groups(); ++g) {
    Memory memory;
    for (const DeviceId device : cluster.group(g)) memory.speed += cluster.device(device).speed;
    memory.most_work =
        cluster.group_limited(g) ? most_work_within(units, cluster.group_limit(g).count) : total;
    memories.push_back(memory);
  }
  const double time = std::max(0.0, least_time(std::move(memories), total));
  return {"memory", time,
          "each device can do only the work whose weights fit in its memory; the others have to do "
          "the rest"};
}

// One micro-batch alone: the nodes of a path run one after the other.
LowerBound path_bound(const Problem& problem) {
  const Graph& graph = problem.graph;
  double speed = 0;
  for (const Device& device : problem.cluster.devices) speed = std::max(speed, device.speed);
  std::vector<double> end(graph.num_nodes());
  double longest = 0;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    double start = 0;
    for (const NodeId before : graph.predecessors(NodeId{n})) {
      start = std::max(start, end[before.index()]);
    }
    end[n] = start + problem.node_time(NodeId{n}).count / speed;
    longest = std::max(longest, end[n]);
  }
  return {"path", longest,
          fmt::format("the nodes of the longest path run one after the other, at best on the "
                      "fastest device (speed {:.4g})",
                      speed)};
}

std::vector<LowerBound> step_bounds(const Problem& problem) {
  std::vector<LowerBound> bounds;
  const int count = problem.n_microbatches;
  for (LowerBound bound : throughput_bounds(problem)) {
    bound.value *= count;
    bound.argument = fmt::format("{} micro-batches, each of which keeps a device busy: {}", count,
                                 bound.argument);
    bounds.push_back(std::move(bound));
  }
  bounds.push_back(path_bound(problem));
  return bounds;
}

std::vector<LowerBound> memory_bounds(const Problem& problem) {
  const Graph& graph = problem.graph;
  const std::vector<UnitLoad> units = unit_loads(problem);
  std::int64_t largest = 0;
  for (const UnitLoad& unit : units) largest = std::max(largest, unit.weights);
  std::vector<bool> used(graph.storages().size());
  for (const Weight& weight : graph.weights()) {
    const Value& value = graph.value(weight.value);
    if (!value.scalar && !graph.consumers(weight.value).empty()) used[value.storage.index()] = true;
  }
  double total = 0;
  for (std::size_t s = 0; s < used.size(); ++s) {
    if (used[s]) {
      total += static_cast<double>(graph.storages()[s].bytes.eval(problem.micro_batch()));
    }
  }
  const int memories = problem.cluster.num_memory_groups();
  return {{"weights", total / memories,
           fmt::format("all weights take {} and there are {} memories",
                       to_string(Bytes{static_cast<std::int64_t>(total)}), memories)},
          {"unit", static_cast<double>(largest),
           "the weights of the largest unit, which cannot be cut, are in one memory"}};
}

}  // namespace

std::vector<LowerBound> throughput_bounds(const Problem& problem) {
  const std::vector<UnitLoad> units = unit_loads(problem);
  double total = 0;
  for (const UnitLoad& unit : units) total += unit.time;
  return {work_bound(problem, total), unit_bound(problem, units), receive_bound(problem, total),
          memory_bound(problem, units, total)};
}

std::vector<LowerBound> lower_bounds(const Problem& problem) {
  switch (problem.objective) {
    case Objective::throughput: return throughput_bounds(problem);
    case Objective::latency: return {path_bound(problem)};
    case Objective::step: return step_bounds(problem);
    case Objective::memory: return memory_bounds(problem);
  }
  return {};
}

LowerBound best_lower_bound(const Problem& problem) { return tightest(lower_bounds(problem)); }

}  // namespace kerf::partition
