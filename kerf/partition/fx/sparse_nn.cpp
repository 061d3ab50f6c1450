// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/sparse_nn.h"

#include <algorithm>
#include <cmath>

#include "kerf/base/error.h"
#include "kerf/partition/fx/judge.h"
#include "kerf/partition/fx/modes.h"
#include "kerf/partition/fx/size.h"

namespace kerf::partition::fx {
namespace {

// Every device may get any table: the smallest one counts.
std::int64_t capacity(const Request& request) {
  return std::min_element(request.devices.begin(), request.devices.end(),
                          [](const Device& a, const Device& b) { return a.memory < b.memory; })
      ->memory;
}

std::vector<bool> flags(const OpGraph& graph, bool OpNode::*flag) {
  std::vector<bool> out;
  for (const OpNode& node : graph.nodes()) out.push_back(node.*flag);
  return out;
}

std::optional<Answer> split(const Request& request, const std::vector<bool>& is_embedding,
                            bool compat) {
  try {
    SparseParts parts = split_by_kind(request.graph, is_embedding, capacity(request), compat);
    place_by_kind(parts, request.devices, capacity(request));
    if (!is_valid(request, parts.partitions)) return std::nullopt;
    return finish(request, std::move(parts.partitions));
  } catch (const OriginalError&) {
    return std::nullopt;
  }
}

bool some_but_not_all(const OpGraph& graph, const std::vector<bool>& is_embedding) {
  const auto embeds = [&](OpIndex n) { return is_embedding[n]; };
  return std::any_of(graph.ops().begin(), graph.ops().end(), embeds) &&
         !std::all_of(graph.ops().begin(), graph.ops().end(), embeds);
}

}  // namespace

Outcome<Answer, Infeasible> sparse_nn(const Request& request) {
  if (auto answer = all_on_one(request)) return std::move(*answer);
  const std::vector<bool> by_type = flags(request.graph, &OpNode::embedding);
  const std::vector<bool> by_text = flags(request.graph, &OpNode::embedding_by_text);
  std::optional<Answer> best;
  if (some_but_not_all(request.graph, by_type)) best = split(request, by_type, false);
  // The original's test of what is an embedding is wrong for containers, yet it may fit, or be
  // cheaper, where the right one is not.
  if (some_but_not_all(request.graph, by_text) && (!best || by_text != by_type)) {
    std::optional<Answer> other = split(request, by_text, true);
    if (other && (!best || other->cost < best->cost)) best = std::move(other);
  }
  if (best) return std::move(*best);
  if (!some_but_not_all(request.graph, by_type)) return size(request);

  // Say what is short: the dense part has to fit beside every table.
  std::vector<OpIndex> dense;
  std::int64_t table_bytes = 0;
  OpIndex largest = 0;
  for (const OpIndex n : request.graph.ops()) {
    if (!by_type[n]) {
      dense.push_back(n);
    } else if (request.graph.node(n).total_size >= table_bytes) {
      table_bytes = request.graph.node(n).total_size;
      largest = n;
    }
  }
  const std::vector<OpIndex> dense_nodes = with_leaves(request.graph, dense);
  const std::int64_t dense_bytes = used_bytes(request.graph, dense_nodes);
  const OpTable table(request);
  Infeasible reason = no_room(request, table);
  reason.needed = std::max(reason.limit + Bytes{1}, Bytes{dense_bytes + table_bytes});
  reason.short_by = reason.needed - reason.limit;
  reason.what_would_help = "sparse_nn puts every embedding next to a copy of all other nodes (" +
                           to_string(Bytes{dense_bytes}) + "; the largest embedding is '" +
                           request.graph.node(largest).name + "', " +
                           to_string(Bytes{table_bytes}) +
                           "); give the devices more memory, add devices, or use mode cost_aware";
  return reason;
}

}  // namespace kerf::partition::fx
