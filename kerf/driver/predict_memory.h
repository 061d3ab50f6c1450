// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "kerf/plan/recompute.h"
#include "kerf/simulate/step_memory/step_memory.h"

namespace kerf {

// What is asked of a prediction, beside the graph.
struct MemorySettings {
  std::int64_t batch = 0;  // 0: the graph's example batch
  bool training = true;
  std::string optimizer = "adamw";
  RecomputeChoice recompute = {"as_traced"};
  std::string device_kind = "cuda";
  const Profile* profile = nullptr;  // StepRequest::profile
  bool list_blocks = false;
};

// The memory of one step on one device (simulate/step_memory) as every face asks for it. Throws
// Error(invalid_argument) as step_memory does, for names that nobody knows, for a batch that the
// graph's conditions rule out, and for recompute "auto", which is a planner's to decide.
StepMemory predict_memory(const Graph& graph, const MemorySettings& settings);

}  // namespace kerf
