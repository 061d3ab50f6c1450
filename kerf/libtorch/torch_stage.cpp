// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/torch_stage.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kerf/base/error.h"
#include "kerf/base/interrupt.h"
#include "kerf/graph/sharing.h"
#include "kerf/libtorch/convert.h"
#include "kerf/libtorch/expected.h"
#include "kerf/libtorch/out_of_memory.h"
#include "kerf/libtorch/overlap.h"
#include "kerf/libtorch/random.h"
#include "kerf/libtorch/storage.h"
#include "kerf/libtorch/streams.h"
#include "kerf/libtorch/taped_stage.h"

namespace kerf {
namespace {

using Clock = std::chrono::steady_clock;

Nanoseconds since(Clock::time_point start) {
  return {std::chrono::duration<double, std::nano>(Clock::now() - start).count()};
}

// Whatever happens in a task, its frame holds no values afterwards: a recording ends with them.
struct Emptied {
  Slots& slots;
  ~Emptied() { slots.clear(); }
};

c10::IValue on_device(c10::IValue value, c10::Device device) {
  if (!value.isTensor() || value.toTensor().device() == device) return value;
  return value.toTensor().to(device, value.toTensor().scalar_type());
}

// PyTorch appends its C++ stack to messages; users want the sentence.
std::string reason(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find("\nException raised from"));
}

}  // namespace

TorchStage::TorchStage(const Graph& graph, const Program& program, const Device& device,
                       WeightStore& weights, const OpaqueCalls& opaque, GraphPool* pool,
                       std::string why_no_pool)
    : graph_(graph),
      program_(program),
      device_name_(device.name),
      device_(to_torch_device(device)),
      weights_(weights),
      slot_of_(graph.num_values(), -1),
      graphs_(graph, program, device_, pool, std::move(why_no_pool)) {
  int next = 0;
  const auto place = [&](ValueId id) { slot_of_[id.index()] = next++; };
  for (const ValueId id : program_.weights) {
    place(id);
    weight_slots_.emplace_back(slot(id), graph.value(id).position);
    weights_.on(graph.value(id).position, device_);
  }
  for (const ValueId id : program_.inputs) {
    place(id);
    input_slots_.emplace_back(slot(id), graph.value(id).position);
  }
  for (const ValueId id : program_.received) place(id);
  cleared_.resize(program_.steps.size());
  const std::vector<NodeId> decided = nodes_that_strides_decide(graph.data());
  for (std::size_t i = 0; i < program_.steps.size(); ++i) {
    const Step& step = program_.steps[i];
    const Node& node = graph.node(step.node);
    for (const ValueId id : node.outputs) {
      const bool unused = std::find(step.dead.begin(), step.dead.end(), id) != step.dead.end();
      if (id.valid() && !unused) place(id);
    }
    kernels_.emplace_back(graph, step.node, slot_of_, step.dead, device_, opaque);
    if (std::binary_search(decided.begin(), decided.end(), step.node)) {
      kernels_.back().watch_sharing(graph, slot_of_);
      watches_sharing_ = true;
    }
    // Kernels move their last uses out of the slots; an opaque block's arguments stay.
    if (node.op == "opaque") {
      for (const ValueId id : step.dead) {
        if (slot(id) >= 0) cleared_[i].push_back(slot(id));
      }
    }
  }
  num_slots_ = static_cast<std::size_t>(next);
  find_generators();
  taped_ = std::make_unique<TapedStage>(*this);
}

TorchStage::~TorchStage() = default;

void TorchStage::find_generators() {
  if (!graphs_.why_not().empty()) return;  // nothing is recorded
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    const Node& node = graph_.node(kernels_[i].node());
    if (!node.random) continue;
    const std::optional<at::Generator> own = kernels_[i].generator();
    if (!own) {
      return graphs_.refuse(fmt::format("{} ({}) draws from the device's own generator",
                                        graph_.describe(kernels_[i].node()), node.op));
    }
    drawing_.push_back(i);
    generators_.push_back(*own);
  }
}

void TorchStage::seed_generators(const Work& work) {
  for (const std::size_t i : drawing_) {
    const std::string& name = graph_.node(kernels_[i].node()).name;
    kernels_[i].seed_generator(stream_seed(work.run.seed, static_cast<int>(work.microbatch), name));
  }
}

