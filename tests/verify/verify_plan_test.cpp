// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/verify_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kerf/device/devices.h"
#include "kerf/graph/text.h"
#include "kerf/profile/estimate.h"
#include "kerf/simulate/make_plan.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

// f writes to h through the slice u, and z reads h afterwards: z has to be where f is.
const char* const kGraph = R"(kerf-graph 1.0
graph "glued"
batch 4
input %x: f32[B, 8] = "args.0"
weight @w: f32[8, 8] = parameter "w"
%a: f32[B, 8] = aten.linear.default(%x, @w)
%h: f32[B, 8] = aten.relu.default(%a)
%u: f32[B, 4] in %h = aten.slice.default(%h)
%f: f32[B, 4] in %h = aten.fill_.default(&%u)
%z: f32[B, 8] = aten.tanh.default(%h)
%y: f32[B, 8] = aten.linear.default(%z, @w)
output "y" = %y
)";

class ThePlanVerifier : public ::testing::Test {
 protected:
  ThePlanVerifier() {
    problem_.graph = parse_graph(kGraph);
    problem_.profile = estimate(problem_.graph, device_kind("cpu"), 2);
    problem_.cluster = parse_devices("cpu:0=1MiB,cpu:1=1MiB");
    problem_.n_microbatches = 2;
    plan_ = make_plan(problem_, {{NodeId{0}}, rest()}, {DeviceId{0}, DeviceId{1}}, "hand");
  }

  static std::vector<NodeId> rest() {
    return {NodeId{1}, NodeId{2}, NodeId{3}, NodeId{4}, NodeId{5}};
  }

  std::vector<std::string> rules(const Plan& plan) const {
    std::vector<std::string> found;
    for (const Violation& violation : verify_plan(problem_.graph, &problem_.profile, plan)) {
      found.push_back(violation.rule);
    }
    return found;
  }
  // The rules that a change to a sound plan breaks.
  std::vector<std::string> after(const std::function<void(Plan&)>& change) const {
    Plan plan = plan_;
    change(plan);
    return rules(plan);
  }

  Problem problem_;
  Plan plan_;
};

using ::testing::Contains;
using ::testing::IsEmpty;

TEST_F(ThePlanVerifier, AcceptsASoundPlanWithAndWithoutItsProfile) {
  EXPECT_THAT(rules(plan_), IsEmpty());
  EXPECT_THAT(verify_plan(problem_.graph, nullptr, plan_), IsEmpty());
  EXPECT_NO_THROW(check_plan(problem_.graph, &problem_.profile, plan_));
}

TEST_F(ThePlanVerifier, MissesNoChange) {
  EXPECT_THAT(after([](Plan& p) { p.graph_hash = "0"; }), Contains("hash"));
  EXPECT_THAT(after([](Plan& p) { p.node_names[1] = "q"; }), Contains("names"));
  EXPECT_THAT(after([](Plan& p) { p.node_names.pop_back(); }), Contains("names"));
  EXPECT_THAT(after([](Plan& p) { p.stages[1].nodes.pop_back(); }), Contains("coverage"));
  EXPECT_THAT(after([](Plan& p) { p.stages[0].nodes.push_back(NodeId{1}); }), Contains("coverage"));
  EXPECT_THAT(after([](Plan& p) { p.stages[1].nodes[0] = NodeId{77}; }), Contains("coverage"));
  EXPECT_THAT(after([](Plan& p) { p.stages.emplace_back().device = DeviceId{0}; }),
              Contains("coverage"));
  EXPECT_THAT(after([](Plan& p) { std::swap(p.stages[0].nodes, p.stages[1].nodes); }),
              Contains("acyclic"));
  EXPECT_THAT(after([](Plan& p) { p.stages[0].device = DeviceId{7}; }), Contains("device"));
  EXPECT_THAT(after([](Plan& p) { p.cluster.links.pop_back(); }), Contains("cluster"));
  EXPECT_THAT(after([](Plan& p) { p.micro_batch = 3; }), Contains("batch"));
  EXPECT_THAT(after([](Plan& p) { p.n_microbatches = 0; }), Contains("batch"));
  EXPECT_THAT(after([](Plan& p) { p.schedule = "zigzag"; }), Contains("schedule"));
  EXPECT_THAT(after([](Plan& p) { p.cuts.clear(); }), Contains("cuts"));
  EXPECT_THAT(after([](Plan& p) { p.cuts.push_back(p.cuts[0]); }), Contains("cuts"));
  EXPECT_THAT(after([](Plan& p) { p.cuts[0].bytes += Bytes{1}; }), Contains("cuts"));
  EXPECT_THAT(after([](Plan& p) { p.cuts[0].value = ValueId{0}; }), Contains("cuts"));
  EXPECT_THAT(after([](Plan& p) { p.stages[1].after.clear(); }), Contains("after"));
  EXPECT_THAT(after([](Plan& p) { p.stages[0].time += Nanoseconds{5}; }), Contains("time"));
  EXPECT_THAT(after([](Plan& p) { p.stages[0].weights += Bytes{1}; }), Contains("sizes"));
  EXPECT_THAT(after([](Plan& p) { p.loads[1].communication = {}; }), Contains("load"));
  EXPECT_THAT(after([](Plan& p) { p.busiest = p.busiest * 0.5; }), Contains("objective"));
  EXPECT_THAT(after([](Plan& p) { p.memory[0].predicted -= Bytes{1}; }), Contains("memory"));
  EXPECT_THAT(after([](Plan& p) { p.cluster.devices[0].memory = Bytes{10}; }), Contains("limit"));
  EXPECT_THAT(after([](Plan& p) { p.step_time = p.step_time * 0.9; }), Contains("step"));
  EXPECT_THAT(after([](Plan& p) { p.latency = p.latency * 0.9; }), Contains("latency"));
  EXPECT_THAT(after([](Plan& p) { p.bubble = 0; }), Contains("bubble"));
  EXPECT_THAT(after([](Plan& p) { p.throughput *= 2; }), Contains("throughput"));
  EXPECT_THAT(after([](Plan& p) { p.contiguous = false; }), Contains("contiguous"));
  EXPECT_THAT(after([](Plan& p) { p.lower_bound.value = p.busiest.count * 1.1; }),
              Contains("bound"));
  EXPECT_THAT(after([](Plan& p) { p.profile_batch = 3; }), Contains("profile"));
}

