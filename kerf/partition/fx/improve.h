// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Local search over placements: moves, swaps, and passes that may get worse before they get better.
// Without swaps 8-wide graphs (benchmarks/fx_partitioner) of 96 ops and more get 14 to 31 % more
// expensive under the serial model, without passes kl's plans of them up to 0.5 % under the other,
// without kicks one random plan in twenty. O(ops) a move that is tried; not optimal.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/partition/fx/placement.h"

namespace kerf::partition::fx {

// What a placement is judged by: the model's cost, then the time of all transfers.
struct Score {
  double cost = 0;
  double transfers = 0;
};
bool better(const Score& a, const Score& b);

class Improver {
 public:
  // `steps`: visits of ops that it may make in all.
  Improver(const OpTable& table, CostModel model, std::int64_t steps, std::uint64_t seed);

  // Moves single ops and swaps pairs until nothing helps.
  Score descend(Placement& placement);
  // One Kernighan-Lin pass: the best move each time, every op once, back to the best state seen.
  Score pass(Placement& placement);
  // Kicks a few neighbouring ops away and descends again, keeping what is better.
  Score kick(Placement& placement, int times);

  bool out_of_steps() const { return steps_ <= 0; }

 private:
  Score judge(const Placement& placement);
  void restore_path(const Placement& placement);
  double transfers_after(const Placement& placement, std::size_t op, SlotId to) const;
  bool improve_op(Placement& placement, std::size_t op, Score& now);
  bool try_move(Placement& placement, std::size_t op, SlotId to, Score& now);
  bool try_swaps(Placement& placement, std::size_t op, SlotId to, Score& now);
  bool accept(Placement& placement, Score& now);
  void candidates(const Placement& placement, std::size_t op, std::vector<SlotId>& out) const;
  double serial_length(const Placement& placement);
  void spend(std::int64_t steps);

  const OpTable& table_;
  CostModel model_;
  std::int64_t steps_;
  Rng rng_;
  CriticalPath path_;
  std::vector<double> end_;
  std::vector<double> free_;
  std::vector<std::uint64_t> fetched_;
  std::uint64_t fetch_stamp_ = 0;
};

}  // namespace kerf::partition::fx
