// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What one training step brings along and gathers. Tapes and leaves belong to the worker of their
// stage; the caller looks at them when all workers are done.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/libtorch/gradient_sink.h"
#include "kerf/libtorch/split_backward.h"

namespace kerf {

// The loss of a micro-batch, from the model's results: one for each output of the graph, none for
// constants. Runs user code with gradients on.
using LossCall = std::function<at::Tensor(const std::vector<c10::IValue>& results,
                                          std::size_t microbatch, std::int64_t batch)>;

// What a stage's forward of one micro-batch leaves for its backward.
struct Tape {
  struct Leaf {
    ValueId value;
    SunkTensor sunk;
    const at::Tensor& tensor() const { return sunk.tensor(); }
  };
  struct Output {
    ValueId value;
    at::Tensor made;
    const at::Tensor& tensor() const { return made; }
  };
  std::vector<Leaf> leaves;     // what came from outside and takes a gradient
  std::vector<Output> outputs;  // what was sent, with its history
  // Where gradients of weights are made apart:
  std::vector<WeightUse> uses;
  std::vector<bool> leads;  // by slot: does it lead to a leaf?
  bool whole = false;       // not this time: something that leads to weights alone is written
};

// The tensor that stands for a weight in one step: its gradients gather here, and nothing reaches
// the model before the step has succeeded.
struct WeightLeaf {
  std::size_t weight;
  NodeId user;        // the node it is for, or the last of all that use it in the stage
  at::Tensor tensor;  // undefined until the stage first runs
};

struct InputGradient {
  std::size_t input;
  at::Tensor gradient;
};

struct TrainingStep {
  TrainingStep(std::size_t num_stages, std::size_t n_microbatches)
      : stages(num_stages), losses(n_microbatches) {
    for (OfStage& stage : stages) {
      stage.tapes.resize(n_microbatches);
      stage.split.resize(n_microbatches);
      stage.input_gradients.resize(n_microbatches);
    }
  }

  LossCall loss;  // or, where it is empty, the output that is the loss:
  ValueId loss_value;
  std::vector<double> shares;  // by micro-batch: what its loss counts
  std::vector<bool> wanted;    // by input of the graph: does the caller take its gradient?

  bool apart = false;  // gradients of weights are tasks of their own

  struct OfStage {
    std::vector<Tape> tapes;                            // by micro-batch
    std::vector<std::unique_ptr<SplitBackward>> split;  // by micro-batch: weights are to come
    std::vector<WeightLeaf> leaves;
    std::vector<std::vector<InputGradient>> input_gradients;  // by micro-batch
  };
  std::vector<OfStage> stages;
  std::vector<at::Tensor> losses;  // by micro-batch, without history; written by one worker
};

}  // namespace kerf
