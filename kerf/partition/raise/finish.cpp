// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/raise/finish.h"

#include <fmt/format.h>

#include "kerf/partition/bounds/bounds.h"
#include "kerf/place/lower_bound.h"

namespace kerf {
namespace {

// The replicas of `from` for the same stages, which may have been numbered anew. A replica is a map
// of devices: stages of one device stay together.
std::vector<std::vector<DeviceId>> replicas_for(const Plan& from, const Plan& to) {
  std::vector<std::vector<DeviceId>> replicas;
  for (const std::vector<DeviceId>& replica : from.replicas) {
    std::vector<DeviceId> copy_of(from.cluster.num_devices());
    for (std::size_t s = 0; s < replica.size(); ++s) {
      copy_of[from.stages[s].device.index()] = replica[s];
    }
    std::vector<DeviceId>& devices = replicas.emplace_back();
    for (const Stage& stage : to.stages) devices.push_back(copy_of[stage.device.index()]);
  }
  return replicas;
}

}  // namespace

std::optional<Infeasible> find_overflow(const Plan& plan) {
  std::optional<Infeasible> worst;
  for (std::size_t d = 0; d < plan.memory.size(); ++d) {
    const DeviceMemory& memory = plan.memory[d];
    if (!memory.limited || memory.predicted <= memory.limit) continue;
    const Bytes excess = memory.predicted - memory.limit;
    if (worst && worst->short_by >= excess) continue;
    worst = Infeasible{
        .method = plan.method,
        .tightest = DeviceId{d},
        .device = plan.cluster.devices[d].name,
        .needed = memory.predicted,
        .limit = memory.limit,
        .short_by = excess,
        .what_would_help = fmt::format(
            "give every device {} more memory, add a device, {}or use smaller micro-batches",
            to_string(excess), plan.replicas.empty() ? "" : "drop the replicas, ")};
  }
  return worst;
}

bool has_mixed_stages(const Plan& plan) {
  std::vector<bool> used(plan.cluster.num_devices());
  for (const Stage& stage : plan.stages) {
    if (used[stage.device.index()]) return true;
    used[stage.device.index()] = true;
  }
  return false;
}

void keep_closest(std::optional<Infeasible>& closest, const Infeasible& reason) {
  if (!closest || reason.short_by < closest->short_by) closest = reason;
}

Outcome<Plan, Infeasible> finish_plan(const Problem& problem,
                                      std::vector<std::vector<NodeId>> stages,
                                      std::vector<DeviceId> devices, std::string method) {
  return finish_plan(problem, std::move(stages), std::move(devices), std::move(method),
                     partition::best_lower_bound(problem));
}

Outcome<Plan, Infeasible> finish_plan(const Problem& problem,
                                      std::vector<std::vector<NodeId>> stages,
                                      std::vector<DeviceId> devices, std::string method,
                                      const LowerBound& bound) {
  Plan plan = make_plan(problem, std::move(stages), std::move(devices), std::move(method));
  if (std::optional<Infeasible> overflow = find_overflow(plan)) return *std::move(overflow);
  plan.lower_bound = bound;
  check_bound(plan.lower_bound, plan.objective_value());
  return plan;
}

Outcome<Plan, Infeasible> replace_problem(const Plan& plan, const Problem& problem) {
  check_plan_matches(plan, problem.graph);
  std::vector<std::vector<NodeId>> stages;
  for (const Stage& stage : plan.stages) stages.push_back(stage.nodes);
  auto outcome = finish_plan(problem, std::move(stages), plan.stage_devices(), plan.method);
  if (!outcome || plan.replicas.empty()) return outcome;
  check_replicas(plan);
  auto replicas = replicas_for(plan, *outcome);
  Plan copied = with_replicas(problem, std::move(*outcome), std::move(replicas));
  if (std::optional<Infeasible> overflow = find_overflow(copied)) return *std::move(overflow);
  return copied;
}

}  // namespace kerf
