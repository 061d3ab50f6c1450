// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/libtorch/training_step.h"
#include "kerf/libtorch/weight_store.h"

namespace kerf {

// Opaque blocks use the model's own parameters, and so does whatever uses one that forward writes:
// autograd adds to their gradients while a step runs. What was there is put aside: it comes back
// with the step's success, or without it.
class BlockGradients {
 public:
  BlockGradients(const Graph& graph, const WeightStore& weights);
  ~BlockGradients() { take(); }
  BlockGradients(const BlockGradients&) = delete;
  BlockGradients& operator=(const BlockGradients&) = delete;

  // What the step has added, as leaves of their weights; parameters have their own gradients again.
  std::vector<WeightLeaf> take();

 private:
  struct Kept {
    WeightLeaf own;
    at::Tensor before;
  };
  std::vector<Kept> kept_;
};

}  // namespace kerf
