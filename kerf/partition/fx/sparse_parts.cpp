// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "kerf/base/sort_unique.h"
#include "kerf/partition/fx/growing.h"
#include "kerf/partition/fx/sparse_nn.h"

namespace kerf::partition::fx {
namespace {

class Splitter {
 public:
  Splitter(const OpGraph& graph, std::int64_t capacity, bool compat)
      : graph_(graph), capacity_(capacity), compat_(compat), growing_(graph) {}

  SparseParts run(const std::vector<bool>& is_embedding) {
    open_another();
    for (const OpIndex n : graph_.ops()) {
      if (is_embedding[n] != in_embedding_) {
        if (!nothing_in_it()) start_another();
        in_embedding_ = !in_embedding_;
      }
      add(n);
    }
    if (compat_ || !nothing_in_it()) {
      finish();
    } else {
      parts_.partitions.pop_back();
    }
    set_relations(graph_, parts_.partitions);
    merge(parts_.dense);
    merge(parts_.embedding);
    return std::move(parts_);
  }

 private:
  Partition& open() { return parts_.partitions.back(); }
  bool nothing_in_it() { return compat_ ? open().used_bytes == 0 : open().nodes.empty(); }

  void finish() {
    (in_embedding_ ? parts_.embedding : parts_.dense).push_back(parts_.partitions.size() - 1);
  }
  void start_another() {
    finish();
    growing_.leave(open());
    open_another();
  }
  void open_another() {
    const auto id = static_cast<std::int64_t>(parts_.partitions.size());
    parts_.partitions.emplace_back().id = id;
  }

  void add(OpIndex n) {
    if (growing_.extra_bytes(n) + open().used_bytes > capacity_) {
      if (compat_ || !nothing_in_it()) start_another();
      if (growing_.extra_bytes(n) > capacity_) too_large(n);
    }
    growing_.add(open(), n);
  }

  [[noreturn]] void too_large(OpIndex n) const {
    const OpNode& node = graph_.node(n);
    if (compat_ && node.target.empty()) {  // it adds a text to a function (S3)
      throw OriginalError(
          OriginalError::Kind::type,
          fmt::format("unsupported operand type(s) for +: '{}' and 'str'", node.target_type));
    }
    throw OriginalError(OriginalError::Kind::runtime,
                        node.target + " is too large to fit into a device");
  }

  // The smallest with the largest that fits, again and again, until the smallest finds none.
  void merge(std::vector<std::size_t>& list) {
    if (list.empty() && !compat_) return;
    do {
      set_levels(parts_.partitions);
      if (list.empty()) throw OriginalError(OriginalError::Kind::index, "pop from empty list");
    } while (merge_once(list));
  }
  bool merge_once(std::vector<std::size_t>& list) {
    std::vector<std::size_t> sorted = list;
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
      return parts_.partitions[a].used_bytes < parts_.partitions[b].used_bytes;
    });
    const std::size_t smallest = sorted.front();
    for (auto it = sorted.rbegin(); *it != smallest; ++it) {
      const Partition& small = parts_.partitions[smallest];
      const Partition& large = parts_.partitions[*it];
      if (std::abs(small.level - large.level) > 1 || both_bytes(large, small) > capacity_) continue;
      replace(list, *it, smallest);
      return true;
    }
    return false;
  }
  std::int64_t both_bytes(const Partition& a, const Partition& b) const {
    std::vector<OpIndex> nodes = a.nodes;
    nodes.insert(nodes.end(), b.nodes.begin(), b.nodes.end());
    sort_unique(nodes);
    return used_bytes(graph_, nodes);
  }
  // The two become one at the end; positions behind them move up.
  void replace(std::vector<std::size_t>& list, std::size_t a, std::size_t b) {
    combine(graph_, parts_.partitions, a, b);
    std::erase_if(list, [&](std::size_t p) { return p == a || p == b; });
    for (std::vector<std::size_t>* positions : {&parts_.dense, &parts_.embedding}) {
      for (std::size_t& p : *positions) {
        p -= static_cast<std::size_t>(p > a) + static_cast<std::size_t>(p > b);
      }
    }
    list.push_back(parts_.partitions.size() - 1);
  }

  const OpGraph& graph_;
  std::int64_t capacity_;
  bool compat_;
  bool in_embedding_ = false;
  Growing growing_;  // the open partition
  SparseParts parts_;
};

}  // namespace

SparseParts split_by_kind(const OpGraph& graph, const std::vector<bool>& is_embedding,
                          std::int64_t capacity, bool compat) {
  return Splitter(graph, capacity, compat).run(is_embedding);
}

void place_by_kind(SparseParts& parts, std::span<const Device> devices, std::int64_t capacity) {
  std::int64_t dense_bytes = 0;
  for (const std::size_t p : parts.dense) dense_bytes += parts.partitions[p].used_bytes;
  if (parts.embedding.size() > devices.size()) {
    throw OriginalError(OriginalError::Kind::runtime,
                        fmt::format("Need {} devices, but only {} provided", parts.embedding.size(),
                                    devices.size()));
  }
  std::vector<std::int64_t> used;
  for (std::size_t i = 0; i < parts.embedding.size(); ++i) {
    Partition& partition = parts.partitions[parts.embedding[i]];
    if (dense_bytes + partition.used_bytes > capacity) {
      throw OriginalError(OriginalError::Kind::runtime,
                          fmt::format("partition_{}(embedding partition) and non embedding "
                                      "partitions can not fit into one device",
                                      partition.id));
    }
    partition.device_ids = {devices[i].id};
    used.push_back(devices[i].id);
  }
  for (const std::size_t p : parts.dense) parts.partitions[p].device_ids = used;
}

}  // namespace kerf::partition::fx
