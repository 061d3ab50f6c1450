// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What to compute again so that a training plan fits: the cheapest set of blocks
// (plan/recompute.h).
#pragma once

#include <functional>

#include "kerf/partition/method.h"

namespace kerf::partition {

using Solve = std::function<Outcome<Plan, Infeasible>(const Problem&, const Options&)>;

// A problem with recompute "auto", `solve` being the method. Without limits to memory nothing is
// computed again. Otherwise the best of several plans: a split that fits without; the fastest split
// with as few blocks computed again as it takes; the split for everything computed again, as it is
// and less what can be kept after all; and the split for the blocks that the best of these has. So
// it is never worse than `solve` is for "none", for "all", or for the blocks that it chose. For
// that each of these has the whole time budget, the fastest split and what to keep a third: three
// and a half budgets where a budget is used up, and less where the bound is met.
Outcome<Plan, Infeasible> solve_recompute(const Problem& problem, const Options& options,
                                          const Solve& solve);

// The same stages with blocks computed again until all fits, or the reason why nothing does. Up to
// kExactBlocks blocks that can help: the cheapest set, by trying all in order of what they cost.
// More: each memory takes its cheapest sets that may free enough (recompute_bound.h) one after the
// other until one does, then what is not needed is dropped, and cheaper blocks take the place of
// others. A note says what the set costs and the bound on what any set does: where they are equal,
// no set is cheaper.
// Complexity: at most some hundred memory judgements, each linear in nodes and tasks, within the
// time (stop_clock.h).
inline constexpr std::size_t kExactBlocks = 10;
Outcome<Plan, Infeasible> fit_by_recompute(const Problem& problem, const Plan& plan);

}  // namespace kerf::partition
