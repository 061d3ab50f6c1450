// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Small random requests for the FX family. The same seed gives the same request everywhere.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/rng.h"
#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

enum class Shape : std::uint8_t { chain, residual, wide, random };

struct RandomRequestOptions {
  std::size_t num_ops = 10;
  std::size_t num_devices = 3;
  Shape shape = Shape::random;
  double room = 1.5;  // memory of all devices together over the size of the graph
  Mode mode = Mode::cost_aware;
};

inline std::vector<std::size_t> random_inputs(Rng& rng, Shape shape, std::size_t op) {
  if (op == 0) return {};
  switch (shape) {
    case Shape::chain: return {op - 1};
    case Shape::residual:
      if (op >= 2 && op % 3 == 0) return {op - 1, op - 3};
      return {op - 1};
    case Shape::wide:
      if (op < 8) return {};
      if (op % 64 == 63) return {op - 1, op - 2, op - 3};
      return {op - 8};
    case Shape::random: break;
  }
  std::vector<std::size_t> inputs;
  for (std::size_t i = 0; i <= rng.below(2); ++i) {
    inputs.push_back(op - 1 - rng.below(std::min<std::size_t>(op, 5)));
  }
  if (rng.below(8) == 0) inputs.clear();
  std::sort(inputs.begin(), inputs.end());
  inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
  return inputs;
}

inline Request random_request(std::uint64_t seed, const RandomRequestOptions& options = {}) {
  Rng rng(seed * 2654435761U + 17);
  std::vector<OpNode> nodes;
  const std::size_t leaves = 1 + rng.below(3);
  for (std::size_t l = 0; l < leaves; ++l) {
    OpNode leaf;
    leaf.name = fmt::format("x{}", l);
    leaf.leaf = true;
    leaf.output_size = leaf.total_size = static_cast<std::int64_t>(4 * (1 + rng.below(8)));
    nodes.push_back(leaf);
  }
  for (std::size_t op = 0; op < options.num_ops; ++op) {
    OpNode node;
    node.name = fmt::format("op{}", op);
    for (const std::size_t input : random_inputs(rng, options.shape, op)) {
      node.inputs.push_back(static_cast<OpIndex>(leaves + input));
    }
    if (node.inputs.empty() || rng.below(4) == 0) {
      node.inputs.push_back(static_cast<OpIndex>(rng.below(leaves)));
    }
    node.output_size = static_cast<std::int64_t>(4 * (1 + rng.below(16)));
    node.total_size = node.output_size;
    if (rng.below(3) == 0) {
      const auto weight = static_cast<std::int64_t>(4 * (1 + rng.below(40)));
      node.total_size += weight;
      node.weights.emplace_back(static_cast<std::uint32_t>(op), weight);
    }
    node.embedding = node.embedding_by_text = rng.below(5) == 0;
    node.target = node.name;
    node.mem_latency = static_cast<double>(1 + rng.below(100));
    node.computer_latency = static_cast<double>(1 + rng.below(100));
    nodes.push_back(std::move(node));
  }
  nodes.back().result = true;
  Request request;
  std::int64_t total = 0;
  for (const OpNode& node : nodes) total += node.total_size;
  request.graph = OpGraph(std::move(nodes));
  const bool equal = rng.below(2) == 0;
  for (std::size_t d = 0; d < options.num_devices; ++d) {
    const double share = equal ? 1 : 0.5 + rng.uniform();
    const double memory = options.room * share * static_cast<double>(total) /
                          static_cast<double>(options.num_devices);
    request.devices.push_back(
        {fmt::format("dev_{}", d), 1 + static_cast<std::int64_t>(memory), static_cast<int>(d)});
  }
  request.mode = options.mode;
  request.rate = static_cast<double>(1 + rng.below(4));
  return request;
}

}  // namespace kerf::partition::fx
