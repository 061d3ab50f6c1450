// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace kerf {

// What is minimised.
enum class Objective : std::uint8_t {
  throughput,  // the busiest device per micro-batch, in the steady state
  latency,     // one micro-batch alone
  step,        // a whole step under the schedule, bubbles included
  memory,      // the fullest device
};
std::string_view to_string(Objective objective);
// Throws Error(invalid_argument), which lists the names.
Objective parse_objective(std::string_view name);

}  // namespace kerf
