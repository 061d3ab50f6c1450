// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kerf/libtorch/kernel.h"
#include "kerf/libtorch/memory_record.h"
#include "kerf/libtorch/modes.h"
#include "kerf/runtime/backend.h"

namespace kerf {

struct TrainingStep;

// A tensor (or scalar) of one micro-batch, and when it is ready on its device.
struct TorchParcel : Parcel {
  TorchParcel(c10::IValue made, DeviceId by, std::shared_ptr<c10::Event> when)
      : value(std::move(made)), device(by), ready(std::move(when)) {}
  c10::IValue value;
  DeviceId device;
  std::shared_ptr<c10::Event> ready;  // null on devices without streams
  bool needs_gradient = false;        // training: its maker takes one
};

// What one task of a run holds while it runs.
struct Frame {
  Slots slots;  // the values alive, by slot of the stage
  // Tensors of the caller on another device, and the copies that are written in their place.
  std::vector<std::pair<at::Tensor, at::Tensor>> written_inputs;
};

// One call of a pipeline.
struct TorchRun : BackendRun {
  // `on_caller`: all work is done by the calling thread, on that thread's streams.
  explicit TorchRun(std::size_t num_devices, bool on_caller = false)
      : inputs_ready(num_devices),
        work_done(num_devices),
        adoptions(num_devices),
        restore(num_devices),
        listening(num_devices) {
    if (!on_caller) caller.emplace();
  }

  // inputs[microbatch][input of the graph]: cut already.
  std::vector<std::vector<at::Tensor>> inputs;
  std::vector<std::int64_t> batches;  // B of each micro-batch; 0 when the graph is static
  std::int64_t whole = 0;             // B of all of them together
  std::uint64_t seed = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::optional<CallerState> caller;  // for other threads to adopt
  // Work the caller had queued on each accelerator when it called; null where nobody has to wait.
  std::vector<std::shared_ptr<c10::Event>> inputs_ready;  // by device

  // Training: what each worker had queued on its accelerator in the end; null where the caller did
  // the work itself.
  std::vector<std::shared_ptr<c10::Event>> work_done;  // by device

  TrainingStep* training = nullptr;  // or the step that this is; outlives the run

  void make_room(std::size_t num_tasks) override { frames.resize(num_tasks); }
  std::vector<Frame> frames;  // by task: each touched by the worker that runs it

  // By device, each touched by its own worker.
  std::vector<std::unique_ptr<CallerState::Adoption>> adoptions;
  std::vector<std::optional<c10::Device>> restore;  // the device that was current before
  std::vector<std::optional<MemoryRecord::Scope>> listening;

  std::shared_ptr<MemoryRecord> memory;  // null: it is not recorded
};

// Memory of the run that the caller is given, when memory is recorded.
inline void recount_result(const c10::IValue& value, const TorchRun& run) {
  if (!run.memory || !value.isTensor() || !value.toTensor().has_storage()) return;
  run.memory->recount(value.toTensor().storage().data(), MemoryKind::results);
}

}  // namespace kerf
