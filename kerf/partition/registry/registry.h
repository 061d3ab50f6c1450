// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// All methods by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kerf/partition/method.h"

namespace kerf {
namespace partition {

struct Entry {
  std::string_view name;
  std::string_view description;  // one line, for --help
  Method method;
  bool any_objective = false;     // false: it knows `throughput` alone, or minimises nothing
  bool searches = false;          // its time is Options::time_budget's
  bool needs_assignment = false;  // Options::node_to_partition and partition_to_device
};

// In the order a user should read them.
std::vector<Entry> methods();
const Entry* find_method(std::string_view name);
// Throws Error(invalid_argument) that lists the names.
const Entry& get_method(std::string_view name);
// The names of those that need nothing but the problem.
std::vector<std::string> comparable_methods();

}  // namespace partition

inline constexpr std::string_view kDefaultMethod = "chain";

}  // namespace kerf
