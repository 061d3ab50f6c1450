// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/training/advice.h"

#include <algorithm>
#include <optional>
#include <set>

#include "kerf/device/kind.h"
#include "kerf/plan/recompute.h"
#include "kerf/plan/schedule/schedule.h"
#include "kerf/profile/estimate.h"

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

Problem with_schedule(Problem problem, std::string_view schedule) {
  problem.schedule = schedule;
  return problem;
}

// As whoever follows the advice will pose it: estimates are made for the micro-batch.
Problem with_microbatches(Problem problem, int count) {
  problem.batch = problem.batch_size();
  problem.n_microbatches = count;
  const DeviceKind* kind = find_device_kind(problem.profile.device_kind);
  if (problem.profile.source == Source::estimated && kind != nullptr) {
    problem.profile = estimate(problem.graph, *kind, problem.micro_batch(), /*training=*/true);
  }
  return problem;
}

// The sizes of a batch in so many parts are sizes that the graph was traced for.
bool is_allowed(const Problem& problem, std::int64_t count) {
  const std::int64_t batch = problem.batch_size();
  const auto& conditions = problem.graph.conditions();
  return find_violated(conditions, batch / count) == nullptr &&
         find_violated(conditions, (batch + count - 1) / count) == nullptr;
}

// More micro-batches are smaller ones: twice as many, four times, ... and as many as there may be,
// of those that the graph's conditions allow. Ascending.
std::vector<int> more_microbatches(const Problem& problem) {
  if (problem.graph.is_static()) return {};
  constexpr std::int64_t kMostTimes = 64;
  const std::int64_t now = problem.n_microbatches;
  std::int64_t most = std::min(problem.batch_size(), std::max(kMostTimes, 4 * now));
  while (most > now && !is_allowed(problem, most)) --most;
  std::set<int> counts;
  for (std::int64_t count = 2 * now; count < most; count *= 2) {
    if (is_allowed(problem, count)) counts.insert(static_cast<int>(count));
  }
  if (most > now) counts.insert(static_cast<int>(most));
  return {counts.begin(), counts.end()};
}

class Adviser {
 public:
  Adviser(const Options& options, const Solve& solve) : part_(options), solve_(solve) {
    constexpr double kEach = 1.0 / 16;  // of the budget
    constexpr double kLeast = 0.05;     // seconds
    part_.time_budget = std::max(kLeast, options.time_budget * kEach);
  }

  Advice run(const Problem& problem) {
    Problem together = problem;
    if (!recomputes_all(problem)) {
      together = with_all_recomputed(std::move(together));
      judge(with_all_recomputed(problem), {"recompute", "all"});
    }
    if (schedule_kind(problem.schedule).name != kFrugal) {
      together = with_schedule(std::move(together), kFrugal);
      judge(with_schedule(problem, kFrugal), {"schedule", std::string(kFrugal)});
    }
    try_microbatches(problem, together);
    if (advice_.fits.empty() && advice_.not_enough.size() > 1) {
      advice_.together_tried = true;
      advice_.together_fits = fits(together);
    }
    if (advice_.fits.empty() && !advice_.together_fits && problem.optimizer != "sgd") {
      Problem other = problem;
      other.optimizer = "sgd";
      // It is no part of what was tried together.
      if (fits(other)) advice_.fits.push_back({"optimizer", "sgd"});
    }
    advice_.least = least_.value_or(Bytes{});
    return std::move(advice_);
  }

 private:
  bool fits(const Problem& problem) {
    const Outcome<Plan, Infeasible> outcome = solve_(problem, part_);
    if (outcome) return true;
    least_ = std::min(least_.value_or(outcome.reason().short_by), outcome.reason().short_by);
    return false;
  }

  void judge(const Problem& problem, Setting setting) {
    (fits(problem) ? advice_.fits : advice_.not_enough).push_back(std::move(setting));
  }

  // The fewest that fit; where none do, the most, of which the memory is least.
  void try_microbatches(const Problem& problem, Problem& together) {
    const std::vector<int> counts = more_microbatches(problem);
    if (counts.empty()) return;
    const auto setting = [](int count) {
      return Setting{"n_microbatches", std::to_string(count), false};
    };
    together = with_microbatches(std::move(together), counts.back());
    for (const int count : counts) {
      if (!fits(with_microbatches(problem, count))) continue;
      advice_.fits.push_back(setting(count));
      return;
    }
    advice_.not_enough.push_back(setting(counts.back()));
  }

  Options part_;
  const Solve& solve_;
  Advice advice_;
  std::optional<Bytes> least_;
};

}  // namespace

Infeasible advise(const Problem& problem, const Options& options, const Solve& solve,
                  Infeasible reason) {
  reason.advice = Adviser(options, solve).run(problem);
  return reason;
}

}  // namespace kerf::partition
