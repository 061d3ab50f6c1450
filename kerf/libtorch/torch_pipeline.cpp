// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/torch_pipeline.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/base/interrupt.h"
#include "kerf/libtorch/block_gradients.h"
#include "kerf/libtorch/input_shapes.h"
#include "kerf/libtorch/random.h"
#include "kerf/libtorch/torch_stage.h"
#include "kerf/plan/recording_memory.h"

namespace kerf {
namespace {

// By device: recordings are made where the plan's limit leaves room for them.
std::vector<std::string> why_not_recorded(const Plan& plan, bool asked) {
  std::vector<std::string> out(plan.cluster.num_devices());
  for (std::size_t d = 0; d < out.size(); ++d) {
    const Bytes needed = recording_memory(plan, DeviceId(d));
    const DeviceMemory memory = d < plan.memory.size() ? plan.memory[d] : DeviceMemory{};
    if (!asked) {
      out[d] = "it was turned off";
    } else if (memory.limited && memory.limit < memory.predicted + needed) {
      out[d] = fmt::format("recordings may take {} on top of the predicted {}, and the limit is {}",
                           to_string(needed), to_string(memory.predicted), to_string(memory.limit));
    }
  }
  return out;
}

}  // namespace

TorchPipeline::TorchPipeline(const Graph& graph, const Plan& plan, std::vector<at::Tensor> weights,
                             OpaqueCalls opaque, std::map<std::string, std::string> reduce,
                             bool device_graphs)
    : graph_(graph),
      reduce_(std::move(reduce)),
      input_dims_(input_dims(graph)),
      backend_(graph, plan.cluster, std::move(weights), std::move(opaque),
               why_not_recorded(plan, device_graphs)),
      executor_(graph, plan, backend_),
      input_memory_(make_input_memory()) {
  for (const Node& node : graph.nodes()) {
    random_ = random_ || node.random;
    for (const Autocast& state : node.autocast) autocast_ = autocast_ || state.enabled;
  }
  if (plan.n_microbatches > 1 && !plan.training) rules();
}

const std::vector<OutputRule>& TorchPipeline::rules() {
  if (!rules_) rules_ = output_rules(graph_, reduce_);
  return *rules_;
}

void TorchPipeline::check_inputs(const std::vector<at::Tensor>& inputs) const {
  const std::int64_t batch = check_input_shapes(graph_, input_dims_, inputs);
  const bool parts = plan().n_microbatches > 1 && batch > 1;
  if (parts) input_memory_.check_layouts(inputs, batch);
}

void TorchPipeline::split(const std::vector<at::Tensor>& inputs, TorchRun& run) const {
  std::int64_t done = 0;
  for (const std::int64_t batch : run.batches) {
    std::vector<at::Tensor>& part = run.inputs.emplace_back(inputs);
    for (std::size_t i = 0; i < inputs.size() && run.batches.size() > 1; ++i) {
      const BatchDim& at = input_dims_[i];
      if (at.dim < 0) continue;
      part[i] = inputs[i].narrow(at.dim, done * at.factor, batch * at.factor);
    }
    done += batch;
  }
}

InputMemory TorchPipeline::make_input_memory() const {
  const auto is_on_host = [&](const TorchStage* stage) {
    return backend_.torch_device(stage->program().device).is_cpu();
  };
  const auto& stages = backend_.stages();
  return {graph_, stages.size() == 1 && is_on_host(stages[0])};
}

void TorchPipeline::check_memory(const std::vector<at::Tensor>& inputs, const TorchRun& run) {
  const bool parts = run.batches.size() > 1;
  if (!input_memory_.looks(parts)) return;
  std::vector<at::Tensor> weights;
  weights.reserve(graph_.weights().size());
  for (std::size_t w = 0; w < graph_.weights().size(); ++w) {
    weights.push_back(backend_.weights().original(w));
  }
  input_memory_.check(inputs, weights, run.whole, parts);
}

bool TorchPipeline::writes_inference_tensors(const std::vector<at::Tensor>& inputs) {
  const auto& written = input_memory_.written();
  const auto& weights = input_memory_.written_weights();
  return std::any_of(written.begin(), written.end(),
                     [&](std::size_t i) { return inputs[i].is_inference(); }) ||
         std::any_of(weights.begin(), weights.end(),
                     [&](std::size_t w) { return backend_.weights().original(w).is_inference(); });
}

TorchPipeline::Result TorchPipeline::run(const std::vector<at::Tensor>& inputs, int n_microbatches,
                                         bool record) {
  Turn turn(executor_.turns());  // one call at a time: weights are checked, then used
  // Calls whose memory is recorded are alone, and those of a stream are not.
  const std::unique_ptr<Call> call = make_call(inputs, n_microbatches, record);
  if (record) backend_.record_memory(call->run);
  start(turn, *call);
  return finish(*call);
}

// Cutting and joining happen on the caller's thread: what leaves is no inference tensor either.
// Tensors made in inference mode have no version to count: they are written below where it is.
struct TorchPipeline::CallModes {
  CallModes(TorchPipeline& pipeline, const std::vector<at::Tensor>& inputs) {
    if (pipeline.writes_inference_tensors(inputs)) below.emplace();
  }
  const c10::InferenceMode no_inference_mode{false};
  const c10::AutoGradMode no_grad{false};
  std::optional<at::AutoDispatchBelowADInplaceOrView> below;
};

std::unique_ptr<TorchPipeline::Call> TorchPipeline::make_call(const std::vector<at::Tensor>& inputs,
                                                              int n_microbatches, bool record) {
  const CallModes modes(*this, inputs);
  auto call =
      std::make_unique<Call>(inputs, plan().cluster.num_devices(), executor_.runs_on_caller());
  call->record = record;
  prepare(inputs, n_microbatches, call->run);
  if (call->run.batches.size() > 1) rules();
  return call;
}

void TorchPipeline::start(Turn& turn, Call& call) {
  call.started =
      executor_.start(turn, call.run, static_cast<int>(call.run.batches.size()), call.record);
}

std::unique_ptr<TorchPipeline::Call> TorchPipeline::start(Turn& turn,
                                                          const std::vector<at::Tensor>& inputs,
                                                          int n_microbatches, bool record) {
  std::unique_ptr<Call> call = make_call(inputs, n_microbatches, record);
  start(turn, *call);
  return call;
}

TorchPipeline::Result TorchPipeline::finish(Call& call) {
  const CallModes modes(*this, call.inputs);
  Executor::Result executed = executor_.finish(*call.started);
  if (autocast_ || uses_autocast()) clear_autocast_cache();
  Result result;
  result.batch = call.run.whole;
  for (std::size_t i = 0; i < graph_.outputs().size(); ++i) {
    result.outputs.push_back(output(i, executed, call.run, call.inputs));
    recount_result(result.outputs.back(), call.run);
  }
  if (call.record) result.timeline = make_timeline(std::move(executed.events), call.run);
  return result;
}

void TorchPipeline::prepare(const std::vector<at::Tensor>& inputs, int n_microbatches,
                            TorchRun& run) {
  backend_.weights().prepare_run();
  run.whole = check_input_shapes(graph_, input_dims_, inputs);
  if (n_microbatches > 1 && graph_.is_static()) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[libtorch.pipeline] {} micro-batches of a graph whose batch is static; "
                    "expected 1; trace the model with a batch that can change",
                    n_microbatches));
  }
  check_conditions(graph_.conditions(), run.whole, n_microbatches, "[libtorch.pipeline]");
  run.batches = n_microbatches > 1 ? micro_batch_sizes(run.whole, n_microbatches)
                                   : std::vector<std::int64_t>{run.whole};
  check_memory(inputs, run);
  split(inputs, run);
  if (random_) run.seed = draw_seed();
  if (!executor_.runs_on_caller()) backend_.mark_inputs(run);
}

