// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The searches over ideals, any splits and cuts, for traced problems. Each keeps to
// Options::time_budget; memory is the engine's (simulate/memory.h), and what does not fit is
// searched again with less of it. They start from a contiguous plan, chain's unless looking for the
// best order of unlike devices would take too long.
#pragma once

#include <string_view>

#include "kerf/partition/method.h"
#include "kerf/place/portfolio/split_method.h"

namespace kerf::partition {

// `chain`, as far as a start may go: looking for the best order of unlike devices can take longer
// than all that follows.
Outcome<Plan, Infeasible> start_plan(const Problem& problem, const Options& options);

// Throughput. The best contiguous split over all orders of the graph: chains of order ideals,
// devices in any order. Exact when links are alike and memory is ample; `truncated` when there were
// too many ideals.
Outcome<Plan, Infeasible> ideals(const Problem& problem, const Options& options);

// Throughput: any split, several stages on a device where need be. Other objectives: moves of
// units and stages, each judged by a whole plan.
Outcome<Plan, Infeasible> refine_plan(const Problem& problem, const Options& options);

// All of these and `exact` inside the time budget; stops when the bound is met.
Outcome<Plan, Infeasible> auto_plan(const Problem& problem, const Options& options);

// Throughput. What a method of kerf/place makes of the problem, brought to plans: its own split,
// stages formed as raise/form_stages.h does, memory the engine's.
Outcome<Plan, Infeasible> split_plan(const Problem& problem, const Options& options,
                                     std::string_view name, const place::SplitMethod& method);

}  // namespace kerf::partition
