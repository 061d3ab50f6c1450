// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A training step as passes, from the definitions (docs/concepts.md: training): forwards are passes
// 0 .. stages - 1, backwards follow, then gradients of weights where the schedule has them apart.
// Private to verify/.
#pragma once

#include "kerf/verify/derive_needs.h"
#include "kerf/verify/flow.h"
#include "kerf/verify/task_order.h"
#include "kerf/verify/traffic.h"

namespace kerf::derive {

// Does a node have a backward?
bool needs_gradient(const Graph& graph, const Node& node);

struct Unrolled {
  bool apart = false;              // gradients of weights are passes of their own
  Plan plan;                       // cluster, comm_model, and by pass device and time
  Flow flow;                       // by pass: what each waits for
  Traffic traffic;                 // of tensors, and of gradients the other way
  std::size_t passes = 0;          // that there are
  std::vector<bool> has_backward;  // by stage
  std::vector<std::pair<ValueId, StageId>> gradients_from;  // by value: stages that send it back
  std::vector<StageId> gradients_to;                        // where each of these goes

  std::size_t backward(StageId stage) const { return stage.index() + has_backward.size(); }
};

// The times are the plan's.
Unrolled unroll_step(const Graph& graph, const Flow& flow, const Plan& plan);

// The order of tasks that the plan's schedule has for stages on these devices. Throws
// Error(invalid_plan) when it cannot be run.
TaskOrder order_tasks(const Unrolled& unrolled, const Plan& plan,
                      const std::vector<DeviceId>& devices, int n_microbatches);

// By pass; and by stage the bytes that it keeps for its backward.
struct TrainingNeeds {
  std::vector<StageNeeds> passes;
  std::vector<Bytes> saved;
};
// Without a profile: no workspaces.
TrainingNeeds derive_training_needs(const Graph& graph, const Flow& flow, const Unrolled& unrolled,
                                    const Plan& plan, const Profile* profile);

}  // namespace kerf::derive
