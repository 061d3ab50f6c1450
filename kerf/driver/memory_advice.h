// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "kerf/graph/graph.h"
#include "kerf/plan/plan.h"

namespace kerf {

// For a call that ran out of memory on a device: what the plan predicts for it with the call's
// batch (0: static), and what it would predict with more micro-batches, which are smaller ones.
std::string memory_advice(const Plan& plan, const Graph& graph, DeviceId device,
                          std::int64_t batch);

}  // namespace kerf
