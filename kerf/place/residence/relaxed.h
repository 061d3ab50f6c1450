// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kerf/place/residence/residence_problem.h"

namespace kerf {

// Units that are alike in all that counts.
struct UnitGroup {
  StreamUnit unit;
  std::size_t count = 0;
  double copy = 0;         // of one unit, in nanoseconds
  bool may_stream = true;  // it fits a slot, and need not stay

  double bytes() const { return static_cast<double>(unit.bytes.count); }  // of one unit
};

// A weighted sum of the link's busy time and of the computing time, which a call takes at least:
// no weighted mean of two numbers is above the larger.
class RelaxedResidence {
 public:
  // `link_share`: the weight of the link's time, 0 to 1.
  RelaxedResidence(const std::vector<UnitGroup>& groups, double link_share);

  // The least sum of groups[first...] when units may be cut in pieces and `memory` bytes are left
  // for residents; infinity if what must be resident does not fit.
  double least(std::size_t first, double memory) const;

  double link_share() const { return link_share_; }

 private:
  struct Gain {
    std::size_t group;
    double per_byte;  // what a resident byte saves
  };
  const std::vector<UnitGroup>& groups_;
  double link_share_;
  std::vector<double> away_;  // by group: the least cost of a unit that is not resident
  std::vector<Gain> gains_;   // largest first
  // By first group: what all that follow cost when none is resident but those that must be, and
  // the bytes of these.
  std::vector<double> cost_from_;
  std::vector<double> bytes_from_;
};

// The link's share for which `least` of everything is largest: the bound is then that of linear
// programming.
RelaxedResidence tightest_relaxation(const std::vector<UnitGroup>& groups, double memory);

}  // namespace kerf
