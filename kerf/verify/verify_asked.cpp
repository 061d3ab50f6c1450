// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/verify_asked.h"

#include <algorithm>
#include <set>

namespace kerf {
namespace {

void check_given_transfers(const Problem& problem, const Plan& plan, Violations& violations) {
  for (const Cut& cut : plan.cuts) {
    const bool any = cut.value.index() < problem.transfer_times.size();
    const auto given = any ? problem.transfer_times[cut.value.index()] : std::nullopt;
    if (given == cut.cost) continue;
    violations.add("transfers", "the transfer of '{}' takes {} ns, {} were given", cut.tensor,
                   cut.cost ? cut.cost->count : -1, given ? given->count : -1);
  }
}

// By the nodes of each block, as the problem has them.
void check_kept_last_stage(const Problem& problem, const Plan& plan, Violations& violations) {
  std::vector<StageId> stage_of = plan.stage_of_nodes();
  const StageId last{plan.num_stages() - 1};
  std::set<std::uint32_t> elsewhere;
  for (std::size_t n = 0; n < stage_of.size(); ++n) {
    const std::uint32_t block = problem.recompute_block[n];
    if (block != 0 && stage_of[n] != last) elsewhere.insert(block);
  }
  for (std::uint32_t block = 1; block <= problem.recomputed.size(); ++block) {
    const std::string& name = problem.recomputed[block - 1];
    const auto& again = plan.recomputed;
    const bool runs_again = std::find(again.begin(), again.end(), name) != again.end();
    if (runs_again == elsewhere.contains(block)) continue;
    violations.add("recompute", "block '{}' {} the last stage and is {} again", name,
                   runs_again ? "lies in" : "does not lie in",
                   runs_again ? "computed" : "not computed");
  }
}

}  // namespace

std::vector<Violation> verify_asked(const Problem& problem, const Plan& plan) {
  Violations violations;
  check_given_transfers(problem, plan, violations);
  if (problem.keep_last_stage) check_kept_last_stage(problem, plan, violations);
  return violations.take();
}

}  // namespace kerf
