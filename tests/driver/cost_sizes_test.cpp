// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Costs from 1e-300 to 1e300, mixed in one problem, and devices that are forbidden: every method
// and every bound against plain enumeration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kerf/base/error.h"
#include "kerf/base/infinity.h"
#include "kerf/driver/search_load.h"
#include "kerf/ingest/dnn_partitioning.h"
#include "kerf/partition/registry/registry.h"
#include "kerf/place/bound/published_bounds.h"
#include "kerf/place/lower_bound.h"
#include "kerf/place/lower_load.h"
#include "kerf/place/metis/kway.h"
#include "kerf/place/mincut/prove.h"
#include "kerf/place/pack/cost_scale.h"
#include "tests/place/random_load.h"

namespace kerf::place {
namespace {

constexpr double kRounding = 1e-9;
constexpr double kProved = 3e-6;  // what `auto` and `exact` call a gap of 0

enum class Sizes { forbidden_1e18, tiny, huge, mixed_everywhere, mixed_scales, far_transfers };

double power_of_ten(Rng& rng, double least, double most) {
  return std::pow(10.0, least + (most - least) * rng.uniform());
}

// A random problem whose costs are of these sizes.
LoadProblem sized_problem(std::uint64_t seed, Sizes sizes, double memory) {
  RandomLoadOptions shape;
  shape.num_nodes = 6;
  shape.num_accelerators = 1 + static_cast<int>(seed % 3);
  shape.cpu = seed % 4 != 3;
  shape.equal = seed % 5 != 4;
  shape.memory = memory;
  LoadProblem problem = random_load(seed, shape);
  Rng rng(seed * 977 + 5);
  for (LoadNode& node : problem.nodes) {
    node.accelerator_time += 0.125;
    node.cpu_time += 0.25;
    switch (sizes) {
      case Sizes::forbidden_1e18:
        if (rng.below(3) == 0) (rng.below(2) == 0 ? node.accelerator_time : node.cpu_time) = 1e18;
        break;
      case Sizes::tiny:
        for (double* cost : {&node.accelerator_time, &node.cpu_time, &node.transfer}) {
          *cost *= 1e-299;
        }
        break;
      case Sizes::huge:
        for (double* cost : {&node.accelerator_time, &node.cpu_time, &node.transfer}) {
          *cost *= 1e298;
        }
        break;
      case Sizes::mixed_everywhere:
        for (double* cost : {&node.accelerator_time, &node.cpu_time, &node.transfer}) {
          *cost = power_of_ten(rng, -300, 300);
        }
        break;
      case Sizes::mixed_scales:
        for (double* cost : {&node.accelerator_time, &node.cpu_time, &node.transfer}) {
          *cost *= power_of_ten(rng, -4, 14);
        }
        break;
      case Sizes::far_transfers:
        if (rng.below(2) == 0) node.transfer *= power_of_ten(rng, 9, 20);
        break;
    }
  }
  return problem;
}

LoadRequest request_for(const std::string& method) {
  LoadRequest request;
  request.method = method;
  request.options.time_budget = 0.05;
  request.options.clock = 5;
  return request;
}

struct Named {
  Sizes sizes;
  const char* name;
};

class CostSizes : public testing::TestWithParam<Named> {};

TEST_P(CostSizes, EveryBoundIsAtMostTheOptimum) {
  for (const double memory : {0.0, 1.3}) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const LoadProblem problem = sized_problem(seed, GetParam().sizes, memory);
      const double best = best_load(problem);
      for (const LowerBound& bound : load_bounds(problem)) {
        EXPECT_LE(bound.value, best) << bound.name << ", seed " << seed << ", memory " << memory;
      }
    }
  }
}

