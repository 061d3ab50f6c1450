// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace kerf {

struct Violation {
  std::string rule;  // "coverage", "acyclic", "glue", "replicas", ... stable, for tests and tools
  std::string message;  // names nodes, stages, devices
};

// "2 rules (glue: ...; limit: ...)": the first few, in one line.
std::string list_violations(const std::vector<Violation>& violations);

// Throws Error(invalid_plan), one line that names the first few; nothing when there are none.
void refuse_violations(const std::vector<Violation>& violations);

// What the checks of a plan have found so far.
class Violations {
 public:
  template <class... Args>
  void add(std::string rule, fmt::format_string<Args...> text, Args&&... args) {
    found_.push_back({std::move(rule), fmt::format(text, std::forward<Args>(args)...)});
  }
  bool empty() const { return found_.empty(); }
  std::vector<Violation> take() { return std::move(found_); }

 private:
  std::vector<Violation> found_;
};

}  // namespace kerf
