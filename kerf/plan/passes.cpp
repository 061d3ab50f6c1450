// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/passes.h"

namespace kerf {
namespace {

Stage make_pass(const Stage& stage, Phase phase, bool apart) {
  Stage pass;
  pass.device = stage.device;
  if (phase == Phase::forward) pass.time = stage.time;
  if (phase == Phase::weight_gradient) pass.time = stage.weight_gradients;
  if (phase == Phase::backward) {
    pass.time = apart ? stage.backward - stage.weight_gradients : stage.backward;
  }
  return pass;
}

void add_gradients(const Plan& plan, const Cut& cut, const std::vector<GradientRoute>& routes,
                   Passes& passes) {
  const auto backward = [&](StageId stage) {
    return pass_of(passes.shape, stage, Phase::backward);
  };
  for (const auto [from, to] : routes) {
    if (plan.stage(from).device == plan.stage(to).device) continue;
    passes.cuts.push_back({"gradient of " + cut.tensor,
                           cut.value,
                           cut.bytes,
                           backward(from),
                           {backward(to)},
                           {},
                           cut.cost});
  }
}

// By stage, then stage: does the second's backward wait for the first's, at whatever distance?
std::vector<std::vector<bool>> find_ancestors(const Plan& plan) {
  std::vector<std::vector<bool>> ancestors(plan.num_stages());
  for (std::size_t s = 0; s < plan.num_stages(); ++s) {
    std::vector<bool>& own = ancestors[s];
    own.resize(s);
    for (const StageId before : plan.stages[s].after) {
      if (!plan.stage(before).has_backward) continue;
      own[before.index()] = true;
      const std::vector<bool>& further = ancestors[before.index()];
      for (std::size_t f = 0; f < further.size(); ++f) own[f] = own[f] || further[f];
    }
  }
  return ancestors;
}

}  // namespace

std::vector<std::vector<GradientRoute>> gradient_routes(const Plan& plan) {
  std::vector<std::vector<bool>> ancestors;
  std::vector<std::vector<GradientRoute>> routes;
  for (const Cut& cut : plan.cuts) {
    std::vector<GradientRoute>& own = routes.emplace_back();
    if (cut.gradients.size() > 1 && ancestors.empty()) ancestors = find_ancestors(plan);
    for (std::size_t g = 0; g < cut.gradients.size(); ++g) {
      const StageId user = cut.gradients[g];
      StageId to = cut.from;
      for (std::size_t e = g; e-- > 0 && to == cut.from;) {
        if (ancestors[user.index()][cut.gradients[e].index()]) to = cut.gradients[e];
      }
      own.push_back({user, to});
    }
  }
  return routes;
}

Passes unroll(const Plan& plan) {
  Passes passes;
  passes.shape = step_shape(plan);
  const std::vector<std::vector<PassId>> waits = pass_waits(passes.shape);
  for (std::size_t p = 0; p < waits.size(); ++p) {
    const Stage& stage = plan.stage(stage_of_pass(passes.shape, PassId{p}));
    passes.stages.push_back(
        make_pass(stage, phase_of_pass(passes.shape, PassId{p}), passes.shape.apart));
    passes.stages.back().after = waits[p];
  }
  passes.cuts = plan.cuts;
  const std::vector<std::vector<GradientRoute>> routes = gradient_routes(plan);
  for (std::size_t c = 0; c < plan.cuts.size(); ++c) {
    add_gradients(plan, plan.cuts[c], routes[c], passes);
  }
  return passes;
}

}  // namespace kerf
