// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/split/place.h"

#include <tuple>
#include <utility>

#include "kerf/partition/finish.h"
#include "kerf/partition/split/form_stages.h"
#include "kerf/simulate/make_plan.h"

namespace kerf::partition {
namespace {

// Values that differ by rounding alone are the same.
bool is_better(const Plan& a, const Plan& b) {
  constexpr double kRounding = 1e-9;
  const double value = a.objective_value();
  const double other = b.objective_value();
  if (value < other * (1 - kRounding)) return true;
  if (value > other * (1 + kRounding)) return false;
  return std::tuple(a.step_time.count * (1 + kRounding), a.num_stages()) <
         std::tuple(b.step_time.count, b.num_stages());
}

}  // namespace

Plan place_units(const Problem& problem, const SplitModel& model, std::span<const DeviceId> device,
                 const std::string& method) {
  Stages stages = form_stages(model.units, model.order, device);
  return make_plan(problem, std::move(stages.nodes), std::move(stages.devices), method);
}

bool BestPlan::offer(Plan plan) {
  if (std::optional<Infeasible> overflow = find_overflow(plan)) {
    offer(Outcome<Plan, Infeasible>(*std::move(overflow)));
    return false;
  }
  if (plan_ && !is_better(plan, *plan_)) return false;
  plan_ = std::move(plan);
  return true;
}

void BestPlan::offer(const Outcome<Plan, Infeasible>& outcome) {
  if (outcome) {
    offer(*outcome);
  } else if (!closest_ || outcome.reason().short_by < closest_->short_by) {
    closest_ = outcome.reason();
  }
}

Outcome<Plan, Infeasible> BestPlan::answer(std::string method, const LowerBound& bound,
                                           bool truncated) && {
  if (!plan_) {
    KERF_CHECK(closest_.has_value(), "a search ended without a plan or a reason");
    closest_->method = std::move(method);
    return *std::move(closest_);
  }
  plan_->method = std::move(method);
  plan_->lower_bound = bound;
  plan_->truncated = truncated;
  return *std::move(plan_);
}

}  // namespace kerf::partition
