// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/load/split_driver.h"

#include <algorithm>
#include <ctime>
#include <vector>

#include "kerf/partition/ideals/ideals.h"
#include "kerf/partition/mincut/load_bounds.h"
#include "kerf/partition/mincut/prove.h"
#include "kerf/partition/refine/refine.h"

namespace kerf::partition {
namespace {

constexpr double kGap = 1e-6;

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Every limited memory smaller by `bytes`; false when nothing is left of one.
bool shrink_memory(LoadProblem& problem, double bytes) {
  problem.memory -= bytes;
  bool left = problem.num_accelerators == 0 || problem.memory >= 0;
  for (double& memory : problem.memories) {
    memory -= bytes;
    left = left && memory >= 0;
  }
  problem.cpu_memory -= bytes;
  return left && (problem.num_cpus == 0 || problem.cpu_memory >= 0);
}

}  // namespace

SplitDriver::SplitDriver(const DriverProblem& problem, LoadOptions options, Judge judge)
    : problem_(problem),
      units_(to_units(problem.search)),
      options_(options),
      judge_(std::move(judge)),
      start_(cpu_seconds()) {
  bound_ = tightest(find_load_bounds(problem.bound));
}

double SplitDriver::left() const { return options_.time_budget - (cpu_seconds() - start_); }

LoadOptions SplitDriver::options(double share) const {
  LoadOptions out = options_;
  out.time_budget = std::max(0.01, left() * share);
  if (problem_.exact) out.good_enough = bound_.value;
  return out;
}

bool SplitDriver::met() const {
  return !best_.device.empty() && best_.objective <= bound_.value * (1 + kGap);
}

void SplitDriver::offer(std::span<const std::uint32_t> device) {
  const Verdict verdict = judge_(device);
  if (!verdict.fits) return;
  if (!best_.device.empty() && verdict.value >= best_.objective) return;
  best_.device.assign(device.begin(), device.end());
  best_.objective = verdict.value;
}

void SplitDriver::search(
    const std::function<LoadAnswer(const LoadProblem&, const UnitProblem&)>& solve) {
  constexpr int kRounds = 6;
  double reserve = 0;
  double known_too_much = -1;
  for (int round = 0; round < kRounds && (round == 0 || left() > 0); ++round) {
    LoadAnswer answer;
    if (reserve == 0) {
      answer = solve(problem_.search, units_);
    } else {
      LoadProblem tighter = problem_.search;
      if (shrink_memory(tighter, reserve)) answer = solve(tighter, to_units(tighter));
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
    if (verdict.fits) return offer(answer.device);
    const double more = std::max(verdict.overhead, reserve * 1.25);
    if (known_too_much > 0 && more >= known_too_much) return;
    reserve = more;
  }
}

void SplitDriver::chain(double share) {
  search([&](const LoadProblem& load, const UnitProblem&) {
    return find_contiguous(load, options(share), {.max_ideals = 0, .max_links = 0});
  });
}

void SplitDriver::contiguous(double share) {
  search([&](const LoadProblem& load, const UnitProblem&) {
    return LoadAnswer(find_contiguous(load, options(share)));
  });
}

void SplitDriver::any_split(double share) {
  search([&](const LoadProblem&, const UnitProblem& units) {
    std::vector<std::vector<std::uint32_t>> starts;
    if (!best_.device.empty()) starts.push_back(best_.device);
    return refine(units, options(share), starts);
  });
}

void SplitDriver::prove_it(double share) {
  ProofOptions proof_options;
  proof_options.time_budget = std::max(0.01, left() * share);
  // Counted work decides: some 1e8 arcs a second.
  proof_options.work_budget = static_cast<std::int64_t>(options_.time_budget * share * 0.8e8);
  Proof proof = prove(problem_.bound, best_, proof_options);
  truncated_ = truncated_ || proof.answer.truncated;
  if (proof.bound.value > bound_.value) bound_ = proof.bound;
  if (!proof.answer.device.empty()) offer(proof.answer.device);
}

void SplitDriver::run(std::string_view method, bool only_contiguous) {
  if (method == "chain") return chain(1);
  if (method == "ideals" || only_contiguous) return contiguous(1);
  if (method == "refine") return any_split(1);
  contiguous(0.25);
  if (!met()) prove_it(0.1);
  if (!met() && method == "auto") any_split(1);  // uses some six tenths of what it is given
  if (!met()) prove_it(method == "auto" ? 0.3 : 0.8);
}

}  // namespace kerf::partition