Timeline TorchPipeline::make_timeline(std::vector<Event> events, const TorchRun& run) const {
  Timeline timeline;
  timeline.origin = "measured";
  timeline.graph_hash = graph_.hash();
  for (const Device& device : plan().cluster.devices) timeline.devices.push_back(device.name);
  timeline.num_stages = static_cast<int>(plan().num_stages());
  timeline.n_microbatches = static_cast<int>(run.batches.size());
  timeline.events = std::move(events);
  if (run.memory) timeline.memory = run.memory->curves();
  return timeline;
}

// A weight that was frozen when the plan was made has no backward in it.
void TorchPipeline::check_trained() {
  for (std::size_t w = 0; w < graph_.weights().size(); ++w) {
    const Weight& weight = graph_.weights()[w];
    const at::Tensor& tensor = backend_.weights().original(w);
    if (!tensor.requires_grad() || graph_.value(weight.value).requires_grad) continue;
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[libtorch.train] weight '{}' requires a gradient and did not when the "
                            "model was traced; expected no more trained weights than then; trace "
                            "and plan again, or set requires_grad_(False)",
                            weight.names[0]));
  }
}

std::vector<double> TorchPipeline::shares(const Training& training, const TorchRun& run) const {
  const std::size_t count = run.batches.size();
  if (training.reduction == Training::Reduction::sum) return std::vector<double>(count, 1.0);
  std::vector<double> out = training.weights;
  if (out.empty()) out.assign(run.batches.begin(), run.batches.end());
  if (out.size() != count) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[libtorch.train] {} weights for {} micro-batches; expected one each",
                            out.size(), count));
  }
  double total = 0;
  for (const double weight : out) total += weight;
  if (count == 1) return {1.0};  // a static batch has no size
  if (!(total > 0)) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[libtorch.train] the weights of the micro-batches add up to {}; "
                            "expected more than 0; give a batch with something to learn from",
                            total));
  }
  for (double& weight : out) weight /= total;
  return out;
}

