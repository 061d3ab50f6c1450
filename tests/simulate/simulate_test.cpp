// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/simulate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kerf/device/devices.h"
#include "kerf/graph/text.h"
#include "kerf/simulate/make_plan.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

// a -> b -> c -> d, 1000 ns each; a's output of 8 bytes a sample goes to d as well.
Problem chain_problem(int microbatches, Link link) {
  Problem problem;
  problem.graph = parse_graph(R"(kerf-graph 1.0
graph "chain"
batch 4
input %x: f32[B, 2] = "args.0"
%a: f32[B, 2] = aten.relu.default(%x)
%b: f32[B, 2] = aten.relu.default(%a)
%c: f32[B, 2] = aten.relu.default(%b)
%d: f32[B, 2] = aten.add.default(%c, %a)
output "d" = %d
)");
  problem.cluster = parse_devices("3xcuda");
  problem.cluster.links.assign(9, link);
  problem.n_microbatches = microbatches;
  problem.profile.graph_hash = problem.graph.hash();
  problem.profile.batch = problem.micro_batch();
  for (std::size_t n = 0; n < 4; ++n) {
    problem.profile.nodes.push_back(node_sizes(problem.graph, NodeId{n}, problem.micro_batch()));
    problem.profile.nodes.back().forward = Nanoseconds{1000};
  }
  return problem;
}

std::vector<std::vector<NodeId>> ids(std::vector<std::vector<int>> stages) {
  std::vector<std::vector<NodeId>> all;
  for (const auto& stage : stages) {
    auto& list = all.emplace_back();
    for (const int node : stage) list.emplace_back(node);
  }
  return all;
}

std::vector<DeviceId> on(std::initializer_list<int> devices) {
  std::vector<DeviceId> all;
  for (const int device : devices) all.emplace_back(device);
  return all;
}

std::string draw(const Timeline& timeline) {
  std::string text;
  for (const Event& event : timeline.events) {
    text += event.kind == EventKind::compute
                ? fmt::format("d{} s{} m{} {}-{}\n", event.device.index(), event.stage.index(),
                              event.microbatch, event.start.count, event.end.count)
                : fmt::format("d{} {} m{} {}-{}\n", event.device.index(), event.tensor,
                              event.microbatch, event.start.count, event.end.count);
  }
  return text;
}

// By hand: two stages of 2000 ns, 100 ns + 16 ns a tensor (2 samples, 1 GB/s), `a` and `b` cross.
TEST(TheSimulator, GivesTheTimelineThatAHandGives) {
  const Problem problem = chain_problem(2, Link{Nanoseconds{100}, 1e9, false});
  const Plan plan = make_plan(problem, ids({{0, 1}, {2, 3}}), on({0, 1}), "hand");
  EXPECT_EQ(draw(simulate(plan)),
            "d0 s0 m0 0-2000\n"
            "d0 s0 m1 2000-4000\n"
            "d1 a m0 2000-2116\n"
            "d1 b m0 2116-2232\n"
            "d1 s1 m0 2232-4232\n"
            "d1 a m1 4232-4348\n"
            "d1 b m1 4348-4464\n"
            "d1 s1 m1 4464-6464\n");
  EXPECT_DOUBLE_EQ(plan.step_time.count, 6464);
  EXPECT_DOUBLE_EQ(plan.latency.count, 4232);
  EXPECT_DOUBLE_EQ(plan.busiest.count, 2232);
  EXPECT_DOUBLE_EQ(plan.throughput, 4e9 / 6464);
  EXPECT_DOUBLE_EQ(plan.bubble, 1 - (4000.0 / 6464 + 4464.0 / 6464) / 2);
}

TEST(TheSimulator, FetchesATensorOnceForTwoStagesOfADevice) {
  const Problem problem = chain_problem(1, Link{Nanoseconds{100}, 0, false});
  // b and d on device 1: `a` is fetched for b, and is still there for d.
  const Plan plan = make_plan(problem, ids({{0}, {1}, {2}, {3}}), on({0, 1, 0, 1}), "hand");
  EXPECT_EQ(draw(simulate(plan)),
            "d0 s0 m0 0-1000\n"
            "d1 a m0 1000-1100\n"
            "d1 s1 m0 1100-2100\n"
            "d0 b m0 2100-2200\n"
            "d0 s2 m0 2200-3200\n"
            "d1 c m0 3200-3300\n"
            "d1 s3 m0 3300-4300\n");
}

