// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include "kerf/base/outcome.h"
#include "kerf/partition/lower/split_model.h"
#include "kerf/plan/infeasible.h"
#include "kerf/plan/plan.h"

namespace kerf::partition {

// The plan in which every unit is on its device, memory limits recorded and not enforced. Stages
// are as few as can be; or short ones, where memory or the objective is better with those.
// `mixed` off: as few as can be, whatever that costs.
Plan place_units(const Problem& problem, const SplitModel& model, std::span<const DeviceId> device,
                 const std::string& method, bool mixed = true);

// The best plan seen: least objective, then least step time, then fewest stages; and of those that
// do not fit the one that is least short of memory.
class BestPlan {
 public:
  // `mixed`: plans may have several stages on a device; false: those are turned down.
  explicit BestPlan(bool mixed = true) : mixed_(mixed) {}

  // It fits, and its stages are as they may be.
  bool accepts(const Plan& plan) const;
  // True when it became the best.
  bool offer(Plan plan);
  void offer(const Outcome<Plan, Infeasible>& outcome);

  bool mixed() const { return mixed_; }
  const std::optional<Plan>& plan() const { return plan_; }
  // A plan, or a reason why there is none.
  bool has_answer() const { return plan_ || closest_; }
  // Of those offered that do not fit, the least short of memory.
  const std::optional<Infeasible>& closest() const { return closest_; }
  // `method` found it: its name, its bound, whether it was cut short.
  Outcome<Plan, Infeasible> answer(std::string method, const LowerBound& bound, bool truncated) &&;

 private:
  bool mixed_ = true;
  std::optional<Plan> plan_;
  std::optional<Infeasible> closest_;
};

}  // namespace kerf::partition
