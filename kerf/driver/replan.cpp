// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/replan.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/device/kind.h"
#include "kerf/driver/refuse_unsound.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/profile/estimate.h"
#include "kerf/profile/load.h"
#include "kerf/verify/verify_plan.h"

namespace kerf {
namespace {

// So that the nodes' backwards add up to the stage's, less what is computed again.
void scale_backward(const Plan& plan, const Stage& stage, Profile& profile) {
  Nanoseconds sum;
  for (const NodeId id : stage.nodes) sum += profile.node(id).backward;
  if (sum.count <= 0) return;
  const double speed = plan.cluster.device(stage.device).speed;
  const double scale = (stage.backward - stage.recompute) / sum * speed;
  for (const NodeId id : stage.nodes) {
    NodeCost& cost = profile.nodes[id.index()];
    cost.backward = cost.backward * scale;
    cost.backward_weights = cost.backward_weights * scale;
  }
}

// Node times for a plan whose profile is not at hand. An estimated one is estimated again; of a
// measured one the stages' times are known, and are spread over their nodes as the estimate is.
Profile recover_profile(const Plan& plan, const Graph& graph, std::int64_t micro_batch) {
  const bool estimated = plan.profile_source == Source::estimated;
  const DeviceKind* known = find_device_kind(plan.profile_kind);
  Profile profile = estimate(graph, known != nullptr ? *known : device_kind("cpu"),
                             estimated ? micro_batch : plan.micro_batch, plan.training);
  if (estimated) return profile;
  profile.source = plan.profile_source;
  for (const Stage& stage : plan.stages) {
    Nanoseconds sum;
    for (const NodeId id : stage.nodes) sum += profile.node(id).forward;
    if (sum.count <= 0) continue;
    const double scale = stage.time / sum * plan.cluster.device(stage.device).speed;
    for (const NodeId id : stage.nodes) {
      NodeCost& cost = profile.nodes[id.index()];
      cost.forward = cost.forward * scale;
      cost.source = plan.profile_source;
    }
    if (plan.training) scale_backward(plan, stage, profile);
  }
  return profile;
}

// Times that were given for what the plan sends, in proportion to the micro-batch as all times are.
std::vector<std::optional<Nanoseconds>> given_transfers(const Plan& plan, const Graph& graph,
                                                        const Problem& problem) {
  std::vector<std::optional<Nanoseconds>> out;
  for (const Cut& cut : plan.cuts) {
    if (!cut.cost) continue;
    out.resize(graph.num_values());
    const double scale = plan.micro_batch > 0 ? static_cast<double>(problem.micro_batch()) /
                                                    static_cast<double>(plan.micro_batch)
                                              : 1;
    out[cut.value.index()] = *cut.cost * scale;
  }
  return out;
}

// The plan's devices have speeds relative to the kind that its own profile was made for.
void check_kind(const Plan& plan, const Profile& profile) {
  if (profile.device_kind == plan.profile_kind) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[driver.replan] the profile is for '{}', and the speeds of the plan's "
                          "devices are relative to '{}'; expected a profile for '{}'; give one, or "
                          "plan again with this one (kerf.plan)",
                          profile.device_kind, plan.profile_kind, plan.profile_kind));
}

}  // namespace

Outcome<Plan, Infeasible> replan(const Plan& plan, const Graph& graph, const Profile* profile,
                                 std::optional<int> n_microbatches,
                                 std::optional<std::int64_t> batch) {
  check_plan_matches(plan, graph);
  check_plan(graph, nullptr, plan);  // it may come from a file
  Problem problem{graph,
                  {},
                  plan.cluster,
                  plan.objective,
                  plan.comm_model,
                  plan.schedule,
                  n_microbatches.value_or(plan.n_microbatches),
                  batch.value_or(std::max<std::int64_t>(plan.batch, n_microbatches.value_or(0))),
                  plan.seed,
                  plan.stages_per_device,
                  plan.training,
                  plan.optimizer,
                  plan.recompute,
                  {},
                  {},
                  {},
                  false};
  if (plan.training) set_recomputed(problem, plan.recomputed);
  const bool recovered = profile == nullptr;
  if (!recovered) check_kind(plan, *profile);
  if (problem.n_microbatches >= 1) {
    problem.profile = recovered ? recover_profile(plan, graph, problem.micro_batch())
                                : with_load(*profile, plan.cluster, problem.n_microbatches);
  }
  problem.transfer_times = given_transfers(plan, graph, problem);
  check_problem(problem);
  auto outcome = replace_problem(plan, problem);
  if (outcome) refuse_unsound(problem, *outcome);
  if (outcome && recovered && plan.profile_source != Source::estimated) {
    outcome->notes.push_back(
        "replanned without its profile: stage times are scaled in proportion to the micro-batch, "
        "and the operators' workspace is unknown");
  }
  if (outcome && !batch && problem.batch != plan.batch) {
    outcome->notes.push_back(
        fmt::format("replanned for a batch of {} instead of {}: one sample per micro-batch",
                    problem.batch, plan.batch));
  }
  return outcome;
}

}  // namespace kerf
