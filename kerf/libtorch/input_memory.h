// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/runtime/batching.h"

namespace kerf {

// Looks at the memory of a call's inputs, where the graph writes. A trace knows which inputs are
// one memory and how each is laid out; a call may bring others.
class InputMemory {
 public:
  // `in_order`: nodes run one after the other, on the host, when the batch is not cut.
  InputMemory(const Graph& graph, bool in_order);

  // Throws Error(invalid_argument), naming inputs, where writes would be seen otherwise than by the
  // model. `weights` by weight of the graph; `parts`: the batch is cut.
  void check(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& weights,
             std::int64_t batch, bool parts) const;
  // The part of it that concerns strides where a batch is cut.
  void check_layouts(const std::vector<at::Tensor>& inputs, std::int64_t batch) const;
  // Inputs and weights whose memory a node may write.
  const std::vector<std::size_t>& written() const { return written_; }
  const std::vector<std::size_t>& written_weights() const { return written_weights_; }
  // Is there anything to look at? Run in order, writes are seen as in the model.
  bool looks(bool parts) const {
    return (parts || !in_order_) &&
           !(written_.empty() && written_weights_.empty() && decided_.empty());
  }

 private:
  void check_rows(const std::vector<at::Tensor>& inputs, std::size_t i, std::size_t j) const;
  void check_apart(const at::Tensor& a, std::size_t input, const at::Tensor& b, ValueId other,
                   bool parts) const;
  StorageId storage_of_input(std::size_t i) const;

  Graph graph_;
  bool in_order_;
  std::vector<BatchDim> dims_;        // by input
  std::vector<std::size_t> written_;  // inputs
  std::vector<std::size_t> written_weights_;
  struct Decided {
    std::size_t input;
    NodeId node;  // one that its strides decide about (graph/sharing.h)
  };
  std::vector<Decided> decided_;
};

}  // namespace kerf
