// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The splits that a search came to, and rounds of trials on several threads that add to them: the
// same ones on any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kerf/base/infinity.h"
#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/load_search.h"

namespace kerf::place {

// A split that a search came to; an infinite objective: none.
struct Found {
  std::vector<SlotId> device;
  double objective = kInfinity;
  std::int64_t work = 0;
};

// Objectives this close, relatively, count as equal.
inline constexpr double kEqual = 1e-9;

class FoundSplits {
 public:
  // `options` must outlive it.
  explicit FoundSplits(const LoadOptions& options) : options_(options) {}

  // Best first, each split once; of equal ones the earlier, so that the order of trials decides and
  // not that of threads.
  void keep(Found found);
  // The best so many; the others are forgotten.
  const std::vector<Found>& keep_best(std::size_t count);
  bool empty() const { return splits_.empty(); }
  double objective() const { return empty() ? kInfinity : splits_.front().objective; }
  bool is_good(double objective) const { return objective <= options_.good_enough * (1 + kEqual); }
  // The search has what it wants.
  bool is_good() const { return !empty() && is_good(objective()); }
  double work() const { return static_cast<double>(work_); }

  // Random numbers of the next trial: the same whichever thread runs it.
  Rng next_rng() { return rng_of(next_trial_++); }
  // Trials until one finds what is good enough; their splits are kept.
  void run(std::size_t trials, const std::function<Found(std::size_t, Rng&)>& trial);

  // `proved`: the best is optimal, good enough or not.
  LoadAnswer answer(bool proved, const StopClock& clock) const;

 private:
  Rng rng_of(std::uint64_t trial) const;

  const LoadOptions& options_;
  std::vector<Found> splits_;
  std::int64_t work_ = 0;
  std::uint64_t next_trial_ = 1;
};

}  // namespace kerf::place
