// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stage_graphs.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include "kerf/base/error.h"
#include "kerf/base/interrupt.h"
#include "kerf/libtorch/storage.h"
#include "kerf/libtorch/streams.h"

namespace kerf {
namespace {

constexpr int kWarmups = 2;
// A device that works this much longer than the host takes to queue the work is kept busy as it is;
// a recording would cost its memory and save nothing.
constexpr double kBusyDevice = 1.2;

// Why this node's work cannot be replayed; empty when it can, as far as one sees from the graph.
std::string why_node_cannot(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const auto because = [&](const char* what) {
    return fmt::format("{} ({}) {}", graph.describe(id), node.op, what);
  };
  if (node.op == "opaque") return because("runs as Python");
  for (const ValueId value : node.outputs) {
    if (value.valid() && graph.value(value).scalar) return because("gives a number to the host");
  }
  return "";
}

std::string why_program_cannot(const Graph& graph, const Program& program) {
  for (const Step& step : program.steps) {
    std::string reason = why_node_cannot(graph, step.node);
    if (!reason.empty()) return reason;
  }
  for (const ValueId id : program.received) {
    if (graph.value(id).scalar)
      return fmt::format("it receives the number '{}'", graph.value(id).name);
  }
  return "";
}

// What a user may switch between calls and what chooses other kernels.
std::vector<std::uint64_t> settings_now(c10::Device device) {
  const at::Context& context = at::globalContext();
  std::uint64_t flags = 0;
  const auto add = [&](bool flag) { flags = flags << 1 | static_cast<std::uint64_t>(flag); };
  add(context.userEnabledCuDNN());
  add(context.benchmarkCuDNN());
  add(context.deterministicCuDNN());
  add(context.deterministicAlgorithms());
  add(context.deterministicFillUninitializedMemory());
  add(context.userEnabledFlashSDP());
  add(context.userEnabledMemEfficientSDP());
  add(context.userEnabledMathSDP());
  add(context.userEnabledCuDNNSDP());
  add(context.allowFP16BF16ReductionMathSDP());
  add(context.allowFP16AccumulationCuBLAS());
  std::vector<std::uint64_t> out{flags};
  const auto number = [&](auto value) { out.push_back(static_cast<std::uint64_t>(value)); };
  number(context.allowFP16ReductionCuBLAS());
  number(context.allowBF16ReductionCuBLAS());
  for (const auto op : {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN}) {
    number(context.float32Precision(at::Float32Backend::CUDA, op));
  }
  for (const auto type : {c10::DeviceType::CPU, device.type()}) {
    const bool enabled = at::autocast::is_autocast_enabled(type);
    number(enabled);
    number(enabled ? at::autocast::get_autocast_dtype(type) : at::kFloat);
  }
  return out;
}

// A tensor of this form that recordings may read: dense, in the order of dimensions it has.
at::Tensor place_like(const at::Tensor& tensor, c10::Device device) {
  const auto options = tensor.options().device(device);
  if (tensor.is_non_overlapping_and_dense()) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  }
  return at::empty(tensor.sizes(), options);
}

template <class Work>
struct Finally {
  Work work;
  ~Finally() { work(); }
};
template <class Work>
Finally(Work) -> Finally<Work>;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

StageGraphs::StageGraphs(const Graph& graph, const Program& program, c10::Device device,
                         GraphPool* pool, std::string why_not)
    : device_(device), pool_(pool), why_not_(std::move(why_not)) {
  if (pool_ == nullptr) return;
  why_not_ = why_program_cannot(graph, program);
  std::vector<bool> leaves(graph.storages().size(), false);
  for (const Send& send : program.sends) {
    const StorageId storage = graph.value(send.value).storage;
    if (storage.valid()) leaves[storage.index()] = true;
  }
  for (const ValueId id : program.inputs) {
    const StorageId storage = graph.value(id).storage;
    in_place_.push_back(storage.valid() && (graph.is_written(storage) || leaves[storage.index()]));
  }
  in_place_.resize(program.inputs.size() + program.received.size(), false);
}

void StageGraphs::refuse(std::string why_not) {
  why_not_ = std::move(why_not);
  recordings_.clear();
}

std::size_t StageGraphs::num_recordings() const {
  return static_cast<std::size_t>(std::count_if(recordings_.begin(), recordings_.end(),
                                                [](const auto& r) { return r->graph != nullptr; }));
}

std::int64_t StageGraphs::place_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& recording : recordings_) {
    for (const at::Tensor& place : recording->places) {
      if (place.defined()) bytes += static_cast<std::int64_t>(place.nbytes());
    }
  }
  return bytes;
}

