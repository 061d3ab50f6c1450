// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The dynamic program for devices in any order. Private to partition/chain/.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/partition/chain/device_classes.h"
#include "kerf/partition/chain/measure.h"

namespace kerf::partition {

// Stages that are intervals of the graph's order: one device for each, and where they end.
struct Arrangement {
  std::vector<DeviceId> devices;
  std::vector<std::size_t> cuts;  // starts with 0; one more than devices
};

// How many devices of each class are in use, as one number.
using ClassState = std::uint32_t;

// best(s, i): the least measure of nodes i .. end on devices that are not in use in state s, with
// no load above the cap (`overflow`: no excess above it). kInfinity: impossible.
class ClassTable {
 public:
  ClassTable(const Intervals& intervals, const ChainModel& model,
             const std::vector<DeviceClass>& classes);

  // Splits at some of the cuttable positions. False, and nothing can be read, when that takes more
  // cells or more steps than is sensible, both counted, or longer than there is time.
  bool solve(const std::vector<bool>& cuttable, Measure measure, double cap);

  // `position`: 0, the end, or a cuttable one.
  double best(ClassState state, std::size_t position) const {
    return best_[static_cast<std::size_t>(row_[position]) * num_states_ + state];
  }
  double best() const { return best(0, 0); }
  bool has_left(ClassState state, std::size_t k) const {
    return state / stride_[k] % (static_cast<ClassState>(classes_[k].members.size()) + 1) <
           classes_[k].members.size();
  }
  ClassState use(ClassState state, std::size_t k) const { return state + stride_[k]; }

  // An optimal one, where there is one: of equals the one with the earliest first end, then the
  // first class. Devices of a class in the order given.
  Arrangement arrangement() const;

 private:
  // Together, of the devices in use in a state, and of the others.
  struct Sums {
    double speed_used = 0;
    double speed_left = 0;
    double room_used = 0;
    double room_left = 0;
    double used = 0;
    double left = 0;
  };
  Sums sums_of(ClassState state) const;
  bool allocate(const std::vector<bool>& cuttable);
  bool useful(const Sums& sums, std::size_t position) const;
  void find_moves(std::size_t start);
  void solve_from(std::size_t start, const std::vector<bool>& cuttable);
  void narrow(std::size_t k, std::size_t end);
  bool hopeless(std::size_t k, const IntervalFigures& figures) const;
  void take(std::size_t k, std::size_t start, std::size_t end, const IntervalFigures& figures);
  struct Step {
    std::size_t end;
    std::size_t device_class;
  };
  Step best_step(ClassState state, std::size_t start) const;

  const Intervals& intervals_;
  const ChainModel& model_;
  const std::vector<DeviceClass>& classes_;
  std::size_t num_states_ = 1;
  std::vector<ClassState> stride_;    // by class
  std::vector<Sums> sums_;            // by state
  std::vector<ClassState> by_speed_;  // states by the speed in use
  Rate best_link_;                    // no device receives faster
  double slowest_ = kInfinity;        // the least speed

  Measure measure_ = Measure::busiest;
  double cap_ = kInfinity;
  std::int64_t work_left_ = 0;
  std::vector<std::int32_t> row_;  // by position; -1: not one of those split at
  std::vector<double> best_;       // row by row, by state
  std::vector<bool> reached_;      // by row: some state is possible there
  // States that may use one more of a class at a position, by speed in use; those from low to high
  // at the end under way.
  struct Moves {
    std::vector<ClassState> states;
    std::size_t low = 0;
    std::size_t high = 0;
  };
  std::vector<Moves> moves_;  // by class
};

}  // namespace kerf::partition
