// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Nothing unsound leaves the driver: methods that lie are planted, and refused.
#include "kerf/driver/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/device/kind.h"
#include "kerf/driver/compare.h"
#include "kerf/driver/refuse_unsound.h"
#include "kerf/driver/replan.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/profile/estimate.h"
#include "kerf/verify/verify_plan.h"
#include "tests/driver/small_problem.h"

namespace kerf {
namespace {

using partition::Entry;
using partition::Options;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Call>
std::string error_of(ErrorKind kind, Call&& call) {
  try {
    (void)call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

// Sound plans, changed by one lie each before they are returned.
template <class Lie>
Outcome<Plan, Infeasible> lying(const Problem& problem, const Options& options) {
  auto outcome = partition::solve(problem, "chain", options);
  Lie::tell(*outcome);
  outcome->method = "liar";
  return outcome;
}

struct Nothing {
  static void tell(Plan&) {}
};
struct Faster {
  static void tell(Plan& plan) { plan.busiest = plan.busiest * 0.5; }
};
struct LosesANode {
  static void tell(Plan& plan) { plan.stages.back().nodes.pop_back(); }
};
struct Smaller {
  static void tell(Plan& plan) { plan.memory[0].predicted = Bytes{1}; }
};
struct Optimal {
  static void tell(Plan& plan) { plan.lower_bound.value = plan.objective_value() * 2; }
};

template <class Lie>
Entry liar() {
  return {.name = "liar", .description = "tells lies", .method = lying<Lie>};
}

TEST(APlan, IsReturnedWhenItIsSound) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  for (const std::string& name : partition::comparable_methods()) {
    const auto outcome = plan(problem, name, {.time_budget = 0.05});
    ASSERT_TRUE(outcome) << name;
    EXPECT_TRUE(verify_plan(problem.graph, &problem.profile, *outcome).empty()) << name;
  }
  EXPECT_TRUE(plan(problem, liar<Nothing>()));
}

TEST(APlan, OfAMethodThatLiesIsNeverReturned) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  const auto refused = [&](const Entry& method) {
    return error_of(ErrorKind::internal, [&] { return plan(problem, method); });
  };
  EXPECT_THAT(refused(liar<Faster>()), AllOf(HasSubstr("method 'liar'"), HasSubstr("objective:")));
  EXPECT_THAT(refused(liar<LosesANode>()), HasSubstr("coverage:"));
  EXPECT_THAT(refused(liar<Smaller>()), HasSubstr("memory:"));
  EXPECT_THAT(refused(liar<Optimal>()), HasSubstr("bound:"));
}

TEST(APlan, OfAMethodThatNobodyKnowsIsRefusedWithTheNames) {
  const Problem problem = small_problem("cpu:0");
  EXPECT_THAT(error_of(ErrorKind::invalid_argument, [&] { return plan(problem, "tarot"); }),
              AllOf(HasSubstr("'tarot'"), HasSubstr("chain, auto")));
}

TEST(AComparison, ScoresAllForTheSameObjectiveAndBound) {
  ProblemSettings settings;
  settings.objective = Objective::latency;
  const Problem problem = small_problem("cpu:0,cpu:1,cpu:2", settings);
  const Options options{.time_budget = 0.05};
  const Comparison comparison = compare(problem, {"all"}, options);
  EXPECT_EQ(comparison.methods.size(), partition::comparable_methods().size());
  int found = 0;
  for (const ComparedMethod& row : comparison.methods) {
    if (!row.found) continue;
    ++found;
    EXPECT_EQ(row.plan.objective, Objective::latency);
    EXPECT_EQ(row.plan.lower_bound, comparison.bound);
    EXPECT_TRUE(verify_plan(problem.graph, &problem.profile, row.plan).empty()) << row.method;
  }
  EXPECT_GT(found, 10);
  EXPECT_THROW(compare(problem, {"best"}, options), Error);
  EXPECT_THROW(compare(problem, {"aot"}, options), Error);
  EXPECT_THROW(compare(problem, {"chain", "chain"}, options), Error);
  EXPECT_THROW(compare(problem, {"chain", "all"}, options), Error);
  EXPECT_THROW(compare(problem, std::vector<std::string>{}, options), Error);
}

TEST(AComparison, WithALiarIsRefused) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  const std::vector<Entry> honest{partition::get_method("chain"), liar<Nothing>()};
  EXPECT_EQ(compare(problem, honest, {}).methods[1].method, "liar");
  const std::vector<Entry> methods{partition::get_method("chain"), liar<LosesANode>()};
  EXPECT_THAT(error_of(ErrorKind::internal, [&] { return compare(problem, methods, {}); }),
              AllOf(HasSubstr("method 'liar'"), HasSubstr("coverage:")));
}

TEST(AListOfMethods, IsNamesWithCommasBetweenThem) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(parse_methods("all"), Names{"all"});
  EXPECT_EQ(parse_methods(" chain ,auto"), (Names{"chain", "auto"}));
  EXPECT_EQ(parse_methods("chain,"), (Names{"chain", ""}));
  EXPECT_EQ(parse_methods(""), Names{""});
}