namespace {

// Buffers that the model writes, to be put back when a step fails.
class WrittenBuffers {
 public:
  WrittenBuffers(const Graph& graph, const WeightStore& weights) {
    for (std::size_t w = 0; w < graph.weights().size(); ++w) {
      if (!graph.is_written(graph.value(graph.weights()[w].value).storage)) continue;
      const at::Tensor tensor = weights.original(w).detach();
      kept_.emplace_back(tensor, tensor.clone());
    }
  }
  void restore() {
    for (auto& [tensor, copy] : kept_) tensor.copy_(copy);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

at::Tensor sum_of(const at::Tensor& sum, const at::Tensor& part) {
  if (!sum.defined()) return part;
  const at::Tensor here = part.to(sum.device(), part.scalar_type());
  return sum.is_sparse() && !here.is_sparse() ? here.add(sum) : sum.add(here);
}

// Refused before anything is added: a step is there as a whole or not at all.
void check_addable(const at::Tensor& gradient, const std::string& weight) {
  const bool inference = gradient.is_inference();
  const bool overlaps =
      !gradient.is_sparse() && at::has_internal_overlap(gradient) == at::MemOverlap::Yes;
  if (!inference && !overlaps) return;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("[libtorch.train] the gradient of weight '{}' {}, and nothing can be added to "
                  "it; expected a plain tensor; set it to None, or to a clone",
                  weight,
                  inference ? "was made in inference mode" : "has one number in many places"));
}

}  // namespace

TorchPipeline::Trained TorchPipeline::train(const std::vector<at::Tensor>& inputs,
                                            int n_microbatches, const Training& training,
                                            bool record) {
  Turn turn(executor_.turns());
  const c10::InferenceMode no_inference_mode(false);
  const c10::AutoGradMode no_grad(false);
  check_trained();
  TorchRun run(plan().cluster.num_devices(), executor_.runs_on_caller());
  prepare(inputs, n_microbatches, run);
  if (record) backend_.record_memory(run);
  TrainingStep step(plan().num_stages(), run.batches.size());
  step.loss = training.loss;
  if (!step.loss) step.loss_value = loss_value(training.loss_output);
  step.shares = shares(training, run);
  step.apart = schedule_kind(plan().schedule).apart;
  for (const at::Tensor& input : inputs) step.wanted.push_back(input.requires_grad());
  run.training = &step;
  WrittenBuffers buffers(graph_, backend_.weights());
  BlockGradients blocks(graph_, backend_.weights());
  Trained out;
  try {
    Executor::Result executed =
        executor_.train(turn, run, static_cast<int>(run.batches.size()), record);
    backend_.wait_for_workers(run);
    for (std::size_t m = 0; m < step.losses.size(); ++m) {
      const double share = step.shares[m];
      if (share == 0.0 && out.loss.defined()) continue;  // it may be a mean of nothing
      out.loss = sum_of(out.loss, share == 1.0 ? step.losses[m] : step.losses[m].mul(share));
    }
    out.input_gradients = input_gradients(step, run);
    if (record) out.timeline = make_timeline(std::move(executed.events), run);
    poll_interrupt_now();  // whoever wants no step is heard before it counts
    add_gradients(step, blocks.take());
  } catch (...) {
    buffers.restore();
    if (autocast_ || uses_autocast()) clear_autocast_cache();
    throw;
  }
  if (autocast_ || uses_autocast()) clear_autocast_cache();
  return out;
}

ValueId TorchPipeline::loss_value(std::size_t output) const {
  const GraphOutput& found = graph_.outputs().at(output);
  const auto* const id = found.leaf.find<ValueId>();
  if (id != nullptr && graph_.value(*id).origin == Origin::node && !graph_.value(*id).scalar) {
    return *id;
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[libtorch.train] output '{}' is no tensor that the model computes; "
                          "expected its loss; name another output, or give loss_fn=",
                          found.path));
}

