// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Small random planning problems over tests/graph/random_graph.h: unequal devices, unequal links,
// shared memories, limits that bite. The same seed gives the same problem everywhere.
#pragma once

#include <fmt/format.h>

#include "kerf/base/rng.h"
#include "kerf/graph/has_backward.h"
#include "kerf/plan/problem.h"
#include "kerf/plan/recompute.h"
#include "kerf/profile/optimizer.h"
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

// The problem as one of training: some weights are frozen, some nodes have no gradients, some
// operators draw masks (a dropout keeps a tensor of its own), some modules are computed again.
inline void make_training(Problem& problem, std::uint64_t seed) {
  Rng rng(seed * 15485863 + 5);
  GraphData data = problem.graph.data();
  data.training = true;
  for (int layer = 0; layer < 3; ++layer) {
    data.scopes.push_back({fmt::format("layer.{}", layer), "Layer"});
  }
  for (const Weight& weight : data.weights) {
    data.values[weight.value.index()].requires_grad = rng.below(4) != 0;
  }
  const std::size_t scopes = data.scopes.size();
  for (std::size_t n = 0; n < data.nodes.size(); ++n) {
    Node& node = data.nodes[n];
    node.grad_enabled = rng.below(8) != 0;
    if (n % 3 == 0 && rng.below(2) == 0) node.region = fmt::format("{}", rng.below(2));
    node.scope = ScopeId{n * scopes / data.nodes.size()};
    bool needs = false;
    for (const NamedArgument& argument : node.args) {
      for_each_value(argument.value,
                     [&](ValueId id) { needs |= data.values[id.index()].requires_grad; });
    }
    for (const ValueId id : node.outputs) {
      if (!id.valid()) continue;
      Value& value = data.values[id.index()];
      value.requires_grad = needs && node.grad_enabled && !value.scalar && is_floating(value.dtype);
    }
  }
  problem.graph = Graph::freeze(std::move(data));
  problem.training = true;
  problem.profile.training = true;
  problem.profile.graph_hash = problem.graph.hash();
  for (std::size_t n = 0; n < problem.graph.num_nodes(); ++n) {
    if (!has_backward(problem.graph, NodeId{n})) continue;
    NodeCost& cost = problem.profile.nodes[n];
    cost.backward = Nanoseconds{static_cast<double>(rng.below(200))};
    cost.backward_weights = cost.backward * rng.uniform();
    if (rng.below(4) == 0)
      cost.backward_workspace = Bytes{static_cast<std::int64_t>(rng.below(60))};
    cost.saved = cost.inputs;
  }
  const std::vector<std::string> optimizers = optimizer_names();
  problem.optimizer = optimizers[rng.below(optimizers.size())];
  static constexpr const char* kModes[] = {"none", "all", "as_traced"};
  problem.recompute = kModes[rng.below(3)];
  set_recomputed(problem, recomputed_by(problem.graph, problem.recompute));
}

// Nodes that must stay together, as one piece of the order: what lies between them comes along.
inline std::vector<std::size_t> pieces_of(const Graph& graph) {
  std::vector<std::size_t> last(graph.num_nodes());  // by node: the last that its piece reaches to
  for (std::size_t n = 0; n < last.size(); ++n) last[n] = n;
  for (const std::vector<NodeId>& group : graph.glued()) {
    for (const NodeId node : group) last[node.index()] = group.back().index();
  }
  std::vector<std::size_t> ends;  // of the pieces, each one past its last node
  for (std::size_t n = 0; n < last.size();) {
    std::size_t end = n;
    for (std::size_t k = n; k <= end; ++k) end = std::max(end, last[k]);
    ends.push_back(end + 1);
    n = end + 1;
  }
  return ends;
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

// Three values in four take times of their own between devices, from nothing to as long as several
// nodes.
inline void give_transfers(Problem& problem, std::uint64_t seed) {
  Rng rng(seed * 7919 + 3);
  const double longest = problem.profile.total_forward().count / 4;
  problem.transfer_times.assign(problem.graph.num_values(), std::nullopt);
  for (std::optional<Nanoseconds>& time : problem.transfer_times) {
    if (rng.below(4) > 0) time = Nanoseconds{rng.below(5) == 0 ? 0 : longest * rng.uniform()};
  }
}

}  // namespace kerf
