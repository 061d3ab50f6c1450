// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The dynamic program over positions and devices. Private to partition/chain/. Not that of
// place/cut: an Instance has one link for all devices and no peak of activations, and the exact
// rows of clusters with unlike links or little memory need both.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/partition/chain/chain_input.h"
#include "kerf/partition/chain/lineup.h"
#include "kerf/partition/chain/measure.h"

namespace kerf::partition {

// best(s, i): the least measure of nodes i .. end on devices that are not used up in state s, with
// no load above the cap (`overflow`: no excess above it). kInfinity: impossible.
class ChainTable {
 public:
  // Both must outlive it.
  ChainTable(const Intervals& intervals, const Lineup& lineup)
      : intervals_(intervals), lineup_(lineup), moves_(lineup.kinds().size()) {}

  // Splits at some of the cuttable positions. False, and nothing can be read: it takes longer than
  // there is time (stop_clock.h) or, for devices in any order, more cells or more steps than is
  // sensible, both counted.
  bool solve(const std::vector<bool>& cuttable, Measure measure, double cap);
  // For devices in order, whatever the time: for few positions.
  void solve_anyhow(const std::vector<bool>& cuttable, Measure measure, double cap);

  // `position`: 0, the end, or a cuttable one.
  double best(LineState state, std::size_t position) const {
    return best_[static_cast<std::size_t>(row_[position]) * num_states() + state];
  }
  double best() const { return best(0, 0); }

  // An optimal one, where there is one: of equals the one with the earliest first end, then the
  // first kind. Devices of a kind in the order given; one is left out only where that is better.
  Arrangement arrangement() const;

 private:
  bool solve_all(const std::vector<bool>& cuttable, Measure measure, double cap, bool in_time);
  std::size_t num_states() const { return lineup_.num_states(); }
  bool allocate(const std::vector<bool>& cuttable);
  bool useful(const Lineup::Sums& sums, std::size_t position) const;
  void find_moves(std::size_t start);
  void solve_from(std::size_t start, const std::vector<bool>& cuttable);
  void narrow(std::size_t k, std::size_t end);
  bool hopeless(std::size_t k, const IntervalFigures& figures, double cap) const;
  double measured(std::size_t k, const IntervalFigures& figures) const;
  void take(std::size_t k, std::size_t start, std::size_t end, const IntervalFigures& figures);
  struct Step {
    std::size_t end;  // its start: the next device is left out
    std::size_t kind;
  };
  Step best_step(LineState state, std::size_t start) const;

  const Intervals& intervals_;
  const Lineup& lineup_;
  std::vector<Lineup::Sums> sums_;   // by state
  std::vector<LineState> by_speed_;  // states by the speed in use

  Measure measure_ = Measure::busiest;
  double cap_ = kInfinity;
  std::int64_t work_left_ = 0;
  std::vector<std::int32_t> row_;  // by position; -1: not one of those split at
  std::vector<double> best_;       // row by row, by state
  std::vector<bool> reached_;      // by row: some state is possible there
  // States that may take one more of a kind at a position, by speed in use; those from low to high
  // at the end under way.
  struct Moves {
    std::vector<LineState> states;
    std::size_t low = 0;
    std::size_t high = 0;
  };
  std::vector<Moves> moves_;  // by kind
};

}  // namespace kerf::partition