// Users from the last to the first, as autograd adds up in one graph. Nothing is written before all
// sums are there.
void TorchPipeline::add_gradients(const TrainingStep& step, const std::vector<WeightLeaf>& blocks) {
  std::map<std::size_t, std::vector<const WeightLeaf*>> by_weight;
  for (const WeightLeaf& leaf : blocks) by_weight[leaf.weight].push_back(&leaf);
  for (const TrainingStep::OfStage& stage : step.stages) {
    for (const WeightLeaf& leaf : stage.leaves) {
      if (leaf.tensor.grad().defined()) by_weight[leaf.weight].push_back(&leaf);
    }
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> sums;  // weight and gradient
  for (auto& [weight, leaves] : by_weight) {
    std::sort(leaves.begin(), leaves.end(),
              [](const WeightLeaf* a, const WeightLeaf* b) { return a->user > b->user; });
    const at::Tensor& tensor = backend_.weights().original(weight);
    at::Tensor sum;
    for (const WeightLeaf* leaf : leaves) sum = sum_of(sum, leaf->tensor.grad());
    sums.emplace_back(tensor, sum.to(tensor.device(), tensor.scalar_type()));
  }
  for (const auto& [weight, leaves] : by_weight) {
    const at::Tensor& gradient = backend_.weights().original(weight).grad();
    if (gradient.defined()) check_addable(gradient, graph_.weights()[weight].names[0]);
  }
  for (auto& [weight, sum] : sums) {
    at::Tensor& gradient = weight.mutable_grad();
    if (!gradient.defined()) {
      gradient = sum;
    } else if (gradient.is_sparse() && !sum.is_sparse()) {
      gradient = sum.add(gradient);
    } else {
      gradient.add_(sum);
    }
  }
}

std::vector<at::Tensor> TorchPipeline::input_gradients(const TrainingStep& step,
                                                       const TorchRun& run) const {
  std::vector<at::Tensor> out(graph_.inputs().size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!step.wanted[i]) continue;
    std::vector<at::Tensor> parts(run.batches.size());
    for (std::size_t m = 0; m < parts.size(); ++m) {
      for (auto stage = step.stages.rbegin(); stage != step.stages.rend(); ++stage) {
        for (const InputGradient& found : stage->input_gradients[m]) {
          if (found.input == i) parts[m] = sum_of(parts[m], found.gradient);
        }
      }
      if (!parts[m].defined()) parts[m] = at::zeros_like(run.inputs[m][i]);
    }
    if (input_dims_[i].dim >= 0) {
      out[i] = parts.size() == 1 ? parts[0] : at::cat(parts, input_dims_[i].dim);
    } else {
      for (const at::Tensor& part : parts) out[i] = sum_of(out[i], part);
    }
  }
  return out;
}