TEST(TheSimulator, LetsTransfersOverASharedWireWaitForEachOther) {
  Problem problem = chain_problem(1, Link{Nanoseconds{500}, 0, true});
  problem.graph = parse_graph(R"(kerf-graph 1.0
graph "fork"
batch 4
input %x: f32[B, 2] = "args.0"
%a: f32[B, 2] = aten.relu.default(%x)
%b: f32[B, 2] = aten.relu.default(%a)
%c: f32[B, 2] = aten.relu.default(%a)
%d: f32[B, 2] = aten.relu.default(%a)
output "d" = %d
)");
  problem.profile.graph_hash = problem.graph.hash();
  const auto stages = ids({{0, 3}, {1}, {2}});
  EXPECT_DOUBLE_EQ(make_plan(problem, stages, on({0, 1, 2}), "hand").step_time.count, 4000);
  for (Link& link : problem.cluster.links) link.shared = false;
  EXPECT_DOUBLE_EQ(make_plan(problem, stages, on({0, 1, 2}), "hand").step_time.count, 3500);
}

// b is made long before a, and the wire is free then, though a's device started first.
TEST(TheSimulator, ServesTheWireInTheOrderInWhichTensorsAreMade) {
  Problem problem = chain_problem(1, Link{Nanoseconds{500}, 0, true});
  problem.graph = parse_graph(R"(kerf-graph 1.0
graph "join"
batch 4
input %x: f32[B, 2] = "args.0"
%a: f32[B, 2] = aten.relu.default(%x)
%b: f32[B, 2] = aten.relu.default(%x)
%c: f32[B, 2] = aten.relu.default(%b)
%d: f32[B, 2] = aten.add.default(%c, %a)
output "d" = %d
)");
  problem.profile.graph_hash = problem.graph.hash();
  problem.profile.nodes[0].forward = Nanoseconds{3000};
  problem.comm_model = CommModel::overlapped;
  const Plan plan = make_plan(problem, ids({{0}, {1}, {2}, {3}}), on({0, 1, 2, 2}), "hand");
  EXPECT_EQ(draw(simulate(plan)),
            "d0 s0 m0 0-3000\n"
            "d1 s1 m0 0-1000\n"
            "d2 b m0 1000-1500\n"
            "d2 s2 m0 1500-2500\n"
            "d2 a m0 3000-3500\n"
            "d2 s3 m0 3500-4500\n");
}

TEST(TheSimulator, ReachesTheEvaluatorsBusiestDeviceInTheSteadyState) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Problem problem = random_problem(seed, {.equal_links = false});
    std::vector<std::vector<NodeId>> stages(3);
    for (std::size_t n = 0; n < problem.graph.num_nodes(); ++n) {
      stages[std::min<std::size_t>(2, n / 3)].emplace_back(n);
    }
    const Plan plan = make_plan(problem, stages, on({0, 1, 2}), "hand");
    const double steady = (simulate(plan, 300).end().count - simulate(plan, 100).end().count) / 200;
    EXPECT_NEAR(steady, plan.busiest.count, 1e-6) << seed;
    EXPECT_GE(plan.step_time.count * (1 + 1e-9), plan.busiest.count * plan.n_microbatches);
  }
}

TEST(MakingAPlan, NumbersStagesTopologicallyAndDropsEmptyOnes) {
  const Problem problem = chain_problem(1, Link{});
  const Plan plan = make_plan(problem, ids({{2, 3}, {}, {0, 1}}), on({0, 1, 2}), "hand");
  ASSERT_EQ(plan.num_stages(), 2U);
  EXPECT_EQ(plan.stages[0].device, DeviceId{2});
  EXPECT_EQ(plan.stages[0].nodes[0], NodeId{0});
  EXPECT_TRUE(plan.contiguous);
  EXPECT_EQ(plan.stages[1].after, std::vector<StageId>{StageId{0}});
}

