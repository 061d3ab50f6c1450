// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/ideals/decide.h"

namespace kerf::place::ideals {

// The decision for unequal accelerators in any order along the chain: for each ideal and each
// choice of devices (how many of every class) whether these hold it.
class MixedDecision : public Decision {
 public:
  MixedDecision(const Groups& groups, const Lattice& lattice, std::size_t max_states,
                StepClock& clock);

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

  double search(std::vector<Step>& steps) override;
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
