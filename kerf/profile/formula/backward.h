// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the backward formulas see and fill.
#pragma once

#include "kerf/profile/formula/call.h"

namespace kerf::formula {

// The backward of one call that has one.
class Backward {
 public:
  Backward(const Call& call, const OpCost& forward, const Gradients& gradients, BackwardCost& cost)
      : call_(call), forward_(forward), gradients_(gradients), cost_(cost) {}

  const Call& call() const { return call_; }
  // What the forward formula said.
  const OpCost& forward() const { return forward_; }
  bool wanted(ValueId input) const {
    return call_.is_tensor(input) && gradients_.wanted(call_.id(), input);
  }
  // The tensors whose gradients are made.
  std::vector<ValueId> wanted() const;
  bool of_weight(ValueId input) const { return gradients_.of_weight(input); }

  // A kernel that makes the gradient of `input`.
  void add(ValueId input, const OpCost& kernel) {
    cost_.kernels.push_back({kernel, of_weight(input)});
  }
  // A kernel on vector units: operations an element of the largest tensor, and bytes.
  void add(ValueId input, double flops, Bytes moved) {
    add(input, OpCost{Unit::vector, flops, 0, moved});
  }
  // A gradient of `elements` elements of an input that was broadcast is summed to its size.
  void sum_to(ValueId input, double elements);

 private:
  const Call& call_;
  const OpCost& forward_;
  const Gradients& gradients_;
  BackwardCost& cost_;
};

}  // namespace kerf::formula
