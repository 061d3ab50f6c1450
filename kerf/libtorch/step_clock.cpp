// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/step_clock.h"

#include <utility>

#include "kerf/libtorch/device_hold.h"
#include "kerf/libtorch/streams.h"

namespace kerf {
namespace {

// CUDA queues 1,024 launches, then the host waits; operators launch a few kernels each.
constexpr std::size_t kStepsInAQueue = 128;

}  // namespace

std::vector<double> StepClock::take() {
  return std::exchange(ns_, std::vector<double>(ns_.size()));
}

void HostClock::add_until(Time now) {
  if (current_ == kNone) return;
  ns_[current_] += std::chrono::duration<double, std::nano>(now - since_).count();
}

void HostClock::start() {
  wait_for(device_);
  current_ = kNone;
  is_paused_ = false;
}

void HostClock::step(std::size_t step) {
  const Time now = std::chrono::steady_clock::now();
  add_until(now);
  current_ = step;
  since_ = now;
  is_paused_ = false;
}

void HostClock::pause() {
  paused_ = std::chrono::steady_clock::now();
  is_paused_ = true;
}

void HostClock::stop() {
  add_until(is_paused_ ? paused_ : std::chrono::steady_clock::now());
  current_ = kNone;
}

std::size_t HostClock::most_steps() const {
  return device_.is_cpu() ? StepClock::most_steps() : kStepsInAQueue;
}

void WaitingClock::step(std::size_t step) {
  wait_for(device_);
  HostClock::step(step);
}

void WaitingClock::stop() {
  wait_for(device_);
  HostClock::stop();
}

std::size_t EventClock::most_steps() const { return kStepsInAQueue; }

void EventClock::record() {
  // With timing: PyTorch's own default leaves it out.
  if (used_ == events_.size())
    events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  events_[used_++].record(current_stream(device_));
}

void EventClock::start() {
  wait_for(device_);
  used_ = 0;
  steps_.clear();
  hold_device(device_, hold_ns_);
}

void EventClock::step(std::size_t step) {
  if (!each_step_ && !steps_.empty()) return;
  record();
  steps_.push_back(step);
}

void EventClock::stop() {
  if (steps_.empty()) return wait_for(device_);
  record();
  behind_ = behind_ && !events_[0].query();
  wait_for(device_);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    ns_[steps_[i]] += 1e6 * events_[i].elapsedTime(events_[i + 1]);
  }
}

bool EventClock::was_behind() {
  if (!behind_) hold_ns_ *= 2;
  return std::exchange(behind_, true);
}

}  // namespace kerf
