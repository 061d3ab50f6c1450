// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kerf/libtorch/kernel.h"
#include "kerf/libtorch/stage_graphs.h"
#include "kerf/libtorch/step_clock.h"
#include "kerf/libtorch/torch_run.h"
#include "kerf/libtorch/weight_store.h"
#include "kerf/runtime/backend.h"

namespace kerf {

class TapedStage;

// A stage's program on PyTorch: kernels in order over one frame of slots.
class TorchStage : public StageRunner {
 public:
  // `graph`, `weights` and `pool` must outlive the stage. `pool`: where recordings of the program
  // live, or null with the reason why there are none.
  TorchStage(const Graph& graph, const Program& program, const Device& device, WeightStore& weights,
             const OpaqueCalls& opaque, GraphPool* pool = nullptr, std::string why_no_pool = {});
  ~TorchStage() override;

  std::vector<ParcelPtr> run(BackendRun& run, const Task& task, TaskId id,
                             std::span<const ParcelPtr> received,
                             std::vector<Event>* events) override;

  // The same without recordings and without sending, for measuring. `visit` is called before each
  // step of the program, with the values it will find. `received`: none for a stage that holds the
  // whole graph.
  using Visit = std::function<void(Kernel&, const Slots&)>;
  void run_whole(TorchRun& run, const Visit& visit, std::span<const ParcelPtr> received = {});
  // Binding counts for the first step.
  void run_timed(TorchRun& run, StepClock& clock, std::span<const ParcelPtr> received = {});
  int slot(ValueId id) const { return slot_of_[id.index()]; }  // -1: not in this stage

  const Program& program() const { return program_; }
  const StageGraphs& graphs() const { return graphs_; }

  // One task under way.
  struct Work {
    TorchRun& run;
    Frame& frame;
    std::size_t microbatch;
    std::int64_t batch() const { return run.batches[microbatch]; }
    c10::IValue& at(int slot) const { return frame.slots[static_cast<std::size_t>(slot)]; }
  };

 private:
  friend class TapedStage;  // the same stage when it trains

  std::vector<ParcelPtr> train(Work& work, const Task& task, std::span<const ParcelPtr> received,
                               std::vector<Event>* events);
  static void return_written(Frame& frame);
  void note_task(const Task& task, Nanoseconds start, const Work& work,
                 const std::shared_ptr<c10::Event>& ready, std::vector<Event>* events) const;
  // What comes from outside: the graph's inputs, then received values, wherever they are.
  std::vector<c10::IValue> places(const Work& work, std::span<const ParcelPtr> received,
                                  std::vector<Event>* events);
  void wait_for(const TorchParcel& parcel) const;
  c10::IValue receive(const TorchParcel& parcel) const;
  void add_order(const std::shared_ptr<c10::Event>& ready, std::vector<ParcelPtr>& parcels) const;
  // A parcel of `task`; what crosses devices is noted.
  c10::IValue arrive(const TorchParcel& parcel, ValueId value, const Task& task, const Work& work,
                     std::vector<Event>* events) const;
  // A graph input to be written here: a copy, where the caller's is on another device.
  at::Tensor written_input(const at::Tensor& tensor, Frame& frame) const;
  // Fills the frame: weights, and `places` on this stage's device.
  void bind(const Work& work, std::vector<c10::IValue>& places);
  void bind_weights(const Work& work);
  c10::IValue to_device(c10::IValue value) const;
  void copy_written(const Work& work, const std::vector<ValueId>& group) const;
  std::vector<c10::IValue> execute(const Work& work, std::vector<c10::IValue>& places);
  void execute_step(std::size_t step, const Work& work);
  void run_kernel(Kernel& kernel, const Work& work);
  // Is what stands in the value's slot what the graph says it is?
  void check_slot(ValueId value, const Work& work) const;
  // "stage 1 on cpu:1 (micro-batch 2)"
  std::string place_of(const Work& work) const;
  [[noreturn]] void fail(const Work& work, const std::exception& error,
                         const std::string& message) const;
  [[noreturn]] void fail_forward(const Kernel& kernel, const Work& work,
                                 const std::exception& error) const;
  // `step`: the one whose backward was running, or the number of steps.
  [[noreturn]] void fail_backward(std::size_t step, const Work& work,
                                  const std::exception& error) const;
  void check_loss(const at::Tensor& loss) const;
  void check_on_device(std::size_t step, const Work& work) const;
  void find_generators();
  void seed_generators(const Work& work);
  std::shared_ptr<c10::Event> mark_ready() const;

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
  std::unique_ptr<TapedStage> taped_;
};

}  // namespace kerf