// False when a place holds what cannot be part of a form.
bool StageGraphs::find_form(std::int64_t batch, const std::vector<c10::IValue>& places,
                            Form& form) const {
  form.batch = batch;
  form.settings = settings_now(device_);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!places[i].isTensor()) return false;
    const at::Tensor& tensor = places[i].toTensor();
    if (in_place_[i] && tensor.device() != device_) return false;
    form.places.push_back({tensor.sizes().vec(), tensor.strides().vec(),
                           in_place_[i] ? tensor.const_data_ptr() : nullptr});
  }
  return true;
}

StageGraphs::Recording& StageGraphs::find(Form form) {
  auto found = std::find_if(recordings_.begin(), recordings_.end(),
                            [&](const auto& r) { return r->form == form; });
  if (found == recordings_.end()) {
    if (recordings_.size() == kMostForms) {
      recordings_.erase(std::min_element(
          recordings_.begin(), recordings_.end(),
          [](const auto& a, const auto& b) { return a->last_used < b->last_used; }));
    }
    recordings_.push_back(std::make_unique<Recording>());
    found = recordings_.end() - 1;
    (*found)->form = std::move(form);
  }
  (*found)->last_used = ++clock_;
  return **found;
}

std::vector<c10::IValue> StageGraphs::run(std::int64_t batch, std::vector<c10::IValue>& places,
                                          const OneRun& one, std::int64_t part_of) {
  Form form;
  form.part_of = part_of;
  if (pool_ == nullptr || !why_not_.empty() || !find_form(batch, places, form)) {
    return one.execute(places);
  }
  Recording& recording = find(std::move(form));
  if (recording.calls < kWarmups || !recording.worth_it) {
    if (++recording.calls == kWarmups) return run_timed(recording, places, one);
    return one.execute(places);
  }
  bool same = recording.graph != nullptr;
  for (std::size_t i = 0; same && i < one.num_weights; ++i) {
    same = recording.weights[i] == one.weight(i).const_data_ptr();
  }
  if (!same) {
    try {
      record(recording, places, one);
    } catch (const Interrupted&) {
      recordings_.clear();
      throw;
    } catch (const std::exception& error) {
      // What cannot be recorded runs as before, and the reason is kept.
      refuse(first_line(error.what()));
      return one.execute(places);
    }
  }
  return replay(recording, places, one);
}