TEST_P(CostSizes, ASearchThatEndsHasTheOptimum) {
  int ended = 0;
  for (const double memory : {0.0, 1.3}) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const LoadProblem problem = sized_problem(seed, GetParam().sizes, memory);
      const double best = best_load(problem);
      const Proof proof = prove(to_instance(problem), {}, tightest(load_bounds(problem)));
      EXPECT_LE(proof.bound.value, best) << "seed " << seed << ", memory " << memory;
      if (!proof.answer.optimal) continue;
      ++ended;
      if (best == kInfinity) {
        EXPECT_TRUE(proof.answer.device.empty()) << "seed " << seed;
      } else {
        EXPECT_LE(proof.answer.objective, best * (1 + kProved))
            << "seed " << seed << ", memory " << memory;
      }
    }
  }
  EXPECT_GE(ended, 60) << "of 120";
}

TEST_P(CostSizes, NoMethodProvesWhatIsNotSo) {
  int plans = 0;
  for (const double memory : {0.0, 1.3}) {
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      const LoadProblem problem = sized_problem(seed, GetParam().sizes, memory);
      const double best = best_load(problem);
      for (const std::string& method : partition::published_methods()) {
        if (method == "metis" && !has_metis()) continue;
        const auto plan = search_load(problem, request_for(method));
        const std::string what =
            method + ", seed " + std::to_string(seed) + ", memory " + std::to_string(memory);
        if (!plan) continue;
        ++plans;
        ASSERT_TRUE(std::isfinite(plan->value)) << what;
        EXPECT_GE(plan->value, best * (1 - kRounding)) << what;
        EXPECT_LE(plan->lower_bound, best) << what;
        if (plan->gap() <= kProved) {
          EXPECT_LE(plan->value, best * (1 + 2 * kProved)) << what;
        }
        const Loads loads = find_loads(problem, plan->device);
        EXPECT_TRUE(loads.fits) << what;
        EXPECT_EQ(loads.busiest, plan->value) << what;
      }
    }
  }
  EXPECT_GE(plans, 100);
}

TEST_P(CostSizes, AutoFindsTheOptimumOfSmallProblems) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const LoadProblem problem = sized_problem(seed, GetParam().sizes, 0);
    const double best = best_load(problem);
    const auto plan = search_load(problem, request_for("auto"));
    ASSERT_TRUE(plan.has_value()) << "seed " << seed;
    EXPECT_LE(plan->value, best * (1 + kProved)) << "seed " << seed;
  }
}

TEST_P(CostSizes, LatencyIsBoundedByItsPath) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    LoadProblem problem = sized_problem(seed, GetParam().sizes, 0);
    problem.charging = Charging::host_staged;
    problem.slowness.clear();
    problem.memories.clear();
    LoadRequest request = request_for("auto");
    request.objective = Objective::latency;
    const auto plan = search_load(problem, request);
    ASSERT_TRUE(plan.has_value()) << "seed " << seed;
    EXPECT_TRUE(std::isfinite(plan->value));
    EXPECT_LE(plan->lower_bound, plan->value) << "seed " << seed;
    EXPECT_TRUE(find_loads(problem, plan->device).fits);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CostSizes,
                         testing::Values(Named{Sizes::forbidden_1e18, "Forbidden1e18"},
                                         Named{Sizes::tiny, "Tiny"}, Named{Sizes::huge, "Huge"},
                                         Named{Sizes::mixed_everywhere, "MixedEverywhere"},
                                         Named{Sizes::mixed_scales, "MixedScales"},
                                         Named{Sizes::far_transfers, "FarTransfers"}),
                         [](const auto& test) { return std::string(test.param.name); });

