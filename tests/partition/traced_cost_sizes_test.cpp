// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Traced problems with times, speeds and links of every size: every method gives a finite plan that
// the verifier accepts, never better than the best of all splits, and no bound above it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kerf/partition/registry/solve.h"
#include "kerf/partition/search/methods.h"
#include "kerf/place/metis/kway.h"
#include "kerf/plan/metrics.h"
#include "kerf/verify/verify_plan.h"
#include "tests/support/best_of_all.h"
#include "tests/support/random_problem.h"
#include "tests/support/strong_bounds.h"

namespace kerf {
namespace {

enum class Sizes { tiny, huge, mixed, one_large, fast_and_slow, slow_links };

double power_of_ten(Rng& rng, double least, double most) {
  return std::pow(10.0, least + (most - least) * rng.uniform());
}

Problem sized_problem(std::uint64_t seed, Sizes sizes) {
  RandomProblemOptions options;
  options.graph.num_nodes = 6;
  options.num_devices = 2;
  Problem problem = random_problem(seed, options);
  Rng rng(seed * 31 + 7);
  for (std::size_t n = 0; n < problem.graph.num_nodes(); ++n) {
    double& time = problem.profile.nodes[n].forward.count;
    if (sizes == Sizes::tiny) time *= 1e-299;
    if (sizes == Sizes::huge) time *= 1e280;
    if (sizes == Sizes::mixed) time = power_of_ten(rng, -290, 280);
    if (sizes == Sizes::one_large && n == seed % problem.graph.num_nodes()) time = 1e18;
  }
  for (Device& device : problem.cluster.devices) {
    if (sizes == Sizes::fast_and_slow) device.speed = power_of_ten(rng, -120, 120);
  }
  for (Link& link : problem.cluster.links) {
    if (sizes == Sizes::slow_links) link.bytes_per_second = power_of_ten(rng, -200, 200);
  }
  return problem;
}

class TracedCostSizes : public testing::TestWithParam<Sizes> {};

TEST_P(TracedCostSizes, GiveFinitePlansAndTrueBounds) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Problem problem = sized_problem(seed, GetParam());
    const std::optional<double> best = best_of_all(problem);
    ASSERT_TRUE(best.has_value());
    for (const LowerBound& bound : strong_bounds(problem, 0.1)) {
      EXPECT_LE(bound.value, *best * (1 + 1e-9)) << bound.name << ", seed " << seed;
    }
    for (const std::string& method : partition::comparable_methods()) {
      if (method == "metis" && !place::has_metis()) continue;
      partition::Options options;
      options.time_budget = 0.05;
      const auto outcome = partition::solve(problem, method, options);
      ASSERT_TRUE(outcome) << method << ", seed " << seed;
      EXPECT_TRUE(std::isfinite(outcome->objective_value())) << method << ", seed " << seed;
      EXPECT_GE(outcome->objective_value(), *best * (1 - 1e-9)) << method << ", seed " << seed;
      EXPECT_LE(outcome->lower_bound.value, *best * (1 + 1e-9)) << method << ", seed " << seed;
      if (outcome->gap() == 0) {
        EXPECT_LE(outcome->objective_value(), *best * (1 + 1e-5)) << method << ", seed " << seed;
      }
      EXPECT_THAT(print_plan(*outcome), testing::Not(testing::HasSubstr("null"))) << method;
      for (const Violation& violation : verify_plan(problem.graph, &problem.profile, *outcome)) {
        ADD_FAILURE() << method << ", seed " << seed << ": " << violation.message;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TracedCostSizes,
                         testing::Values(Sizes::tiny, Sizes::huge, Sizes::mixed, Sizes::one_large,
                                         Sizes::fast_and_slow, Sizes::slow_links));

}  // namespace
}  // namespace kerf
