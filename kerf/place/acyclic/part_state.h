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
  PartState(const Instance& level, const Goal& goal, std::span<const std::uint32_t> part);

  SplitState::Change change_of(std::uint32_t v, std::uint32_t to) const {
    return state_.peek(v, to);
  }
  double cut_change(std::uint32_t v, std::uint32_t to) const;
  void move(std::uint32_t v, std::uint32_t to);

  // Parts v may go to: [first, last].
  struct Range {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
  };
  Range range_of(std::uint32_t v) const;

  std::span<const std::uint32_t> part() const { return state_.devices(); }
  double load(std::uint32_t p) const { return state_.load(p); }
  double time(std::uint32_t p) const { return time_[p]; }
  std::uint32_t count(std::uint32_t p) const { return count_[p]; }
  double cut() const { return cut_; }
  double largest_load() const { return state_.busiest(); }
  // Of both parts, after less before.
  double memory_excess_change(std::uint32_t v, std::uint32_t to) const;
  double time_excess_change(std::uint32_t v, std::uint32_t to) const;
  Score score() const;
  // Whether another part holds pins of one of its nets.
  bool is_at_border(std::uint32_t v) const;

 private:
  double memory_excess(std::uint32_t p, double bytes) const;
  // With `timed` vertices that take time: one alone may take more than its share.
  double time_excess(std::uint32_t p, double time, std::uint32_t timed) const;

  const Instance& level_;
  const Goal& goal_;
  SplitState state_;
  std::vector<double> time_;  // by part, slowness 1
  Numbers count_, timed_;     // by part
  double cut_ = 0;
};

}  // namespace kerf::place::acyclic
