// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "kerf/partition/load/split_driver.h"
#include "kerf/partition/partition.h"
#include "kerf/partition/split/place.h"

namespace kerf::partition {

// The searches over a traced problem's model; every split they come up with is made a plan, and
// the engine's memory and the problem's own objective decide.
class TracedSearch {
 public:
  TracedSearch(const Problem& problem, const Options& options, double seconds);

  // As SplitDriver::run.
  void run(std::string_view method);
  // The plan and its split, as something to improve on.
  void offer(const Outcome<Plan, Infeasible>& outcome);

  const SplitModel& model() const { return model_; }
  BestPlan& best() { return best_; }
  // Of the busiest device, whatever the objective is.
  LowerBound busiest_bound() const;
  bool met() const { return driver_->met(); }
  bool truncated() const { return driver_->truncated(); }

 private:
  Verdict judge(std::span<const std::uint32_t> device);
  // The most by which a device needs more than the model counts there.
  double overhead(const Plan& plan, std::span<const std::uint32_t> device) const;

  const Problem& problem_;
  SplitModel model_;
  DriverProblem driver_problem_;
  BestPlan best_;
  std::unique_ptr<SplitDriver> driver_;
};

}  // namespace kerf::partition