TEST(MakingAPlan, RefusesWhatIsNoPlan) {
  const Problem problem = chain_problem(1, Link{});
  EXPECT_THROW(make_plan(problem, ids({{0, 1}, {2}}), on({0, 1}), "hand"), Error);
  EXPECT_THROW(make_plan(problem, ids({{0, 1, 2}, {2, 3}}), on({0, 1}), "hand"), Error);
  EXPECT_THROW(make_plan(problem, ids({{0, 2}, {1, 3}}), on({0, 1}), "hand"), Error) << "a cycle";
  EXPECT_THROW(make_plan(problem, ids({{0, 1}, {2, 3}}), on({0, 9}), "hand"), Error);
  EXPECT_THROW(make_plan(problem, ids({{0, 1}, {2, 3}}), on({0}), "hand"), Error);
  EXPECT_THROW(make_plan(problem, ids({{0, 1, 2, 3, 4}}), on({0}), "hand"), Error);
}

TEST(APlanFile, ComesBackAsItWas) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Problem problem = random_problem(seed, {.equal_links = false, .shared_memory = true});
    problem.seed = ~seed;
    std::vector<NodeId> all;
    for (std::size_t n = 0; n < problem.graph.num_nodes(); ++n) all.emplace_back(n);
    const std::ptrdiff_t half = static_cast<std::ptrdiff_t>(all.size() / 2);
    Plan plan =
        make_plan(problem, {{all.begin(), all.begin() + half}, {all.begin() + half, all.end()}},
                  on({1, 0}), "hand");
    plan.lower_bound = {"work", 0.1, "because"};
    plan.notes = {"a \"note\""};
    EXPECT_EQ(parse_plan(print_plan(plan)), plan) << seed;
  }
}

TEST(APlanFile, CanBeSimulatedWithNothingElse) {
  const Problem problem = chain_problem(2, Link{Nanoseconds{100}, 1e9, false});
  const Plan plan = make_plan(problem, ids({{0, 1}, {2, 3}}), on({0, 1}), "hand");
  EXPECT_EQ(simulate(parse_plan(print_plan(plan))), simulate(plan));
}

