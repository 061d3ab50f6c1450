// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The stages that may follow an ideal, depth first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kerf/place/ideals/lattice.h"
#include "kerf/place/ideals/stage.h"

namespace kerf::place::ideals {

class Growth {
 public:
  Growth(const Groups& groups, const Lattice& lattice, StepClock& clock)
      : groups_(groups),
        lattice_(lattice),
        clock_(clock),
        nets_(groups),
        walker_(lattice),
        seen_(lattice.size(), 0),
        stack_(groups.num_units() + std::size_t{1}) {}
  bool stopped = false;
  std::int64_t work = 0;  // stages looked at

  // Calls reach(ideal, load) for stages with a load below `limit`. A stage stops growing when its
  // compute and the nets it pays for in any case reach the limit, when those nets alone cost more
  // than `max_shared`, or when it is too large.
  template <class Reach>
  void run(std::uint32_t start, const DeviceClass& on, double limit, double max_shared,
           Reach&& reach) {
    walk_to(start);
    start_expansion();
    nets_.with_paying(
        on, [&]<Paying kPaying>() { grow<kPaying>(start, on, limit, max_shared, reach); });
  }

 private:
  struct Frame {
    const Link* next;
    const Link* end;
    UnitId group;  // that led here
    Sums sums;
  };
  Frame frame(std::uint32_t ideal, UnitId group, const Sums& sums) const {
    const auto links = lattice_.links(ideal);
    return {links.data(), links.data() + links.size(), group, sums};
  }
  template <Paying kPaying, class Reach>
  void grow(std::uint32_t start, const DeviceClass& on, double limit, double max_shared,
            Reach&& reach) {
    Frame* const bottom = stack_.data();
    Frame* top = bottom;
    *top = frame(start, UnitId{}, {});
    while (true) {
      if (top->next == top->end) {
        if (top == bottom) return;
        nets_.remove<kPaying>((top--)->group);
        continue;
      }
      const Link link = *top->next++;
      if (seen_[link.to] == expansion_ || stopped) continue;
      enter(link);
      const Sums sums = nets_.add<kPaying>(link.group, on, top->sums);
      if (sums.least() >= limit || sums.shared > max_shared || sums.bytes > on.memory) {
        nets_.remove<kPaying>(link.group);
        continue;
      }
      if (sums.load < limit) reach(link.to, sums.load);
      *++top = frame(link.to, link.group, sums);
    }
  }
  void walk_to(std::uint32_t start) {
    walker_.move_to(
        start, [&](UnitId g) { nets_.remove_before(g); }, [&](UnitId g) { nets_.add_before(g); });
  }
  void start_expansion() {
    if (++expansion_ != 0) return;
    std::fill(seen_.begin(), seen_.end(), 0);
    expansion_ = 1;
  }
  void enter(const Link& link) {
    seen_[link.to] = expansion_;
    ++work;
    if (clock_.is_late_after(1 + groups_.nets[link.group].size())) stopped = true;
  }

  const Groups& groups_;
  const Lattice& lattice_;
  StepClock& clock_;
  StageNets nets_;
  Walker walker_;
  std::vector<std::uint32_t> seen_;  // by ideal, the expansion that saw it
  std::uint32_t expansion_ = 0;
  std::vector<Frame> stack_;  // as deep as there are groups
};

}  // namespace kerf::place::ideals
