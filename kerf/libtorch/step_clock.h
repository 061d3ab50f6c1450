// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Ways to take the time of the steps of a run. A run is timed in stretches:
//
//   start()  step(4)  step(5)  step(6)  stop()
//            |--- 4 --|--- 5 --|--- 6 --|
//
// What happens outside of stretches, and before a stretch's first step, is nobody's time.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <cstddef>
#include <vector>

namespace kerf {

class StepClock {
 public:
  explicit StepClock(std::size_t num_steps) : ns_(num_steps) {}
  virtual ~StepClock() = default;

  virtual void start() = 0;
  // What follows belongs to this step.
  virtual void step(std::size_t step) = 0;
  // Work has ended for now: `stop` counts up to the last such moment where there was one.
  virtual void pause() {}
  virtual void stop() = 0;
  // How many steps one stretch may have.
  virtual std::size_t most_steps() const { return static_cast<std::size_t>(-1); }

  // By step, since the last call: the times are taken out.
  std::vector<double> take();

 protected:
  std::vector<double> ns_;
};

// The host's own time. On an accelerator, the time to issue: the device is idle when a stretch
// begins, and a stretch is short enough for its queue.
class HostClock : public StepClock {
 public:
  HostClock(std::size_t num_steps, c10::Device device) : StepClock(num_steps), device_(device) {}
  void start() override;
  void step(std::size_t step) override;
  void pause() override;
  void stop() override;
  std::size_t most_steps() const override;

 private:
  using Time = std::chrono::steady_clock::time_point;
  void add_until(Time now);

  c10::Device device_;
  std::size_t current_ = kNone;
  Time since_;
  Time paused_;
  bool is_paused_ = false;
  static constexpr auto kNone = static_cast<std::size_t>(-1);
};

// The host's time with a wait for the device after each step.
class WaitingClock : public HostClock {
 public:
  WaitingClock(std::size_t num_steps, c10::Device device)
      : HostClock(num_steps, device), device_(device) {}
  void step(std::size_t step) override;
  void pause() override {}
  void stop() override;

 private:
  c10::Device device_;
};

// The device's own time, by events, while it is held until the host has issued the stretch.
class EventClock : public StepClock {
 public:
  // `each_step`: an event before each step. Otherwise the time of a whole stretch is given to its
  // first step, and no event comes between.
  EventClock(std::size_t num_steps, c10::Device device, bool each_step)
      : StepClock(num_steps), device_(device), each_step_(each_step) {}
  void start() override;
  void step(std::size_t step) override;
  void stop() override;
  std::size_t most_steps() const override;
  // Was the device behind the host in all stretches since the last call? Where it was not, it is
  // held longer from now on.
  bool was_behind();

 private:
  void record();

  c10::Device device_;
  bool each_step_;
  double hold_ns_ = 1e6;
  bool behind_ = true;
  std::vector<c10::Event> events_;  // used again
  std::vector<std::size_t> steps_;  // of the stretch, one for each event but the last
  std::size_t used_ = 0;
};

}  // namespace kerf
