// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kerf/base/sort_unique.h"
#include "kerf/partition/fx/original_error.h"
#include "kerf/partition/fx/partition.h"

namespace kerf::partition::fx {
namespace {

std::int64_t known(std::int64_t size) {
  if (size == kNoSize) {
    throw OriginalError(OriginalError::Kind::runtime, "node has no size_bytes attr");
  }
  return size;
}

std::vector<bool> marks(const OpGraph& graph, std::span<const OpIndex> nodes) {
  std::vector<bool> marked(graph.num_nodes());
  for (const OpIndex n : nodes) marked[n] = true;
  return marked;
}

std::int64_t extra_bytes(const OpGraph& graph, OpIndex node, const std::vector<bool>& set) {
  std::int64_t bytes = 0;
  for (const OpIndex input : graph.inputs(node)) {
    if (!set[input]) bytes += known(graph.node(input).output_size);
  }
  return bytes + known(graph.node(node).total_size);
}

// Weights once each: those of modules, and constants.
std::int64_t weight_bytes(const OpGraph& graph, std::span<const OpIndex> nodes) {
  std::vector<std::pair<std::uint32_t, std::int64_t>> weights;
  for (const OpIndex n : nodes) {
    const auto& own = graph.node(n).weights;
    weights.insert(weights.end(), own.begin(), own.end());
  }
  std::sort(weights.begin(), weights.end());
  std::int64_t bytes = 0;
  for (std::size_t w = 0; w < weights.size(); ++w) {
    if (w == 0 || weights[w].first != weights[w - 1].first) bytes += weights[w].second;
  }
  return bytes;
}

// A constant's own output is its weight: counted there.
std::int64_t tensor_bytes(const OpNode& node) {
  if (node.leaf && !node.weights.empty()) return 0;
  return std::max<std::int64_t>(node.output_size, 0) + node.inner_size;
}

}  // namespace

std::int64_t extra_bytes(const OpGraph& graph, OpIndex node, std::span<const OpIndex> set) {
  return extra_bytes(graph, node, marks(graph, set));
}

std::int64_t used_bytes(const OpGraph& graph, std::span<const OpIndex> nodes) {
  const std::vector<bool> set = marks(graph, nodes);
  std::int64_t bytes = 0;
  for (const OpIndex n : nodes) bytes += extra_bytes(graph, n, set);
  return bytes;
}

DeviceBytes device_bytes(const OpGraph& graph, std::span<const OpIndex> nodes) {
  std::vector<OpIndex> order(nodes.begin(), nodes.end());
  sort_unique(order);
  DeviceBytes bytes;
  if (order.empty()) return bytes;
  bytes.fx = used_bytes(graph, order);
  const std::int64_t weights = weight_bytes(graph, order);

  // First and last use on the device of every tensor that is here, made here or received.
  const std::size_t steps = order.size();
  constexpr std::size_t kUnseen = static_cast<std::size_t>(-1);
  std::vector<std::size_t> first(graph.num_nodes(), kUnseen);
  std::vector<std::size_t> last(graph.num_nodes(), 0);
  for (std::size_t step = 0; step < steps; ++step) {
    const OpIndex n = order[step];
    const auto touch = [&](OpIndex tensor) {
      if (first[tensor] == kUnseen) first[tensor] = step;
      last[tensor] = std::max(last[tensor], graph.node(tensor).result ? steps - 1 : step);
    };
    if (!graph.node(n).leaf) {
      for (const OpIndex input : graph.inputs(n)) touch(input);
    }
    touch(n);
  }
  std::vector<std::int64_t> change(steps + 1, 0);
  std::int64_t all = 0;
  for (OpIndex n = 0; n < graph.num_nodes(); ++n) {
    if (first[n] == kUnseen) continue;
    const std::int64_t size = tensor_bytes(graph.node(n));
    all += size;
    change[first[n]] += size;
    change[last[n] + 1] -= size;
  }
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (const std::int64_t delta : change) most = std::max(most, live += delta);
  bytes.exact = weights + all;
  bytes.peak = weights + most;
  return bytes;
}

}  // namespace kerf::partition::fx