// Looks whether the host keeps the device waiting.
std::vector<c10::IValue> StageGraphs::run_timed(Recording& recording,
                                                std::vector<c10::IValue>& places,
                                                const OneRun& one) const {
  if (device_.is_cpu()) return one.execute(places);
  using Clock = std::chrono::steady_clock;
  c10::Event started(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event ended(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  started.record(current_stream(device_));
  const Clock::time_point begin = Clock::now();
  std::vector<c10::IValue> sends = one.execute(places);
  const std::chrono::duration<double, std::milli> host = Clock::now() - begin;
  ended.record(current_stream(device_));
  ended.synchronize();
  recording.worth_it = started.elapsedTime(ended) <= kBusyDevice * host.count();
  return sends;
}

void StageGraphs::record(Recording& recording, const std::vector<c10::IValue>& places,
                         const OneRun& one) {
  recording.graph.reset();
  recording.made.clear();
  recording.made_memory.clear();
  recording.weights.clear();
  for (std::size_t i = 0; i < one.num_weights; ++i) {
    recording.weights.push_back(one.weight(i).const_data_ptr());
  }
  recording.places.resize(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const at::Tensor& tensor = places[i].toTensor();
    at::Tensor& place = recording.places[i];
    if (in_place_[i]) place = tensor;
    if (!place.defined()) place = place_like(tensor, device_);
  }
  std::unique_ptr<DeviceGraph> graph = pool_->make();
  one.seed();  // a generator that is being recorded takes no other
  for (const at::Generator& generator : one.generators) graph->draw_from(generator);
  std::vector<c10::IValue> sends;
  recording_ = true;
  const Finally done{[&] { recording_ = false; }};
  graph->record([&] {
    std::vector<c10::IValue> read(recording.places.begin(), recording.places.end());
    sends = one.execute(read);
  });
  keep_made(recording, std::move(sends), one);
  // The caller's own memory is known by its address and not kept alive.
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (in_place_[i]) recording.places[i] = at::Tensor();
  }
  recording.graph = std::move(graph);
}

void StageGraphs::keep_made(Recording& recording, std::vector<c10::IValue> sends,
                            const OneRun& one) const {
  std::map<const void*, int> memory;  // by storage; looked up only. -1: not the recording's
  const auto key = [](const at::Tensor& tensor) {
    return static_cast<const void*>(tensor.storage().unsafeGetStorageImpl());
  };
  for (std::size_t i = 0; i < one.num_weights; ++i) memory[key(one.weight(i))] = -1;
  for (std::size_t i = 0; i < recording.places.size(); ++i) {
    if (in_place_[i]) memory[key(recording.places[i])] = -1;
  }
  for (c10::IValue& send : sends) {
    KERF_CHECK(send.isTensor(), "a program that gives numbers to the host is not recorded");
    at::Tensor tensor = std::move(send).toTensor();
    const auto [found, is_new] =
        memory.emplace(key(tensor), static_cast<int>(recording.made_memory.size()));
    if (is_new) recording.made_memory.push_back(flat_words(tensor));
    recording.made.push_back({std::move(tensor), found->second});
  }
}

std::vector<c10::IValue> StageGraphs::replay(Recording& recording,
                                             const std::vector<c10::IValue>& places,
                                             const OneRun& one) {
  const c10::Stream stream = current_stream(device_);
  pool_->enter(stream);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!in_place_[i]) recording.places[i].copy_(places[i].toTensor(), /*non_blocking=*/true);
  }
  one.seed();
  recording.graph->replay();
  std::vector<c10::IValue> sends = copy_out(recording);
  pool_->leave(stream);
  return sends;
}

// The next replay writes the same memory: what leaves is a copy, with views of one memory kept
// views of one memory.
std::vector<c10::IValue> StageGraphs::copy_out(const Recording& recording) const {
  std::vector<at::Tensor> copies;
  // Whole words, and what is not made of whole words: one launch each.
  std::array<std::vector<at::Tensor>, 2> from;
  std::array<std::vector<at::Tensor>, 2> to;
  for (const at::Tensor& memory : recording.made_memory) {
    copies.push_back(at::empty(memory.sizes(), memory.options()));
    if (memory.numel() == 0) continue;
    const std::size_t kind = memory.element_size() == 1 ? 1 : 0;
    from[kind].push_back(memory);
    to[kind].push_back(copies.back());
  }
  for (const std::size_t kind : {0U, 1U}) {
    if (to[kind].size() == 1) {
      to[kind][0].copy_(from[kind][0]);
    } else if (!to[kind].empty()) {
      at::_foreach_copy_(to[kind], from[kind]);
    }
  }
  std::vector<c10::IValue> sends;
  sends.reserve(recording.made.size());
  for (const Made& made : recording.made) {
    const c10::Storage& storage = made.storage < 0
                                      ? made.tensor.storage()
                                      : copies[static_cast<std::size_t>(made.storage)].storage();
    sends.emplace_back(view_of(storage, made.tensor));
  }
  return sends;
}

}  // namespace kerf
