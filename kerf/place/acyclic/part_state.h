// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A SplitState of parts in an order: it knows the cut, the limits of the goal, and where a vertex
// may go without an edge leading back.
#pragma once

#include <cstdint>
#include <span>

#include "kerf/place/acyclic/goal.h"
#include "kerf/place/refine/split_state.h"

namespace kerf::place::acyclic {

class PartState {
 public:
  // `level` and `goal` must outlive it.
  PartState(const Instance& level, const Goal& goal, std::span<const SlotId> part);

  SplitState::Change change_of(UnitId v, SlotId to) const { return state_.peek(v, to); }
  double cut_change(UnitId v, SlotId to) const;
  void move(UnitId v, SlotId to);

  // Parts v may go to: [first, last].
  struct Range {
    SlotId first{0};
    SlotId last{0};
  };
  Range range_of(UnitId v) const;

  std::span<const SlotId> part() const { return state_.devices(); }
  double load(SlotId p) const { return state_.load(p); }
  double time(SlotId p) const { return time_[p]; }
  std::uint32_t count(SlotId p) const { return count_[p]; }
  double cut() const { return cut_; }
  double largest_load() const { return state_.busiest(); }
  // Of both parts, after less before.
  double memory_excess_change(UnitId v, SlotId to) const;
  double time_excess_change(UnitId v, SlotId to) const;
  Score score() const;
  // Whether another part holds pins of one of its nets.
  bool is_at_border(UnitId v) const;

 private:
  double memory_excess(SlotId p, double bytes) const;
  // With `timed` vertices that take time: one alone may take more than its share.
  double time_excess(SlotId p, double time, std::uint32_t timed) const;

  const Instance& level_;
  const Goal& goal_;
  SplitState state_;
  std::vector<double> time_;  // by part, slowness 1
  Numbers count_, timed_;     // by part
  double cut_ = 0;
};

}  // namespace kerf::place::acyclic
