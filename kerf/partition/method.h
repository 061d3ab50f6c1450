// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What every method takes and gives; registry/registry.h lists them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kerf/base/outcome.h"
#include "kerf/place/load_search.h"
#include "kerf/plan/infeasible.h"
#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf::partition {

struct Options {
  // Search steps a method may take before it stops and marks its plan `truncated`; 0: its default.
  // Counted work, not seconds: the same plan on every machine.
  std::int64_t work_limit = 0;
  // Seconds for any method; those that search (Entry::searches) use them up. It buys counted work,
  // so that the plan does not depend on the machine's load; the clock is a last resort.
  double time_budget = 1;
  int threads = 1;  // the plan is the same on any number
  // Fill idle devices with copies of the plan (Plan::replicas; partition/raise/replicate.h).
  bool saturate_host = false;
  // Several stages on a device, for every method but those that never do: acyclic, multilevel,
  // pipedream, chain, ideals. Off: one stage each.
  bool mixed = true;
  place::MethodOptions method = {};
  // For the method `aot` and for no other: the partition of every node, by name, and the device of
  // every partition, by name.
  std::map<std::string, std::int64_t> node_to_partition = {};
  std::map<std::int64_t, std::string> partition_to_device = {};
};

// Minimises the problem's objective within the memory limits. Deterministic.
using Method = Outcome<Plan, Infeasible> (*)(const Problem&, const Options&);

}  // namespace kerf::partition
