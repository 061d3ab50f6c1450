// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The searches over an Instance put together: contiguous, any split, proof. Both the planner of
// load problems and that of traced ones run through here.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "kerf/base/stop_clock.h"
#include "kerf/place/load_search.h"
#include "kerf/place/lower_bound.h"
#include "kerf/place/pack/cost_scale.h"
#include "kerf/place/portfolio/split_method.h"

namespace kerf::place {

// What a split is worth to the caller, who may count more than the model does.
struct Verdict {
  bool fits = true;
  double value = 0;     // of the objective
  double overhead = 0;  // bytes: by how much a device needs more than the model's figure
};
using Judge = std::function<Verdict(std::span<const SlotId> device)>;  // by unit

struct DriverProblem {
  Instance search;
  Instance bound;     // bounds of this one are bounds of what the judge says
  bool exact = true;  // the judge's value is the model's, where it fits
  // Bounds are not looked for: this one is known. `bound` is then used for nothing.
  std::optional<LowerBound> known = {};
  // `bound` has the units of `search`; else its bounds hold, but proofs would be of other splits.
  bool provable = true;
};

class SplitDriver {
 public:
  // `problem` and `judge` must outlive it. `options.time_budget` is for all that is asked of it.
  SplitDriver(const DriverProblem& problem, LoadOptions options, Judge judge);

  // A split from elsewhere.
  void offer(std::span<const SlotId> device);
  // Step by step, until the bound is met. `contiguous`: only splits with one stage per device.
  void run(const SplitMethod& method, bool contiguous);

  // As if nothing had been found yet: the judge has learned better.
  void forget() { best_ = {}; }

  // Its objective is the judge's value. No devices: nothing that fits was found.
  const LoadAnswer& best() const { return best_; }
  const LowerBound& bound() const { return bound_; }
  bool met() const;
  // A search was cut short, and the bound is not met.
  bool truncated() const { return truncated_ && !met(); }

 private:
  LoadOptions options(double seconds) const;
  void take(std::span<const SlotId> device, const Verdict& verdict);
  // Searches, and again with less memory while the judge finds what comes out too large.
  void search(double seconds, const std::function<LoadAnswer(const Instance&)>& solve);
  // Seconds are of counted work; the clock strikes when all that is left has passed.
  void take_steps(std::span<const SplitStep> steps, double seconds);
  bool is_worth_it(When when, double seconds) const;
  void contiguous(double seconds);
  void any_split(double seconds);
  void prove_it(double seconds);
  void solve_with(const SplitStep& step, double seconds);

  const DriverProblem& problem_;
  // What is searched: the same with its costs on a scale of their own (pack/cost_scale.h).
  CostScale scale_;
  Instance scaled_;
  LoadOptions options_;
  Judge judge_;
  StopClock clock_;
  LoadAnswer best_;
  LowerBound bound_;
  bool truncated_ = false;
};

}  // namespace kerf::place
