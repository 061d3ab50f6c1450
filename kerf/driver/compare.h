// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/partition/registry/registry.h"
#include "kerf/plan/comparison.h"

namespace kerf {

// "all", or names with commas between them: what `compare` takes as a list.
std::vector<std::string> parse_methods(std::string_view text);

// Plans the problem with each method and verifies every plan; {"all"} stands for all methods that
// need nothing but the problem. Methods that cannot minimise the objective are run for throughput
// and scored for it. Throws Error(invalid_argument) for an empty list and for a name that is
// unknown, twice in the list or `aot`; Error(internal) when a plan is not sound.
Comparison compare(const Problem& problem, std::vector<std::string> methods = {"all"},
                   const partition::Options& options = {});
// The same with methods of one's own among them.
Comparison compare(const Problem& problem, std::span<const partition::Entry> methods,
                   const partition::Options& options);

}  // namespace kerf
