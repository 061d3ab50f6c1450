// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A partition of a level, with loads and cut kept up as vertices move.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/acyclic/goal.h"
#include "kerf/place/acyclic/level.h"

namespace kerf::place::acyclic {

class PartState {
 public:
  PartState(const Level& level, const Goal& goal, Numbers part);

  struct Change {
    double cut = 0;
    double from = 0;  // what the part left pays for tensors
    double to = 0;    // what the part entered pays
  };
  Change change_of(std::uint32_t v, std::uint32_t to) const;
  void move(std::uint32_t v, std::uint32_t to);

  // Parts v may go to: [first, last].
  struct Range {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };
  Range range_of(std::uint32_t v) const;

  const Numbers& part() const { return part_; }
  double load(std::uint32_t p) const { return goal_.slowness[p] * time_[p] + transfer_[p]; }
  double time(std::uint32_t p) const { return time_[p]; }
  double bytes(std::uint32_t p) const { return bytes_[p]; }
  std::uint32_t count(std::uint32_t p) const { return count_[p]; }
  double cut() const { return cut_; }
  double largest_load() const;
  double memory_excess(std::uint32_t p, double bytes) const;
  // With `timed` vertices that take time: one alone may take more than its share.
  double time_excess(std::uint32_t p, double time, std::uint32_t timed) const;
  // Of both parts, after less before.
  double memory_excess_change(std::uint32_t v, std::uint32_t to) const;
  double time_excess_change(std::uint32_t v, std::uint32_t to) const;
  Score score() const;
  // Parts that hold pins of a net.
  std::uint32_t spread(std::uint32_t net) const { return spread_[net]; }

 private:
  struct Slot {
    std::uint32_t part = 0;
    std::uint32_t pins = 0;
  };
  std::uint32_t pins_in(std::uint32_t net, std::uint32_t part) const;
  void leave(std::uint32_t net, std::uint32_t part);
  void enter(std::uint32_t net, std::uint32_t part);
  Change change_of_net(std::uint32_t net, std::uint32_t v, std::uint32_t to) const;
  void charge_all();

  const Level& level_;
  const Goal& goal_;
  Numbers part_;
  std::vector<double> time_, bytes_, transfer_;  // by part
  Numbers count_, timed_;                        // by part
  std::vector<std::size_t> first_slot_;          // by net
  std::vector<Slot> slots_;                      // those of a net that are used come first
  Numbers spread_;                               // by net, how many are used
  double cut_ = 0;
};

}  // namespace kerf::place::acyclic