void TorchStage::wait_for(const TorchParcel& parcel) const {
  if (parcel.ready && has_streams(device_)) {
    parcel.ready->block(current_stream(device_));
  } else if (parcel.ready) {
    parcel.ready->synchronize();
  }
}

c10::IValue TorchStage::receive(const TorchParcel& parcel) const {
  if (!parcel.value.isTensor()) return parcel.value;
  wait_for(parcel);
  const at::Tensor& tensor = parcel.value.toTensor();
  if (parcel.ready && has_streams(device_) && tensor.device() == device_) {
    tensor.record_stream(current_stream(device_));
  }
  return tensor;
}

std::vector<c10::IValue> TorchStage::places(const Work& work, std::span<const ParcelPtr> received,
                                            std::vector<Event>* events) {
  TorchRun& run = work.run;
  std::vector<c10::IValue> out;
  out.reserve(input_slots_.size() + received.size());
  for (const auto& [slot, input] : input_slots_) {
    const at::Tensor& tensor = run.inputs[work.microbatch][input];
    const StorageId storage = graph_.value(graph_.inputs()[input].value).storage;
    out.emplace_back(graph_.is_written(storage) ? written_input(tensor, work.frame) : tensor);
  }
  const Task task{program_.stage, static_cast<int>(work.microbatch), Phase::forward};
  for (std::size_t i = program_.received.size(); i < received.size(); ++i) {
    wait_for(static_cast<const TorchParcel&>(*received[i]));
  }
  for (std::size_t i = 0; i < program_.received.size(); ++i) {
    out.push_back(arrive(static_cast<const TorchParcel&>(*received[i]), program_.received[i], task,
                         work, events));
  }
  return out;
}

c10::IValue TorchStage::arrive(const TorchParcel& parcel, ValueId value, const Task& task,
                               const Work& work, std::vector<Event>* events) const {
  if (events == nullptr || parcel.device == program_.device) return receive(parcel);
  Event event;
  event.kind = EventKind::transfer;
  event.device = program_.device;
  event.from = parcel.device;
  event.stage = program_.stage;
  event.microbatch = task.microbatch;
  event.phase = task.phase;
  event.tensor = graph_.value(value).name;
  if (task.phase == Phase::backward) event.tensor.insert(0, "gradient of ");
  event.bytes = graph_.value(value).bytes(work.batch());
  event.start = since(work.run.start);
  c10::IValue out = on_device(receive(parcel), device_);  // so that the transfer can be timed
  event.end = since(work.run.start);
  events->push_back(std::move(event));
  return out;
}

// A tensor that is passed twice stays one: a write to one copy would miss the other.
at::Tensor TorchStage::written_input(const at::Tensor& tensor, Frame& frame) const {
  if (tensor.device() == device_) return tensor;
  for (const auto& [original, copy] : frame.written_inputs) {
    if (!may_share_bytes(original, tensor)) continue;
    if (original.const_data_ptr() == tensor.const_data_ptr() &&
        original.sizes() == tensor.sizes() && original.strides() == tensor.strides()) {
      return copy;
    }
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format(
            "[libtorch.run] two inputs of stage {} on {} share memory that the model writes, and "
            "are on {}; expected inputs with memory of their own; pass copies, or tensors on {}",
            program_.stage.index(), device_name_, tensor.device().str(), device_.str()));
  }
  frame.written_inputs.emplace_back(tensor, tensor.to(device_, tensor.scalar_type()));
  return frame.written_inputs.back().second;
}

c10::IValue TorchStage::to_device(c10::IValue value) const {
  return on_device(std::move(value), device_);
}

void TorchStage::bind_weights(const Work& work) {
  work.frame.slots.resize(num_slots_);
  for (const auto& [slot, weight] : weight_slots_) {
    work.at(slot) = weights_.on(weight, device_);
  }
}

