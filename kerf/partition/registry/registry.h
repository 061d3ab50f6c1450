// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// All methods by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kerf/partition/method.h"
#include "kerf/place/portfolio/split_method.h"

namespace kerf {
namespace partition {

// The one row of a method. The command line, Python, published problems and `kerf compare` find
// it here by its name.
struct Entry {
  std::string_view name;
  std::string_view description;  // one line, for --help
  // How it plans a traced problem. Null: it needs numbers alone, and its splits are made plans.
  Method method = nullptr;
  // How it splits numbers, and so a published problem too. Null: it needs the graph.
  const place::SplitMethod& (*split)() = nullptr;
  bool any_objective = false;      // false: it knows `throughput` alone, or minimises nothing
  bool published_latency = false;  // it minimises the latency of a published problem too
  bool searches = false;           // its time is Options::time_budget's
  bool sizes_alone = false;        // transfers cost it what their bytes do: none can be given
  bool needs_assignment = false;   // Options::node_to_partition and partition_to_device
  place::Takes takes = place::Takes::nothing;  // of Options::method
};

// In the order a user should read them.
std::vector<Entry> methods();
const Entry* find_method(std::string_view name);
// Throws Error(invalid_argument) that lists the names.
const Entry& get_method(std::string_view name);
// The names of those that need nothing but the problem.
std::vector<std::string> comparable_methods();
// The names of those that plan published problems.
std::vector<std::string> published_methods();

}  // namespace partition

inline constexpr std::string_view kDefaultMethod = "chain";

}  // namespace kerf
