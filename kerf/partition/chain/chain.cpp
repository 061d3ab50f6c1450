// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/chain.h"

#include "kerf/partition/chain/any_order.h"
#include "kerf/partition/chain/in_order.h"
#include "kerf/partition/chain/lineup.h"
#include "kerf/partition/chain/zoom.h"

namespace kerf::partition {

namespace {

Outcome<Plan, Infeasible> solve(const Problem& problem, const ChainSolver& solver) {
  ChainInput input(problem);
  if (problem.graph.num_nodes() <= kMostChainNodes) return solver(input);
  return zoom_in(std::move(input), solver);
}

}  // namespace

Outcome<Plan, Infeasible> chain(const Problem& problem, const Options& options) {
  return solve(problem, [&](const ChainInput& input) {
    auto given = solve_in_order(input, given_order(problem.cluster), options);
    if (all_interchangeable(problem.cluster)) return given;
    return solve_in_any_order(input, std::move(given), options);
  });
}

Outcome<Plan, Infeasible> chain_in_order(const Problem& problem, const Options& options) {
  return solve(problem, [&](const ChainInput& input) {
    return solve_in_order(input, given_order(problem.cluster), options);
  });
}

}  // namespace kerf::partition