void TorchStage::bind(const Work& work, std::vector<c10::IValue>& places) {
  bind_weights(work);
  std::size_t next = 0;
  const auto put = [&](int slot) { work.at(slot) = on_device(std::move(places[next++]), device_); };
  for (const auto& [slot, input] : input_slots_) put(slot);
  for (; next < places.size();) put(slot(program_.received[next - input_slots_.size()]));
  for (const auto& group : program_.copied) copy_written(work, group);
}

// Another stage may be reading what this one is about to write: give it a copy of its own, and keep
// views of one memory views of one memory.
void TorchStage::copy_written(const Work& work, const std::vector<ValueId>& group) const {
  std::map<const void*, at::Tensor> copies;  // by the original's storage; looked up only
  for (const ValueId id : group) {
    c10::IValue& place = work.at(slot(id));
    if (!place.isTensor()) continue;
    const at::Tensor& tensor = place.toTensor();
    at::Tensor& copy = copies[tensor.storage().unsafeGetStorageImpl()];
    if (!copy.defined()) copy = flat_bytes(tensor).clone();
    place = view_of(copy.storage(), tensor);
  }
}

void TorchStage::run_kernel(Kernel& kernel, const Work& work) {
  const TorchRun& run = work.run;
  const std::int64_t batch = work.batch();
  const std::int64_t whole = run.batches.size() > 1 ? run.whole : batch;
  const Node& node = graph_.node(kernel.node());
  if (!node.random && node.autocast.empty())
    return kernel.run(graph_, work.frame.slots, batch, whole);
  std::optional<AutocastScope> autocast;
  if (!node.autocast.empty()) autocast.emplace(node.autocast, device_);
  std::optional<RandomScope> random;
  if (node.random) {
    const std::uint64_t seed = stream_seed(run.seed, static_cast<int>(work.microbatch), node.name);
    // One that is being recorded was given its seed before.
    const bool own = graphs_.recording() || kernel.seed_generator(seed);
    if (!own) random.emplace(device_, seed, kernel.is_opaque());
  }
  kernel.run(graph_, work.frame.slots, batch, whole);
}

std::string TorchStage::place_of(const Work& work) const {
  const std::string part = work.run.batches.size() == 1
                               ? std::string()
                               : fmt::format(" (micro-batch {})", work.microbatch);
  return fmt::format("stage {} on {}{}", program_.stage.index(), device_name_, part);
}

void TorchStage::fail(const Work& work, const std::exception& error,
                      const std::string& message) const {
  if (is_out_of_memory(error)) throw OutOfMemory(program_.device, work.run.whole, message);
  throw Error(ErrorKind::run_failed, message);
}

void TorchStage::fail_forward(const Kernel& kernel, const Work& work,
                              const std::exception& error) const {
  fail(work, error,
       fmt::format("[libtorch.run] {} failed at {}: {}; its inputs were {}", place_of(work),
                   graph_.describe(kernel.node()), reason(error),
                   kernel.describe_inputs(work.frame.slots)));
}

void TorchStage::fail_backward(std::size_t step, const Work& work,
                               const std::exception& error) const {
  const std::string where = step < kernels_.size()
                                ? fmt::format("at {}", graph_.describe(kernels_[step].node()))
                                : "before its first operator";
  rethrow_block_error(
      fmt::format("[libtorch.train] raised in the backward of {}, {}", place_of(work), where));
  fail(work, error,
       fmt::format("[libtorch.run] the backward of {} failed {}: {}", place_of(work), where,
                   reason(error)));
}

void TorchStage::check_loss(const at::Tensor& loss) const {
  const auto refuse = [](const std::string& found, std::string_view fix) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[libtorch.train] the loss {}; expected one number that depends on the "
                            "model's parameters; {}",
                            found, fix));
  };
  if (!loss.defined() || loss.numel() != 1) {
    refuse(fmt::format("is {}", loss.defined() ? describe(c10::IValue(loss)) : "nothing"),
           "reduce it in loss_fn, with .mean() or .sum()");
  }
  if (!loss.requires_grad()) {
    refuse("has no gradient", "compute it from the model's results, with gradients on");
  }
}

