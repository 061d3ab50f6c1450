// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// How a result without a batch dimension was made of the samples: what tells whether the mean or
// the sum over micro-batches is the model's own number.
#pragma once

#include <optional>
#include <vector>

#include "kerf/graph/batch_flow/batch_flow.h"

namespace kerf {

// Values of the argument `reduction`.
inline constexpr std::int64_t kMeanReduction = 1;
inline constexpr std::int64_t kSumReduction = 2;

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
