// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/outcome.h"
#include "kerf/place/load_search.h"
#include "kerf/plan/infeasible.h"
#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf {

namespace partition {

struct Options {
  // Search steps a method may take before it stops and marks its plan `truncated`; 0: its default.
  // Counted work, not seconds: the same plan on every machine.
  std::int64_t work_limit = 0;
  // Seconds for the methods that search (Entry::searches). It buys counted work, so that the plan
  // does not depend on the machine's load; the clock is a safety stop.
  double time_budget = 1;
  int threads = 1;  // the plan is the same on any number
  // Fill idle devices with copies of the plan (Plan::replicas; partition/replicate.h).
  bool saturate_host = false;
  // Several stages on a device, for every method but those that never do: acyclic, multilevel,
  // pipedream, chain, ideals. Off: one stage each.
  bool mixed = true;
  int stages = 0;  // mixed_pipe: blocks to share out among the devices; 0: the method finds it
  // acyclic and multilevel: the largest load of a stage, or the tensors that cross while no stage
  // has more time than (1 + imbalance) x its share.
  place::Minimise minimise = place::Minimise::stage_time;
  double imbalance = 0.03;
  // For the method `aot` and for no other: the partition of every node, by name, and the device of
  // every partition, by name.
  std::map<std::string, std::int64_t> node_to_partition = {};
  std::map<std::int64_t, std::string> partition_to_device = {};
};

// Minimises the problem's objective within the memory limits. Deterministic.
using Method = Outcome<Plan, Infeasible> (*)(const Problem&, const Options&);

std::string_view to_string(place::Minimise minimise);
place::Minimise parse_minimise(
    std::string_view name);  // throws Error(invalid_argument), lists the names

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
