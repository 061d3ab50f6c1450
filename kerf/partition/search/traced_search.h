// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kerf/partition/method.h"
#include "kerf/partition/raise/place.h"
#include "kerf/place/portfolio/split_driver.h"

namespace kerf::partition {

// How a traced problem is searched.
struct SearchScope {
  double seconds = 1;
  bool prove = true;  // false: only bounds that cost nothing
  bool mixed = true;  // false: one stage a device, whatever Options::mixed says
  // A graph of more nodes is searched in runs of nodes (lower/coarse_units.h), and node by node
  // along the borders of what that finds.
  std::size_t most_nodes = 20'000;
  // By device: bytes that the model is to leave free, since plans were seen to need them. Empty:
  // none.
  std::vector<double> reserved = {};
};

// The searches over a traced problem's model; every split they come up with is made a plan, and
// the engine's memory and the problem's own objective decide. Where the model is coarse, only the
// best split of a search is: making plans of many nodes takes long.
class TracedSearch {
 public:
  TracedSearch(const Problem& problem, const Options& options, const SearchScope& scope);

  // As place::SplitDriver::run.
  void run(const place::SplitMethod& method);
  // The plan and its split, as something to improve on.
  void offer(const Outcome<Plan, Infeasible>& outcome);

  const SplitModel& model() const { return model_; }
  bool is_coarse() const { return coarse_; }
  // Some of the model's units could be cut: what all its splits have in common proves nothing.
  bool is_restricted() const { return restricted_; }
  BestPlan& best() { return best_; }
  // Of the busiest device, whatever the objective is.
  LowerBound busiest_bound() const;
  bool met() const { return driver_->met(); }
  bool truncated() const { return driver_->truncated(); }

 private:
  place::Verdict judge(std::span<const SlotId> device);
  // The most by which a device needs more than the model counts there.
  double overhead(const Plan& plan, const SplitModel& model, std::span<const SlotId> device) const;
  // Makes the driver's best split a plan; false: it does not fit, which the judge now knows.
  bool settle();
  // Searches node by node where the best split's devices meet.
  void refine_borders();

  const Problem& problem_;
  const Options& options_;
  bool mixed_;
  SplitModel model_;
  bool coarse_;
  bool restricted_;
  place::LoadOptions load_options_;
  place::DriverProblem driver_problem_;
  LowerBound simple_;   // the best of those that cost nothing
  double reserve_ = 0;  // bytes beside those of the model, where it is coarse
  BestPlan best_;
  std::unique_ptr<place::SplitDriver> driver_;
};

}  // namespace kerf::partition
