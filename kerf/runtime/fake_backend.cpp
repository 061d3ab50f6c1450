// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/fake_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/error.h"

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
    const int microbatch = task.microbatch;
    if (backend_.fail_stage_ == program_.stage && backend_.fail_microbatch_ == microbatch) {
      throw Error(ErrorKind::run_failed,
                  fmt::format("[runtime.fake] stage {} was told to fail", program_.stage.index()));
    }
    const auto block = backend_.blocks_.find(program_.stage);
    if (block != backend_.blocks_.end()) block->second(microbatch);
    auto& state = dynamic_cast<FakeRun&>(run).devices[program_.device.index()];
    for (std::size_t i = 0; i < received.size(); ++i) {
      fetch(state, microbatch, i, dynamic_cast<const FakeParcel&>(*received[i]), events);
    }
    compute(state, microbatch, events);
    std::vector<ParcelPtr> out;
    for (std::size_t i = 0; i < program_.sends.size(); ++i) {
      out.push_back(std::make_shared<FakeParcel>(program_.device, state.clock));
    }
    return out;
  }

 private:
  void fetch(FakeRun::DeviceState& state, int microbatch, std::size_t i, const FakeParcel& parcel,
             std::vector<Event>* events) {
    const ValueId value = program_.received[i];
    if (parcel.device == program_.device) return;
    if (!state.fetched.insert({microbatch, value}).second) return;
    const Cut& cut = *std::find_if(backend_.plan_.cuts.begin(), backend_.plan_.cuts.end(),
                                   [&](const Cut& c) { return c.value == value; });
    Event event;
    event.kind = EventKind::transfer;
    event.device = program_.device;
    event.from = parcel.device;
    event.stage = program_.stage;
    event.microbatch = microbatch;
    event.tensor = cut.tensor;
    event.bytes = cut.bytes;
    event.start = std::max(state.clock, parcel.time);
    event.end =
        event.start + backend_.plan_.cluster.link(parcel.device, program_.device).time(cut.bytes);
    state.clock = event.end;
    if (events != nullptr) events->push_back(std::move(event));
  }

  void compute(FakeRun::DeviceState& state, int microbatch, std::vector<Event>* events) {
    Event event;
    event.device = program_.device;
    event.stage = program_.stage;
    event.microbatch = microbatch;
    event.start = state.clock;
    event.end = event.start + backend_.plan_.stage(program_.stage).time;
    state.clock = event.end;
    if (events != nullptr) events->push_back(std::move(event));
  }

  const FakeBackend& backend_;
  const Program& program_;
};

FakeBackend::FakeBackend(const Plan& plan, bool on_caller) : plan_(plan), on_caller_(on_caller) {}

std::unique_ptr<StageRunner> FakeBackend::load(const Program& program) {
  return std::make_unique<FakeRunner>(*this, program);
}

void FakeBackend::enter(BackendRun& run, DeviceId device) {
  dynamic_cast<FakeRun&>(run).devices[device.index()] = {};
}

}  // namespace kerf
