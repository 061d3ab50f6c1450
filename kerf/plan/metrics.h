// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The one evaluator. Planners and reports ask it what a placement costs; the verifier has a
// derivation of its own (verify/traffic.h). Who pays for transfers is said in plan/comm_model.h;
// scalars and sizes in B go along free, and graph inputs are there when a step starts.
#pragma once

#include <span>
#include <vector>

#include "kerf/plan/comm_model.h"
#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf {

// stage_of[node] -> stage, for all nodes. Cuts by value, ascending.
std::vector<Cut> find_cuts(const Graph& graph, std::span<const StageId> stage_of,
                           std::int64_t micro_batch);

// Training: which of the stages that use a cut send its gradient back: those with a node that uses
// it and has a backward. None where the value needs no gradient.
void find_gradients(const Graph& graph, std::span<const StageId> stage_of, std::vector<Cut>& cuts);

// after[s]: the stages that stage s waits for, over data and order edges. Ascending.
std::vector<std::vector<StageId>> stage_dependencies(const Graph& graph,
                                                     std::span<const StageId> stage_of,
                                                     std::size_t num_stages);

// What a cut takes over a link: what was given for it, or what the link says.
Nanoseconds transfer_time(const Cut& cut, const Link& link);
// The devices that need a cut, each once, its maker's left out; ascending.
std::vector<DeviceId> receivers(std::span<const Stage> stages, const Cut& cut);
// What a cut costs its maker's device once under `host_staged`.
Nanoseconds upload_time(std::span<const Stage> stages, const Cut& cut, const Cluster& cluster);

// What each device pays a micro-batch, from the stages' times and the cuts alone.
std::vector<DeviceLoad> device_loads(std::span<const Stage> stages, std::span<const Cut> cuts,
                                     const Cluster& cluster, CommModel comm_model);
Nanoseconds busiest(std::span<const DeviceLoad> loads);

// 0 for a step that takes no time; never infinite, however short the step.
double samples_per_second(double samples, Nanoseconds step);

}  // namespace kerf
