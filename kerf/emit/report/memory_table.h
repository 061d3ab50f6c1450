// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/simulate/step_memory/step_memory.h"

namespace kerf {

// For people: the peak, where it is, and what it is made of.
std::string memory_table(const StepMemory& memory);

}  // namespace kerf