TEST(StagesPlacedByHand, AreVerifiedAndWhoChoseThemIsToBlame) {
  const std::vector<NodeId> all{NodeId{0}, NodeId{1}, NodeId{2}};
  const auto sound = place_stages(small_problem("cpu:0,cpu:1"), {{all[0]}, {all[1], all[2]}},
                                  {DeviceId{1}, DeviceId{0}});
  ASSERT_TRUE(sound);
  EXPECT_EQ(sound->method, "given");
  EXPECT_GT(sound->lower_bound.value, 0);
  const auto large = place_stages(small_problem("cpu:0=1KiB"), {all}, {DeviceId{0}});
  ASSERT_FALSE(large);
  EXPECT_EQ(large.reason().device, "cpu:0");
  EXPECT_THAT(
      error_of(ErrorKind::invalid_plan,
               [&] { return place_stages(small_problem("cpu:0"), {{all[0]}}, {DeviceId{0}}); }),
      HasSubstr("node"));
}

TEST(Replanning, KeepsReplicasAndChecksTheirMemory) {
  const Problem problem = small_problem("cuda:0=1MiB,cuda:1=40KiB");
  const auto first = plan(problem, "single", {.saturate_host = true});
  ASSERT_EQ(first->replica_names(), (std::vector<std::vector<std::string>>{{"cuda:1"}}));
  const auto same = replan(*first, problem.graph, &problem.profile, 4, {});
  ASSERT_TRUE(same);
  EXPECT_EQ(same->replicas, first->replicas);
  EXPECT_TRUE(verify_plan(problem.graph, &problem.profile, *same).empty());
  const auto larger = replan(*first, problem.graph, &problem.profile, 1, 64);
  ASSERT_FALSE(larger) << "the copy's device is too small for this batch";
  EXPECT_EQ(larger.reason().device, "cuda:1");
  EXPECT_THAT(larger.reason().message(), HasSubstr("drop the replicas"));
}

TEST(Replanning, WorksWithoutTheProfile) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  Plan measured = *plan(problem);
  EXPECT_TRUE(replan(measured, problem.graph, nullptr, 2, {}));
  measured.profile_source = Source::measured;
  const auto again = replan(measured, problem.graph, nullptr, 2, {});
  ASSERT_TRUE(again);
  ASSERT_FALSE(again->notes.empty());
  EXPECT_THAT(again->notes.back(), HasSubstr("without its profile"));
}

TEST(Replanning, SaysWhenTheBatchIsAnother) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  const Plan first = *plan(problem);
  const auto same = replan(first, problem.graph, nullptr, static_cast<int>(first.batch), {});
  ASSERT_TRUE(same);
  EXPECT_EQ(same->batch, first.batch);
  EXPECT_TRUE(same->notes.empty());
  const auto more = replan(first, problem.graph, nullptr, static_cast<int>(first.batch) + 1, {});
  ASSERT_TRUE(more);
  EXPECT_EQ(more->batch, first.batch + 1);
  ASSERT_FALSE(more->notes.empty());
  EXPECT_THAT(more->notes.back(), HasSubstr(fmt::format("instead of {}", first.batch)));
}

TEST(Replanning, RefusesAProfileOfAnotherKindOfDevice) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  const Profile other = estimate(problem.graph, device_kind("h100"), problem.micro_batch());
  EXPECT_THAT(error_of(ErrorKind::invalid_argument,
                       [&] { return replan(*plan(problem), problem.graph, &other, 2, {}); }),
              HasSubstr("the profile is for 'h100'"));
}

TEST(Replanning, RefusesAPlanThatIsNotSound) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  Plan damaged = *plan(problem);
  LosesANode::tell(damaged);
  EXPECT_THAT(error_of(ErrorKind::invalid_plan,
                       [&] { return replan(damaged, problem.graph, nullptr, 2, {}); }),
              HasSubstr("coverage:"));
}

}  // namespace
}  // namespace kerf
