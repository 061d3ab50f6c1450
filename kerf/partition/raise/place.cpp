// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/raise/place.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "kerf/partition/raise/finish.h"
#include "kerf/partition/raise/form_stages.h"
#include "kerf/place/lower_bound.h"
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

// To judge: a search makes many plans.
bool takes_long(std::size_t num_stages, int n_microbatches) {
  constexpr std::size_t kMostActions = 2'000'000;
  const auto rounds = std::min(static_cast<std::size_t>(n_microbatches), 4 * num_stages);
  return num_stages * rounds > kMostActions;
}

}  // namespace

Plan place_units(const Problem& problem, const SplitModel& model, std::span<const DeviceId> device,
                 const std::string& method, bool mixed) {
  Stages few = form_stages(model.units, model.order, device);
  Plan plan = make_plan(problem, std::move(few.nodes), std::move(few.devices), method);
  // The busiest device is the same however its units are put into stages.
  const bool too_large = find_overflow(plan).has_value();
  if (!mixed || (problem.objective == Objective::throughput && !too_large)) return plan;
  Stages more = form_short_stages(model.units, model.order, device);
  if (more.nodes.size() == plan.num_stages()) return plan;
  if (takes_long(more.nodes.size(), problem.n_microbatches)) return plan;
  Plan other = make_plan(problem, std::move(more.nodes), std::move(more.devices), method);
  const bool other_too_large = find_overflow(other).has_value();
  if (too_large != other_too_large) return too_large ? other : plan;
  return is_better(other, plan) ? other : plan;
}

bool BestPlan::accepts(const Plan& plan) const {
  return !find_overflow(plan) && (mixed_ || !has_mixed_stages(plan));
}

bool BestPlan::offer(Plan plan) {
  if (!mixed_ && has_mixed_stages(plan)) return false;
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
  } else {
    keep_closest(closest_, outcome.reason());
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
  check_bound(bound, plan_->objective_value());
  plan_->lower_bound = bound;
  // Whatever stopped the search: nothing is left to find where the bound is met.
  constexpr double kMet = 1e-9;
  plan_->truncated = truncated && plan_->gap() > kMet;
  return *std::move(plan_);
}

}  // namespace kerf::partition
