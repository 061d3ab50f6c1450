// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/partition/registry/solve.h"
#include "kerf/plan/problem.h"

namespace kerf {

inline void limit_every_device(Problem& problem, double bytes) {
  for (Device& device : problem.cluster.devices) {
    device.memory = Bytes{static_cast<std::int64_t>(bytes)};
    device.memory_limited = true;
  }
}

inline double bytes_on_one_device(const Problem& problem) {
  const auto alone = partition::solve(problem, "single");
  return static_cast<double>(alone->memory[alone->stages[0].device.index()].predicted.count);
}

}  // namespace kerf
