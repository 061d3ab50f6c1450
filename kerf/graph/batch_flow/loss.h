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
  // Losses among its parts that take the mean over the targets that they do not ignore: a part of
  // a mean over samples only where none is ignored.
  std::vector<NodeId> counting;
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

// The elements of an input of the graph become targets, of which those that are `ignored` count for
// nothing.
struct LossTarget {
  std::size_t input = 0;
  std::int64_t ignored = 0;
  friend bool operator==(const LossTarget&, const LossTarget&) = default;
};
// As long as none of these is ignored, every sample has as many targets as any other, and a mean or
// weighted mean is one over samples. Nothing where the inputs do not tell: a mean that is weighted
// by something else, or targets that the model makes with more than views and padding.
std::optional<std::vector<LossTarget>> loss_targets(const Graph& graph, const BatchFlow& flow,
                                                    const LossShape& shape);

}  // namespace kerf
