// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/partition/fx/request.h"
#include "kerf/partition/lower/units.h"
#include "kerf/plan/problem.h"

namespace kerf::partition::fx {

// A problem as the FX family sees it: units as ops, graph inputs as leaves, devices by position.
struct FromProblem {
  Request request;
  std::vector<Unit> units;
  std::vector<std::size_t> unit_of;       // by node
  std::vector<std::size_t> unit_of_node;  // by node of the request's graph; kNoUnit for leaves
  static constexpr std::size_t kNoUnit = static_cast<std::size_t>(-1);
};

// `tensor_share`: what a byte of a tensor counts against memory. The rate is scaled alike, so that
// costs stay.
FromProblem from_problem(const Problem& problem, Mode mode, double tensor_share);

}  // namespace kerf::partition::fx
