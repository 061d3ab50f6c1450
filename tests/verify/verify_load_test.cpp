// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/verify_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kerf/base/error.h"
#include "tests/place/random_load.h"
#include "tests/support/ids.h"

namespace kerf {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 0 -> 1 -> 2 -> 3 on two accelerators and a CPU; a sound split of it.
class TheLoadVerifier : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int n = 0; n < 4; ++n) {
      LoadNode node;
      node.id = n;
      node.accelerator_time = 1 + n;
      node.cpu_time = 10;
      node.bytes = 3;
      node.transfer = 0.5;
      problem_.nodes.push_back(node);
    }
    problem_.successors = {{1}, {2}, {3}, {}};
    problem_.num_accelerators = 2;
    problem_.memory = 6;
    plan_.device = slots({0, 0, 1, 1});
    plan_.value = 3 + 4 + 0.5;
    plan_.contiguous = true;
    plan_.lower_bound = 5;
  }

  template <class Change>
  std::vector<std::string> after(Change&& change) const {
    LoadProblem problem = problem_;
    LoadPlan plan = plan_;
    change(problem, plan);
    std::vector<std::string> rules;
    for (const Violation& v : verify_load_plan(problem, plan, false)) rules.push_back(v.rule);
    return rules;
  }

  LoadProblem problem_;
  LoadPlan plan_;
};

using P = LoadProblem;
using S = LoadPlan;

TEST_F(TheLoadVerifier, AcceptsASoundSplit) {
  EXPECT_THAT(after([](P&, S&) {}), IsEmpty());
  EXPECT_NO_THROW(check_load_plan(problem_, plan_, false));
  EXPECT_THAT(after([](P& p, S& s) {
                p.charging = Charging::link;
                s.value = 7.5;
              }),
              IsEmpty());
  EXPECT_THAT(after([](P&, S& s) {
                s.device = slots({2, 2, 2, 2});
                s.value = 40;
              }),
              IsEmpty());
  EXPECT_THAT(after([](P&, S& s) {
                s.objective = Objective::latency;
                s.value = 3 + 0.5 + 0.5 + 7;
              }),
              IsEmpty());
}

TEST_F(TheLoadVerifier, MissesNoChange) {
  EXPECT_THAT(after([](P&, S& s) { s.device.pop_back(); }), Contains("coverage"));
  EXPECT_THAT(after([](P&, S& s) { s.device[0] = 3_slot; }), Contains("device"));
  EXPECT_THAT(after([](P& p, S&) { p.nodes[0].on_accelerator = false; }), Contains("device"));
  EXPECT_THAT(after([](P& p, S& s) {
                p.nodes[0].on_cpu = false;
                s.device[0] = 2_slot;
              }),
              Contains("device"));
  EXPECT_THAT(after([](P& p, S&) { p.nodes[0].colour = p.nodes[3].colour = 7; }),
              Contains("colour"));
  EXPECT_THAT(after([](P& p, S&) { p.memory = 5; }), Contains("limit"));
  EXPECT_THAT(after([](P&, S& s) { s.device = slots({0, 1, 0, 1}); }), Contains("contiguous"));
  EXPECT_THAT(after([](P&, S& s) { s.value = 7; }), Contains("objective"));
  EXPECT_THAT(after([](P&, S& s) { s.lower_bound = 8; }), Contains("bound"));
  EXPECT_THAT(after([](P&, S& s) { s.objective = Objective::latency; }), Contains("objective"));
}

TEST_F(TheLoadVerifier, AgreesWithTheEvaluatorOnSeveralCpus) {
  problem_.num_cpus = 2;
  plan_.device = slots({2, 2, 2, 1});
  plan_.value = find_loads(problem_, plan_.device).busiest;
  EXPECT_EQ(plan_.value, 20);
  EXPECT_THAT(verify_load_plan(problem_, plan_, false), IsEmpty());
}

// Any split, whose pieces may leave accelerators and come back, or wait for each other for ever.
TEST(TheLoadVerifiersLatency, IsTheEvaluators) {
  int several = 0;
  int circles = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    RandomLoadOptions wanted;
    wanted.num_nodes = 4 + static_cast<std::uint32_t>(seed % 12);
    wanted.cpu = seed % 2 == 0;
    wanted.colours = false;
    wanted.shuffled = seed % 3 == 0;
    LoadProblem problem = random_load(seed, wanted);
    Rng rng(seed);
    LoadPlan plan;
    plan.objective = Objective::latency;
    for (LoadNode& node : problem.nodes) {
      node.on_accelerator = node.on_cpu = true;
      plan.device.emplace_back(rng.below(problem.num_devices()));
    }
    const bool serial = rng.below(2) == 0;
    plan.value = find_latency(problem, plan.device, serial);
    circles += std::isinf(plan.value) ? 1 : 0;
    several += is_contiguous(problem, plan.device) ? 0 : 1;
    for (const Violation& violation : verify_load_plan(problem, plan, serial)) {
      EXPECT_EQ(violation.rule, "limit") << seed << ": " << violation.message;
    }
    plan.value = std::isinf(plan.value) ? 1 : plan.value * 1.000001;
    const auto found = verify_load_plan(problem, plan, serial);
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const Violation& violation) {
      return violation.rule == "objective";
    })) << seed;
  }
  EXPECT_GT(several, 500);
  EXPECT_GT(circles, 5);
}

TEST_F(TheLoadVerifier, ThrowsOneLineThatNamesTheFirstRules) {
  plan_.value = 1;
  try {
    check_load_plan(problem_, plan_, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_plan);
    EXPECT_THAT(error.what(), HasSubstr("objective: "));
    EXPECT_THAT(error.what(), HasSubstr("plan again"));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace kerf
