// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The one evaluator. Planners, verifier and reports ask it what a placement costs.
//
// Communication models:
//   link         a tensor that a device needs from another is fetched once, however many of its
//                stages use it, over the link from the producer; the receiver spends
//                latency + bytes / bandwidth on it beside its own compute, the sender nothing.
//   host_staged, overlapped   known by name, not built yet.
// Scalars and sizes in B go along free. Graph inputs are there when a step starts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf {

std::vector<std::string> comm_model_names();
// Throws Error(invalid_argument): unknown (lists the names) or not built yet.
void check_comm_model(std::string_view name);

// stage_of[node] -> stage, for all nodes. Cuts by value, ascending.
std::vector<Cut> find_cuts(const Graph& graph, std::span<const StageId> stage_of,
                           std::int64_t micro_batch);

// after[s]: the stages that stage s waits for, over data and order edges. Ascending.
std::vector<std::vector<StageId>> stage_dependencies(const Graph& graph,
                                                     std::span<const StageId> stage_of,
                                                     std::size_t num_stages);

// What each device pays a micro-batch, from the stages' times and the cuts alone.
std::vector<DeviceLoad> device_loads(std::span<const Stage> stages, std::span<const Cut> cuts,
                                     const Cluster& cluster, std::string_view comm_model);
Nanoseconds busiest(std::span<const DeviceLoad> loads);

}  // namespace kerf
