// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: the best acyclic partition. Method: contract clusters that form no cycle until the graph
// is small; cut several topological orders of it into runs and keep the best; walk back, improving
// by moves at each level. Then the same again with clusters inside the parts, from other seeds,
// while the work lasts. Nothing is proved.
#include "kerf/partition/acyclic/acyclic.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/partition/acyclic/bisection.h"
#include "kerf/partition/acyclic/goal.h"
#include "kerf/partition/acyclic/level.h"
#include "kerf/partition/acyclic/multilevel.h"
#include "kerf/partition/refine/tasks.h"
#include "kerf/partition/stop_clock.h"

namespace kerf::partition {
namespace acyclic {
namespace {

constexpr double kWorkPerSecond = 2.5e8;

constexpr int kStale = 60;     // rounds without a gain before a lane ends
constexpr int kFruitless = 4;  // cycles without a gain before a new start

// One search from one seed, and from a partition where there is one.
Found run_lane(const Level& base, const Goal& goal, bool multilevel, Found best, Rng rng,
               Budget budget) {
  Rounds rounds(base, goal, rng, budget);
  int starts = 0;
  const auto start = [&] {
    return multilevel && starts++ % 2 == 1 ? rounds.from_coarse() : rounds.from_order();
  };
  if (best.part.empty()) best = start();
  Found current = best;
  int fruitless = 0;
  for (int stale = 0; stale < kStale && !budget.is_over(); ++stale) {
    const bool again = multilevel && fruitless < kFruitless;
    Found next = again ? rounds.again(current) : start();
    const bool gained = is_better(next.score, current.score);
    fruitless = again && !gained ? fruitless + 1 : 0;
    if (!again || gained) current = std::move(next);
    if (is_better(current.score, best.score)) {
      best = current;
      stale = -1;
    }
  }
  return best;
}

void check(const ideals::Groups& groups, const AcyclicOptions& options) {
  if (options.parts.empty()) {
    throw Error(ErrorKind::invalid_argument,
                "[partition.acyclic_partition] no parts; expected at least one; name the limits of "
                "each part");
  }
  for (const PartLimit& part : options.parts) {
    if (part.slowness > 0 && std::isfinite(part.slowness) && part.memory >= 0) continue;
    throw Error(ErrorKind::invalid_argument,
                "[partition.acyclic_partition] a part with a slowness that is not positive or a "
                "memory below 0; expected a finite slowness above 0; correct the part");
  }
  KERF_CHECK(groups.successors.size() == groups.size(), "groups without edges");
}

// As many as the work allows a few rounds each.
std::size_t num_lanes(const Level& base, double work) {
  const double round = 100.0 * (static_cast<double>(base.size()) + base.num_nets());
  return static_cast<std::size_t>(std::clamp(work / (8 * round), 1.0, 4.0));
}

}  // namespace
}  // namespace acyclic

AcyclicAnswer acyclic_partition(const ideals::Groups& groups, const AcyclicOptions& options) {
  using namespace acyclic;
  check(groups, options);
  const Level base = to_level(groups);
  const Goal goal = find_goal(base, groups.charging, options);
  std::optional<StopClock> clock;
  if (options.clock > 0) clock.emplace(options.clock);
  const StopClock* const stop = clock ? &*clock : nullptr;
  const double work = kWorkPerSecond * std::clamp(options.seconds, 0.0, 1e6);
  const std::size_t lanes = num_lanes(base, work);
  std::vector<Found> found(lanes);
  Budget first{0, 0.4 * work, stop};
  if (options.multilevel && goal.parts() > 1) {
    Rng rng(options.seed);
    found[0].part = bisect(base, goal, rng, first);
    found[0] = Rounds(base, goal, rng, first).improved(std::move(found[0].part));
  }
  run_tasks(lanes, options.threads, [&](std::size_t i) {
    const Rng rng(Rng(options.seed * 64 + i).next());
    const Budget budget{0, (work - first.work) / static_cast<double>(lanes), stop};
    found[i] = run_lane(base, goal, options.multilevel, std::move(found[i]), rng, budget);
    return false;
  });
  std::size_t best = 0;
  for (std::size_t i = 1; i < lanes; ++i) {
    if (is_better(found[i].score, found[best].score)) best = i;
  }
  AcyclicAnswer out;
  out.truncated = clock && clock->struck();
  if (found[best].score.memory > 0) return out;
  const Score& score = found[best].score;
  out.cut = goal.is_cut() ? score.value : score.second;
  out.largest_load = goal.is_cut() ? score.second : score.value;
  out.part = std::move(found[best].part);
  return out;
}

}  // namespace kerf::partition
