// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>

#include "kerf/base/infinity.h"
#include "kerf/base/rows.h"
#include "kerf/base/sort_unique.h"
#include "kerf/base/topological_order.h"
#include "kerf/place/load_problem.h"

namespace kerf {
namespace {

// piece[node]: how often paths to it have left its accelerator and come back, at most. Pieces of
// one accelerator are numbered by it.
std::vector<std::uint32_t> level_pieces(const LoadProblem& problem, std::span<const SlotId> device,
                                        const std::vector<std::uint32_t>& order) {
  const std::size_t devices = problem.num_devices();
  std::vector<std::uint32_t> piece(problem.nodes.size(), 0);
  // left[n * devices + d]: 1 + the largest piece of d that a path left before it came to n.
  std::vector<std::uint32_t> left(problem.nodes.size() * devices, 0);
  for (const std::uint32_t n : order) {
    const SlotId own = device[n];
    piece[n] = std::max(piece[n], left[n * devices + own]);
    for (const std::uint32_t next : problem.successors[n]) {
      for (std::size_t d = 0; d < devices; ++d) {
        left[next * devices + d] = std::max(left[next * devices + d], left[n * devices + d]);
      }
      if (device[next] == own) {
        piece[next] = std::max(piece[next], piece[n]);
      } else {
        std::uint32_t& gone = left[next * devices + own];
        gone = std::max(gone, piece[n] + 1);
      }
    }
  }
  return piece;
}

}  // namespace

std::vector<std::uint32_t> topological_order(const LoadProblem& problem) {
  return first_come_order(static_cast<std::uint32_t>(problem.nodes.size()),
                          [&](std::uint32_t node, const auto& visit) {
                            for (const std::uint32_t next : problem.successors[node]) visit(next);
                          });
}

namespace {

// The load of the fullest of several CPUs.
double share_among_cpus(const LoadProblem& problem, std::span<const SlotId> device) {
  std::map<std::int64_t, double> classes;
  std::vector<double> times;
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    if (device[n] != problem.cpu()) continue;
    const LoadNode& node = problem.nodes[n];
    if (node.colour == LoadNode::kNoColour) {
      times.push_back(node.cpu_time);
    } else {
      classes[node.colour] += node.cpu_time;
    }
  }
  for (const auto& [colour, time] : classes) times.push_back(time);
  std::sort(times.begin(), times.end(), std::greater<>());
  std::priority_queue<double, std::vector<double>, std::greater<>> cpus;
  for (int c = 0; c < problem.num_cpus; ++c) cpus.push(0);
  double fullest = 0;
  for (const double time : times) {
    const double load = cpus.top() + time;
    cpus.pop();
    cpus.push(load);
    fullest = std::max(fullest, load);
  }
  return fullest;
}

}  // namespace

LoadProblem with_one_cpu(const LoadProblem& problem) {
  LoadProblem out = problem;
  if (problem.num_cpus < 2) return out;
  for (LoadNode& node : out.nodes) node.cpu_time /= problem.num_cpus;
  out.num_cpus = 1;
  return out;
}

std::vector<std::string> find_faults(const LoadProblem& problem, std::span<const SlotId> device) {
  constexpr std::size_t kMostShown = 5;
  std::vector<std::string> faults;
  std::map<std::int64_t, std::size_t> first;  // by colour
  for (std::size_t n = 0; n < problem.nodes.size() && faults.size() < kMostShown; ++n) {
    const LoadNode& node = problem.nodes[n];
    if (device[n] != problem.cpu() && !node.on_accelerator) {
      faults.push_back(fmt::format("node {} is on accelerator {} and runs only on CPUs", node.id,
                                   device[n].index()));
    }
    if (device[n] == problem.cpu() && !node.on_cpu) {
      faults.push_back(fmt::format("node {} is on the CPU and runs only on accelerators", node.id));
    }
    if (node.colour == LoadNode::kNoColour) continue;
    const std::size_t other = first.try_emplace(node.colour, n).first->second;
    if (device[other] == device[n]) continue;
    faults.push_back(fmt::format("nodes {} and {} share colour {} and are on different devices",
                                 problem.nodes[other].id, node.id, node.colour));
  }
  return faults;
}

