// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/fake_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kerf/base/error.h"
#include "kerf/plan/metrics.h"

namespace kerf {
namespace {

struct FakeParcel : Parcel {
  FakeParcel(DeviceId made_on, Nanoseconds made_at) : device(made_on), time(made_at) {}
  DeviceId device;
  Nanoseconds time;
};

}  // namespace

class FakeRunner : public StageRunner {
 public:
  FakeRunner(const FakeBackend& backend, const Program& program)
      : backend_(backend), program_(program) {}

  std::vector<ParcelPtr> run(BackendRun& run, const Task& task, TaskId /*id*/,
                             std::span<const ParcelPtr> received,
                             std::vector<Event>* events) override {
    if (backend_.fail_task_ == task) {
      throw Error(ErrorKind::run_failed,
                  fmt::format("[runtime.fake] stage {} was told to fail", program_.stage.index()));
    }
    const auto block = backend_.blocks_.find(program_.stage);
    if (block != backend_.blocks_.end()) block->second(task);
    auto& state = dynamic_cast<FakeRun&>(run).devices[program_.device.index()];
    for (std::size_t i = 0; i < received.size(); ++i) fetch(state, task, i, received[i], events);
    compute(state, task, events);
    std::vector<ParcelPtr> out;
    for (std::size_t i = 0; i < num_sent(task.phase); ++i) {
      out.push_back(std::make_shared<FakeParcel>(program_.device, state.clock));
    }
    return out;
  }

 private:
  std::size_t num_sent(Phase phase) const {
    if (phase == Phase::forward) return program_.sends.size() + program_.order_before.size();
    return phase == Phase::backward ? program_.gradients_out.size() : 0;
  }

  // What the task receives there, and from which stage; nothing for results on their way to the
  // loss, which plans do not count.
  std::optional<Exchange> expected(const Task& task, std::size_t place) const {
    if (task.phase == Phase::forward) {
      const bool value = place < program_.received.size();
      return Exchange{value ? program_.received[place] : ValueId{}, {}};
    }
    if (place < program_.gradients_in.size()) return program_.gradients_in[place];
    return std::nullopt;
  }

  void fetch(FakeRun::DeviceState& state, const Task& task, std::size_t place,
             const ParcelPtr& received, std::vector<Event>* events) {
    const auto& parcel = dynamic_cast<const FakeParcel&>(*received);
    const std::optional<Exchange> item = expected(task, place);
    if (!item || parcel.device == program_.device) return;
    if (!item->value.valid()) {
      state.clock = std::max(state.clock, parcel.time);
      return;
    }
    if (!state.fetched.insert({task.microbatch, *item}).second) return;
    const Cut* const cut = backend_.find_cut(item->value);
    if (cut == nullptr) return;  // a result that only the loss takes
    const bool gradient = task.phase == Phase::backward;
    Event event;
    event.kind = EventKind::transfer;
    event.device = program_.device;
    event.from = parcel.device;
    event.stage = program_.stage;
    event.microbatch = task.microbatch;
    event.phase = task.phase;
    event.tensor = gradient ? "gradient of " + cut->tensor : cut->tensor;
    event.bytes = cut->bytes;
    event.start = std::max(state.clock, parcel.time);
    const Link& link = backend_.plan_.cluster.link(parcel.device, program_.device);
    event.end = event.start + transfer_time(*cut, link);
    state.clock = event.end;
    if (events != nullptr) events->push_back(std::move(event));
  }

  void compute(FakeRun::DeviceState& state, const Task& task, std::vector<Event>* events) {
    Event event;
    event.device = program_.device;
    event.stage = program_.stage;
    event.microbatch = task.microbatch;
    event.phase = task.phase;
    event.start = state.clock;
    event.end = event.start + backend_.time_of(program_.stage, task.phase);
    state.clock = event.end;
    if (events != nullptr) events->push_back(std::move(event));
  }

  const FakeBackend& backend_;
  const Program& program_;
};

FakeBackend::FakeBackend(const Plan& plan, bool on_caller)
    : plan_(plan), passes_(unroll(plan)), on_caller_(on_caller) {}

const Cut* FakeBackend::find_cut(ValueId value) const {
  const auto found = std::find_if(plan_.cuts.begin(), plan_.cuts.end(),
                                  [&](const Cut& cut) { return cut.value == value; });
  return found == plan_.cuts.end() ? nullptr : &*found;
}

Nanoseconds FakeBackend::time_of(StageId stage, Phase phase) const {
  return passes_.stages[pass_of(passes_.shape, stage, phase).index()].time;
}

std::unique_ptr<StageRunner> FakeBackend::load(const Program& program) {
  return std::make_unique<FakeRunner>(*this, program);
}

void FakeBackend::enter(BackendRun& run, DeviceId device) {
  dynamic_cast<FakeRun&>(run).devices[device.index()] = {};
}

}  // namespace kerf
