// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The calls of a whole graph, each with inputs of its own, made again and again for measuring:
//
//   sink <- x' --[call 1]-> y        sink <- y' --[call 2]-> z        sink <- z' ...
//
// x', y', z' are what the calls found when the graph ran, cut off from what made them. Backward
// goes from all results at once, through PyTorch's engine, and ends in sinks instead of the model:
// nothing reaches a parameter's .grad. The engine runs the functions of later calls first, so that
// it does what it would do for the whole model, and a hook before each function says whose time
// begins. An opaque block has parameters of its own, which are no values of the graph: its backward
// is asked for their gradients by name, and the engine hands them out instead of adding them up.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/libtorch/kernel.h"
#include "kerf/libtorch/step_clock.h"

namespace kerf {

class AllocatorWatch;

// Which gradients the calls are made for.
enum class GradientsOf : std::uint8_t { nothing, inputs, inputs_and_weights };

// Used by one thread.
class Sweep {
 public:
  using SlotOf = std::function<int(ValueId)>;

  // `graph` must outlive it. `batch`: of the inputs.
  Sweep(const Graph& graph, c10::Device device, std::int64_t batch);
  ~Sweep();
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  // Adds the call that `kernel`, which must outlive this, is about to make with `slots`. Nodes must
  // come in order. Tensors are held; those that the graph writes are copied.
  void add(Kernel& kernel, const Slots& slots, const SlotOf& slot_of);

  // All calls, step i = node i. Opaque blocks must follow the thread's grad mode.
  void forward(GradientsOf gradients, StepClock& clock);
  // The backward of what the last `forward` made, which is given up: gradients of one into every
  // result that somebody uses. Nodes without a backward get no time.
  void backward(StepClock& clock, AllocatorWatch* watch = nullptr);
  // Drops what the last `forward` made.
  void clear();

 private:
  struct Call;
  void prepare(Call& call, GradientsOf gradients);
  void run(Call& call);
  bool is_used(ValueId value) const { return used_[value.index()]; }
  void backward_of(std::size_t first, std::size_t last, StepClock& clock, AllocatorWatch* watch);
  void backward_of_block(std::size_t number, StepClock& clock);
  // What a call's backward begins with, and gradients of one.
  torch::autograd::edge_list take_roots(Call& call, std::vector<at::Tensor>& gradients);

  const Graph& graph_;
  c10::Device device_;
  std::int64_t batch_;
  std::vector<bool> used_;  // by value: read by a node, or a result of the model
  GradientsOf gradients_ = GradientsOf::nothing;  // of the last `forward`
  std::vector<Call> calls_;
  Slots slots_;  // of the call that is being prepared
};

}  // namespace kerf
