// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs a step on paper: who makes, shares and gives up which tensor, in the order of PyTorch's
// eager mode and of its autograd engine. Private to simulate/step_memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kerf/simulate/step_memory/ledger.h"

namespace kerf {

class Step {
 public:
  // Both must outlive it.
  Step(const Graph& graph, const StepRequest& request);
  StepMemory run();

 private:
  // Places.
  bool training() const { return request_.optimizer != nullptr; }
  Bytes storage_bytes(StorageId id) const;
  StorageId storage_of(ValueId id) const { return graph_.value(id).storage; }
  bool is_region_node(std::size_t n) const { return request_.regions[n] != kNoRegion; }
  void note(std::string_view phase, std::size_t node);

  // What stays: workspaces of libraries, weights and inputs; and the state of the optimizer after
  // its first step.
  void set_up();
  void ready_matrix_library();

  // Forward.
  void count_uses();
  void forward();
  void run_node(std::size_t n, const SavedSets& sets, bool again);
  void make_outputs(std::size_t n, bool again);
  void keep(std::size_t n, const SavedSets& sets);
  void done_reading(std::size_t n);
  void give_up_storage(StorageId id);
  void end_forward();

  // Backward.
  void backward();
  void recompute(RegionNumber region);
  void backward_node(std::size_t n);
  void give_gradient(ValueId to, TensorId gradient);
  void use_workspaces(const std::vector<Bytes>& workspaces);
  TensorId gradient_for(std::size_t n, ValueId argument, TensorId incoming);
  void give_up_saved(std::size_t n);

  void optimizer_step();

  const Graph& graph_;
  const StepRequest& request_;
  Ledger ledger_;
  SavedSets sets_;    // with regions
  SavedSets inside_;  // as if nothing were recomputed: what a region keeps when it runs again
  std::vector<TensorId> storage_tensors_;    // by storage; invalid: not alive
  std::vector<int> uses_;                    // by storage: calls that read it, forward
  std::vector<int> uses_left_;               // by storage, in this pass
  std::vector<bool> stays_;                  // by storage: weights, inputs
  std::vector<MemoryKind> kinds_;            // by storage
  std::vector<bool> is_result_;              // by storage
  std::vector<std::vector<TensorId>> kept_;  // by node: owners' shares for its backward
  std::vector<TensorId> gradients_;          // by value
  std::vector<bool> ran_again_;              // by region
  std::vector<std::vector<std::size_t>> region_nodes_;
  bool has_state_ = false;  // the optimizer, after its first step
  StepMemory found_;
};

}  // namespace kerf
