// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// All methods by name, and the way from a problem to a plan.
#pragma once

#include <string_view>
#include <vector>

#include "kerf/partition/method.h"

namespace kerf {
namespace partition {

struct Entry {
  std::string_view name;
  std::string_view description;  // one line, for --help
  Method method;
  bool any_objective = false;  // false: it knows `throughput` alone, or minimises nothing
  bool searches = false;       // its time is Options::time_budget's
};

// In the order a user should read them.
std::vector<Entry> methods();
const Entry* find_method(std::string_view name);

}  // namespace partition

inline constexpr std::string_view kDefaultMethod = "chain";

// Checks the problem and the options and calls the method. An unknown name throws
// Error(invalid_argument) that lists the names. The faces run the verifier on the answer
// (verify/verify_plan.h; this room may not).
//
//   auto outcome = plan(problem, "chain");
//   if (outcome) save_plan(*outcome, "plan.json"); else puts(outcome.reason().message().c_str());
Outcome<Plan, Infeasible> plan(const Problem& problem, std::string_view method = kDefaultMethod,
                               const partition::Options& options = {});

}  // namespace kerf
