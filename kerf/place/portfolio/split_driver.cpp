// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/portfolio/split_driver.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kerf/place/bound/load_bounds.h"
#include "kerf/place/ideals/ideals.h"
#include "kerf/place/metis/metis_starts.h"
#include "kerf/place/mincut/prove.h"
#include "kerf/place/portfolio/split_methods.h"
#include "kerf/place/refine/refine.h"

namespace kerf::place {
namespace {

// A proof stops at a gap of 1e-6; what rounding adds must not undo it.
constexpr double kGap = 2e-6;

// Every limited memory smaller by `bytes`; false when nothing is left of one.
bool shrink_memory(Instance& problem, double bytes) {
  bool left = true;
  for (double& memory : problem.memory) {
    memory -= bytes;
    left = left && memory >= 0;
  }
  return left;
}

bool tensors_are_expensive(const Instance& problem) {
  constexpr double kDear = 0.05;
  double tensors = 0;
  for (const double cost : problem.cost) tensors += cost;
  return tensors > kDear * problem.total_accelerator_time();
}

}  // namespace

SplitDriver::SplitDriver(const DriverProblem& problem, LoadOptions options, Judge judge)
    : problem_(problem),
      scale_(find_cost_scale(problem.search)),
      scaled_(scale_costs(problem.search, scale_)),
      options_(options),
      judge_(std::move(judge)),
      clock_(options.time_budget) {
  constexpr double kBoundShare = 0.25;
  bound_ = problem.known
               ? *problem.known
               : tightest(find_load_bounds(problem.bound, options.time_budget * kBoundShare));
}

// Shares of the budget, not of what is left of it: measured time must not decide the work.
LoadOptions SplitDriver::options(double seconds) const {
  LoadOptions out = options_;
  out.time_budget = seconds;
  out.clock = clock_.left();
  if (problem_.exact) out.good_enough = std::ldexp(bound_.value, scale_.shift);
  return out;
}

bool SplitDriver::met() const {
  return !best_.device.empty() && best_.objective <= bound_.value * (1 + kGap);
}

void SplitDriver::offer(std::span<const SlotId> device) { take(device, judge_(device)); }

void SplitDriver::take(std::span<const SlotId> device, const Verdict& verdict) {
  if (!verdict.fits) return;
  if (!best_.device.empty() && verdict.value >= best_.objective) return;
  best_.device.assign(device.begin(), device.end());
  best_.objective = verdict.value;
}

void SplitDriver::search(double seconds, const std::function<LoadAnswer(const Instance&)>& solve) {
  constexpr int kRounds = 6;
  // What takes more time than it was given leaves less for what follows.
  constexpr double kLenience = 2;
  const StopClock share(kLenience * seconds);
  double reserve = 0;
  double known_too_much = -1;
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0 && (share.struck() || clock_.struck())) {
      truncated_ = true;
      return;
    }
    LoadAnswer answer;
    if (reserve == 0) {
      answer = solve(scaled_);
    } else {
      Instance tighter = scaled_;
      if (shrink_memory(tighter, reserve)) answer = solve(tighter);
    }
    truncated_ = truncated_ || answer.truncated;
    if (answer.device.empty()) {
      // Too much was kept back, or nothing fits at all.
      if (reserve == 0) return;
      known_too_much = reserve;
      reserve /= 2;
      continue;
    }
    const Verdict verdict = judge_(answer.device);
    if (verdict.fits) return take(answer.device, verdict);
    const double more = std::max(verdict.overhead, reserve * 1.25);
    if (known_too_much > 0 && more >= known_too_much) return;
    if (more <= reserve) return;  // not for lack of memory
    reserve = more;
  }
}

void SplitDriver::contiguous(double seconds) {
  search(seconds, [&](const Instance& instance) {
    LoadOptions its = options(seconds);
    its.clock = std::min(its.clock, seconds);  // its work is not counted, but for its limits
    return LoadAnswer(find_contiguous(instance, its));
  });
}

void SplitDriver::any_split(double seconds) {
  search(seconds, [&](const Instance& instance) {
    std::vector<Split> starts;
    constexpr double kUnitsASecond = 200'000;  // what METIS may take of the budget
    const bool short_enough = instance.num_units() < kUnitsASecond * seconds;
    if (short_enough && tensors_are_expensive(instance)) {
      starts = metis_starts(instance, options_.seed);
    }
    if (!best_.device.empty()) starts.push_back(best_.device);
    return refine(instance, options(seconds), starts);
  });
}

void SplitDriver::solve_with(const SplitStep& step, double seconds) {
  search(seconds,
         [&](const Instance& instance) { return solve(step, instance, options(seconds)); });
}

void SplitDriver::prove_it(double seconds) {
  if (problem_.known || !problem_.provable) return;
  constexpr double kArcsASecond = 1.5e8;
  ProofOptions proof_options;
  proof_options.time_budget = clock_.left();
  proof_options.work_budget = static_cast<std::int64_t>(seconds * kArcsASecond);
  Proof proof = prove(problem_.bound, best_, bound_, proof_options);
  truncated_ = truncated_ || proof.answer.truncated;
  if (proof.bound.value > bound_.value) bound_ = proof.bound;
  if (!proof.answer.device.empty()) offer(proof.answer.device);
}

bool SplitDriver::is_worth_it(When when, double seconds) const {
  constexpr double kUnitsASecond = 10'000;
  const bool expensive = tensors_are_expensive(scaled_);
  const bool small = scaled_.num_units() < kUnitsASecond * seconds;
  switch (when) {
    case When::always: return true;
    case When::expensive: return expensive;
    case When::cheap: return !expensive;
    case When::expensive_and_small: return expensive && small;
    case When::expensive_or_large: return expensive || !small;
  }
  return false;
}

void SplitDriver::take_steps(std::span<const SplitStep> steps, double seconds) {
  bool first = true;
  for (const SplitStep& step : steps) {
    if (!std::exchange(first, false) && met()) return;
    if (!is_worth_it(step.when, seconds)) continue;
    const double its = seconds * step.share;
    switch (step.kind) {
      case SplitStep::Kind::contiguous: contiguous(its); break;
      case SplitStep::Kind::any_split: any_split(its); break;
      case SplitStep::Kind::proof: prove_it(its); break;
      case SplitStep::Kind::solver: solve_with(step, its); break;
    }
  }
}

void SplitDriver::run(const SplitMethod& method, bool only_contiguous) {
  const double budget = options_.time_budget;
  const bool narrow = only_contiguous && method.shape != Shape::contiguous;
  if (narrow && !method.is_one_solver()) return run(one_stage_split(), true);
  take_steps(method.steps, budget);
  if (method.rounds.empty() || met()) return;
  // What a second can do comes first, however long the budget is: most problems need no more.
  take_steps(method.rounds, std::min(budget, 1.0));
  if (budget >= 2 && !met()) take_steps(method.rounds, budget * 0.7);
}

}  // namespace kerf::place
