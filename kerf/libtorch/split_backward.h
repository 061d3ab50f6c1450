// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A backward in two parts: gradients of inputs, for which other stages wait, and gradients of
// weights, which fill gaps (zero bubble, Qi et al. 2023).
//
//   loss ── f3 ── f2 ── f1 ── sink        inputs(): f3, f2, f1 for what leads to sinks alone
//            └ w3  └ w2  └ w1             weights(): f3 -> w3, f2 -> w2, f1 -> w1
//
// A function with a branch to a sink and one to weights is called twice, each time for one of them;
// what it was given the first time is kept for the second. Where it takes something that leads to
// weights alone (a weight, or a bias table made of one), that has a function of its own in between
// (`uses`): no other way leads there, so that the second call goes nowhere else.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "kerf/libtorch/autograd_function.h"
#include "kerf/libtorch/gradient_sink.h"

namespace kerf {

// The use of something that leads to weights alone by an operator that takes more: the function in
// between, and what is used, the leaf of a weight or made of some.
struct WeightUse {
  AutogradFunctionPtr function;
  at::Tensor used;
};

class SplitBackward {
 public:
  // From `roots` with their gradients into sinks and leaves. What gradients of weights need of the
  // graph below `roots` stays until this is destroyed.
  SplitBackward(std::vector<at::Tensor> roots, std::vector<at::Tensor> gradients,
                std::vector<WeightUse> uses);

  // To be called first: whether it can be done in two parts. Not where functions with branches both
  // ways share the use of a weight (an operator that is made of several, and uses it in each: a
  // recurrent one): calling one for its weights would call the other, too. Nor where something is
  // trained that is no weight of the stage, a parameter that the loss itself uses.
  bool find_functions(const std::vector<SunkTensor>& sinks);
  // Gradients of the sinks, in order; undefined where none came.
  std::vector<at::Tensor> inputs(const std::vector<SunkTensor>& sinks);
  // Adds to the gradients of the leaves. After `inputs`.
  void weights();

 private:
  // Uses of weights, by number, below something.
  struct Below {
    torch::autograd::edge_list uses;
    std::vector<std::size_t> numbers;
    bool others = false;  // something ends there that is below no use
  };
  struct Waiting {  // a function that has not been called for its weights
    AutogradFunctionPtr function;
    torch::autograd::variable_list gradients;  // that it was given
    Below below;                               // past no function that leads to a sink
  };
  Below find_uses(const torch::autograd::edge_list& edges) const;
  std::vector<bool> find_single_uses() const;  // by use
  // Calls a function for its weights; what goes on below uses is added to `side`, by use.
  void call(Waiting& waiting, torch::autograd::variable_list& side) const;

  std::vector<at::Tensor> roots_;
  std::vector<at::Tensor> gradients_;
  std::vector<WeightUse> uses_;
  std::vector<std::unique_ptr<Waiting>> waiting_;
  torch::autograd::edge_list leading_;  // roots that lead to a sink
  torch::autograd::variable_list leading_gradients_;
  torch::autograd::edge_list others_;  // roots below which all can wait
  torch::autograd::variable_list others_gradients_;
};

}  // namespace kerf