// The fact, as opposed to a large number.
TEST(Forbidden, NodesStayOffTheCpuWhateverItWouldTake) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    RandomLoadOptions shape;
    shape.num_nodes = 6;
    shape.num_accelerators = 2;
    shape.cpu = true;
    shape.memory = seed % 2 == 0 ? 0 : 1.4;
    LoadProblem problem = random_load(seed, shape);
    Rng rng(seed);
    for (LoadNode& node : problem.nodes) {
      if (!node.on_accelerator || node.colour != LoadNode::kNoColour) continue;
      node.on_cpu = rng.below(2) == 0;
      if (!node.on_cpu) node.cpu_time = 0;  // tempting, and not to be had
    }
    const double best = best_load(problem);
    for (const LowerBound& bound : load_bounds(problem)) {
      EXPECT_LE(bound.value, best) << bound.name << ", seed " << seed;
    }
    for (const std::string& method : partition::published_methods()) {
      if (method == "metis" && !has_metis()) continue;
      const auto plan = search_load(problem, request_for(method));
      if (!plan) continue;
      EXPECT_THAT(find_faults(problem, plan->device), testing::IsEmpty()) << method;
      EXPECT_GE(plan->value, best * (1 - kRounding)) << method << ", seed " << seed;
      EXPECT_LE(plan->lower_bound, best) << method << ", seed " << seed;
    }
    const auto plan = search_load(problem, request_for("exact"));
    ASSERT_EQ(plan.has_value(), best < kInfinity) << "seed " << seed;
    if (plan) {
      EXPECT_LE(plan->value, best * (1 + kProved)) << "seed " << seed;
    }
  }
}

constexpr const char* kTwoNodes = R"({"maxFPGAs": 1, "maxCPUs": 1, "maxSizePerFPGA": %M,
  "nodes": [{"id": 0, "fpgaLatency": 2, "cpuLatency": %C, "size": 5},
            {"id": 1, "fpgaLatency": 3, "cpuLatency": 4, "size": 5}],
  "edges": [{"sourceId": 0, "destId": 1, "cost": 1}]})";

LoadProblem two_nodes(const std::string& memory, const std::string& cpu_time) {
  std::string text = kTwoNodes;
  text.replace(text.find("%M"), 2, memory);
  text.replace(text.find("%C"), 2, cpu_time);
  return parse_dnn_partitioning(text, "two nodes");
}

TEST(Forbidden, LargeTimesOfAFileBecomeTheFact) {
  EXPECT_TRUE(two_nodes("10", "1e9").nodes[0].on_cpu);    // 2e8 times what all takes
  EXPECT_FALSE(two_nodes("10", "1e18").nodes[0].on_cpu);  // more than a thousand million times
  EXPECT_TRUE(two_nodes("10", "1e18").nodes[0].on_accelerator);
}

TEST(Forbidden, NothingFitsRatherThanAForbiddenDevice) {
  EXPECT_TRUE(search_load(two_nodes("5", "7"), request_for("auto")).has_value());
  const LoadProblem problem = two_nodes("4", "1e18");
  for (const std::string& method : partition::published_methods()) {
    if (method == "metis" && !has_metis()) continue;
    EXPECT_FALSE(search_load(problem, request_for(method)).has_value()) << method;
  }
}

TEST(Forbidden, AFileCanSayIt) {
  const LoadProblem problem = parse_dnn_partitioning(
      R"({"maxFPGAs": 1, "maxCPUs": 1, "maxSizePerFPGA": 10, "nodes": [{"id": 0,
          "fpgaLatency": 2, "cpuLatency": 1, "supportedOnCpu": false}], "edges": []})",
      "one node");
  EXPECT_FALSE(problem.nodes[0].on_cpu);
  const auto plan = search_load(problem, request_for("auto"));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->value, 2);
}

TEST(Forbidden, ANodeWithoutADeviceIsRefused) {
  LoadProblem problem = two_nodes("10", "4");
  problem.nodes[0].on_cpu = problem.nodes[0].on_accelerator = false;
  EXPECT_THROW(check_load_problem(problem), Error);
}

TEST(CheckBound, ABoundAboveAPlanIsAnErrorWithBothFigures) {
  EXPECT_NO_THROW(check_bound({"work", 1, ""}, 1));
  EXPECT_NO_THROW(check_bound({"work", 1 + 1e-12, ""}, 1));
  try {
    check_bound({"work", 1.5, ""}, 1.25);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("1.5"), testing::HasSubstr("1.25")));
  }
}

}  // namespace
}  // namespace kerf::place