void TorchStage::execute_step(std::size_t step, const Work& work) {
  Kernel& kernel = kernels_[step];
  try {
    run_kernel(kernel, work);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    rethrow_block_error(fmt::format("[libtorch.run] raised in {}, at {}", place_of(work),
                                    graph_.describe(kernel.node())));
    fail_forward(kernel, work, error);
  }
  if (kernel.is_opaque()) {
    for (const ValueId made : graph_.node(kernel.node()).outputs) {
      if (made.valid()) check_slot(made, work);
    }
  }
  for (const int cleared : cleared_[step]) work.at(cleared) = {};
}

void TorchStage::check_slot(ValueId value, const Work& work) const {
  if (slot(value) < 0) return;
  check_made(graph_, value, work.at(slot(value)), work.batch(), !autocast_enabled(device_));
}

std::vector<c10::IValue> TorchStage::execute(const Work& work, std::vector<c10::IValue>& places) {
  const Emptied emptied{work.frame.slots};
  bind(work, places);
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    if (!graphs_.recording()) poll_interrupt();
    execute_step(i, work);
    if (graphs_.recording()) check_on_device(i, work);
  }
  std::vector<c10::IValue> sends;
  sends.reserve(program_.sends.size());
  for (const Send& send : program_.sends) {
    check_slot(send.value, work);
    sends.push_back(std::move(work.at(slot(send.value))));
  }
  return sends;
}

// A recording holds work of one device alone; what another did would be missing from replays.
void TorchStage::check_on_device(std::size_t step, const Work& work) const {
  const NodeId node = kernels_[step].node();
  for (const ValueId id : graph_.node(node).outputs) {
    if (!id.valid() || slot(id) < 0) continue;
    const c10::IValue& made = work.at(slot(id));
    if (!made.isTensor() || made.toTensor().device() == device_) continue;
    throw Error(ErrorKind::run_failed, fmt::format("{} makes a tensor on {}", graph_.describe(node),
                                                   made.toTensor().device().str()));
  }
}

std::shared_ptr<c10::Event> TorchStage::mark_ready() const {
  if (!has_streams(device_)) return nullptr;
  auto event = std::make_shared<c10::Event>(device_.type());
  event->record(current_stream(device_));
  return event;
}

void TorchStage::note_task(const Task& task, Nanoseconds start, const Work& work,
                           const std::shared_ptr<c10::Event>& ready,
                           std::vector<Event>* events) const {
  if (events == nullptr) return;
  if (ready) ready->synchronize();  // recording costs the overlap on accelerators
  Event event;
  event.device = program_.device;
  event.stage = program_.stage;
  event.microbatch = task.microbatch;
  event.phase = task.phase;
  event.start = start;
  event.end = since(work.run.start);
  events->push_back(std::move(event));
}

std::vector<ParcelPtr> TorchStage::run(BackendRun& backend_run, const Task& task, TaskId id,
                                       std::span<const ParcelPtr> received,
                                       std::vector<Event>* events) {
  auto& run = static_cast<TorchRun&>(backend_run);
  Frame& frame = run.frames[id.index()];
  Work work{run, frame, static_cast<std::size_t>(task.microbatch)};
  if (run.training != nullptr) return train(work, task, received, events);
  std::vector<c10::IValue> incoming = places(work, received, events);
  const Nanoseconds start = events != nullptr ? since(run.start) : Nanoseconds{};
  const StageGraphs::OneRun one{[&](std::vector<c10::IValue>& at) { return execute(work, at); },
                                weight_slots_.size(),
                                [&](std::size_t i) -> const at::Tensor& {
                                  return weights_.on(weight_slots_[i].second, device_);
                                },
                                [&] { seed_generators(work); }, generators_};
  std::vector<c10::IValue> sends = graphs_.run(
      work.batch(), incoming, one, watches_sharing_ && run.batches.size() > 1 ? run.whole : 0);
  return_written(frame);
  const std::shared_ptr<c10::Event> ready = mark_ready();
  note_task(task, start, work, ready, events);
  std::vector<ParcelPtr> out;
  out.reserve(sends.size());
  for (std::size_t i = 0; i < sends.size(); ++i) {
    c10::IValue& send = sends[i];
    if (program_.sends[i].to_caller) recount_result(send, run);
    out.push_back(std::make_shared<TorchParcel>(std::move(send), program_.device, ready));
  }
  add_order(ready, out);
  return out;
}

