// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A block of a graph with what it takes from others, ready to run by itself again and again: as a
// stage of a pipeline would, without the pipeline.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "kerf/libtorch/torch_run.h"
#include "kerf/libtorch/torch_stage.h"
#include "kerf/libtorch/training_step.h"
#include "kerf/libtorch/weight_store.h"
#include "kerf/libtorch/written_tensors.h"
#include "kerf/runtime/program.h"

namespace kerf {

using TorchParcelPtr = std::shared_ptr<const TorchParcel>;

// What all blocks of a graph have in common.
struct BlockSetting {
  const Graph& graph;
  const Device& device;
  DeviceId device_id;
  c10::Device torch_device;
  const OpaqueCalls& opaque;
  const std::vector<at::Tensor>& weights;  // the model's; those that it writes are copies
  const std::vector<at::Tensor>& inputs;   // of the graph, likewise
  std::int64_t batch;
  bool training;
};

class BlockRun {
 public:
  // `run`: entered on this thread, with the batch; the inputs of the graph are set here.
  // `received`: for each of the program's, wherever it is. Weights and inputs are brought to the
  // device, and are there as long as this lives.
  BlockRun(const BlockSetting& setting, Program program,
           const std::vector<TorchParcelPtr>& received, TorchRun& run);
  ~BlockRun();
  BlockRun(const BlockRun&) = delete;
  BlockRun& operator=(const BlockRun&) = delete;

  // Before each run: what the block writes is as it was before the first.
  void prepare();

  // Without gradients: what it sends, in the order of its program.
  std::vector<ParcelPtr> forward();
  // With autograd, and back; a forward before each backward.
  void record_forward();
  void backward();
  bool has_backward() const { return has_backward_; }

  TorchStage& stage() { return *stage_; }
  TorchRun& run() { return run_; }
  const std::vector<NodeId>& nodes() const { return nodes_; }
  const std::vector<ParcelPtr>& received() const { return received_; }
  // What backward is given: known after the first forward; null where nobody has a gradient.
  const std::vector<ParcelPtr>& gradients() const { return gradients_; }

 private:
  void bring_inputs();
  void find_own_written(const std::vector<at::Tensor>& weights);
  void make_gradients(const std::vector<ParcelPtr>& sends);

  const BlockSetting& setting_;
  Program program_;
  std::vector<NodeId> nodes_;
  WeightStore weights_;
  WrittenTensors written_;
  std::vector<at::Tensor> own_written_;        // the tensors themselves: copies of the model's
  std::vector<std::size_t> written_received_;  // positions in received_
  std::vector<TorchParcelPtr> kept_;           // received, on the device
  std::vector<ParcelPtr> received_;            // what the next run gets
  std::vector<ParcelPtr> gradients_;
  bool has_backward_ = false;
  bool knows_gradients_ = false;
  std::unique_ptr<TorchStage> stage_;
  TorchRun& run_;
  std::optional<TrainingStep> step_;
};

}  // namespace kerf
