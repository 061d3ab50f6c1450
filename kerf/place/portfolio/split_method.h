// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A way to split an Instance, as data: the steps that a SplitDriver takes, each with its share of
// the time. The registry (partition/registry) says which name stands for which.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/load_search.h"

namespace kerf::place {

using Solver = LoadAnswer (*)(const Instance&, const LoadOptions&);

// Instances for which a step is worth its time.
enum class When : std::uint8_t {
  always,
  expensive,            // what tensors cost is more than next to nothing
  cheap,                // it is not
  expensive_and_small,  // and few units for the time there is
  expensive_or_large,
};

struct SplitStep {
  enum class Kind : std::uint8_t {
    contiguous,  // the best contiguous split
    any_split,   // from what was found so far
    proof,       // a better bound, or a split that meets it
    solver,      // `solver`'s split
  };
  Kind kind = Kind::solver;
  double share = 1;  // of the seconds
  When when = When::always;
  Solver solver = nullptr;
  bool mixes = false;  // the solver may give a device several stages
};

// Whether splits are contiguous: one stage per device.
enum class Shape : std::uint8_t {
  contiguous,  // always
  any,         // it cannot be told to
  as_asked,    // it can
};

struct SplitMethod {
  std::vector<SplitStep> steps;   // once; shares of the whole budget
  std::vector<SplitStep> rounds;  // then these: within a second first, then within the rest
  Shape shape = Shape::any;
  bool for_short_memory = false;  // where it finds nothing that fits, others are to look for it
  // One solver and nothing else: its split is its own and not to be improved on.
  bool is_one_solver() const {
    return rounds.empty() && steps.size() == 1 && steps[0].kind == SplitStep::Kind::solver;
  }
};

}  // namespace kerf::place
