// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/block_levels.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "kerf/base/topological_order.h"
#include "kerf/base/union_find.h"
#include "kerf/graph/passes/subgraph.h"

namespace kerf {
namespace {

// The innermost module that both are in.
std::string_view common_module(std::string_view a, std::string_view b) {
  while (a != b) {
    std::string_view& longer = a.size() >= b.size() ? a : b;
    const std::size_t dot = longer.rfind('.');
    longer = dot == std::string_view::npos ? std::string_view() : longer.substr(0, dot);
  }
  return a;
}

std::string class_of(const Graph& graph, std::string_view path) {
  for (const Scope& scope : graph.scopes()) {
    if (scope.path == path) return scope.class_name;
  }
  return "";
}

// Sets of nodes as blocks, in the order of first nodes. `named`: blocks whose nodes are in one set
// each, which say what a set is called.
std::vector<Block> as_blocks(const Graph& graph, UnionFind& sets, const std::vector<Block>& named) {
  const std::vector<std::uint32_t> set_of = sets.numbers();
  std::vector<Block> out(sets.num_sets());
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) out[set_of[n]].nodes.emplace_back(n);
  std::vector<bool> met(out.size(), false);
  for (const Block& part : named) {
    const std::uint32_t set = set_of[part.nodes.front().index()];
    Block& block = out[set];
    const bool is_whole = part.nodes.size() == block.nodes.size();
    if (!met[set]) {
      block.path = part.path;
      block.is_operator = part.is_operator && is_whole;
    } else {
      block.path = std::string(common_module(block.path, part.path));
    }
    met[set] = true;
  }
  return out;
}

void join(UnionFind& sets, const std::vector<NodeId>& nodes) {
  for (const NodeId node : nodes) {
    sets.join(static_cast<std::uint32_t>(nodes.front().index()),
              static_cast<std::uint32_t>(node.index()));
  }
}

std::vector<Block> in_running_order(const Graph& graph, std::vector<Block> blocks) {
  std::vector<std::uint32_t> block_of(graph.num_nodes());
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    for (const NodeId node : blocks[b].nodes) block_of[node.index()] = b;
  }
  const auto each_next = [&](std::uint32_t b, const auto& visit) {
    for (const NodeId node : blocks[b].nodes) {
      for (const NodeId next : graph.successors(node)) {
        if (block_of[next.index()] != b) visit(block_of[next.index()]);
      }
    }
  };
  const auto order =
      least_first_order(static_cast<std::uint32_t>(blocks.size()), each_next, by_own_number());
  KERF_CHECK(order.size() == blocks.size(), "blocks can run one after the other");
  std::vector<Block> out;
  out.reserve(blocks.size());
  for (const std::uint32_t b : order) out.push_back(std::move(blocks[b]));
  return out;
}

void add_to(BlockCost& sum, const BlockCost& part, bool first) {
  sum.forward += part.forward;
  sum.forward_spread += part.forward_spread;
  sum.backward += part.backward;
  sum.backward_spread += part.backward_spread;
  sum.forward_peak = std::max(sum.forward_peak, part.forward_peak);
  sum.backward_peak = std::max(sum.backward_peak, part.backward_peak);
  sum.samples = first ? part.samples : std::min(sum.samples, part.samples);
}

std::vector<BlockRow> level(const Graph& graph, const Profile& profile, int depth) {
  const std::vector<Block> modules = find_blocks(graph, {depth, {}});
  UnionFind sets(graph.num_nodes());
  for (const Block& block : modules) join(sets, block.nodes);
  for (const MeasuredBlock& block : profile.blocks) join(sets, block.nodes);
  const std::vector<std::uint32_t> set_of = sets.numbers();
  std::vector<BlockRow> out;
  for (const Block& block : as_blocks(graph, sets, modules)) {
    BlockRow& row = out.emplace_back();
    row.path = block.path;
    row.name = block.is_operator ? graph.node(block.nodes.front()).op : class_of(graph, block.path);
    row.nodes = static_cast<std::int64_t>(block.nodes.size());
    row.cost = block_sizes(graph, block.nodes, profile.batch);
  }
  for (const MeasuredBlock& block : profile.blocks) {
    BlockRow& row = out[set_of[block.nodes.front().index()]];
    add_to(row.cost, block.cost, row.blocks == 0);
    ++row.blocks;
  }
  return out;
}

}  // namespace

std::vector<Block> blocks_to_measure(const Graph& graph) {
  const Graph glued = coarsen(graph, {kAllDepths, {}});
  UnionFind sets(graph.num_nodes());
  for (const std::vector<NodeId>& group : glued.glued()) join(sets, group);
  return in_running_order(graph, as_blocks(graph, sets, find_blocks(graph, {kAllDepths, {}})));
}

BlockCost block_sizes(const Graph& graph, std::span<const NodeId> nodes, std::int64_t batch) {
  BlockCost cost;
  const Border border = find_border(graph, nodes);
  const auto tensors = [&](const std::vector<ValueId>& values) {
    Bytes sum;
    for (const ValueId id : values) {
      if (!graph.value(id).scalar) sum += graph.value(id).bytes(batch);
    }
    return sum;
  };
  cost.inputs = tensors(border.inputs);
  cost.outputs = tensors(border.outputs);
  std::vector<StorageId> storages;
  for (const ValueId id : border.weights) storages.push_back(graph.value(id).storage);
  std::sort(storages.begin(), storages.end());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  for (const StorageId id : storages) cost.weights += Bytes{graph.storage(id).bytes.eval(batch)};
  return cost;
}

void fill_levels(const Graph& graph, Profile& profile) {
  profile.levels.clear();
  if (profile.blocks.empty()) return;
  const std::size_t finest = level(graph, profile, kAllDepths).size();
  for (int depth = 0;; ++depth) {
    profile.levels.push_back(level(graph, profile, depth));
    // Depths may have as many blocks as the one before and still be opened further on.
    if (profile.levels.back().size() == finest) break;
  }
}

}  // namespace kerf
