// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "kerf/base/infinity.h"
#include "kerf/base/sort_unique.h"
#include "kerf/partition/fx/placement.h"

namespace kerf::partition::fx {
namespace {

bool reads(const OpGraph& graph, OpIndex node, OpIndex input) {
  const auto inputs = graph.inputs(node);
  return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
}

std::int64_t edge_bytes(const OpGraph& graph, OpIndex from, OpIndex to) {
  std::int64_t bytes = graph.node(from).output_size;
  for (const OpIndex input : graph.inputs(to)) {
    if (graph.node(input).leaf && reads(graph, from, input)) bytes += graph.node(input).output_size;
  }
  return bytes;
}

}  // namespace

OpTable::OpTable(const Request& request) : node(request.graph.ops()) {
  const OpGraph& graph = request.graph;
  const bool exact = request.accounting == Accounting::exact;
  charge_every_reader = !exact;
  std::vector<std::uint32_t> number(graph.num_nodes(), kNoIndex);
  for (std::uint32_t op = 0; op < node.size(); ++op) number[node[op]] = op;
  std::vector<std::uint32_t> leaf_item(graph.num_nodes(), kNoIndex);
  std::unordered_map<std::uint32_t, std::uint32_t> weight_item;
  const auto new_item = [&](std::int64_t bytes) {
    item_bytes.push_back(bytes);
    return static_cast<std::uint32_t>(item_bytes.size() - 1);
  };
  std::vector<std::uint32_t> held;  // of the op at hand
  const auto use_weights = [&](const OpNode& user) {
    for (const auto& [weight, bytes] : user.weights) {
      const auto [found, fresh] = weight_item.try_emplace(weight, 0);
      if (fresh) found->second = new_item(bytes);
      held.push_back(found->second);
    }
  };

  std::vector<std::size_t> out_count(node.size() + 1, 0);
  in_begin.push_back(0);
  for (std::uint32_t op = 0; op < node.size(); ++op) {
    const OpNode& self = graph.node(node[op]);
    time.push_back(std::isnan(self.latency()) ? 0 : self.latency());
    output_bytes.push_back(self.output_size);
    own_bytes.push_back(exact ? self.output_size + self.inner_size : self.total_size);
    for (const OpIndex input : self.inputs) {
      if (!graph.node(input).leaf) {
        const std::int64_t bytes = edge_bytes(graph, input, node[op]);
        double seconds = request.rate > 0 ? static_cast<double>(bytes) / request.rate : 0;
        if (request.cost_model == CostModel::serial) seconds += request.transfer_latency;
        in_edges.push_back({number[input], seconds});
        ++out_count[number[input] + 1];
      } else if (exact && !graph.node(input).weights.empty()) {
        use_weights(graph.node(input));  // a constant is its own weight
      } else {
        const OpNode& leaf = graph.node(input);
        if (leaf_item[input] == kNoIndex) {
          leaf_item[input] = new_item(exact ? leaf.output_size : leaf.total_size);
        }
        held.push_back(leaf_item[input]);
      }
    }
    if (exact) use_weights(self);
    sort_unique(held);
    shared_items.append(held);
    held.clear();
    in_begin.push_back(in_edges.size());
  }
  for (std::size_t op = 0; op < node.size(); ++op) out_count[op + 1] += out_count[op];
  out_begin = out_count;
  out_edges.resize(in_edges.size());
  for (std::uint32_t op = 0; op < node.size(); ++op) {
    for (const Edge& edge : in(op)) {
      out_edges[out_count[edge.op]++] = {op, edge.seconds};
    }
  }
}

}  // namespace kerf::partition::fx
