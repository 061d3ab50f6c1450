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
#include "kerf/libtorch/kept_memory.h"
#include "kerf/libtorch/torch_backend.h"
#include "kerf/libtorch/training_step.h"
#include "kerf/plan/timeline.h"
#include "kerf/runtime/batching.h"
#include "kerf/runtime/executor.h"

namespace kerf {

// A plan that runs: whole batches in, whole results out; weights are the model's own. A plan of
// training trains, too.
//
//   TorchPipeline pipeline(graph, plan, weights, {}, {});
//   auto result = pipeline.run({ids}, /*n_microbatches=*/4);
//   auto step = pipeline.train({ids}, /*n_microbatches=*/4, {.loss_output = 0});
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

  // A call that was started and has not been answered.
  struct Call {
    Call(const std::vector<at::Tensor>& given, std::size_t num_devices, bool on_caller)
        : inputs(given), run(num_devices, on_caller) {}
    std::vector<at::Tensor> inputs;
    TorchRun run;
    bool record = false;
    std::unique_ptr<Run> started;  // destroyed before what it works on
  };
  // The two halves of `run`, for several calls under way (torch_stream.h). `turn`: of turns(), held
  // while the call is started, and not destroyed before it is finished or stopped.
  std::unique_ptr<Call> start(Turn& turn, const std::vector<at::Tensor>& inputs, int n_microbatches,
                              bool record);
  Result finish(Call& call);
  void stop(Call& call) { executor_.stop(*call.started); }
  Turns& turns() { return executor_.turns(); }
  const Graph& graph() const { return graph_; }
  bool runs_on_caller() const { return executor_.runs_on_caller(); }
  const WeightStore& weights() { return backend_.weights(); }

  // What a training step is for.
  struct Training {
    LossCall loss;                // of each micro-batch, from the model's results; or
    std::size_t loss_output = 0;  // the output of the graph that is the loss, where `loss` is empty
    // How the losses of micro-batches make that of the batch. Mean: by `weights`, one for each
    // micro-batch, or by their samples where there are none. Sum: added up.
    enum class Reduction : std::uint8_t { mean, sum } reduction = Reduction::mean;
    std::vector<double> weights;
  };
  struct Trained {
    at::Tensor loss;                          // of the batch, without history
    std::vector<at::Tensor> input_gradients;  // by input; undefined where none was asked for
    std::optional<Timeline> timeline;
  };
  // Forward and backward of one batch; gradients are added to those of the weights. Inputs that
  // require a gradient get theirs returned. Throws as `run` does; gradients and buffers are then as
  // they were. Throws Error(invalid_argument) for a weight that requires a gradient and did not
  // when it was traced, and for losses that are no number.
  Trained train(const std::vector<at::Tensor>& inputs, int n_microbatches, const Training& training,
                bool record = false);

  // Throws as `run` does, with the plan's micro-batches, for bad shapes and strides of inputs.
  void check_inputs(const std::vector<at::Tensor>& inputs) const;

  void replace_weights(std::vector<at::Tensor> weights);
  const Plan& plan() const { return executor_.plan(); }
  // By stage. Waits for a call that is under way.
  std::vector<Recorded> recorded();
  // Bytes that recordings hold on a device.
  std::int64_t recorded_bytes(DeviceId device);

 private:
  struct CallModes;
  std::unique_ptr<Call> make_call(const std::vector<at::Tensor>& inputs, int n_microbatches,
                                  bool record);
  void start(Turn& turn, Call& call);
  void split(const std::vector<at::Tensor>& inputs, TorchRun& run) const;
  // Checks the inputs of a call, and cuts them into micro-batches.
  void prepare(const std::vector<at::Tensor>& inputs, int n_microbatches, TorchRun& run);
  void check_trained();
  ValueId loss_value(std::size_t output) const;
  std::vector<double> shares(const Training& training, const TorchRun& run) const;
  void add_gradients(const TrainingStep& step, const std::vector<WeightLeaf>& blocks);
  std::vector<at::Tensor> input_gradients(const TrainingStep& step, const TorchRun& run) const;
  Timeline make_timeline(std::vector<Event> events, const TorchRun& run) const;
  bool writes_inference_tensors(const std::vector<at::Tensor>& inputs);
  c10::IValue output(std::size_t index, const Executor::Result& result, const TorchRun& run,
                     const std::vector<at::Tensor>& inputs);
  c10::IValue fetch(const ParcelPtr& parcel) const;
  const std::vector<OutputRule>& rules();
  bool uses_autocast() const;
  InputMemory make_input_memory() const;
  void check_memory(const std::vector<at::Tensor>& inputs, const TorchRun& run);

  KeptMemory kept_memory_;
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
