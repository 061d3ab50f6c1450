// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/objective.h"

#include <fmt/format.h>

#include "kerf/base/error.h"

namespace kerf {

std::string_view to_string(Objective objective) {
  switch (objective) {
    case Objective::throughput: return "throughput";
    case Objective::latency: return "latency";
    case Objective::step: return "step";
    case Objective::memory: return "memory";
  }
  return "unknown";
}

Objective parse_objective(std::string_view name) {
  for (const Objective objective :
       {Objective::throughput, Objective::latency, Objective::step, Objective::memory}) {
    if (to_string(objective) == name) return objective;
  }
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("[plan.problem] unknown objective '{}'; expected throughput, latency, step "
                  "or memory",
                  name));
}

}  // namespace kerf
