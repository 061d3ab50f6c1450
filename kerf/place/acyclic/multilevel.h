// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Rounds of the acyclic search: new partitions, and better ones from those at hand.
#pragma once

#include <cstdint>

#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/acyclic/coarsen.h"
#include "kerf/place/acyclic/goal.h"
#include "kerf/place/instance.h"

namespace kerf::place::acyclic {

struct Found {
  Split part;
  Score score;
};

// Work done so far, and when to stop.
struct Budget {
  double work = 0;
  double most = 0;
  const StopClock* clock = nullptr;
  bool is_over() const { return work >= most || (clock != nullptr && clock->struck()); }
};

class Rounds {
 public:
  Rounds(const Instance& base, const Goal& goal, Rng& rng, Budget& budget)
      : base_(base), goal_(goal), rng_(rng), budget_(budget) {}

  // The next kind of order of the base, cut into runs.
  Found runs_of_order() { return runs_of_order(base_); }
  // The same, improved by moves.
  Found from_order() { return from_order(base_); }
  // From orders of a contracted graph, walking back.
  Found from_coarse();
  // From a partition, through graphs contracted inside its parts. Never worse.
  Found again(const Found& from);
  Found improved(Split part);
  // With borders moved along orders of the parts, coarsely and finely. Never worse.
  Found with_moved_borders(Found from);
  Found judged(Split part) const { return judged(base_, std::move(part)); }

 private:
  std::uint32_t target() const;
  Found judged(const Instance& level, Split part) const;
  void refine(const Instance& level, Split& part);
  Found runs_of_order(const Instance& level);
  Found from_order(const Instance& level);
  Found walk_back(const std::vector<Contraction>& steps, Split part);

  const Instance& base_;
  const Goal& goal_;
  Rng& rng_;
  Budget& budget_;
  std::size_t orders_ = 0;
  std::size_t borders_ = 0;
};

}  // namespace kerf::place::acyclic
