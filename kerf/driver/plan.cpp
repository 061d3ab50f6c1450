// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "kerf/device/kind.h"
#include "kerf/driver/refuse_unsound.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/profile/saved/saved.h"
#include "kerf/verify/verify_plan.h"

namespace kerf {
namespace {

// A limit of memory was checked with what rules say operators keep; some have none.
void note_unknown_saved(const Problem& problem, Plan& plan) {
  if (!problem.training) return;
  const DeviceKind* const kind = find_device_kind(plan.profile_kind);
  const SavedSets sets =
      find_saved(problem.graph, plan.micro_batch, kind != nullptr && !kind->host);
  std::vector<std::string> found;
  std::size_t calls = 0;
  for (const std::string& op : sets.ops_without_rule) {
    const auto number = std::count_if(problem.graph.nodes().begin(), problem.graph.nodes().end(),
                                      [&](const Node& node) { return node.op == op; });
    found.push_back(op);
    calls += static_cast<std::size_t>(number);
  }
  if (found.empty()) return;
  plan.notes.push_back(fmt::format(
      "what {} {} for backward is not known exactly ({} {}): predicted memory may be too low",
      fmt::join(found, ", "), found.size() == 1 ? "keeps" : "keep", calls,
      calls == 1 ? "call" : "calls"));
}

}  // namespace

Outcome<Plan, Infeasible> plan(const Problem& problem, const partition::Entry& method,
                               const partition::Options& options) {
  auto outcome = partition::solve(problem, method, options);
  if (outcome) refuse_unsound(problem, *outcome);
  if (outcome) note_unknown_saved(problem, *outcome);
  return outcome;
}

Outcome<Plan, Infeasible> plan(const Problem& problem, std::string_view method,
                               const partition::Options& options) {
  return plan(problem, partition::get_method(method), options);
}

Outcome<Plan, Infeasible> place_stages(const Problem& problem,
                                       std::vector<std::vector<NodeId>> stages,
                                       std::vector<DeviceId> devices) {
  check_problem(problem);
  auto outcome = finish_plan(problem, std::move(stages), std::move(devices), "given");
  // Whoever chose the stages is to blame.
  if (outcome) check_plan(problem.graph, &problem.profile, *outcome);
  return outcome;
}

}  // namespace kerf
