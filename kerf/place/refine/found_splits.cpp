// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/refine/found_splits.h"

#include <algorithm>
#include <utility>

#include "kerf/place/refine/trials.h"

namespace kerf::place {

void FoundSplits::keep(Found found) {
  work_ += found.work;
  if (found.objective == kInfinity) return;
  for (const Found& other : splits_) {
    if (other.device == found.device) return;
  }
  const auto place =
      std::upper_bound(splits_.begin(), splits_.end(), found,
                       [](const Found& a, const Found& b) { return a.objective < b.objective; });
  splits_.insert(place, std::move(found));
}

const std::vector<Found>& FoundSplits::keep_best(std::size_t count) {
  splits_.resize(std::min(splits_.size(), count));
  return splits_;
}

Rng FoundSplits::rng_of(std::uint64_t trial) const {
  Rng mixed(options_.seed ^ trial * 0xd1342543de82ef95ULL);
  return Rng(mixed.next());
}

void FoundSplits::run(std::size_t trials, const std::function<Found(std::size_t, Rng&)>& trial) {
  std::vector<Found> results(trials);
  const std::size_t counted = run_trials(trials, options_.threads, [&](std::size_t i) {
    Rng rng = rng_of(next_trial_ + i);
    results[i] = trial(i, rng);
    return is_good(results[i].objective);
  });
  next_trial_ += trials;
  for (std::size_t i = 0; i < counted; ++i) keep(std::move(results[i]));
}

LoadAnswer FoundSplits::answer(bool proved, const StopClock& clock) const {
  LoadAnswer out;
  out.work = work_;
  out.objective = objective();
  if (!empty()) out.device = splits_.front().device;
  out.optimal = is_good() || (proved && !empty());
  out.truncated = !proved && !out.optimal && clock.has_struck();
  return out;
}

}  // namespace kerf::place
