// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Graphs too large to look at every interval or every node: the chain that zooms in on its cuts
// against the exact one and the bound, the coarse search's plans against verifier and engine.
#include "kerf/partition/chain/zoom.h"

#include <gtest/gtest.h>

#include <cmath>

#include "benchmarks/scale/families.h"
#include "kerf/device/devices.h"
#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/chain/chain.h"
#include "kerf/partition/chain/device_model.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/registry/registry.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/partition/search/traced_search.h"
#include "kerf/place/portfolio/split_methods.h"
#include "tests/support/expect_verified.h"
#include "tests/support/limited_problem.h"

namespace kerf {
namespace {

constexpr double kRounding = 1e-9;

Problem make_problem(std::string_view family, std::size_t nodes, const std::string& devices,
                     double noise = 0.1) {
  families::Model model = families::make(family, nodes, 1, noise);
  Problem problem;
  problem.graph = std::move(model.graph);
  problem.profile = std::move(model.profile);
  problem.cluster = parse_devices(devices);
  return problem;
}

// Sound, within memory, no bound above it, and what the engine says of the same stages afresh.
void expect_true(const Problem& problem, const Plan& plan) {
  expect_verified(problem, plan);
  EXPECT_FALSE(find_overflow(plan));
  EXPECT_LE(plan.lower_bound.value, plan.objective_value() * (1 + kRounding));
  const auto again = replace_problem(plan, problem);
  ASSERT_TRUE(static_cast<bool>(again));
  EXPECT_EQ(again->loads, plan.loads);
  EXPECT_EQ(again->memory, plan.memory);
  EXPECT_EQ(again->busiest, plan.busiest);
  EXPECT_EQ(again->step_time, plan.step_time);
  EXPECT_EQ(again->cuts, plan.cuts);
}

Outcome<Plan, Infeasible> zoomed(const Problem& problem) {
  const partition::Options options;
  return partition::zoom_in(
      partition::ChainInput(problem), [&](const partition::ChainInput& input) {
        return partition::solve_in_order(input, partition::given_order(problem.cluster), options);
      });
}

Outcome<Plan, Infeasible> exact(const Problem& problem) {
  const partition::ChainInput input(problem);
  return partition::solve_in_order(input, partition::given_order(problem.cluster), {});
}

#ifdef NDEBUG
constexpr std::size_t kManyNodes = 25'000;
#else
constexpr std::size_t kManyNodes = 21'000;
#endif
constexpr std::size_t kSomeNodes = 6'000;  // of fewer, activations are most of the memory

// Links that differ take a search; one without work left has the coarse split to give.
TEST(AChainInOrder, IsNoWorseThanItsCoarseSplitWhenWorkRunsOut) {
  Problem problem = make_problem("transformer", kSomeNodes, "cpu:0,cpu:1,cpu:2");
  for (std::size_t i = 0; i < problem.cluster.links.size(); ++i) {
    Link& link = problem.cluster.links[i];
    link.bytes_per_second = 1e10 * static_cast<double>(1 + i);
  }
  const partition::ChainInput input(problem);
  partition::Options options;
  options.work_limit = 1;
  const auto plan =
      partition::solve_in_order(input, partition::given_order(problem.cluster), options);
  ASSERT_TRUE(static_cast<bool>(plan));
  EXPECT_TRUE(plan->truncated);
  EXPECT_EQ(plan->stages.size(), 3U);
  double best = 0;
  for (const LowerBound& bound : partition::lower_bounds(problem)) {
    best = std::max(best, bound.value);
  }
  EXPECT_LE(plan->busiest.count, best * 1.2);
  expect_verified(problem, *plan);
}

TEST(ZoomIn, IsNearTheExactChain) {
  for (const std::string_view family : {"chain", "transformer", "unet", "random"}) {
    SCOPED_TRACE(family);
    for (const std::string devices : {"4x80GiB", "13x80GiB"}) {
      SCOPED_TRACE(devices);
      const Problem problem = make_problem(family, kSomeNodes, devices);
      const auto best = exact(problem);
      const auto near = zoomed(problem);
      ASSERT_TRUE(best && near);
      expect_true(problem, *near);
      EXPECT_TRUE(near->truncated);
      EXPECT_GE(near->busiest.count, best->busiest.count * (1 - kRounding));
      EXPECT_LE(near->busiest.count, best->busiest.count * 1.01);
    }
  }
}

TEST(ZoomIn, IsNearTheExactChainWhereMemoryIsShort) {
  int found = 0;
  for (const std::string_view family : {"chain", "transformer", "encoder_decoder"}) {
    SCOPED_TRACE(family);
    for (const double share : {1.3, 1.1, 1.03}) {
      SCOPED_TRACE(share);
      Problem problem = make_problem(family, kSomeNodes, "8x80GiB");
      limit_every_device(problem, share * bytes_on_one_device(problem) / 8);
      const auto best = exact(problem);
      const auto near = zoomed(problem);
      if (!best) {
        EXPECT_FALSE(static_cast<bool>(near));
        continue;
      }
      if (!near) {
        EXPECT_NE(near.reason().message().find("not proved"), std::string::npos);
        continue;
      }
      ++found;
      expect_true(problem, *near);
      EXPECT_GE(near->busiest.count, best->busiest.count * (1 - kRounding));
      EXPECT_LE(near->busiest.count, best->busiest.count * 1.02);
    }
  }
  EXPECT_GE(found, 3);
}

TEST(ZoomIn, SplitsLargeGraphsWithinAPercentOfTheBound) {
  for (const std::string_view family : {"chain", "transformer"}) {
    SCOPED_TRACE(family);
    const Problem problem = make_problem(family, kManyNodes, "16x80GiB");
    ASSERT_GT(problem.graph.num_nodes(), partition::kMostChainNodes);
    const auto outcome = partition::solve(problem, "chain");
    ASSERT_TRUE(static_cast<bool>(outcome));
    expect_true(problem, *outcome);
    EXPECT_LE(outcome->gap(), 0.01);
    EXPECT_TRUE(outcome->truncated);
    EXPECT_TRUE(outcome->contiguous);
  }
}

#ifdef NDEBUG
// Several passes, ever closer.
TEST(ZoomIn, SplitsHugeGraphsWithinAPercentOfTheBound) {
  Problem problem = make_problem("transformer", 120'000, "16x80GiB");
  const auto ample = partition::solve(problem, "chain");
  ASSERT_TRUE(static_cast<bool>(ample));
  EXPECT_LE(ample->gap(), 0.01);
  limit_every_device(problem, 1.05 * bytes_on_one_device(problem) / 16);
  const auto tight = partition::solve(problem, "chain");
  ASSERT_TRUE(static_cast<bool>(tight)) << tight.reason().message();
  EXPECT_FALSE(find_overflow(*tight));
  EXPECT_LE(tight->gap(), 0.1);
}
#endif

// Unlike speeds: the order of the devices is searched, too.
TEST(ZoomIn, MindsUnlikeDevices) {
  Problem problem = make_problem("transformer", kManyNodes, "4x80GiB");
  problem.cluster.devices[0].speed = 0.5;
  problem.cluster.devices[2].speed = 2;
  const auto outcome = partition::solve(problem, "chain");
  ASSERT_TRUE(static_cast<bool>(outcome));
  expect_true(problem, *outcome);
  EXPECT_LE(outcome->gap(), 0.03);
}

constexpr double kQuick = 0.3;  // seconds

partition::SearchScope coarse_scope(double seconds = kQuick) {
  return {.seconds = seconds, .prove = false, .most_nodes = 1'000};
}

// What the clock left to check of some searches: with checks or sanitizers on, or on a busy
// machine, it stops so short ones.
struct Checked {
  int plans = 0;
  int gaps = 0;  // of searches that ended by themselves
};

void check_coarse(const Problem& problem, std::string_view method, bool mixed, double gap,
                  Checked& checked, double seconds = kQuick) {
  SCOPED_TRACE(method);
  partition::Options options;
  options.mixed = mixed;
  partition::TracedSearch search(problem, options, coarse_scope(seconds));
  ASSERT_TRUE(search.is_coarse());
  search.run(partition::get_method(method).split());
#ifndef NDEBUG
  // Checks and sanitizers make a search ten times slower: the clock may stop it before a plan fits.
  if (!search.best().plan()) {
    EXPECT_TRUE(search.truncated());
    return;
  }
#endif
  ASSERT_TRUE(search.best().plan().has_value());
  Plan plan = *search.best().plan();
  plan.lower_bound = search.busiest_bound();
  expect_true(problem, plan);
  ++checked.plans;
  if (!search.truncated()) {
    EXPECT_LE(plan.gap(), gap);
    ++checked.gaps;
  }
  if (!mixed) {
    EXPECT_FALSE(has_mixed_stages(plan));
  }
}

TEST(CoarseSearch, MakesPlansThatAreTrueAndNearTheBound) {
  Checked checked;
  for (const std::string_view family : {"transformer", "unet", "mixture_of_experts"}) {
    SCOPED_TRACE(family);
    const Problem problem = make_problem(family, kSomeNodes, "8x80GiB");
    for (const bool mixed : {true, false}) {
      for (const std::string_view method : {"auto", "refine", "mixed_pipe", "multilevel"}) {
        check_coarse(problem, method, mixed, 0.2, checked);
      }
    }
  }
  EXPECT_GE(checked.plans, 12) << "of 24";
#ifdef NDEBUG
  EXPECT_GT(checked.gaps, 0) << "of 24";
#endif
}

// Plans that fit are found late in a search.
TEST(CoarseSearch, MakesPlansThatFitWhereMemoryIsShort) {
  constexpr double kPatient = 1;
  Checked checked;
  for (const std::string_view family : {"transformer", "encoder_decoder"}) {
    SCOPED_TRACE(family);
    Problem problem = make_problem(family, kSomeNodes, "8x80GiB");
    limit_every_device(problem, 1.3 * bytes_on_one_device(problem) / 8);
    for (const std::string_view method : {"auto", "mixed_pipe"}) {
      check_coarse(problem, method, true, 0.3, checked, kPatient);
    }
  }
  EXPECT_GT(checked.plans, 0) << "of 4";
}

TEST(CoarseSearch, IsTheSameOnAnyNumberOfThreads) {
  const Problem problem = make_problem("transformer", kSomeNodes, "8x80GiB");
  std::vector<Plan> plans;
  for (const int threads : {1, 2}) {
    partition::Options options;
    options.threads = threads;
    partition::TracedSearch search(problem, options, coarse_scope());
    search.run(place::mixed_pipe_split());
    ASSERT_TRUE(search.best().plan().has_value());
    plans.push_back(*search.best().plan());
  }
  EXPECT_EQ(plans[0].stages, plans[1].stages);
}

}  // namespace
}  // namespace kerf
