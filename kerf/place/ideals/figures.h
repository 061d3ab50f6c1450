// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What a decision needs of ideals and devices.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/ideals/lattice.h"

namespace kerf::place::ideals {

// Of each ideal, whatever the limit is. Not whole when time was up.
struct IdealFigures {
  IdealFigures(const Groups& groups, const Lattice& lattice, StepClock& clock);
  std::vector<double> accelerator_time;  // by ideal, slowness 1
  // By link: whatever plan goes on from the ideal, the same plan goes on from the link's end, with
  // the group left out, and no load rises.
  std::vector<bool> is_better_start;
};

// Of the devices: what loads below a limit can hold, in accelerator time of slowness 1. Upper
// bounds.
class Capacity {
 public:
  explicit Capacity(const Groups& groups);
  void set_limit(double limit);
  double limit() const { return limit_; }
  double total() const { return total_; }
  // Compute that one device of the class can take.
  double of(std::size_t device_class) const { return of_class_[device_class]; }
  // `left` is what the devices left can take, nets aside.
  bool can_hold(double time, double left) const { return time <= left + slack_; }
  // What a device of the class can pay for nets when it is the next of those that can take `left`
  // and have to take `time`.
  double max_shared(std::size_t device_class, double time, double left) const;
  double slack() const { return slack_; }

 private:
  struct Items {
    std::vector<double> gain;
    std::vector<double> time;
  };
  static Items by_rate(const std::vector<double>& gain, const std::vector<double>& time);
  static double fill(const Items& items, double room);

  const Groups& groups_;
  double total_ = 0;
  double slack_ = 0;  // for rounding
  double limit_ = 0;
  std::vector<double> of_class_;
  Items compute_;  // what the CPU takes off the others by a group
};

}  // namespace kerf::place::ideals
