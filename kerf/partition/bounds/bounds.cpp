// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/bounds/bounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/infinity.h"
#include "kerf/graph/has_backward.h"
#include "kerf/partition/lower/units.h"

namespace kerf::partition {
namespace {

double fastest_speed(const Cluster& cluster) {
  double speed = 0;
  for (const Device& device : cluster.devices) speed = std::max(speed, device.speed);
  return speed;
}

// Units that hold each storage, and its bytes.
struct Weights {
  Weights(const Problem& problem, const std::vector<Unit>& units)
      : users(problem.graph.storages().size()) {
    for (const Unit& unit : units) {
      for (const StorageId storage : unit.weights) ++users[storage.index()];
    }
    const std::vector<std::int64_t> copies = problem.weight_copies();
    for (std::size_t s = 0; s < copies.size(); ++s) {
      const Storage& storage = problem.graph.storages()[s];
      bytes.push_back(static_cast<double>(storage.bytes.eval(problem.micro_batch()) * copies[s]));
    }
  }
  double all() const {
    double sum = 0;
    for (std::size_t s = 0; s < users.size(); ++s) sum += users[s] > 0 ? bytes[s] : 0;
    return sum;
  }
  // Those of one unit alone: a storage that several use may be anywhere, and counts for none.
  double own(const Unit& unit) const {
    double sum = 0;
    for (const StorageId storage : unit.weights) {
      if (users[storage.index()] == 1) sum += bytes[storage.index()];
    }
    return sum;
  }
  std::vector<std::size_t> users;
  std::vector<double> bytes;
};

LowerBound work_bound(const Problem& problem, double total) {
  double speed = 0;
  for (const Device& device : problem.cluster.devices) speed += device.speed;
  return {
      "work", total / speed,
      fmt::format(
          "all nodes take {} on a device of speed 1, and the {} devices together have speed {:.4g}",
          to_string(Nanoseconds{total}), problem.cluster.num_devices(), speed)};
}

LowerBound unit_bound(const Problem& problem, const std::vector<Unit>& units) {
  const auto largest = std::max_element(
      units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.time < b.time; });
  const double speed = fastest_speed(problem.cluster);
  const std::string others = largest->nodes.size() > 1
                                 ? fmt::format(" and the {} glued to it", largest->nodes.size() - 1)
                                 : "";
  return {"unit", largest->time / speed,
          fmt::format("node '{}'{} cannot be cut and takes {}; the fastest device has speed {:.4g}",
                      problem.graph.node(largest->nodes.front()).name, others,
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
  double latency = kInfinity;
  double per_byte = kInfinity;
};

// A device's first piece in any order of the graph needs either nothing, or a tensor from another
// device: all but as many devices as there are pieces that need nothing must receive one.
LowerBound receive_bound(const Problem& problem, const std::vector<Unit>& units, double total) {
  const std::size_t devices = problem.cluster.num_devices();
  LowerBound bound{"receive", 0, "transfers cost nothing"};
  if (problem.comm_model != CommModel::link || devices < 2) return bound;
  const FastestLink link(problem.cluster);
  std::size_t sources = 0;  // units that need no tensor of another
  double least = kInfinity;
  for (const Unit& unit : units) {
    if (unit.tensors.empty()) ++sources;
    for (const ValueId tensor : unit.tensors) {
      const std::optional<Nanoseconds> given = problem.given_transfer(tensor);
      const Bytes bytes = problem.graph.value(tensor).bytes(problem.micro_batch());
      least = std::min(least, given ? given->count : link.time(bytes));
    }
  }
  if (least == kInfinity) return bound;
  std::vector<double> speeds;
  for (const Device& device : problem.cluster.devices) speeds.push_back(device.speed);
  std::sort(speeds.begin(), speeds.end());
  // Of k devices in use the slowest may be those that receive, and all may be the fastest.
  bound.value = kInfinity;
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

struct Piece {
  double time = 0;
  double weights = 0;  // its own
  // Without weights: first, whatever the time.
  double density() const { return weights > 0 ? time / weights : kInfinity; }
};

// The most work whose own weights fit into `room`: pieces with most time a byte first, the last
// one in part. No set of whole pieces does more.
double most_work_within(const std::vector<Piece>& by_density, double room) {
  double work = 0;
  for (const Piece& piece : by_density) {
    if (piece.weights > room) return work + piece.time * room / piece.weights;
    work += piece.time;
    room -= piece.weights;
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

LowerBound memory_bound(const Problem& problem, const std::vector<Unit>& units, double total) {
  const Weights weights(problem, units);
  std::vector<Piece> pieces;
  for (const Unit& unit : units) pieces.push_back({unit.time, weights.own(unit)});
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.density() > b.density(); });
  const Cluster& cluster = problem.cluster;
  std::vector<Memory> memories;
  for (int g = 0; g < cluster.num_memory_groups(); ++g) {
    Memory memory;
    for (const DeviceId device : cluster.group(g)) memory.speed += cluster.device(device).speed;
    memory.most_work = total;
    if (cluster.group_limited(g)) {
      const auto limit = static_cast<double>(cluster.group_limit(g).count);
      memory.most_work = most_work_within(pieces, limit);
    }
    memories.push_back(memory);
  }
  const double time = std::max(0.0, least_time(std::move(memories), total));
  return {"memory", time,
          "each device can do only the work whose weights fit in its memory; the others have to do "
          "the rest"};
}

// The time of the nodes of a path, the longest of all. Nodes that are `left_out` end paths.
template <class Time, class LeftOut>
double longest_path(const Graph& graph, Time&& time, LeftOut&& left_out) {
  std::vector<double> end(graph.num_nodes(), 0);
  double longest = 0;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    if (left_out(NodeId{n})) continue;
    double start = 0;
    for (const NodeId before : graph.predecessors(NodeId{n})) {
      start = std::max(start, end[before.index()]);
    }
    end[n] = start + time(NodeId{n}).count;
    longest = std::max(longest, end[n]);
  }
  return longest;
}

// One micro-batch alone: the nodes of a path run one after the other. Their backwards do so too, in
// reverse, as far as each has one: a node without ends what its maker has to wait for. Gradients of
// weights that are made apart hold nobody up.
LowerBound path_bound(const Problem& problem) {
  const Graph& graph = problem.graph;
  const double speed = fastest_speed(problem.cluster);
  double longest = longest_path(
      graph, [&](NodeId n) { return problem.forward_time(n); }, [](NodeId) { return false; });
  if (problem.training) {
    const bool apart = schedule_kind(problem.schedule).apart;
    longest =
        std::max(longest, longest_path(
                              graph,
                              [&](NodeId n) {
                                const Nanoseconds whole = problem.node_time(n);
                                return apart ? whole - problem.weight_gradient_time(n) : whole;
                              },
                              [&](NodeId n) { return !has_backward(graph, n); }));
  }
  longest /= speed;
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
  const std::vector<Unit> units = collect_units(problem, indivisible_units(problem.graph));
  const Weights weights(problem, units);
  const double total = weights.all();
  double largest = 0;
  for (const Unit& unit : units) largest = std::max(largest, weights.own(unit));
  const int memories = problem.cluster.num_memory_groups();
  return {
      {"weights", total / memories,
       fmt::format("all weights take {} and there are {} memories",
                   to_string(Bytes{static_cast<std::int64_t>(total)}), memories)},
      {"unit", largest, "the weights of the largest unit, which cannot be cut, are in one memory"}};
}

}  // namespace

std::vector<LowerBound> throughput_bounds(const Problem& problem) {
  const std::vector<Unit> units = collect_units(problem, indivisible_units(problem.graph));
  double total = 0;
  for (const Unit& unit : units) total += unit.time;
  return {work_bound(problem, total), unit_bound(problem, units),
          receive_bound(problem, units, total), memory_bound(problem, units, total)};
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
