// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// How a batch is cut into micro-batches and how their results are put together again, read from
// where B stands in the shapes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kerf/graph/batch_flow/batch_flow.h"
#include "kerf/graph/batch_flow/loss.h"
#include "kerf/graph/graph.h"

namespace kerf {

// Along which dimension a tensor is cut or joined; a dimension may hold `factor` rows a sample.
struct BatchDim {
  int dim = -1;  // -1: the tensor does not depend on the batch
  std::int64_t factor = 1;
  friend bool operator==(const BatchDim&, const BatchDim&) = default;
};

enum class Join : std::uint8_t {
  whole,        // the same for every micro-batch: the first one's
  concatenate,  // along BatchDim
  mean,         // of the micro-batches, weighted by their sizes
  sum,
};

struct OutputRule {
  Join join = Join::whole;
  BatchDim at;
};

// The sizes of the micro-batches of `batch`: n of them that differ by one sample at most, larger
// ones first, none above ceil(batch / n), which is what a plan counts with. Fewer than n when there
// are fewer samples.
std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, int n_microbatches);

// One rule for every graph input; throws Error(unsupported_operator) for an input that holds B in a
// way that cannot be cut.
std::vector<BatchDim> input_dims(const Graph& graph);

// One rule for every graph output. `reduce` says how results without B are put together: path of
// the output -> "mean" (over samples: micro-batches are weighed by their sizes), "sum" or "first".
// Throws Error(unsupported_operator), naming the output and the reason, where the model mixes
// samples, keeps state that micro-batches would leave as something else, or nobody said how a loss
// is to be reduced: then only one micro-batch is right; and
// Error(invalid_argument) where `reduce` names no output, one that has a batch dimension, or says
// what the model does not compute.
std::vector<OutputRule> output_rules(const Graph& graph,
                                     const std::map<std::string, std::string>& reduce);

// Before a batch is cut: throws Error(unsupported_operator), with the operator and the model's
// line, when the graph mixes samples or writes state that micro-batches would leave as something
// else, or when it holds an opaque block and the user has not said that the model is
// `batch_independent`. What comes back is proved or unknown; unknown is to be
// tried.
BatchVerdict check_samples_are_separate(const Graph& graph,
                                        const std::map<std::string, std::string>& reduce,
                                        bool batch_independent);

// The inputs that may hold no target that is ignored, since `reduce` calls an output that is a mean
// over targets a mean over samples. Targets that the model makes itself are up to the user.
std::vector<LossTarget> reduced_targets(const Graph& graph,
                                        const std::map<std::string, std::string>& reduce);

// The same before a batch is cut for a training step, whose results go into the loss and nowhere
// else.
struct TrainedBatch {
  BatchVerdict verdict;
  // The model's own loss is a mean over targets: right as long as these inputs hold none that is
  // ignored.
  std::vector<LossTarget> targets;
};
// `loss`: the path of the output that is the loss, or empty where the caller makes one of all
// results. `weighted`: the caller says what each micro-batch counts. Throws as above, and
// Error(invalid_argument) where the loss is not put together of micro-batches as `reduction` says.
TrainedBatch check_trained_batch(const Graph& graph, const std::string& loss,
                                 const std::string& reduction, bool weighted,
                                 bool batch_independent);

}  // namespace kerf
