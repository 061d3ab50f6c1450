// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kerf/libtorch/kernel.h"
#include "kerf/libtorch/torch_run.h"
#include "kerf/libtorch/weight_store.h"
#include "kerf/runtime/backend.h"

namespace kerf {

// A stage's program on PyTorch: kernels in order over one frame of slots.
class TorchStage : public StageRunner {
 public:
  // `graph` and `weights` must outlive the stage.
  TorchStage(const Graph& graph, const Program& program, const Device& device, WeightStore& weights,
             const OpaqueCalls& opaque);

  std::vector<ParcelPtr> run(BackendRun& run, int microbatch, std::span<const ParcelPtr> received,
                             std::vector<Event>* events) override;

  // The same without parcels, for measuring: `inputs` by input of the graph; step_ns[i] gets the
  // time of step i. One stage that holds the whole graph only.
  void run_timed(TorchRun& run, std::vector<double>& step_ns);

 private:
  void bind_inputs(TorchRun& run, int microbatch, std::span<const ParcelPtr> received,
                   std::vector<Event>* events);
  c10::IValue receive(const TorchParcel& parcel) const;
  void copy_written(const std::vector<ValueId>& group);
  void execute(TorchRun& run, int microbatch);
  void execute_step(std::size_t step, TorchRun& run, int microbatch);
  void run_kernel(Kernel& kernel, TorchRun& run, int microbatch);
  [[noreturn]] void fail(const Kernel& kernel, const std::string& reason) const;
  std::shared_ptr<c10::Event> mark_ready() const;
  int slot(ValueId id) const { return slot_of_[id.index()]; }

  const Graph& graph_;
  Program program_;
  std::string device_name_;
  c10::Device device_;
  WeightStore& weights_;
  std::vector<int> slot_of_;                               // by value; -1: not in this stage
  std::vector<std::pair<int, std::size_t>> weight_slots_;  // slot, weight
  std::vector<std::pair<int, std::size_t>> input_slots_;   // slot, graph input
  std::vector<Kernel> kernels_;                            // by step
  std::vector<std::vector<int>> cleared_;                  // slots to empty after a step
  Slots slots_;                                            // the frame: empty between runs
};

}  // namespace kerf
