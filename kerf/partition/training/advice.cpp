// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/training/advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kerf/plan/recompute.h"
#include "kerf/plan/schedule/schedule.h"

namespace kerf::partition {
namespace {

constexpr std::string_view kFrugal = "1f1b";

bool recomputes_all(const Problem& problem) {
  return problem.recompute == "all" || problem.recompute == "auto";
}

Problem with_all_recomputed(Problem problem) {
  set_recomputed(problem, recomputed_by(problem.graph, "all"));
  problem.recompute = "all";
  return problem;
}

// More micro-batches are smaller ones: as many as there are samples, where that is allowed.
int most_microbatches(const Problem& problem) {
  if (problem.graph.is_static()) return problem.n_microbatches;
  constexpr std::int64_t kTryAtMost = 64;
  return static_cast<int>(std::min(problem.batch_size(), kTryAtMost));
}

}  // namespace

Infeasible advise(const Problem& problem, const Options& options, const Solve& solve,
                  Infeasible reason) {
  Options part = options;
  part.time_budget = std::max(0.05, options.time_budget / 8);
  std::vector<std::string> helps;
  std::vector<std::string> fails;
  std::optional<Bytes> least;
  const auto attempt = [&](const Problem& other, const std::string& what) {
    try {
      const Outcome<Plan, Infeasible> outcome = solve(other, part);
      (outcome ? helps : fails).push_back(what);
      if (!outcome && (!least || outcome.reason().short_by < *least)) {
        least = outcome.reason().short_by;
      }
    } catch (const Error&) {
      // The graph allows no such step (conditions on the batch): nothing to advise.
    }
  };
  Problem together = problem;
  if (!recomputes_all(problem)) {
    attempt(with_all_recomputed(problem), "recompute='all'");
    together = with_all_recomputed(std::move(together));
  }
  if (schedule_kind(problem.schedule).name != kFrugal) {
    Problem other = problem;
    other.schedule = kFrugal;
    attempt(other, fmt::format("schedule='{}'", kFrugal));
    together.schedule = kFrugal;
  }
  if (const int most = most_microbatches(problem); most > problem.n_microbatches) {
    Problem other = problem;
    other.n_microbatches = most;
    other.batch = problem.batch_size();
    attempt(other, fmt::format("n_microbatches={}", most));
    together.n_microbatches = most;
    together.batch = problem.batch_size();
  }
  if (helps.empty() && fails.size() > 1) attempt(together, "all of these together");
  if (helps.empty() && problem.optimizer != "sgd") {
    Problem other = problem;
    other.optimizer = "sgd";
    attempt(other, "optimizer='sgd'");
  }
  if (!helps.empty()) {
    reason.what_would_help = fmt::format("what would fit: {}", fmt::join(helps, ", or "));
    if (!fails.empty()) {
      reason.what_would_help += fmt::format("; not enough: {}", fmt::join(fails, ", "));
    }
  } else if (!fails.empty()) {
    reason.what_would_help =
        fmt::format("not enough: {} ({} short at best); add a device or memory",
                    fmt::join(fails, ", "), to_string(least.value_or(reason.short_by)));
  }
  return reason;
}

}  // namespace kerf::partition
