// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: the best acyclic partition. Method: contract clusters that form no cycle until the graph
// is small; cut several topological orders of it into runs and keep the best; walk back, improving
// by moves at each level. Then the same again with clusters inside the parts, from other seeds,
// while the work lasts. Nothing is proved.
#include "kerf/place/acyclic/acyclic.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/acyclic/bisection.h"
#include "kerf/place/acyclic/goal.h"
#include "kerf/place/acyclic/multilevel.h"
#include "kerf/place/instance.h"
#include "kerf/place/refine/trials.h"

namespace kerf::place {
namespace acyclic {
namespace {

constexpr double kWorkPerSecond = 1.5e8;  // about 1 s of a core of 2.8 GHz
constexpr double kWorkOfAStep = 1.5;      // of those that clocks count

constexpr int kStale = 60;     // rounds without a gain before a lane ends
constexpr int kFruitless = 4;  // cycles without a gain before a new start

// One search from one seed.
class Lane {
 public:
  Lane(const Instance& base, const Goal& goal, bool multilevel, Rng rng, Budget budget)
      : base_(base),
        goal_(goal),
        multilevel_(multilevel),
        rng_(rng),
        budget_(budget),
        rounds_(base, goal, rng_, budget_) {}

  Found run() {
    Found best = rounds_.with_moved_borders(start());
    if (multilevel_ && (goal_.memory_binds || !goal_.is_cut())) {
      Found runs = best_of_orders();
      if (is_better(runs.score, best.score)) best = std::move(runs);
    }
    Found current = best;
    int fruitless = 0;
    for (int stale = 0; stale < kStale && !budget_.is_over(); ++stale) {
      // What does not fit is not worth a cycle: another order may.
      fits_ = best.score.memory <= 0;
      const bool again = multilevel_ && fits_ && fruitless < kFruitless;
      Found next = rounds_.with_moved_borders(again ? rounds_.again(current) : start());
      const bool gained = is_better(next.score, current.score);
      fruitless = again && !gained ? fruitless + 1 : 0;
      if (!again || gained) current = std::move(next);
      if (is_better(current.score, best.score)) {
        best = current;
        stale = -1;
      }
    }
    count_steps(static_cast<std::int64_t>(budget_.work / kWorkOfAStep));
    return best;
  }

 private:
  // Halves look at few nets and at memory in sum; runs look at what counts.
  Found best_of_orders() {
    const double size = static_cast<double>(base_.num_units()) + base_.num_nets();
    const int orders = budget_.most > 600 * size ? 4 : 1;
    Found best = rounds_.from_order();
    for (int i = 1; i < orders; ++i) {
      Found next = rounds_.from_order();
      if (is_better(next.score, best.score)) best = std::move(next);
    }
    return rounds_.with_moved_borders(std::move(best));
  }
  // Halves first, where there is the work for them: the other starts are seldom as good.
  Found start() {
    if (!multilevel_ || !fits_) return rounds_.from_order();
    const int kind = starts_++ % (goal_.is_cut() ? 4 : 3);
    const double left = budget_.most - budget_.work;
    const double least = 150.0 * (static_cast<double>(base_.num_units()) + base_.num_nets());
    if (goal_.parts() > 1 && left >= least && (kind == 0 || (kind == 1 && goal_.is_cut()))) {
      Budget part{0, (goal_.is_cut() ? 0.75 : 0.5) * left, budget_.clock};
      Split halves = bisect(base_, goal_, rng_, part);
      budget_.work += part.work;
      return rounds_.improved(std::move(halves));
    }
    return kind == 2 ? rounds_.from_coarse() : rounds_.from_order();
  }

  const Instance& base_;
  const Goal& goal_;
  bool multilevel_;
  Rng rng_;
  Budget budget_;
  Rounds rounds_;
  int starts_ = 0;
  bool fits_ = true;  // something does, as far as is known
};

void check(const Instance& groups, const AcyclicOptions& options) {
  if (options.parts.empty()) {
    throw Error(ErrorKind::invalid_argument,
                "[partition.acyclic_partition] no parts; expected at least one; give the limits of "
                "each part");
  }
  for (const PartLimit& part : options.parts) {
    if (part.slowness > 0 && std::isfinite(part.slowness) && part.memory >= 0) continue;
    throw Error(ErrorKind::invalid_argument,
                "[partition.acyclic_partition] a part with a slowness that is not positive or a "
                "memory below 0; expected a finite slowness above 0; correct the part");
  }
  KERF_CHECK(groups.successors.size() == groups.num_units(), "groups without edges");
}

// As many as the work allows some rounds each.
std::size_t num_lanes(const Instance& base, double work) {
  const double rounds = 6000.0 * (static_cast<double>(base.num_units()) + base.num_nets());
  return static_cast<std::size_t>(std::clamp(work / std::max(rounds, 1.0), 1.0, 4.0));
}

}  // namespace
}  // namespace acyclic

AcyclicAnswer acyclic_partition(const Instance& groups, const AcyclicOptions& options) {
  using namespace acyclic;
  check(groups, options);
  const Instance base = with_parts(groups, options);
  const Goal goal = find_goal(base, options);
  std::optional<StopClock> clock;
  if (options.clock > 0) clock.emplace(options.clock);
  const StopClock* const stop = clock ? &*clock : nullptr;
  const double work = kWorkPerSecond * std::clamp(options.seconds, 0.0, 1e6);
  const std::size_t lanes = num_lanes(base, work);
  std::vector<Found> found(lanes);
  run_trials(lanes, options.threads, [&](std::size_t i) {
    const Rng rng(Rng(options.seed * 64 + i).next());
    const Budget budget{0, work / static_cast<double>(lanes), stop};
    found[i] = Lane(base, goal, options.multilevel, rng, budget).run();
    return false;
  });
  std::size_t best = 0;
  for (std::size_t i = 1; i < lanes; ++i) {
    if (is_better(found[i].score, found[best].score)) best = i;
  }
  AcyclicAnswer out;
  out.truncated = clock && clock->has_struck();
  if (found[best].score.memory > 0) return out;
  const Score& score = found[best].score;
  out.cut = goal.is_cut() ? score.value : score.second;
  out.largest_load = goal.is_cut() ? score.second : score.value;
  out.part = std::move(found[best].part);
  return out;
}

}  // namespace kerf::place
