// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What each device needs in memory under the schedule, from the definition (simulate/memory.h,
// "What is counted on a device"). Private to verify/.
#pragma once

#include <span>
#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/verify/derive_needs.h"
#include "kerf/verify/task_order.h"

namespace kerf::derive {

// By device, replicas included. Throws Error(invalid_plan) for a step of more tasks than can be
// followed.
//
// Memory that a stage of another device needs is free once an action starts that could not start
// before that stage had run: found by following every task's successors, backwards through the
// step, once for each device. Complexity: (tasks and what they wait for) x devices. Steps of very
// many micro-batches: see the .cpp.
std::vector<DeviceMemory> derive_memory(const Graph& graph, const Flow& flow,
                                        std::span<const StageNeeds> needs, const Plan& plan);

// With tasks in orders of their own, one for each copy (the devices of the stages): no limit to
// how many tasks.
std::vector<DeviceMemory> derive_memory(const Graph& graph, const Flow& flow,
                                        std::span<const StageNeeds> needs, const Plan& plan,
                                        std::span<const std::vector<DeviceId>> copies,
                                        std::span<const TaskOrder> orders);

}  // namespace kerf::derive
