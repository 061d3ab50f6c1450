// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/ideals/decide.h"

namespace kerf::place::ideals {

// The decision for accelerators that are all alike: for each ideal the fewest that hold it.
class EqualDecision : public Decision {
 public:
  EqualDecision(const Groups& groups, const Lattice& lattice, StepClock& clock);

 private:
  // How an ideal is reached with the fewest accelerators.
  struct Reached {
    std::vector<std::uint16_t> accelerators;
    std::vector<std::uint32_t> from;
    std::vector<double> load;
  };
  enum Kind : std::size_t { kFresh = 0, kCpuUsed = 1 };

  double search(std::vector<Step>& steps) override;
  void reset();
  void expand_level(int level);
  void find_covered(int level);
  bool is_at(Kind kind, std::uint32_t ideal, int level) const;
  bool is_open(Kind kind, std::uint32_t ideal, int level) const;
  void grow_on_accelerator(Kind kind, std::uint32_t start, int level);
  void grow_on_cpu(std::uint32_t start, int level);
  double left_for(Kind kind, int accelerators) const;
  void reach(Kind kind, std::uint32_t ideal, int accelerators, std::uint32_t from, double load);
  double read_back(std::vector<Step>& steps) const;

  int num_accelerators_ = 0;
  std::uint32_t cpu_ = 0;  // its class
  Reached reached_[2];
  std::vector<bool> covered_[2];
};

}  // namespace kerf::place::ideals