bool TorchPipeline::uses_autocast() const {
  for (std::size_t d = 0; d < plan().cluster.num_devices(); ++d) {
    if (autocast_enabled(backend_.torch_device(DeviceId(d)))) return true;
  }
  return false;
}

// Makes a result safe to use on the caller's stream.
c10::IValue TorchPipeline::fetch(const ParcelPtr& parcel) const {
  const auto& made = static_cast<const TorchParcel&>(*parcel);
  if (made.ready && made.value.isTensor() && !made.value.toTensor().device().is_cpu()) {
    const at::Tensor& tensor = made.value.toTensor();
    const c10::Stream stream =
        c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
    made.ready->block(stream);
    tensor.record_stream(stream);
  }
  return made.value;
}

c10::IValue TorchPipeline::output(std::size_t index, const Executor::Result& result,
                                  const TorchRun& run, const std::vector<at::Tensor>& inputs) {
  const Argument& leaf = graph_.outputs()[index].leaf;
  if (const auto* size = leaf.find<Expr>()) {
    std::int64_t batch = 0;
    for (const std::int64_t part : run.batches) batch += part;
    return size->eval(batch);
  }
  const auto* id = leaf.find<ValueId>();
  if (id == nullptr) return {};
  const Value& value = graph_.value(*id);
  if (value.origin == Origin::input) return inputs[value.position];
  if (value.origin == Origin::weight) {
    return backend_.weights().original(value.position);
  }
  if (run.batches.size() == 1) return fetch(result.parcels[0][id->index()]);

  const OutputRule& rule = rules()[index];
  if (rule.join == Join::whole) return fetch(result.parcels[0][id->index()]);
  // What is joined lies where the first part was made.
  const MemoryRecord::Scope joining(
      run.memory, static_cast<const TorchParcel&>(*result.parcels[0][id->index()]).device);
  std::vector<at::Tensor> parts;
  for (const auto& parcels : result.parcels)
    parts.push_back(fetch(parcels[id->index()]).toTensor());
  if (rule.join == Join::concatenate) return at::cat(parts, rule.at.dim);
  std::int64_t total = 0;
  for (const std::int64_t batch : run.batches) total += batch;
  at::Tensor sum;
  for (std::size_t m = 0; m < parts.size(); ++m) {
    const double weight = rule.join == Join::sum
                              ? 1.0
                              : static_cast<double>(run.batches[m]) / static_cast<double>(total);
    const at::Tensor part = rule.join == Join::sum ? parts[m] : parts[m].mul(weight);
    sum = sum.defined() ? sum.add(part) : part;
  }
  return sum;
}

std::vector<TorchPipeline::Recorded> TorchPipeline::recorded() {
  const Turn turn(executor_.turns());
  std::vector<Recorded> out;
  for (const TorchStage* stage : backend_.stages()) {
    out.push_back(
        {stage->program().device, stage->graphs().num_recordings(), stage->graphs().why_not()});
  }
  return out;
}

std::int64_t TorchPipeline::recorded_bytes(DeviceId device) {
  const Turn turn(executor_.turns());
  return backend_.recorded_bytes(device);
}

void TorchPipeline::replace_weights(std::vector<at::Tensor> weights) {
  const Turn turn(executor_.turns());
  backend_.weights().replace(std::move(weights));
}

}  // namespace kerf
