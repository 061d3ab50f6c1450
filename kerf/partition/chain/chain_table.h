// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The dynamic program for devices in a fixed order. Private to partition/chain/.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/partition/chain/measure.h"

namespace kerf::partition {

// Splits the positions 0 .. num_nodes at some of the cuttable ones, devices in the model's order.
// best(p, i): the least measure of nodes i .. end on devices p .. end, with no load above `cap`
// (`overflow`: no excess above it). kInfinity: impossible.
class ChainTable {
 public:
  ChainTable(const Intervals& intervals, const ChainModel& model);

  // Whatever the time: for few positions.
  void solve(const std::vector<bool>& cuttable, Measure measure, double cap);
  // False, and nothing can be read: time was up (stop_clock.h).
  bool solve_in_time(const std::vector<bool>& cuttable, Measure measure, double cap);

  double best(std::size_t device, std::size_t position) const {
    return best_[position * width_ + device];
  }
  // Ends of the devices' intervals in an optimal split, starting with 0; equal ends: left out.
  std::vector<std::size_t> cuts() const;

 private:
  bool solve_all(const std::vector<bool>& cuttable, Measure measure, double cap, bool in_time);
  void solve_from(std::size_t start, const std::vector<bool>& cuttable, Measure measure,
                  double cap);
  // Devices that can start at a position when no load is above the cap. Those before it must be
  // able to do the work before the position and to hold its weights, those from it on the same for
  // what comes after, and to receive what crosses. Both only get harder in one direction.
  struct Range {
    std::size_t low;
    std::size_t high;
  };
  Range useful_devices(std::size_t position, Measure measure, double cap) const;
  bool enough_before(std::size_t device, std::size_t position, double cap) const;
  bool enough_after(std::size_t device, std::size_t position, double cap) const;

  const Intervals& intervals_;
  const ChainModel& model_;
  std::size_t width_;
  std::vector<double> speed_before_;  // by device: of the devices before it, together
  std::vector<double> room_before_;   // their memory limits, together
  std::vector<double> room_after_;    // and those from it on
  Rate best_link_;                    // no device receives faster
  double slowest_ = kInfinity;        // the least speed
  std::vector<double> best_;
  std::vector<std::int32_t>
      next_;  // where the interval ends; its own start: the device is left out
};

}  // namespace kerf::partition
