// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Which nodes are in the partition that a greedy fills, so that what the next one adds to it takes
// the time of that node's inputs alone.
#pragma once

#include "kerf/partition/fx/partition.h"

namespace kerf::partition::fx {

class Growing {
 public:
  explicit Growing(const OpGraph& graph) : graph_(graph), held_(graph.num_nodes()) {}

  // extra(n, the partition).
  std::int64_t extra_bytes(OpIndex n) const {
    std::int64_t bytes = graph_.node(n).total_size;
    for (const OpIndex input : graph_.inputs(n)) {
      if (!held_[input]) bytes += graph_.node(input).output_size;
    }
    return bytes;
  }

  // The node and its leaves; the partition's bytes are kept up.
  void add(Partition& partition, OpIndex n) {
    partition.used_bytes += extra_bytes(n);
    for (const OpIndex input : graph_.inputs(n)) {
      const OpNode& leaf = graph_.node(input);
      // A leaf that is held counts in full; callers may give it two sizes.
      if (leaf.leaf && join(partition, input)) {
        partition.used_bytes += leaf.total_size - leaf.output_size;
      }
    }
    join(partition, n);
  }

  // Another one grows from here on.
  void leave(const Partition& partition) {
    for (const OpIndex n : partition.nodes) held_[n] = false;
  }

 private:
  // False: it is there already.
  bool join(Partition& partition, OpIndex n) {
    if (held_[n]) return false;
    held_[n] = true;
    partition.nodes.push_back(n);
    return true;
  }

  const OpGraph& graph_;
  std::vector<bool> held_;  // by node
};

}  // namespace kerf::partition::fx
