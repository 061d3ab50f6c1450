// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Saved sets: what each operator of a training step keeps from its forward pass for its backward.
//
//   const SavedSets sets = find_saved(graph, 32, /*accelerator=*/true);
//   const Bytes kept = saved_bytes(graph, sets, 32).total();
//
// They are sets, because q, k and v keep the tensor they are made from once: bytes of several nodes
// are those of the distinct storages among them, and of the tensors of their own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/profile/saved/regions.h"

namespace kerf {

// A value of the graph, whose whole storage stays; or, where `value` is invalid, a tensor that only
// the operator itself knows: a dropout mask, the statistics of a norm, the indices of a pool.
struct SavedTensor {
  ValueId value;
  Bytes bytes;  // of a tensor of its own; 0 for values
  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};

struct SavedSets {
  std::vector<std::uint32_t> starts{0};  // of each node's row in `tensors`, and the end
  std::vector<SavedTensor> tensors;
  // Operators that keep something no rule says exactly, ascending: fused recurrent layers, of which
  // an estimate is counted; others are taken to keep all their differentiable inputs and outputs.
  std::vector<std::string> ops_without_rule;

  std::span<const SavedTensor> of(NodeId node) const;
};

// By node, the same value at most once in a row. A node keeps nothing when no result of it requires
// a gradient. Of a recomputed region only what it reads from outside is kept, by the nodes that
// read it. Weights are listed too: they cost nothing, since they stay anyway.
//
// `accelerator`: which kernels run decides what is kept; the rules are those of PyTorch 2.11 to
// 2.13. `batch` is ignored for static graphs. Linear time, well below a microsecond a node.
SavedSets find_saved(const Graph& graph, std::int64_t batch, bool accelerator,
                     std::span<const RegionNumber> regions);
// With the regions that the model's code recomputes.
SavedSets find_saved(const Graph& graph, std::int64_t batch, bool accelerator);

// Does a rule say what an operator keeps? "aten.relu.default"
bool has_saved_rule(std::string_view op);

struct SavedBytes {
  Bytes made;    // distinct storages that nodes made, and tensors of their own
  Bytes inputs;  // distinct storages of the graph's inputs
  Bytes total() const { return made + inputs; }
};

// Weights left out. Of all nodes, or of some.
SavedBytes saved_bytes(const Graph& graph, const SavedSets& sets, std::int64_t batch);
SavedBytes saved_bytes(const Graph& graph, const SavedSets& sets, std::int64_t batch,
                       std::span<const NodeId> nodes);
// By node, each by itself: NodeCost::saved.
std::vector<Bytes> saved_alone(const Graph& graph, const SavedSets& sets, std::int64_t batch);

}  // namespace kerf