Loads find_loads(const LoadProblem& problem, std::span<const SlotId> device) {
  Loads loads(problem.num_devices());
  std::vector<bool> reads(problem.num_devices());
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    const LoadNode& node = problem.nodes[n];
    const SlotId own = device[n];
    loads.compute[own] += problem.time_on(node, own);
    loads.bytes[own] += node.bytes;
    loads.fits = loads.fits && problem.runs_on(node, own);
    std::fill(reads.begin(), reads.end(), false);
    bool leaves = false;
    for (const std::uint32_t next : problem.successors[n]) {
      leaves = leaves || device[next] != own;
      reads[device[next]] = true;
    }
    reads[own] = true;
    if (leaves) loads.charge(problem.charging, problem.cpu(), node.transfer, own, reads);
  }
  if (problem.num_cpus > 1) loads.compute[problem.cpu()] = share_among_cpus(problem, device);
  std::vector<double> memory;
  for (SlotId d{0}; d < problem.num_devices(); ++d) memory.push_back(problem.memory_of(d));
  loads.sum_up(memory);
  return loads;
}

namespace {

// What runs at once: a CPU node, or a piece of an accelerator.
struct Groups {
  std::vector<std::uint32_t> of;  // by node
  std::vector<SlotId> device;
  std::vector<std::vector<std::uint32_t>> pieces;  // by accelerator and number; kNoIndex: none

  std::uint32_t count() const { return static_cast<std::uint32_t>(device.size()); }
};

Groups find_groups(const LoadProblem& problem, std::span<const SlotId> device) {
  const std::vector<std::uint32_t> order = topological_order(problem);
  const std::vector<std::uint32_t> piece = level_pieces(problem, device, order);
  Groups groups{std::vector<std::uint32_t>(order.size()), {}, {}};
  groups.pieces.resize(problem.cpu());
  for (const std::uint32_t n : order) {
    std::uint32_t group = groups.count();
    if (device[n] != problem.cpu()) {
      auto& known = groups.pieces[device[n]];
      if (known.size() <= piece[n]) known.resize(piece[n] + 1, kNoIndex);
      if (known[piece[n]] == kNoIndex) known[piece[n]] = group;
      group = known[piece[n]];
    }
    if (group == groups.count()) groups.device.push_back(device[n]);
    groups.of[n] = group;
  }
  return groups;
}

// The pieces of an accelerator one after the other.
void add_turns(const Groups& groups, Pairs& edges) {
  for (const std::vector<std::uint32_t>& pieces : groups.pieces) {
    std::uint32_t last = kNoIndex;
    for (const std::uint32_t group : pieces) {
      if (group == kNoIndex) continue;
      if (last != kNoIndex) edges.emplace_back(last, group);
      last = group;
    }
  }
}

}  // namespace

double find_latency(const LoadProblem& problem, std::span<const SlotId> device, bool serial) {
  const Groups groups = find_groups(problem, device);
  const SlotId cpu = problem.cpu();
  std::vector<double> own(groups.count(), 0);
  Pairs edges;
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    const LoadNode& node = problem.nodes[n];
    const std::uint32_t group = groups.of[n];
    own[group] += device[n] == cpu ? node.cpu_time : node.accelerator_time;
    std::vector<std::uint32_t> readers;
    for (const std::uint32_t next : problem.successors[n]) {
      if (groups.of[next] != group) readers.push_back(groups.of[next]);
    }
    sort_unique(readers);
    if (!readers.empty() && device[n] != cpu) own[group] += node.transfer;
    for (const std::uint32_t reader : readers) {
      edges.emplace_back(group, reader);
      if (groups.device[reader] != cpu) own[reader] += node.transfer;
    }
  }
  if (serial) add_turns(groups, edges);
  // Longest path over groups; pieces of several accelerators may wait for each other in a circle,
  // and then there is no latency.
  const Rows after = to_rows(groups.count(), edges);
  const std::vector<std::uint32_t> order = first_come_order(groups.count(), each_next_of(after));
  if (order.size() < groups.count()) return kInfinity;
  std::vector<double> start(groups.count(), 0);
  double latency = 0;
  for (const std::uint32_t group : order) {
    const double end = start[group] + own[group];
    latency = std::max(latency, end);
    for (const std::uint32_t next : after[group]) start[next] = std::max(start[next], end);
  }
  return latency;
}

bool is_contiguous(const LoadProblem& problem, std::span<const SlotId> device) {
  LoadProblem forward = problem;
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    std::erase_if(forward.successors[n], [&](std::uint32_t next) {
      return problem.nodes[n].backward || problem.nodes[next].backward;
    });
  }
  const std::vector<std::uint32_t> piece =
      level_pieces(forward, device, topological_order(forward));
  for (std::size_t n = 0; n < piece.size(); ++n) {
    if (piece[n] != 0 && !problem.nodes[n].backward) return false;
  }
  return true;
}

}  // namespace kerf
