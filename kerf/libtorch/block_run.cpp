// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/block_run.h"

#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace kerf {
namespace {

const Task kForward{StageId{0}, 0, Phase::forward};
const Task kBackward{StageId{0}, 0, Phase::backward};
const TaskId kOnly{0};

// The program of a block that stands alone: gradients come for all that it sends and go to all that
// it received, and nothing is copied that `prepare` makes anew each time.
Program standing_alone(const Graph& graph, Program program, bool training) {
  program.stage = StageId{0};
  program.order_after.clear();
  program.order_before.clear();
  std::erase_if(program.copied, [](const auto& group) { return group.size() == 1; });
  if (!training) return program;
  const StageId other{1};
  for (const Send& send : program.sends) {
    if (graph.value(send.value).requires_grad) program.gradients_in.push_back({send.value, other});
  }
  for (const ValueId id : program.received) {
    if (graph.value(id).requires_grad) program.gradients_out.push_back({id, other});
  }
  program.has_backward = !program.gradients_in.empty();
  return program;
}

std::vector<NodeId> nodes_of(const Program& program) {
  std::vector<NodeId> out;
  for (const Step& step : program.steps) out.push_back(step.node);
  return out;
}

c10::IValue moved(const c10::IValue& value, c10::Device device) {
  if (!value.isTensor() || value.toTensor().device() == device) return value;
  return value.toTensor().to(device);
}

}  // namespace

BlockRun::BlockRun(const BlockSetting& setting, Program program,
                   const std::vector<TorchParcelPtr>& received, TorchRun& run)
    : setting_(setting),
      program_(standing_alone(setting.graph, std::move(program), setting.training)),
      nodes_(nodes_of(program_)),
      weights_(setting.graph, setting.weights),
      has_backward_(program_.has_backward),
      run_(run) {
  const Graph& graph = setting.graph;
  stage_ = std::make_unique<TorchStage>(graph, program_, setting.device, weights_, setting.opaque);
  run_.make_room(1);
  bring_inputs();
  std::vector<at::Tensor> own_weights(graph.weights().size());
  for (const ValueId id : program_.weights) {
    const std::size_t weight = graph.value(id).position;
    own_weights[weight] = weights_.on(weight, setting.torch_device);
  }
  written_ = WrittenTensors(graph, own_weights, run_.inputs[0]);
  find_own_written(own_weights);
  for (std::size_t i = 0; i < received.size(); ++i) {
    const Value& value = graph.value(program_.received[i]);
    auto parcel = std::make_shared<TorchParcel>(moved(received[i]->value, setting.torch_device),
                                                setting.device_id, nullptr);
    parcel->needs_gradient = value.requires_grad;
    const bool writes = std::any_of(nodes_.begin(), nodes_.end(), [&](NodeId node) {
      const auto written = graph.writes(node);
      return std::find(written.begin(), written.end(), value.storage) != written.end();
    });
    if (writes && parcel->value.isTensor()) written_received_.push_back(i);
    kept_.push_back(parcel);
    received_.push_back(std::move(parcel));
  }
}

BlockRun::~BlockRun() { run_.training = nullptr; }

void BlockRun::bring_inputs() {
  std::vector<at::Tensor> inputs(setting_.inputs.size());
  for (const ValueId id : program_.inputs) {
    const std::size_t input = setting_.graph.value(id).position;
    // What it was made from is the caller's.
    inputs[input] = setting_.inputs[input].detach().to(setting_.torch_device);
  }
  run_.inputs = {std::move(inputs)};
}

void BlockRun::find_own_written(const std::vector<at::Tensor>& weights) {
  const Graph& graph = setting_.graph;
  const auto add = [&](ValueId id, const at::Tensor& tensor) {
    if (tensor.defined() && graph.is_written(graph.value(id).storage)) {
      own_written_.push_back(tensor);
    }
  };
  for (std::size_t i = 0; i < weights.size(); ++i) add(graph.weights()[i].value, weights[i]);
  for (std::size_t i = 0; i < run_.inputs[0].size(); ++i) {
    add(graph.inputs()[i].value, run_.inputs[0][i]);
  }
}

void BlockRun::prepare() {
  const c10::AutoGradMode no_grad(false);
  written_.restore();
  // Of the pass before, whose numbers may have had gradients.
  for (at::Tensor& tensor : own_written_) {
    if (tensor.grad_fn() != nullptr) tensor.detach_();
    tensor.mutable_grad() = at::Tensor();
  }
  for (const std::size_t i : written_received_) {
    auto copy = std::make_shared<TorchParcel>(kept_[i]->value.toTensor().clone(),
                                              setting_.device_id, nullptr);
    copy->needs_gradient = kept_[i]->needs_gradient;
    received_[i] = std::move(copy);
  }
  if (!setting_.training) return;
  step_.emplace(1, 1);
  step_->wanted.clear();
  for (const GraphInput& input : setting_.graph.inputs()) {
    step_->wanted.push_back(setting_.graph.value(input.value).requires_grad);
  }
}

std::vector<ParcelPtr> BlockRun::forward() {
  run_.training = nullptr;
  return stage_->run(run_, kForward, kOnly, received_, nullptr);
}

void BlockRun::record_forward() {
  run_.training = &*step_;
  const std::vector<ParcelPtr> sends = stage_->run(run_, kForward, kOnly, received_, nullptr);
  if (!knows_gradients_) make_gradients(sends);
  run_.training = nullptr;
}

void BlockRun::make_gradients(const std::vector<ParcelPtr>& sends) {
  const c10::AutoGradMode no_grad(false);
  for (const Exchange& wanted : program_.gradients_in) {
    const auto send = std::find_if(program_.sends.begin(), program_.sends.end(),
                                   [&](const Send& each) { return each.value == wanted.value; });
    const ParcelPtr& made = sends[static_cast<std::size_t>(send - program_.sends.begin())];
    const auto& parcel = static_cast<const TorchParcel&>(*made);
    gradients_.emplace_back();
    if (!parcel.needs_gradient || !parcel.value.isTensor()) continue;
    gradients_.back() = std::make_shared<TorchParcel>(at::ones_like(parcel.value.toTensor()),
                                                      setting_.device_id, nullptr);
  }
  has_backward_ = std::any_of(gradients_.begin(), gradients_.end(),
                              [](const ParcelPtr& gradient) { return gradient != nullptr; });
  knows_gradients_ = true;
}

void BlockRun::backward() {
  run_.training = &*step_;
  stage_->run(run_, kBackward, kOnly, gradients_, nullptr);
  run_.training = nullptr;
}

}  // namespace kerf
