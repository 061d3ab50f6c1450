// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Plans for asynchronous pipelines with recomputation: the last stage runs backward right after
// forward and computes nothing again, so that its nodes cost less than those of the others.
#pragma once

#include <vector>

#include "kerf/partition/training/recompute_search.h"

namespace kerf::partition {

// A problem with Problem::keep_last_stage. `solves`: ways to plan, which know costs by node alone;
// the best answer of all is taken. Each plans with blocks supposed to be kept, and supposes next
// those that came to lie in the last stage, until both are the same (FTPipe's loop); also with
// whole blocks, where a border cuts one; and with more supposed to be kept, while that gains. Every
// split is judged by what it costs with the blocks that it keeps itself: the best is the answer,
// consistent whether or not the loop came to rest, which a note says. Not optimal. A turn has a
// third of the time budget; each of the three has at most eight.
Outcome<Plan, Infeasible> solve_kept_last_stage(const Problem& problem, const Options& options,
                                                const std::vector<Solve>& solves);

}  // namespace kerf::partition
