// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// How a result without a batch dimension was made of the samples: what tells whether the mean or
// the sum over micro-batches is the model's own number.
#pragma once

#include <optional>
#include <vector>

#include "kerf/graph/batch_flow/batch_flow.h"
#include "kerf/graph/batch_flow/call.h"

namespace kerf {

// Values of the argument `reduction`.
inline constexpr std::int64_t kMeanReduction = 1;
inline constexpr std::int64_t kSumReduction = 2;

bool is_class_loss(std::string_view name);
// Nothing when the operator is no loss that has a rule; 0 where nothing is reduced.
std::optional<std::int64_t> loss_reduction(const Call& call);
// The state of what a loss reduces: batched when each sample has numbers of its own there.
BatchState unreduced_loss(const Call& call);

enum class LossKind : std::uint8_t {
  unknown,
  constant,       // no sample has a part in it
  mean,           // each sample counts alike
  sum,            // over the samples
  weighted_mean,  // divided by what the samples decide: targets that count, a mask's ones
};

struct LossShape {
  LossKind kind = LossKind::unknown;
  NodeId by;  // the operator that makes a mean weighted
};

LossShape loss_shape(const Graph& graph, const BatchFlow& flow, ValueId value);

enum class Sources : std::uint8_t {
  all,
  // Operators that mix samples themselves; not what is made with a number of the whole batch,
  // such as a weight that is divided by the sum of all weights.
  direct,
};

// Of a result without a batch dimension: the state of the first value on the way to it that still
// has one, and in which samples were mixed or could not be followed; fixed when there is none.
// Linear in the nodes that `value` is made by.
BatchState lost_source(const Graph& graph, const BatchFlow& flow, ValueId value, Sources sources);

// Where the targets of a weighted mean come from: as long as none of them is `ignored` in the
// inputs, every sample has as many as any other, and the mean is one over samples.
struct LossTargets {
  std::vector<std::size_t> inputs;  // of the graph
  std::int64_t ignored = 0;
};
// Of `loss`, LossShape::by of a weighted mean; nothing where classes are weighed, or something else
// than views and padding lies between the inputs and the targets.
std::optional<LossTargets> loss_targets(const Graph& graph, const BatchFlow& flow, NodeId loss);

}  // namespace kerf
