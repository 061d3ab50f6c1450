// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kerf/libtorch/kernel.h"
#include "kerf/libtorch/stage_graphs.h"
#include "kerf/libtorch/torch_run.h"
#include "kerf/libtorch/weight_store.h"
#include "kerf/runtime/backend.h"

namespace kerf {

// A stage's program on PyTorch: kernels in order over one frame of slots.
class TorchStage : public StageRunner {
 public:
  // `graph`, `weights` and `pool` must outlive the stage. `pool`: where recordings of the program
  // live, or null with the reason why there are none.
  TorchStage(const Graph& graph, const Program& program, const Device& device, WeightStore& weights,
             const OpaqueCalls& opaque, GraphPool* pool = nullptr, std::string why_no_pool = {});

  std::vector<ParcelPtr> run(BackendRun& run, const Task& task, TaskId id,
                             std::span<const ParcelPtr> received,
                             std::vector<Event>* events) override;

  // The same without parcels, for measuring: `inputs` by input of the graph; step_ns[i] gets the
  // time of step i. One stage that holds the whole graph only.
  void run_timed(TorchRun& run, std::vector<double>& step_ns);

  const Program& program() const { return program_; }
  const StageGraphs& graphs() const { return graphs_; }

 private:
  // One task under way.
  struct Work {
    TorchRun& run;
    Frame& frame;
    std::size_t microbatch;
    std::int64_t batch() const { return run.batches[microbatch]; }
    c10::IValue& at(int slot) const { return frame.slots[static_cast<std::size_t>(slot)]; }
  };

  // What comes from outside: the graph's inputs, then received values, wherever they are.
  std::vector<c10::IValue> places(const Work& work, std::span<const ParcelPtr> received,
                                  std::vector<Event>* events);
  c10::IValue receive(const TorchParcel& parcel) const;
  // A graph input to be written here: a copy, where the caller's is on another device.
  at::Tensor written_input(const at::Tensor& tensor, Frame& frame) const;
  // Fills the frame: weights, and `places` on this stage's device.
  void bind(const Work& work, std::vector<c10::IValue>& places);
  void copy_written(const Work& work, const std::vector<ValueId>& group) const;
  std::vector<c10::IValue> execute(const Work& work, std::vector<c10::IValue>& places);
  void execute_step(std::size_t step, const Work& work);
  void run_kernel(Kernel& kernel, const Work& work);
  // Is what stands in the value's slot what the graph says it is?
  void check_slot(ValueId value, const Work& work) const;
  [[noreturn]] void fail(const Kernel& kernel, const Work& work, const std::string& reason) const;
  void check_on_device(std::size_t step, const Work& work) const;
  void find_generators();
  void seed_generators(const Work& work);
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
  bool watches_sharing_ = false;                           // does a kernel? (SharingWatch)
  std::vector<std::vector<int>> cleared_;                  // slots to empty after a step
  std::size_t num_slots_ = 0;                              // of a frame
  StageGraphs graphs_;
  std::vector<std::size_t> drawing_;       // kernels that draw from a generator of their own
  std::vector<at::Generator> generators_;  // of these
};

}  // namespace kerf
