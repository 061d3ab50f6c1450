// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kerf/partition/registry/registry.h"
#include "kerf/plan/comparison.h"

namespace kerf {

// Every method that needs nothing but the problem: all but `aot`.
std::vector<std::string> comparable_methods();

// Plans the problem with each method; an empty list means all that are comparable. Methods that
// cannot minimise the objective are run for throughput and scored for it. Throws
// Error(invalid_argument) for a name that is unknown, twice in the list or `aot`.
Comparison compare_methods(const Problem& problem, std::vector<std::string> methods,
                           const partition::Options& options);

}  // namespace kerf