// To stages that wait for this one without a value.
void TorchStage::add_order(const std::shared_ptr<c10::Event>& ready,
                           std::vector<ParcelPtr>& parcels) const {
  for (std::size_t i = 0; i < program_.order_before.size(); ++i) {
    parcels.push_back(std::make_shared<TorchParcel>(c10::IValue(), program_.device, ready));
  }
}

// What the model wrote into copies belongs into the caller's tensors.
void TorchStage::return_written(Frame& frame) {
  for (const auto& [original, copy] : frame.written_inputs) original.copy_(copy);
  frame.written_inputs.clear();
}

std::vector<ParcelPtr> TorchStage::train(Work& work, const Task& task,
                                         std::span<const ParcelPtr> received,
                                         std::vector<Event>* events) {
  const Emptied emptied{work.frame.slots};
  std::vector<bool> needs;
  for (const ParcelPtr& parcel : received) {
    needs.push_back(parcel && static_cast<const TorchParcel&>(*parcel).needs_gradient);
  }
  std::vector<ParcelPtr> out;
  const auto send = [&](c10::IValue value, const std::shared_ptr<c10::Event>& ready, bool needed) {
    auto parcel = std::make_shared<TorchParcel>(std::move(value), program_.device, ready);
    parcel->needs_gradient = needed;
    out.push_back(std::move(parcel));
  };
  if (task.phase == Phase::forward) {
    std::vector<c10::IValue> incoming = places(work, received, events);
    const Nanoseconds start = since(work.run.start);
    TapedStage::Forward made = taped_->forward(work, incoming, needs);
    return_written(work.frame);
    const std::shared_ptr<c10::Event> ready = mark_ready();
    note_task(task, start, work, ready, events);
    for (std::size_t i = 0; i < made.sends.size(); ++i) {
      send(std::move(made.sends[i]), ready, made.needs_gradient[i]);
    }
    add_order(ready, out);
    return out;
  }
  if (task.phase == Phase::weight_gradient) {
    const Nanoseconds start = since(work.run.start);
    taped_->weight_gradients(work);
    note_task(task, start, work, mark_ready(), events);
    return out;
  }
  std::vector<c10::IValue> gradients;
  for (std::size_t i = 0; i < received.size(); ++i) {
    const std::size_t num_gradients = program_.gradients_in.size();
    const ValueId value = i < num_gradients ? program_.gradients_in[i].value
                                            : program_.results_in[i - num_gradients].value;
    gradients.emplace_back();
    if (!received[i]) continue;
    gradients.back() =
        to_device(arrive(static_cast<const TorchParcel&>(*received[i]), value, task, work, events));
  }
  const Nanoseconds start = since(work.run.start);
  const std::vector<at::Tensor> made = taped_->backward(work, gradients, needs);
  const std::shared_ptr<c10::Event> ready = mark_ready();
  note_task(task, start, work, ready, events);
  for (const at::Tensor& gradient : made) {
    if (gradient.defined()) {
      send(gradient, ready, false);
    } else {
      out.push_back(nullptr);
    }
  }
  return out;
}

void TorchStage::run_whole(TorchRun& run, const Visit& visit, std::span<const ParcelPtr> received) {
  run.make_room(1);
  const Emptied emptied{run.frames[0].slots};
  const Work work{run, run.frames[0], 0};
  std::vector<c10::IValue> incoming = places(work, received, nullptr);
  bind(work, incoming);
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    visit(kernels_[i], work.frame.slots);
    poll_interrupt();
    execute_step(i, work);
  }
}

void TorchStage::run_timed(TorchRun& run, StepClock& clock, std::span<const ParcelPtr> received) {
  if (kernels_.empty()) return;
  const std::size_t most = clock.most_steps();
  std::size_t step = 0;
  clock.start();
  clock.step(0);  // with what comes before: binding weights and inputs
  const auto visit = [&](Kernel&, const Slots&) {
    if (step > 0 && step % most == 0) {
      clock.stop();
      clock.start();
    }
    if (step > 0) clock.step(step);
    ++step;
  };
  run_whole(run, visit, received);
  clock.stop();
}

}  // namespace kerf
