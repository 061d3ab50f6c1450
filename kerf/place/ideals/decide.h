// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Is there a chain of ideals whose stages all load their devices less than T?
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/ideals/figures.h"
#include "kerf/place/ideals/growth.h"

namespace kerf::place::ideals {

// For each ideal and each choice of devices (how many of every class) whether these hold it.
class Decision {
 public:
  // Gives up where there are more than `max_states` pairs of an ideal and a choice for it.
  Decision(const Groups& groups, const Lattice& lattice, std::size_t max_states, StepClock& clock);

  // A chain with a largest load below `limit`, not always the best; an infinite load when there is
  // none, or when it gave up.
  Chain find_below(double limit);
  bool gave_up() const { return growth_.stopped || too_large_; }
  std::int64_t work() const { return growth_.work; }  // stages looked at, in all

 private:
  // A number of devices of each class, written as digits: the class's weight times its number.
  using Choice = std::uint32_t;
  // Ideals that a choice can hold and the devices left can finish, by rank: a run of them.
  struct Window {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::size_t first_state = 0;
    bool holds(std::uint32_t rank) const { return rank >= begin && rank < end; }
    std::size_t state(std::uint32_t rank) const { return first_state + (rank - begin); }
  };

  struct Step {
    std::uint32_t from;  // ideal
    std::uint32_t to;
    std::uint32_t on;  // class
  };

  double search(std::vector<Step>& steps);
  bool is_countable(std::size_t max_states);
  void rank_ideals();
  std::uint32_t digit(Choice choice, std::size_t device_class) const;
  bool has_left(Choice choice, std::size_t device_class) const;
  double held_by(Choice choice) const;
  bool make_windows();
  void find_less(Choice choice);
  bool is_held_by_less(std::uint32_t rank) const;
  void find_covered(Choice choice);
  void expand(Choice choice);
  void grow(Choice choice, std::uint32_t rank, std::size_t device_class);
  double read_back(std::vector<Step>& steps) const;
  void append_difference(const Step& step, std::vector<UnitId>& out) const;

  const Groups& groups_;
  const Lattice& lattice_;
  IdealFigures figures_;
  Capacity capacity_;
  Growth growth_;
  bool too_large_ = false;
  std::size_t max_states_;
  Choice num_choices_ = 1;
  std::vector<Choice> weight_;           // by class
  std::vector<std::uint32_t> ideal_at_;  // by rank: accelerator time rises
  std::vector<std::uint32_t> rank_of_;   // by ideal
  std::vector<Window> windows_;          // by choice
  std::vector<double> load_;             // by state; infinite: not reached
  std::vector<std::uint32_t> from_;      // by state, ideal
  std::vector<std::uint8_t> by_;         // by state, class
  std::vector<bool> held_;               // by state: by this choice or one that leaves more
  std::vector<Choice> less_;             // that leave more than the one at hand
  std::vector<bool> covered_;            // by rank in the window at hand
};

}  // namespace kerf::place::ideals
