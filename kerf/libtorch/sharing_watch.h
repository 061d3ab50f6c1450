// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// Sees to it that a node which gives a copy or its argument's own memory, as strides ask for, gives
// what the model would give for the whole batch.
//
// A batch that runs in one piece needs little of that: PyTorch decides as it does for the model. In
// micro-batches it may decide otherwise, since rows of one sample are contiguous in any order, and
// cuts of a contiguous tensor need not be. Then the trace says what is right, if the tensors at
// hand are laid out as it says: a copy can be made, memory that was not shared is refused.
class SharingWatch {
 public:
  SharingWatch() = default;
  // Of a node that strides decide about (graph/sharing.h).
  SharingWatch(const Graph& graph, NodeId node, const std::vector<int>& slot_of,
               c10::Device device);

  bool empty() const { return pairs_.empty(); }
  // The arguments, before the node runs and takes them.
  std::vector<at::Tensor> arguments(const std::vector<c10::IValue>& slots) const;
  // After it. `batch` is a part of `whole`, or all of it. Throws Error(run_failed), without saying
  // which node.
  void check(const Graph& graph, const std::vector<at::Tensor>& arguments,
             std::vector<c10::IValue>& slots, std::int64_t batch, std::int64_t whole) const;

 private:
  struct Pair {
    ValueId argument;
    int argument_slot;
    int result_slot;
    bool traced;  // as one memory
  };
  enum class Verdict : std::uint8_t { right, copy, refuse };
  Verdict judge(const Value& value, const at::Tensor& argument, bool traced, bool shared,
                std::int64_t batch, std::int64_t whole) const;

  std::vector<Pair> pairs_;
  c10::Device device_ = c10::kCPU;
};

// Are the strides of `tensor` those that were traced, for this batch? Where there is one element
// they do not count.
bool is_laid_out_as_traced(const at::Tensor& tensor, const Value& traced, std::int64_t batch);

}  // namespace kerf
