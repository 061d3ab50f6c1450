// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The one evaluator. Planners and reports ask it what a placement costs; the verifier has a
// derivation of its own (verify/traffic.h).
//
// Communication models:
//   link         a tensor that a device needs from another is fetched once, however many of its
//                stages use it, over the link from the producer; the receiver spends
//                latency + bytes / bandwidth on it beside its own compute, the sender nothing.
//   host_staged  all tensors go through host memory. The accelerator that makes one spends the time
//                of the slowest of its links to those that need it, once; each other accelerator
//                that needs it spends its link's time, once. Host devices spend nothing.
//   overlapped   the device that makes a tensor sends it to each device that needs it, once, while
//                it computes; only what takes longer than its compute counts.
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
// Throws Error(invalid_argument) that lists the names.
void check_comm_model(std::string_view name);

// stage_of[node] -> stage, for all nodes. Cuts by value, ascending.
std::vector<Cut> find_cuts(const Graph& graph, std::span<const StageId> stage_of,
                           std::int64_t micro_batch);

// after[s]: the stages that stage s waits for, over data and order edges. Ascending.
std::vector<std::vector<StageId>> stage_dependencies(const Graph& graph,
                                                     std::span<const StageId> stage_of,
                                                     std::size_t num_stages);

// The devices that need a cut, each once, its maker's left out; ascending.
std::vector<DeviceId> receivers(std::span<const Stage> stages, const Cut& cut);
// What a cut costs its maker's device once under `host_staged`.
Nanoseconds upload_time(std::span<const Stage> stages, const Cut& cut, const Cluster& cluster);

// What each device pays a micro-batch, from the stages' times and the cuts alone.
std::vector<DeviceLoad> device_loads(std::span<const Stage> stages, std::span<const Cut> cuts,
                                     const Cluster& cluster, std::string_view comm_model);
Nanoseconds busiest(std::span<const DeviceLoad> loads);

// 0 for a step that takes no time; never infinite, however short the step.
double samples_per_second(double samples, Nanoseconds step);

}  // namespace kerf
