// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A block of operators as one function of an autograd graph: it keeps what the block read, and runs
// the block a second time when its backward comes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <vector>

namespace kerf {

struct Again {
  // The block once more, and back from its outputs with their gradients. `inputs`: as given, those
  // with a gradient cut off from what made them. Gradients of weights go where the block puts them.
  using Rerun = std::function<void(const std::vector<c10::IValue>& inputs,
                                   const std::vector<at::Tensor>& gradients)>;
  std::vector<c10::IValue> inputs;  // what the block reads from outside
  std::string name;                 // of the block, for messages
  Rerun rerun;
};

// Gives `outputs`, made by the block without gradients, their history: one function whose backward
// is `again`. Outputs that no gradient can have stay as they are, and the rest are new tensors on
// the same memory. Throws in backward when an input was written meanwhile.
void attach(Again again, std::vector<at::Tensor>& outputs);

}  // namespace kerf
