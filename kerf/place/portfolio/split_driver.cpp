// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/portfolio/split_driver.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kerf/place/ideals/chain_of_groups.h"
#include "kerf/place/ideals/ideals.h"
#include "kerf/place/metis/kway.h"
#include "kerf/place/metis/metis_starts.h"
#include "kerf/place/mincut/load_bounds.h"
#include "kerf/place/mincut/prove.h"
#include "kerf/place/portfolio/families.h"
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

// Of a budget; a search takes some six tenths of what it is given.
struct Shares {
  double proof = 0;
  double search = 0;
  double last_proof = 0;
};

bool tensors_are_dear(const Instance& problem) {
  constexpr double kDear = 0.05;
  double tensors = 0;
  for (const double cost : problem.cost) tensors += cost;
  return tensors > kDear * problem.total_accelerator_time();
}

// Minimum cuts decide where tensors are dear. Where they cost next to nothing the question is one
// of sums alone, and searching pays better than proving.
Shares shares_for(const Instance& problem) {
  return tensors_are_dear(problem) ? Shares{0.4, 0.6, 0.1} : Shares{0.05, 1.15, 0.05};
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

void SplitDriver::offer(std::span<const std::uint32_t> device) { take(device, judge_(device)); }

void SplitDriver::take(std::span<const std::uint32_t> device, const Verdict& verdict) {
  if (!verdict.fits) return;
  if (!best_.device.empty() && verdict.value >= best_.objective) return;
  best_.device.assign(device.begin(), device.end());
  best_.objective = verdict.value;
}

void SplitDriver::search(const std::function<LoadAnswer(const Instance&)>& solve) {
  constexpr int kRounds = 6;
  double reserve = 0;
  double known_too_much = -1;
  for (int round = 0; round < kRounds && (round == 0 || !clock_.struck()); ++round) {
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

void SplitDriver::chain(double seconds) {
  search([&](const Instance& instance) { return find_chain(instance, options(seconds)); });
}

void SplitDriver::contiguous(double seconds) {
  search([&](const Instance& instance) {
    LoadOptions its = options(seconds);
    its.clock = std::min(its.clock, seconds);  // its work is not counted, but for its limits
    return LoadAnswer(find_contiguous(instance, its));
  });
}

void SplitDriver::any_split(double seconds) {
  search([&](const Instance& instance) {
    std::vector<std::vector<std::uint32_t>> starts;
    constexpr double kUnitsASecond = 200'000;  // what METIS may take of the budget
    const bool short_enough = instance.num_tasks() < kUnitsASecond * seconds;
    if (short_enough && tensors_are_dear(instance)) {
      starts = metis_starts(instance, options_.seed);
    }
    if (!best_.device.empty()) starts.push_back(best_.device);
    return refine(instance, options(seconds), starts);
  });
}

void SplitDriver::family(std::string_view name, double seconds) {
  search([&](const Instance& instance) { return plan_family(name, instance, options(seconds)); });
}

void SplitDriver::families(double seconds) {
  constexpr double kUnitsASecond = 10'000;
  const bool dear = tensors_are_dear(scaled_);
  const bool small = scaled_.num_tasks() < kUnitsASecond * seconds;
  // Where tensors cost next to nothing the search has no need of other starts.
  if (dear && small) {
    for (const std::string_view name : {"metis", "pipedream", "binpack2d"}) {
      if (!met() && (name != "metis" || has_metis())) family(name, seconds * 0.05);
    }
  }
  if (!met()) family("mixed_pipe", seconds * (dear ? 0.2 : 0.05));
  if (!met() && (dear || !small)) family("multilevel", seconds * 0.1);
}

void SplitDriver::prove_it(double seconds) {
  if (problem_.known || !problem_.provable) return;
  constexpr double kArcsASecond = 1.5e8;
  ProofOptions proof_options;
  proof_options.time_budget = clock_.left();
  proof_options.work_budget = static_cast<std::int64_t>(seconds * kArcsASecond);
  proof_options.known = bound_;
  Proof proof = prove(problem_.bound, best_, proof_options);
  truncated_ = truncated_ || proof.answer.truncated;
  if (proof.bound.value > bound_.value) bound_ = proof.bound;
  if (!proof.answer.device.empty()) offer(proof.answer.device);
}

void SplitDriver::run(std::string_view method, bool only_contiguous) {
  const double budget = options_.time_budget;
  if (is_family(method)) return family(method, budget);
  if (method == "chain") return chain(budget);
  if (method == "ideals") return contiguous(budget);
  if (only_contiguous) {
    contiguous(budget * 0.5);
    if (!met()) family("multilevel", budget * 0.5);
    return;
  }
  if (method == "refine") return any_split(budget);
  contiguous(budget * 0.25);
  if (met()) return;
  if (method == "exact") {
    prove_it(budget * 0.35);
    if (!met()) any_split(budget * 0.2);
    if (!met()) prove_it(budget * 0.3);
    return;
  }
  const Shares shares = shares_for(scaled_);
  const auto turn = [&](double seconds) {
    if (!met()) prove_it(seconds * shares.proof);
    if (!met()) families(seconds);
    if (!met()) any_split(seconds * shares.search);
    if (!met()) prove_it(seconds * shares.last_proof);
  };
  // What a second can do comes first, however long the budget is: most problems need no more.
  turn(std::min(budget, 1.0));
  if (budget >= 2) turn(budget * 0.7);
}

}  // namespace kerf::place
