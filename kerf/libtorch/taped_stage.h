// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A stage that trains: PyTorch's autograd, one stage and one micro-batch at a time.
//
//   forward    received ──detach──► leaves        weights ──detach──► weight leaves, one set a step
//              kernels run with gradients recorded; outputs stay in the tape with their history,
//              and what is sent is cut off from it
//   backward   roots: outputs with the gradients that came back (or the loss); the engine runs into
//              the leaves, whose gradients are sent to where the leaves came from
//
// A block that is computed again (Step::block) runs forward without gradients and is one function
// of the tape, which keeps what the block read and runs it a second time (again.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kerf/libtorch/torch_stage.h"
#include "kerf/libtorch/training_step.h"

namespace kerf {

class TapedStage {
 public:
  // `stage` must outlive it.
  explicit TapedStage(TorchStage& stage);

  // What Program::sends of the micro-batch have, without history, in `sends`; and by send whether a
  // gradient is to come back.
  struct Forward {
    std::vector<c10::IValue> sends;
    std::vector<bool> needs_gradient;
  };
  // `places`: inputs of the graph, then received values; `needs[i]`: received value i has a
  // gradient to be sent.
  Forward forward(TorchStage::Work& work, std::vector<c10::IValue>& places,
                  const std::vector<bool>& needs);

  // `received`: the program's gradients_in and results_in, on this stage's device; undefined where
  // there is no gradient. Returns one for each of gradients_out, undefined likewise.
  std::vector<at::Tensor> backward(TorchStage::Work& work, const std::vector<c10::IValue>& received,
                                   const std::vector<bool>& needs);

  // Where gradients of weights are made apart: of a micro-batch whose backward has run.
  void weight_gradients(TorchStage::Work& work);

 private:
  // A weight of the stage that is trained, and where its leaf goes.
  struct Place {
    std::size_t weight;
    int slot;
    NodeId user;  // the last, where several share it
  };

  // Steps that run one after the other, and whether they are computed again.
  struct Range {
    std::size_t first;
    std::size_t last;  // one behind
    bool again = false;
    std::vector<ValueId> inputs;   // of a block that is computed again: values from outside of it
    std::vector<ValueId> outputs;  // and values that others need
    std::vector<int> buffers;      // slots of weights that it writes
  };

  TrainingStep::OfStage& own(const TorchStage::Work& work) const;
  void find_places();
  void find_ranges();
  Range describe_block(std::size_t first, std::size_t last) const;
  bool can_run_again(const Range& range) const;

  void make_leaves(const TorchStage::Work& work) const;
  void bind(TorchStage::Work& work, std::vector<c10::IValue>& places,
            const std::vector<bool>& needs, Tape& tape) const;
  bool has_route(ValueId value) const;
  std::vector<std::size_t> returned_weights() const;
  void bind_step(std::size_t step, const TorchStage::Work& work) const;
  std::vector<std::pair<int, c10::IValue>> part_ways(std::size_t step, const TorchStage::Work& work,
                                                     Tape& tape) const;
  void copy_written(const TorchStage::Work& work, const std::vector<ValueId>& group) const;
  void run_steps(TorchStage::Work& work, std::size_t first, std::size_t last);
  void run_block(TorchStage::Work& work, const Range& range);
  // `given`: all outputs were given a history.
  void run_again(const TorchStage::Work& first, const Range& range, bool given,
                 const std::vector<c10::IValue>& inputs, const std::vector<at::Tensor>& gradients);
  void mark_step(std::size_t step, const TorchStage::Work& work);

  static void refuse_own_backward(const Tape& tape);
  at::Tensor make_loss(TorchStage::Work& work, Tape& tape, const std::vector<c10::IValue>& results,
                       const std::vector<bool>& needs);
  // Says which node's backward failed, and where.
  template <class Run>
  void guarded(const TorchStage::Work& work, const Run& run);
  void execute(const TorchStage::Work& work, const std::vector<at::Tensor>& roots,
               const std::vector<at::Tensor>& gradients);
  void execute_inputs(const TorchStage::Work& work, Tape& tape, std::vector<at::Tensor> roots,
                      std::vector<at::Tensor> gradients);

  TorchStage& stage_;
  std::vector<Place> places_;
  std::vector<std::vector<std::size_t>> step_places_;  // by step: places to fill before it
  bool unsplit_ = false;  // gradients of weights are made with the others
  std::vector<Range> ranges_;
  std::size_t current_ = 0;  // the step whose backward runs
};

}  // namespace kerf
