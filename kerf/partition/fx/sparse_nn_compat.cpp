// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kerf/partition/fx/compat.h"
#include "kerf/partition/fx/sparse_nn.h"

namespace kerf::partition::fx::compat {

Answer sparse_nn(const Request& request) {
  const std::int64_t capacity = request.devices.front().memory;
  if (std::any_of(request.devices.begin(), request.devices.end(),
                  [&](const Device& device) { return device.memory != capacity; })) {
    throw OriginalError(OriginalError::Kind::runtime, "All devices must have same memory size!");
  }
  std::vector<bool> is_embedding;
  for (const OpNode& node : request.graph.nodes()) is_embedding.push_back(node.embedding_by_text);
  SparseParts parts = split_by_kind(request.graph, is_embedding, capacity, true);
  place_by_kind(parts, request.devices, capacity);
  Answer answer;
  answer.partitions = std::move(parts.partitions);
  answer.one_device_list = parts.dense;
  answer.node_to_partition = node_to_partition(request.graph, answer.partitions);
  return answer;
}

}  // namespace kerf::partition::fx::compat
