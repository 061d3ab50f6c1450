// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Which value of a graph stands for a tensor. Private to libtorch/symbolic.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "kerf/graph/builder.h"

namespace kerf {

class TensorBook {
 public:
  explicit TensorBook(GraphBuilder& builder) : builder_(builder) {}

  // Invalid when it is new.
  ValueId find(const at::Tensor& tensor) const;
  // The value that was last seen in its memory; invalid when the memory is new.
  ValueId find_memory(const at::Tensor& tensor) const;
  // From now on this value stands for it.
  void bind(const at::Tensor& tensor, ValueId value);

  // As the builder takes it. Holds on to the tensor and its memory.
  TensorSpec spec(std::string name, const at::Tensor& tensor);
  // Memory that has grown since it was first seen (resize_) counts at its largest.
  void note_growth(const at::Tensor& tensor, ValueId value);

 private:
  // Sparse tensors and the like have none of their own: the tensor itself is the key.
  static const void* memory_of(const at::Tensor& tensor);

  GraphBuilder& builder_;
  std::unordered_map<const void*, ValueId> values_;  // by tensor
  std::unordered_map<const void*, ValueId> latest_;  // by memory
  std::unordered_map<const void*, std::int64_t> keys_;
  std::vector<at::Tensor> held_;
  std::vector<c10::Storage> memories_;
};

}  // namespace kerf
