// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/torch_stage.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kerf/base/error.h"
#include "kerf/libtorch/convert.h"
#include "kerf/libtorch/random.h"

namespace kerf {
namespace {

using Clock = std::chrono::steady_clock;

Nanoseconds since(Clock::time_point start) {
  return {std::chrono::duration<double, std::nano>(Clock::now() - start).count()};
}

// Whatever happens in a run, the frame holds nothing afterwards.
struct Emptied {
  Slots& slots;
  ~Emptied() { std::fill(slots.begin(), slots.end(), c10::IValue()); }
};

bool has_streams(c10::Device device) { return !device.is_cpu(); }

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// PyTorch appends its C++ stack to messages; users want the sentence.
std::string first_lines(const std::string& text) {
  return text.substr(0, text.find("\nException raised from"));
}

// All bytes of a storage, seen as one flat tensor.
at::Tensor flat_bytes(const at::Tensor& tensor) {
  at::Tensor flat = at::empty({0}, tensor.options().dtype(at::kByte));
  const auto size = static_cast<std::int64_t>(tensor.storage().nbytes());
  return flat.set_(tensor.storage(), 0, {size}, {1});
}

}  // namespace

TorchStage::TorchStage(const Graph& graph, const Program& program, const Device& device,
                       WeightStore& weights, const OpaqueCalls& opaque)
    : graph_(graph),
      program_(program),
      device_name_(device.name),
      device_(to_torch_device(device)),
      weights_(weights),
      slot_of_(graph.num_values(), -1) {
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
  for (std::size_t i = 0; i < program_.steps.size(); ++i) {
    const Step& step = program_.steps[i];
    const Node& node = graph.node(step.node);
    for (const ValueId id : node.outputs) {
      const bool unused = std::find(step.dead.begin(), step.dead.end(), id) != step.dead.end();
      if (id.valid() && !unused) place(id);
    }
    kernels_.emplace_back(graph, step.node, slot_of_, step.dead, device_, opaque);
    // Kernels move their last uses out of the slots; an opaque block's arguments stay.
    if (node.op == "opaque") {
      for (const ValueId id : step.dead) {
        if (slot(id) >= 0) cleared_[i].push_back(slot(id));
      }
    }
  }
  slots_.resize(static_cast<std::size_t>(next));
}

c10::IValue TorchStage::receive(const TorchParcel& parcel) const {
  if (!parcel.value.isTensor()) return parcel.value;
  const at::Tensor& tensor = parcel.value.toTensor();
  if (parcel.ready && has_streams(device_)) {
    const c10::Stream stream = current_stream(device_);
    parcel.ready->block(stream);
    if (tensor.device() == device_) tensor.record_stream(stream);
  } else if (parcel.ready) {
    parcel.ready->synchronize();
  }
  return tensor.device() == device_ ? tensor : tensor.to(device_, tensor.scalar_type());
}

void TorchStage::bind_inputs(TorchRun& run, int microbatch, std::span<const ParcelPtr> received,
                             std::vector<Event>* events) {
  for (const auto& [slot, weight] : weight_slots_) {
    slots_[static_cast<std::size_t>(slot)] = weights_.on(weight, device_);
  }
  for (const auto& [slot, input] : input_slots_) {
    const at::Tensor& tensor = run.inputs[static_cast<std::size_t>(microbatch)][input];
    slots_[static_cast<std::size_t>(slot)] =
        tensor.device() == device_ ? tensor : tensor.to(device_, tensor.scalar_type());
  }
  for (std::size_t i = 0; i < received.size(); ++i) {
    const auto& parcel = static_cast<const TorchParcel&>(*received[i]);
    const Nanoseconds start = events != nullptr ? since(run.start) : Nanoseconds{};
    slots_[static_cast<std::size_t>(slot(program_.received[i]))] = receive(parcel);
    if (events == nullptr || parcel.device == program_.device) continue;
    Event event;
    event.kind = EventKind::transfer;
    event.device = program_.device;
    event.from = parcel.device;
    event.stage = program_.stage;
    event.microbatch = microbatch;
    event.tensor = graph_.value(program_.received[i]).name;
    event.bytes =
        graph_.value(program_.received[i]).bytes(run.batches[static_cast<std::size_t>(microbatch)]);
    event.start = start;
    event.end = since(run.start);
    events->push_back(std::move(event));
  }
  for (const auto& group : program_.copied) copy_written(group);
}

// Another stage may be reading what this one is about to write: give it a copy of its own, and keep
// views of one memory views of one memory.
void TorchStage::copy_written(const std::vector<ValueId>& group) {
  std::map<const void*, at::Tensor> copies;  // by the original's storage; looked up only
  for (const ValueId id : group) {
    c10::IValue& place = slots_[static_cast<std::size_t>(slot(id))];
    if (!place.isTensor()) continue;
    const at::Tensor& tensor = place.toTensor();
    at::Tensor& copy = copies[tensor.storage().unsafeGetStorageImpl()];
    if (!copy.defined()) copy = flat_bytes(tensor).clone();
    at::Tensor view = at::empty({0}, tensor.options());
    view.set_(copy.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
    place = view;
  }
}

void TorchStage::run_kernel(Kernel& kernel, TorchRun& run, int microbatch) {
  const std::int64_t batch = run.batches[static_cast<std::size_t>(microbatch)];
  const Node& node = graph_.node(kernel.node());
  if (!node.random && node.autocast.empty()) return kernel.run(slots_, batch);
  std::optional<AutocastScope> autocast;
  if (!node.autocast.empty()) autocast.emplace(node.autocast, device_);
  std::optional<RandomScope> random;
  if (node.random) random.emplace(device_, stream_seed(run.seed, microbatch, node.name));
  kernel.run(slots_, batch);
}

void TorchStage::fail(const Kernel& kernel, const std::string& reason) const {
  throw Error(ErrorKind::run_failed,
              fmt::format("[libtorch.run] stage {} on {} failed at {}: {}; its inputs were {}",
                          program_.stage.index(), device_name_, graph_.describe(kernel.node()),
                          first_lines(reason), kernel.describe_inputs(slots_)));
}

void TorchStage::execute_step(std::size_t step, TorchRun& run, int microbatch) {
  Kernel& kernel = kernels_[step];
  try {
    run_kernel(kernel, run, microbatch);
  } catch (const c10::Error& error) {
    fail(kernel, error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(kernel, error.what());
  }
  for (const int cleared : cleared_[step]) slots_[static_cast<std::size_t>(cleared)] = {};
}

void TorchStage::execute(TorchRun& run, int microbatch) {
  for (std::size_t i = 0; i < kernels_.size(); ++i) execute_step(i, run, microbatch);
}

std::shared_ptr<c10::Event> TorchStage::mark_ready() const {
  if (!has_streams(device_)) return nullptr;
  auto event = std::make_shared<c10::Event>(device_.type());
  event->record(current_stream(device_));
  return event;
}

std::vector<ParcelPtr> TorchStage::run(BackendRun& backend_run, int microbatch,
                                       std::span<const ParcelPtr> received,
                                       std::vector<Event>* events) {
  auto& run = static_cast<TorchRun&>(backend_run);
  const Emptied emptied{slots_};

  bind_inputs(run, microbatch, received, events);
  const Nanoseconds start = events != nullptr ? since(run.start) : Nanoseconds{};
  execute(run, microbatch);
  const std::shared_ptr<c10::Event> ready = mark_ready();
  if (events != nullptr) {
    if (ready) ready->synchronize();  // recording costs the overlap on accelerators
    Event event;
    event.device = program_.device;
    event.stage = program_.stage;
    event.microbatch = microbatch;
    event.start = start;
    event.end = since(run.start);
    events->push_back(std::move(event));
  }
  std::vector<ParcelPtr> out;
  out.reserve(program_.sends.size());
  for (const Send& send : program_.sends) {
    out.push_back(std::make_shared<TorchParcel>(
        std::move(slots_[static_cast<std::size_t>(slot(send.value))]), program_.device, ready));
  }
  return out;
}

void TorchStage::run_timed(TorchRun& run, std::vector<double>& step_ns) {
  const Emptied emptied{slots_};
  bind_inputs(run, 0, {}, nullptr);
  step_ns.resize(kernels_.size());
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    const Clock::time_point start = Clock::now();
    execute_step(i, run, 0);
    if (has_streams(device_)) mark_ready()->synchronize();
    step_ns[i] = since(start).count;
  }
}

}  // namespace kerf
