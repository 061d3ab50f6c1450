// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/base/json.h"
#include "kerf/plan/comparison.h"

namespace kerf {

// A row a method: objective, how far the bound is, stages, memory of the fullest device, cpu time;
// then the bound and its argument, and why methods without a plan have none.
std::string comparison_table(const Comparison& comparison);

// The same for tools: "kerf-comparison" 1.1, times in seconds.
Json comparison_json(const Comparison& comparison);

}  // namespace kerf
