// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/compat.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "kerf/partition/fx/judge.h"
#include "kerf/partition/fx/size.h"
#include "kerf/partition/fx/sparse_nn.h"

namespace kerf::partition::fx {
namespace compat {

Answer single(const Request& request, std::int64_t total_bytes, std::int64_t device_id) {
  Answer answer;
  Partition& all = answer.partitions.emplace_back();
  for (OpIndex n = 0; n < request.graph.num_nodes(); ++n) all.nodes.push_back(n);
  all.used_bytes = total_bytes;
  all.device_ids = {device_id};
  answer.node_to_partition = node_to_partition(request.graph, answer.partitions);
  return answer;
}

Answer size(const Request& request) {
  Answer answer;
  answer.partitions = greedy_by_size(request.graph, request.devices, true);
  answer.node_to_partition = node_to_partition(request.graph, answer.partitions);
  return answer;
}

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

Answer aot(const Request& request) {
  Answer answer;
  answer.node_to_partition.assign(request.graph.num_nodes(), kNoPartition);
  std::unordered_map<std::int64_t, const std::vector<std::int64_t>*> devices;
  for (const auto& [id, ids] : request.partition_to_devices) devices.emplace(id, &ids);
  std::unordered_map<std::int64_t, std::size_t> position;
  std::set<std::pair<std::size_t, OpIndex>> held;
  const auto put = [&](std::size_t p, OpIndex n) {
    if (held.emplace(p, n).second) answer.partitions[p].nodes.push_back(n);
  };
  for (const auto& [node, id] : request.node_to_partition) {
    const auto [found, fresh] = position.try_emplace(id, answer.partitions.size());
    if (fresh) {
      const auto given = devices.find(id);
      if (given == devices.end()) {
        throw OriginalError(OriginalError::Kind::key_partition, std::to_string(id), id);
      }
      Partition& partition = answer.partitions.emplace_back();
      partition.id = id;
      partition.device_ids = *given->second;
    }
    for (const OpIndex input : request.graph.inputs(node)) {
      if (request.graph.node(input).leaf) put(found->second, input);
    }
    put(found->second, node);
    answer.node_to_partition[node] = id;
  }
  for (Partition& partition : answer.partitions) {
    partition.used_bytes = used_bytes(request.graph, partition.nodes);
  }
  return answer;
}

namespace {

void require_equal_memory(std::span<const Device> devices) {
  if (std::any_of(devices.begin(), devices.end(),
                  [&](const Device& device) { return device.memory != devices.front().memory; })) {
    throw OriginalError(OriginalError::Kind::runtime, "All devices must have same memory size!");
  }
}

Answer by_mode(const Request& request) {
  if (request.mode == Mode::aot) return compat::aot(request);
  if (request.mode == Mode::single) return single(request, request.given_bytes, request.device_id);
  used_bytes(request.graph, request.graph.ops());  // the original raises where a size is missing
  switch (request.mode) {
    case Mode::sparse_nn:
      return sparse_nn(request,
                       request.mode_alone ? request.given_bytes : request.devices.front().memory);
    case Mode::cost_aware: return compat::cost_aware(request);
    case Mode::kl: return compat::kl(request);
    default: return compat::size(request);
  }
}

// What the original's partition_graph does before it calls a mode's method.
Answer choose(const Request& request) {
  if (request.devices.empty()) throw OriginalError(OriginalError::Kind::runtime, "No devices");
  if (request.graph.ops().empty()) {
    throw OriginalError(OriginalError::Kind::runtime,
                        "No Partition since no operations in the module");
  }
  if (request.mode == Mode::aot) return by_mode(request);
  std::int64_t total = 0;
  for (const OpNode& node : request.graph.nodes()) {
    total += std::max<std::int64_t>(node.total_size, 0);  // none behind the output
  }
  std::int64_t sum = 0;
  for (const Device& device : request.devices) sum += device.memory;
  const Device& largest = request.devices[largest_device(request.devices)];
  if (total <= largest.memory) return single(request, total, largest.id);
  if (total > sum) {
    throw OriginalError(OriginalError::Kind::runtime,
                        "Devices do not have enough memory for the module");
  }
  if (request.mode == Mode::sparse_nn) require_equal_memory(request.devices);
  return by_mode(request);
}

}  // namespace

void add_figures(const Request& request, Answer& answer) {
  const bool sized = std::none_of(request.graph.nodes().begin(), request.graph.nodes().end(),
                                  [](const OpNode& node) { return node.total_size == kNoSize; });
  if (!sized || !is_valid(request, answer.partitions)) return;
  const Answer figures = finish(request, answer.partitions);
  answer.cost = figures.cost;
  answer.serial_cost = figures.serial_cost;
  answer.device_bytes = figures.device_bytes;
}

}  // namespace compat

Answer partition_graph_compat(const Request& request) {
  Answer answer = request.mode_alone ? compat::by_mode(request) : compat::choose(request);
  compat::add_figures(request, answer);
  return answer;
}

}  // namespace kerf::partition::fx
