// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kerf/libtorch/input_memory.h"
#include "kerf/libtorch/torch_backend.h"
#include "kerf/plan/timeline.h"
#include "kerf/runtime/batching.h"
#include "kerf/runtime/executor.h"

namespace kerf {

// A plan that runs: whole batches in, whole results out. Inference; weights are the model's own.
//
//   TorchPipeline pipeline(graph, plan, weights, {}, {});
//   auto result = pipeline.run({ids}, /*n_microbatches=*/4);
//
// Immutable after construction but for replace_weights; calls from several threads are served one
// after the other.
class TorchPipeline {
 public:
  struct Result {
    std::vector<c10::IValue> outputs;  // by output of the graph; constants are none
    std::int64_t batch = 0;
    std::optional<Timeline> timeline;
  };

  // What became of recording one stage on its accelerator.
  struct Recorded {
    DeviceId device;
    std::size_t recordings = 0;  // kept now, one for each form of call
    std::string why_not;         // empty, or the reason why there are none
  };

  // `weights`: one tensor for each weight of the graph. `reduce`: see runtime/batching.h.
  // `device_graphs`: record stages on accelerators and replay them, see StageGraphs.
  TorchPipeline(const Graph& graph, const Plan& plan, std::vector<at::Tensor> weights,
                OpaqueCalls opaque, std::map<std::string, std::string> reduce,
                bool device_graphs = false);

  // `inputs`: one tensor for each input of the graph. Polls (base/interrupt.h). Throws
  // Error(invalid_argument) that names the input and the dimension when a shape is another than the
  // traced one; Error(run_failed) when a stage fails, after which the pipeline can be called again.
  Result run(const std::vector<at::Tensor>& inputs, int n_microbatches, bool record = false);

  // Throws as `run` does, with the plan's micro-batches, for bad shapes and strides of inputs.
  void check_inputs(const std::vector<at::Tensor>& inputs) const;

  void replace_weights(std::vector<at::Tensor> weights);
  const Plan& plan() const { return executor_.plan(); }
  // By stage. Waits for a call that is under way.
  std::vector<Recorded> recorded();
  // Bytes that recordings hold on a device.
  std::int64_t recorded_bytes(DeviceId device);

 private:
  // The batch size of a call, 0 for a static graph.
  std::int64_t check_shapes(const std::vector<at::Tensor>& inputs) const;
  void split(const std::vector<at::Tensor>& inputs, TorchRun& run) const;
  bool writes_inference_tensors(const std::vector<at::Tensor>& inputs);
  c10::IValue output(std::size_t index, const Executor::Result& result, const TorchRun& run,
                     const std::vector<at::Tensor>& inputs);
  c10::IValue fetch(const ParcelPtr& parcel) const;
  const std::vector<OutputRule>& rules();
  bool uses_autocast() const;
  InputMemory make_input_memory() const;
  void check_memory(const std::vector<at::Tensor>& inputs, const TorchRun& run);

  Graph graph_;
  std::map<std::string, std::string> reduce_;
  std::vector<BatchDim> input_dims_;
  std::optional<std::vector<OutputRule>> rules_;  // made when micro-batches are first asked for
  bool random_ = false;
  bool autocast_ = false;
  TorchBackend backend_;
  Executor executor_;
  InputMemory input_memory_;  // after what loads the stages
};

}  // namespace kerf
