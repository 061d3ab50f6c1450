// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/torch_pipeline.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/libtorch/convert.h"
#include "kerf/libtorch/random.h"
#include "kerf/libtorch/torch_stage.h"
#include "kerf/plan/recording_memory.h"

namespace kerf {
namespace {

[[noreturn]] void refuse_input(const GraphInput& input, const Value& value,
                               const at::Tensor& tensor, const std::string& what) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[libtorch.pipeline] input '{}' is {}: {}; it was traced as {}; give an "
                          "input of that shape, or trace the model with this one",
                          input.path, describe(c10::IValue(tensor)), what, describe(value)));
}

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
  if (plan.n_microbatches > 1) rules();
}

const std::vector<OutputRule>& TorchPipeline::rules() {
  if (!rules_) rules_ = output_rules(graph_, reduce_);
  return *rules_;
}

void TorchPipeline::check_inputs(const std::vector<at::Tensor>& inputs) const {
  const std::int64_t batch = check_shapes(inputs);
  const bool parts = plan().n_microbatches > 1 && batch > 1;
  if (parts) input_memory_.check_layouts(inputs, batch);
}

std::int64_t TorchPipeline::check_shapes(const std::vector<at::Tensor>& inputs) const {
  KERF_CHECK(inputs.size() == graph_.inputs().size(), "one tensor for each input of the graph");
  std::int64_t batch = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const GraphInput& input = graph_.inputs()[i];
    const Value& value = graph_.value(input.value);
    const at::Tensor& tensor = inputs[i];
    if (tensor.layout() != c10::kStrided || tensor.is_meta()) {
      refuse_input(input, value, tensor, tensor.is_meta() ? "it has no data" : "it is sparse");
    }
    if (tensor.dim() != static_cast<std::int64_t>(value.shape.size())) {
      refuse_input(input, value, tensor, fmt::format("it has {} dimensions", tensor.dim()));
    }
    if (tensor.scalar_type() != to_scalar_type(value.dtype)) {
      refuse_input(input, value, tensor, "its dtype differs");
    }
    const BatchDim& at = input_dims_[i];
    if (at.dim >= 0 && batch == 0) {
      batch = tensor.size(at.dim) / at.factor;
      if (batch == 0) refuse_input(input, value, tensor, "the batch is empty");
    }
    for (std::size_t d = 0; d < value.shape.size(); ++d) {
      const std::int64_t expected = value.shape[d].eval(batch);
      if (tensor.size(static_cast<std::int64_t>(d)) == expected) continue;
      refuse_input(input, value, tensor,
                   fmt::format("dimension {} has size {}, expected {}", d,
                               tensor.size(static_cast<std::int64_t>(d)), expected));
    }
  }
  return batch;
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
  // Cutting and joining happen on this thread: what leaves is no inference tensor either.
  const c10::InferenceMode no_inference_mode(false);
  const c10::AutoGradMode no_grad(false);
  // Tensors made in inference mode have no version to count: they are written below where it is.
  std::optional<at::AutoDispatchBelowADInplaceOrView> below;
  if (writes_inference_tensors(inputs)) below.emplace();
  backend_.weights().prepare_run();
  Result result;
  result.batch = check_shapes(inputs);
  if (n_microbatches > 1 && graph_.is_static()) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[libtorch.pipeline] {} micro-batches of a graph whose batch is static; "
                    "expected 1; trace the model with a batch that can change",
                    n_microbatches));
  }
  check_conditions(graph_.conditions(), result.batch, n_microbatches, "[libtorch.pipeline]");
  TorchRun run(plan().cluster.num_devices(), executor_.runs_on_caller());
  run.batches = n_microbatches > 1 ? micro_batch_sizes(result.batch, n_microbatches)
                                   : std::vector<std::int64_t>{result.batch};
  if (run.batches.size() > 1) rules();
  run.whole = result.batch;
  check_memory(inputs, run);
  split(inputs, run);
  if (random_) run.seed = draw_seed();
  if (!executor_.runs_on_caller()) backend_.mark_inputs(run);

  Executor::Result executed =
      executor_.run(turn, run, static_cast<int>(run.batches.size()), record);
  if (autocast_ || uses_autocast()) clear_autocast_cache();
  for (std::size_t i = 0; i < graph_.outputs().size(); ++i) {
    result.outputs.push_back(output(i, executed, run, inputs));
  }
  if (record) {
    Timeline& timeline = result.timeline.emplace();
    timeline.origin = "measured";
    timeline.graph_hash = graph_.hash();
    for (const Device& device : plan().cluster.devices) timeline.devices.push_back(device.name);
    timeline.num_stages = static_cast<int>(plan().num_stages());
    timeline.n_microbatches = static_cast<int>(run.batches.size());
    timeline.events = std::move(executed.events);
  }
  return result;
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