TEST(APlanFile, IsRefusedWhenCutShortOrMadeUp) {
  const Problem problem = chain_problem(2, Link{Nanoseconds{100}, 1e9, false});
  const std::string text =
      print_plan(make_plan(problem, ids({{0, 1}, {2, 3}}), on({0, 1}), "hand"));
  for (std::size_t length = 0; length + 2 < text.size(); length += 13) {
    EXPECT_THROW(parse_plan(text.substr(0, length), "plan.json"), Error) << length;
  }
  const auto error_of = [&](const std::string& from, const std::string& to) -> std::string {
    std::string copy = text;
    EXPECT_NE(copy.find(from), std::string::npos) << from;
    copy.replace(copy.find(from), from.size(), to);
    try {
      parse_plan(copy, "plan.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_plan);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of("\"device\": \"cuda:1\"", "\"device\": \"cuda:8\""),
              ::testing::HasSubstr("cuda:8"));
  EXPECT_THAT(error_of("\"version\": \"1.5\"", "\"version\": \"2.0\""),
              ::testing::HasSubstr("2.0"));
  EXPECT_THAT(error_of("\"n_microbatches\": 2", "\"n_microbatches\": -2"),
              ::testing::HasSubstr("n_microbatches"));
  EXPECT_THAT(error_of("\"schedule\": \"fill_drain\"", "\"schedule\": \"zigzag\""),
              ::testing::HasSubstr("zigzag"));
  EXPECT_THAT(error_of("\"comm_model\": \"link\"", "\"comm_model\": \"pigeon\""),
              ::testing::HasSubstr("'pigeon'; expected one of link, host_staged, overlapped"));
  EXPECT_THAT(error_of("\"from\": 0", "\"from\": 1"), ::testing::HasSubstr("later stage"));
}

// Two stages on cuda:0 and cuda:1, and copies on the other four.
Plan copied_plan() {
  Problem problem = chain_problem(2, Link{Nanoseconds{100}, 1e9, false});
  problem.cluster = parse_devices("6xcuda");
  return with_replicas(problem, make_plan(problem, ids({{0, 1}, {2, 3}}), on({0, 1}), "hand"),
                       {on({2, 3}), on({5, 4})});
}

TEST(AReplica, CostsTheMemoryOfThePlanAndChangesNoOtherFigure) {
  const Plan plan = copied_plan();
  for (std::size_t d = 2; d < 6; ++d) {
    const DeviceMemory& original = plan.memory[d == 2 || d == 5 ? 0 : 1];
    EXPECT_GT(original.predicted, Bytes{0});
    EXPECT_EQ(plan.memory[d], original) << d;
    EXPECT_EQ(plan.loads[d], DeviceLoad{}) << d;
  }
  Problem problem = chain_problem(2, Link{Nanoseconds{100}, 1e9, false});
  problem.cluster = parse_devices("6xcuda");
  Plan alone = make_plan(problem, ids({{0, 1}, {2, 3}}), on({0, 1}), "hand");
  EXPECT_EQ(simulate(alone), simulate(plan));
  alone.replicas = plan.replicas;
  alone.memory = plan.memory;
  EXPECT_EQ(alone, plan);
}

TEST(AReplica, InOneMemoryWithThePlanAddsToIt) {
  Problem problem = chain_problem(2, Link{Nanoseconds{100}, 1e9, false});
  problem.cluster = parse_devices("cuda:0=1MiB,cuda:0,cuda:1");
  const Plan alone = make_plan(problem, ids({{0, 1, 2, 3}}), on({0}), "hand");
  const Plan copied = with_replicas(problem, alone, {on({1})});
  EXPECT_EQ(copied.memory[1].activations, alone.memory[0].activations);
  EXPECT_EQ(copied.memory[0].predicted, alone.memory[0].predicted * 2);
  EXPECT_EQ(copied.memory[1].predicted, copied.memory[0].predicted);
  EXPECT_EQ(copied.memory[1].limit, Bytes{1 << 20});
}

TEST(AReplica, OnDevicesOfOtherSpeedsIsNoted) {
  Problem problem = chain_problem(2, Link{Nanoseconds{100}, 1e9, false});
  problem.cluster.devices[2].speed = 2;
  const Plan plan = make_plan(problem, ids({{0, 1, 2, 3}}), on({0}), "hand");
  EXPECT_THAT(with_replicas(problem, plan, {on({1})}).notes, ::testing::IsEmpty());
  EXPECT_THAT(with_replicas(problem, plan, {on({1}), on({2})}).notes,
              ::testing::ElementsAre(::testing::HasSubstr("replicas 1 are on devices of other")));
}

TEST(AReplica, IsRefusedUnlessItIsAWholeCopyOnDevicesOfItsOwn) {
  Problem problem = chain_problem(2, Link{Nanoseconds{100}, 1e9, false});
  problem.cluster = parse_devices("6xcuda");
  const Plan plan = make_plan(problem, ids({{0}, {1}, {2, 3}}), on({0, 1, 0}), "hand");
  const auto error_of = [&](std::vector<std::vector<DeviceId>> replicas) -> std::string {
    try {
      with_replicas(problem, plan, std::move(replicas));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_plan);
      return error.what();
    }
    return "no error";
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(error_of({on({2, 3, 2}), on({5, 4, 5})}), "no error");
  EXPECT_THAT(error_of({on({2, 3})}), HasSubstr("2 devices for 3 stages"));
  EXPECT_THAT(error_of({on({2, 9, 2})}), HasSubstr("on device 9"));
  EXPECT_THAT(error_of({{DeviceId{2}, DeviceId{}, DeviceId{2}}}), HasSubstr("stage 1 on device"));
  EXPECT_THAT(error_of({on({2, 1, 2})}), HasSubstr("cuda:1, which has another replica's"));
  EXPECT_THAT(error_of({on({2, 3, 2}), on({4, 3, 4})}), HasSubstr("replica 1 has stage 1"));
  EXPECT_THAT(error_of({on({2, 3, 4})}), HasSubstr("share a device exactly when"));
  EXPECT_THAT(error_of({on({2, 2, 2})}), HasSubstr("share a device exactly when"));
}

TEST(APlanFile, HoldsReplicasWhenThereAreAny) {
  const Plan plan = copied_plan();
  const std::string text = print_plan(plan);
  EXPECT_EQ(parse_plan(text), plan);
  Plan alone = plan;
  alone.replicas.clear();
  EXPECT_THAT(print_plan(alone), ::testing::Not(::testing::HasSubstr("replicas")));
  // A file from before there were any.
  std::string old = print_plan(alone);
  old.replace(old.find("\"1.5\""), 5, "\"1.0\"");
  EXPECT_EQ(parse_plan(old), alone);
}

TEST(APlanFile, IsRefusedWithReplicasThatAreNone) {
  const std::string text = print_plan(copied_plan());
  const auto error_of = [&](const std::string& from, const std::string& to) -> std::string {
    std::string copy = text;
    const std::size_t at = copy.find(from, copy.find("\"replicas\""));
    EXPECT_NE(at, std::string::npos) << from;
    copy.replace(at, from.size(), to);
    try {
      parse_plan(copy, "plan.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_plan);
      return error.what();
    }
    return "no error";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error_of("\"cuda:3\"", "\"cuda:9\""),
              HasSubstr("replicas[0][1]: found device 'cuda:9'"));
  EXPECT_THAT(error_of("\"cuda:3\"", "7"), HasSubstr("replicas[0][1]"));
  EXPECT_THAT(error_of("\"cuda:3\"", "\"cuda:0\""), HasSubstr("another replica's"));
  EXPECT_THAT(error_of("\"cuda:3\"", "\"cuda:2\""), HasSubstr("share a device"));
  EXPECT_THAT(error_of("\"cuda:3\"", "\"cuda:3\", \"cuda:4\""), HasSubstr("3 devices for 2"));
}

// What the evaluator charges a device for one micro-batch, the simulation spends there on each.
TEST(Simulate, SpendsWhatTheEvaluatorChargesUnderEveryModel) {
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    RandomProblemOptions options;
    options.graph.writes = seed % 4 == 0;  // they glue nodes together
    options.equal_links = seed % 2 == 0;
    Problem problem = random_problem(seed, options);
    problem.cluster.devices[0].host = seed % 3 == 0;
    for (const CommModel model : {CommModel::link, CommModel::host_staged, CommModel::overlapped}) {
      problem.comm_model = model;
      std::vector<std::vector<NodeId>> stages(3);
      for (std::size_t n = 0; n < problem.graph.num_nodes(); ++n) {
        stages[n * 3 / problem.graph.num_nodes()].emplace_back(n);
      }
      bool glued = false;  // such a split may not keep glued nodes together; loads do not care
      for (const auto& group : problem.graph.glued()) glued = glued || group.size() > 1;
      if (glued) continue;
      ++compared;
      const Plan plan = make_plan(problem, stages, on({0, 1, 2}), "thirds");
      const Timeline timeline = simulate(plan);
      std::vector<double> computed(3);
      std::vector<double> moved(3);  // by the device that spends the time
      for (const Event& event : timeline.events) {
        const double time = (event.end - event.start).count;
        const bool sent = model == CommModel::overlapped;
        if (event.kind == EventKind::compute) {
          computed[event.device.index()] += time;
        } else {
          moved[(sent ? event.from : event.device).index()] += time;
        }
      }
      for (std::size_t d = 0; d < 3; ++d) {
        const double count = plan.n_microbatches;
        EXPECT_NEAR(computed[d], count * plan.loads[d].compute.count, 1e-6)
            << seed << to_string(model);
        const double charged =
            model == CommModel::overlapped ? std::max(0.0, moved[d] - computed[d]) : moved[d];
        EXPECT_NEAR(charged, count * plan.loads[d].communication.count, 1e-6)
            << seed << to_string(model);
      }
      EXPECT_GE(plan.step_time.count, plan.n_microbatches * plan.busiest.count * (1 - 1e-9))
          << seed << to_string(model);
    }
  }
  EXPECT_GE(compared, 90);
}

}  // namespace
}  // namespace kerf
