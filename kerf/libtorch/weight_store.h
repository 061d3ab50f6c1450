// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// The model's own tensors, by weight of the graph. Where a stage is on another device than the
// weight, a copy is kept there and refreshed when the weight has changed.
class WeightStore {
 public:
  // One tensor for each of the graph's weights. Throws Error(invalid_argument) where shape or dtype
  // is another than the graph's.
  WeightStore(const Graph& graph, std::vector<at::Tensor> tensors);

  // Other tensors for the same weights (load_state_dict with assign=True makes some). Same checks.
  void replace(std::vector<at::Tensor> tensors);

  // To be called before each run, by one thread: refuses weights that were moved or converted since
  // (model.to(), model.half()), refreshes copies.
  void prepare_run();

  // Grows whenever a weight was written (by anybody, through PyTorch) or replaced.
  std::uint64_t num_edits() const;

  // The model's own tensor.
  const at::Tensor& original(std::size_t weight) const { return tensors_[weight]; }
  // The tensor of a weight on `device`. Safe from any thread, but not while prepare_run runs.
  const at::Tensor& on(std::size_t weight, c10::Device device);

 private:
  struct Copy {
    at::Tensor tensor;
    const void* source_data = nullptr;
    std::uint32_t source_version = 0;
    bool fresh = false;
  };
  struct Given {
    c10::Device device;  // where it was when it was given
    c10::ScalarType dtype;
    std::size_t first_size;  // in given_sizes_, and how many
    std::size_t dim;
  };
  void check(std::size_t weight, const at::Tensor& tensor) const;
  void refresh(std::size_t weight, Copy& copy);
  void prefetch() const;

  Graph graph_;
  std::vector<at::Tensor> tensors_;
  std::uint64_t earlier_edits_ = 0;  // of tensors that were replaced, and how often they were
  std::vector<Given> given_;
  std::vector<std::int64_t> given_sizes_;  // of all, one after the other: read at every call
  std::mutex copies_mutex_;
  std::map<std::pair<std::size_t, std::string>, Copy> copies_;  // by weight and device
};

}  // namespace kerf
