// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A plan's step, phase by phase. A training step is a step of more stages: each backward is a stage
// that runs after the backwards of those that used its results, and gradients are tensors which go
// the other way. Whatever can follow stages and cuts can follow passes; for inference they are the
// same.
#pragma once

#include <vector>

#include "kerf/plan/plan.h"

namespace kerf {

struct Passes {
  StepShape shape;
  // By PassId; the ids in them are passes. Of Stage only device, time and `after` count; a stage
  // without a backward has passes of no time that no schedule lists.
  std::vector<Stage> stages;
  // The plan's cuts by number, then the gradients that go to other devices.
  std::vector<Cut> cuts;
};
Passes unroll(const Plan& plan);

// Who gives the gradient of a tensor to whom.
struct GradientRoute {
  StageId from;
  StageId to;
};
// By cut, then ascending by giver. Every stage that used the tensor gives its gradient to the
// nearest earlier user whose backward waits for its own anyway, which adds to it; the others give
// theirs to the maker. So parts are added from the last user to the first, as autograd adds them in
// one graph: the sum is the same to the last bit wherever the model is cut.
std::vector<std::vector<GradientRoute>> gradient_routes(const Plan& plan);

}  // namespace kerf
