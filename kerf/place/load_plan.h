// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/json.h"
#include "kerf/place/load_problem.h"
#include "kerf/place/objective.h"

namespace kerf {

inline constexpr std::string_view kLoadPlanFormat = "kerf-load-plan";
inline constexpr FormatVersion kLoadPlanVersion{1, 1};

// A split of a LoadProblem, what it costs and how far from perfect it can be.
struct LoadPlan {
  std::string method;
  Objective objective = Objective::throughput;
  std::vector<SlotId> device;  // by node
  double value = 0;            // of the objective, in the problem's unit
  double lower_bound = 0;
  std::string bound_name;
  std::string bound_argument;
  bool contiguous = false;
  bool truncated = false;  // a budget or the clock ended the search: a better split may exist
  bool timed_out = false;  // the clock ended something: another run may give another split
  double cpu_seconds = 0;
  std::uint64_t seed = 0;

  // (value - lower_bound) / lower_bound; 0 when both are 0.
  double gap() const;
};

// {"format": "kerf-load-plan", "objective": 17.7, "lower_bound": 17.6, "gap": .., "contiguous": ..,
//  "truncated": .., "timed_out": .., "cpu_seconds": .., "seed": .., "assignment": {"<id>": 0 |
//  "cpu"}, ..}
std::string print_load_plan(const LoadProblem& problem, const LoadPlan& plan);

}  // namespace kerf