TEST_F(ThePlanVerifier, MissesNoChangeOfReplicas) {
  problem_.cluster = parse_devices("6xcuda=1MiB");
  plan_ = with_replicas(
      problem_, make_plan(problem_, {{NodeId{0}}, rest()}, {DeviceId{0}, DeviceId{1}}, "hand"),
      {{DeviceId{2}, DeviceId{3}}, {DeviceId{5}, DeviceId{4}}});
  ASSERT_THAT(rules(plan_), IsEmpty());
  EXPECT_THAT(verify_plan(problem_.graph, nullptr, plan_), IsEmpty());

  EXPECT_THAT(after([](Plan& p) { p.replicas[1].pop_back(); }), Contains("replicas"));
  EXPECT_THAT(after([](Plan& p) { p.replicas[1].push_back(DeviceId{4}); }), Contains("replicas"));
  EXPECT_THAT(after([](Plan& p) { p.replicas[1].clear(); }), Contains("replicas"));
  EXPECT_THAT(after([](Plan& p) { p.replicas[1][0] = DeviceId{6}; }), Contains("replicas"));
  EXPECT_THAT(after([](Plan& p) { p.replicas[1][0] = DeviceId{}; }), Contains("replicas"));
  EXPECT_THAT(after([](Plan& p) { p.replicas[1][0] = DeviceId{0}; }), Contains("replicas"));
  EXPECT_THAT(after([](Plan& p) { p.replicas[1][0] = DeviceId{2}; }), Contains("replicas"));
  EXPECT_THAT(after([](Plan& p) { p.replicas[1][0] = DeviceId{4}; }), Contains("replicas"));
  // Another copy, or one less, that the memory does not know of.
  EXPECT_THAT(after([](Plan& p) { p.replicas[1] = {DeviceId{4}, DeviceId{5}}; }),
              Contains("replicas"));
  EXPECT_THAT(after([](Plan& p) { p.replicas.pop_back(); }), Contains("memory"));
  EXPECT_THAT(after([](Plan& p) { p.memory[4].predicted -= Bytes{1}; }),
              ::testing::ElementsAre("replicas"));
  EXPECT_THAT(after([](Plan& p) { p.cluster.devices[4].memory = p.memory[4].limit = Bytes{10}; }),
              ::testing::ElementsAre("replicas"));
}

TEST_F(ThePlanVerifier, ChecksThatStagesOfAReplicaShareDevicesAsThePlansDo) {
  problem_.cluster = parse_devices("4xcuda");
  const Plan alone = make_plan(problem_, {{NodeId{0}}, rest()}, {DeviceId{0}, DeviceId{0}}, "hand");
  plan_ = with_replicas(problem_, alone, {{DeviceId{1}, DeviceId{1}}});
  ASSERT_THAT(rules(plan_), IsEmpty());
  EXPECT_THAT(after([](Plan& p) { p.replicas[0][1] = DeviceId{2}; }), Contains("replicas"));
}

TEST_F(ThePlanVerifier, KeepsNodesTogetherThatSeeEachOthersWrites) {
  ASSERT_FALSE(problem_.graph.glued().empty());
  const Plan split =
      make_plan(problem_, {{NodeId{0}, NodeId{1}, NodeId{2}, NodeId{3}}, {NodeId{4}, NodeId{5}}},
                {DeviceId{0}, DeviceId{1}}, "hand");
  EXPECT_THAT(rules(split), Contains("glue"));
}

TEST_F(ThePlanVerifier, ThrowsWithEveryRuleThatIsBroken) {
  Plan plan = plan_;
  plan.busiest = plan.busiest * 0.5;
  plan.bubble = 0;
  try {
    check_plan(problem_.graph, &problem_.profile, plan);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_plan);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("objective: "));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("bubble: "));
  }
}

TEST_F(ThePlanVerifier, NamesBothHashesForAPlanOfAnotherGraph) {
  const Problem other = random_problem(1);
  try {
    check_plan_matches(plan_, other.graph);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(plan_.graph_hash));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(other.graph.hash()));
  }
  EXPECT_THAT(verify_plan(other.graph, nullptr, plan_), ::testing::Not(IsEmpty()));
}

}  // namespace
}  // namespace kerf
