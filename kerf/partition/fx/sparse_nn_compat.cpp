// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kerf/partition/fx/compat.h"
#include "kerf/partition/fx/sparse_nn.h"

namespace kerf::partition::fx::compat {

Answer sparse_nn(const Request& request, std::int64_t capacity) {
  std::vector<bool> is_embedding;
  for (const OpNode& node : request.graph.nodes()) is_embedding.push_back(node.embedding_by_text);
  SparseParts parts = split_by_kind(request.graph, is_embedding, capacity, true);
  place_by_kind(parts, request.devices, capacity);
  Answer answer;
  answer.partitions = std::move(parts.partitions);
  for (std::size_t p = 0; p < answer.partitions.size(); ++p) answer.device_lists.push_back(p);
  for (const std::size_t p : parts.dense) {
    answer.device_lists[p] = *std::min_element(parts.dense.begin(), parts.dense.end());
  }
  answer.node_to_partition = node_to_partition(request.graph, answer.partitions);
  return answer;
}

}  // namespace kerf::partition::fx::compat
