// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// One device of a half-made split: the units on it, those known to be elsewhere, the least cost
// of a set that respects both, and for every open unit the least cost with it on board. The cost
// of a set S is load(S) - reward * compute(S): its load for reward 0; above that what remains of
// the load when compute is wanted (a Lagrangian multiplier). A value: copying it is how a search
// remembers where it was.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/mincut/cut_network.h"

namespace kerf::place {

class DeviceCut {
 public:
  // `kind` pays for nets. `network` must outlive it.
  DeviceCut(const CutNetwork& network, const DeviceKind& kind, double reward);

  void hold(UnitId t);    // unit t is here
  void forbid(UnitId t);  // unit t is elsewhere

  // The least cost of this device; false if it reaches `limit`. When the budget of `scratch` ends
  // first: true, and what was found is a lower bound.
  bool settle(FlowScratch& scratch, Flow limit);
  // Could unit t be here with a cost below `limit`? Answers from an earlier test while the set it
  // found is still allowed: adding what it holds and forbidding what it leaves out change nothing.
  bool can_hold(FlowScratch& scratch, UnitId t, Flow limit);

  double reward() const { return reward_; }
  Flow least() const { return least_; }
  // Least cost with unit t, as far as tests went: never too large.
  Flow least_with(UnitId t) const { return with_[t]; }
  bool in_least(UnitId t) const { return closed_[t] != 0; }
  std::size_t num_bytes() const {
    return flow_.num_bytes() + closed_.size() + with_.size() * 9 + sides_.size() * 8;
  }

 private:
  bool in_side(std::uint32_t test, UnitId t) const {
    return (sides_[test * words_ + t / 64] >> (t % 64) & 1U) != 0;
  }
  void keep_side(const FlowScratch& scratch, std::uint32_t test);

  MaxFlow flow_;
  double reward_ = 0;
  Flow offset_ = 0;  // from the flow's value to the cost
  bool dirty_ = true;
  Flow least_ = 0;
  std::uint32_t words_ = 0;
  std::vector<std::uint8_t> closed_;        // by flow node: source side of the least cost
  std::vector<std::uint64_t> closed_side_;  // its units, words_: every test starts from them
  std::vector<Flow> with_;                  // by unit
  std::vector<std::uint8_t> valid_;         // by unit: with_ and sides_ still hold
  std::vector<std::uint64_t> sides_;        // by unit, words_ each
};

}  // namespace kerf::place
