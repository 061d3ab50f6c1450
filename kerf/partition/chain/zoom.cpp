// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/zoom.h"

#include <algorithm>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/chain/coarse.h"

namespace kerf::partition {
namespace {

std::vector<std::size_t> cuts_of(const Plan& plan) {
  std::vector<std::size_t> cuts;
  for (const Stage& stage : plan.stages) cuts.push_back(stage.nodes.front().index());
  return cuts;
}

// About `count` positions on each side of every cut, no farther away than `reach`; of each bucket
// the one that the fewest bytes cross. The cuts themselves, too.
std::vector<bool> positions_around(const ChainInput& input, const std::vector<bool>& cuttable,
                                   const std::vector<std::size_t>& cuts, std::size_t reach,
                                   std::size_t count) {
  const std::size_t end = input.intervals.num_nodes();
  const std::size_t bucket = std::max<std::size_t>(1, reach / count);
  std::vector<bool> chosen(end + 1);
  for (const std::size_t cut : cuts) {
    const std::size_t last = std::min(end, cut + reach);
    for (std::size_t start = cut > reach ? cut - reach : 0; start < last; start += bucket) {
      std::size_t best = end;
      for (std::size_t p = start; p < std::min(start + bucket, last); ++p) {
        const bool better =
            best == end || input.intervals.crossing(p).bytes < input.intervals.crossing(best).bytes;
        if (cuttable[p] && better) best = p;
      }
      chosen[best] = true;
    }
    chosen[cut] = true;
  }
  chosen[0] = chosen[end] = true;
  return chosen;
}

}  // namespace

Outcome<Plan, Infeasible> zoom_in(ChainInput input, const ChainSolver& solve) {
  constexpr double kSteps = 1e8;  // nodes looked at in a pass
  constexpr std::size_t kAround = 24;
  const std::vector<bool> cuttable = input.cuttable;
  const auto nodes = static_cast<double>(input.intervals.num_nodes());
  const auto devices = static_cast<double>(input.problem.cluster.num_devices());
  const auto count = static_cast<std::size_t>(std::clamp(kSteps * devices / nodes, 128.0, 2048.0));
  input.cuttable = coarse_positions(input.intervals, cuttable, count);
  Outcome<Plan, Infeasible> best = solve(input);
  if (!best) return unproved(best.reason());
  for (std::size_t reach = 2 * input.intervals.num_nodes() / count;; reach /= kAround / 2) {
    input.cuttable = positions_around(input, cuttable, cuts_of(*best), reach, kAround);
    Outcome<Plan, Infeasible> closer = solve(input);
    if (closer && closer->busiest < best->busiest) best = std::move(closer);
    if (reach <= kAround || deadline_passed()) break;
  }
  constexpr double kMet = 1e-9;
  best->truncated = best->gap() > kMet;
  return best;
}

}  // namespace kerf::partition
