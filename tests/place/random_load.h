// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Small random load problems for tests of the methods that split them. The same seed gives the same
// problem everywhere.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/place/lower_load.h"
#include "tests/support/ids.h"

namespace kerf {

struct RandomLoadOptions {
  std::uint32_t num_nodes = 7;
  int num_accelerators = 3;
  bool equal = true;      // accelerators
  bool cpu = false;       // one, and nodes that need it
  double memory = 0;      // of an accelerator, over its share of all bytes; 0: ample
  bool colours = true;    // some nodes share a device
  bool shuffled = false;  // numbers say nothing about the order of nodes
};

// The same problem with node `order[i]` in place i.
template <class Index>
LoadProblem renumber(const LoadProblem& problem, const std::vector<Index>& order) {
  LoadProblem out = problem;
  std::vector<std::uint32_t> place(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    out.nodes[i] = problem.nodes[order[i]];
    out.successors[i].clear();
    for (const std::uint32_t to : problem.successors[order[i]]) {
      out.successors[i].push_back(place[to]);
    }
    std::sort(out.successors[i].begin(), out.successors[i].end());
  }
  return out;
}

// Any order of 0 .. count - 1.
inline std::vector<std::uint32_t> random_numbers(std::uint32_t count, Rng& rng) {
  std::vector<std::uint32_t> out(count);
  std::iota(out.begin(), out.end(), 0U);
  for (std::uint32_t i = count; i > 1; --i) std::swap(out[i - 1], out[rng.below(i)]);
  return out;
}

inline LoadProblem random_load(std::uint64_t seed, const RandomLoadOptions& options) {
  Rng rng(seed * 6151 + 29);
  LoadProblem problem;
  problem.num_accelerators = options.num_accelerators;
  problem.num_cpus = options.cpu ? 1 : 0;
  if (rng.below(2) == 0) problem.charging = Charging::link;
  double bytes = 0;
  for (std::uint32_t n = 0; n < options.num_nodes; ++n) {
    LoadNode node;
    node.id = n;
    // Small numbers: many ties, and some zeros.
    if (rng.below(5) > 0) node.accelerator_time = static_cast<double>(1 + rng.below(9));
    node.cpu_time = node.accelerator_time * static_cast<double>(1 + rng.below(5));
    node.bytes = static_cast<double>(rng.below(6));
    node.transfer = 0.25 * static_cast<double>(rng.below(16));
    node.on_accelerator = !options.cpu || rng.below(8) > 0;
    if (options.colours && node.on_accelerator && rng.below(5) == 0) {
      node.colour = static_cast<std::int64_t>(rng.below(2));
    }
    bytes += node.bytes;
    problem.nodes.push_back(node);
    problem.successors.emplace_back();
    // Near ones mostly, and a long skip now and then.
    for (std::uint32_t before = 0; before < n; ++before) {
      if (rng.below(n - before + 1) == 0) problem.successors[before].push_back(n);
    }
  }
  if (options.shuffled) problem = renumber(problem, random_numbers(options.num_nodes, rng));
  const double share = bytes / options.num_accelerators;
  problem.memory = options.memory > 0 ? options.memory * share : 1e6;
  if (options.equal) return problem;
  constexpr std::array<double, 4> kSlowness = {1, 1, 1.5, 3};
  problem.memory = 0;
  for (int a = 0; a < options.num_accelerators; ++a) {
    problem.slowness.push_back(kSlowness[rng.below(kSlowness.size())]);
    const double memory = options.memory > 0 ? share * options.memory * (0.5 + rng.uniform()) : 1e6;
    problem.memories.push_back(memory);
    problem.memory = std::max(problem.memory, memory);
  }
  return problem;
}

// Calls visit(device) for every way to place `units` units.
template <class Visit>
void for_every_split(std::size_t units, std::size_t num_devices, Visit&& visit) {
  std::vector<SlotId> device(units, 0_slot);
  do {
    visit(device);
  } while (next_split(device, num_devices));
}

// The least max load of all splits; infinity: none fits.
inline double best_load(const LoadProblem& problem) {
  const place::LoweredLoad lowered = place::lower_load(problem);
  const place::Instance& units = lowered.instance;
  double best = std::numeric_limits<double>::infinity();
  for_every_split(units.num_units(), units.num_devices, [&](const auto& device) {
    if (!find_faults(problem, lowered.to_nodes(device)).empty()) return;
    const Loads loads = find_loads(units, device);
    if (loads.fits) best = std::min(best, loads.busiest);
  });
  return best;
}

// Nobody waits for somebody who waits for them.
inline bool devices_are_acyclic(const LoadProblem& problem, const std::vector<SlotId>& device) {
  const std::size_t devices = problem.num_devices();
  std::vector<std::vector<bool>> reaches(devices, std::vector<bool>(devices));
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    for (const std::uint32_t to : problem.successors[n]) {
      if (device[n] != device[to]) reaches[device[n]][device[to]] = true;
    }
  }
  for (std::size_t via = 0; via < devices; ++via) {
    for (std::size_t from = 0; from < devices; ++from) {
      for (std::size_t to = 0; to < devices; ++to) {
        if (reaches[from][via] && reaches[via][to]) reaches[from][to] = true;
      }
    }
  }
  for (std::size_t d = 0; d < devices; ++d) {
    if (reaches[d][d]) return false;
  }
  return true;
}

// Nodes one after the other, of these times, with room enough and transfers that cost nothing.
inline LoadProblem chain_of(const std::vector<double>& times, int devices) {
  LoadProblem problem;
  problem.num_accelerators = devices;
  problem.num_cpus = 0;
  problem.memory = 1e6;
  for (std::uint32_t n = 0; n < times.size(); ++n) {
    LoadNode node;
    node.id = n;
    node.accelerator_time = times[n];
    node.bytes = 1;
    problem.nodes.push_back(node);
    problem.successors.emplace_back();
    if (n > 0) problem.successors[n - 1].push_back(n);
  }
  return problem;
}
// The same with nodes of time 1.
inline LoadProblem chain_of(std::uint32_t nodes, int devices) {
  return chain_of(std::vector<double>(nodes, 1), devices);
}

}  // namespace kerf
