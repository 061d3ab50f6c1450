// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Small random planning problems over tests/graph/random_graph.h: unequal devices, unequal links,
// shared memories, limits that bite. The same seed gives the same problem everywhere.
#pragma once

#include <fmt/format.h>

#include "kerf/base/rng.h"
#include "kerf/plan/problem.h"
#include "tests/graph/random_graph.h"

namespace kerf {

struct RandomProblemOptions {
  RandomGraphOptions graph{.num_nodes = 9, .decorate = false};
  std::size_t num_devices = 3;
  bool equal_links = true;     // every pair of devices has the same link
  bool shared_memory = false;  // some devices share a memory
};

inline Cluster random_cluster(Rng& rng, const RandomProblemOptions& options) {
  static constexpr double kSpeeds[] = {0.5, 1, 1, 2};
  Cluster cluster;
  for (std::size_t d = 0; d < options.num_devices; ++d) {
    Device device;
    device.name = fmt::format("cuda:{}", d);
    device.kind = "cuda";
    device.host = false;
    device.speed = kSpeeds[rng.below(4)];
    const int groups = cluster.num_memory_groups();
    const bool join = options.shared_memory && groups > 0 && rng.below(2) == 0;
    device.memory_group =
        join ? static_cast<int>(rng.below(static_cast<std::uint64_t>(groups))) : groups;
    cluster.devices.push_back(device);
  }
  const auto random_link = [&] {
    return Link{Nanoseconds{static_cast<double>(rng.below(40))},
                rng.below(4) == 0 ? 0 : 1e9 * static_cast<double>(1 + rng.below(4)), false};
  };
  const Link everywhere = random_link();
  for (std::size_t pair = 0; pair < options.num_devices * options.num_devices; ++pair) {
    cluster.links.push_back(options.equal_links ? everywhere : random_link());
  }
  return cluster;
}

inline Profile random_profile(Rng& rng, const Graph& graph, std::int64_t batch) {
  Profile profile;
  profile.graph_hash = graph.hash();
  profile.device_kind = "cuda";
  profile.batch = batch;
  profile.source = Source::given;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    NodeCost cost = node_sizes(graph, NodeId{n}, batch);
    cost.forward = Nanoseconds{static_cast<double>(rng.below(100))};
    if (rng.below(4) == 0) cost.peak += Bytes{static_cast<std::int64_t>(rng.below(60))};
    profile.nodes.push_back(cost);
  }
  return profile;
}

// No limits: the caller sets those (limit_memory).
inline Problem random_problem(std::uint64_t seed, const RandomProblemOptions& options = {}) {
  Rng rng(seed * 7919 + 3);
  Problem problem;
  problem.graph = Graph::freeze(random_graph_data(seed, options.graph));
  problem.cluster = random_cluster(rng, options);
  problem.batch = problem.graph.is_static() ? 0 : static_cast<std::int64_t>(4 + rng.below(5));
  problem.n_microbatches = problem.graph.is_static() ? 1 : static_cast<int>(1 + rng.below(4));
  problem.profile = random_profile(rng, problem.graph, problem.micro_batch());
  problem.seed = seed;
  return problem;
}

// Some memories get a limit around `bytes`.
inline void limit_memory(Problem& problem, std::uint64_t seed, Bytes bytes) {
  Rng rng(seed * 104729 + 11);
  for (int group = 0; group < problem.cluster.num_memory_groups(); ++group) {
    if (rng.below(4) == 0) continue;
    const double share = 0.4 + 0.8 * rng.uniform();
    const Bytes limit{1 + static_cast<std::int64_t>(share * static_cast<double>(bytes.count))};
    for (const DeviceId device : problem.cluster.group(group)) {
      problem.cluster.devices[device.index()].memory = limit;
      problem.cluster.devices[device.index()].memory_limited = true;
    }
  }
}

}  // namespace kerf
