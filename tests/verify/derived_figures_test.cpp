// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Two derivations of every figure, the engine's and the verifier's, on random plans: any stages on
// any devices, several to a device; shared memories, host devices, limits; every communication
// model and schedule, links private and shared; batches that micro-batches do not divide.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "kerf/plan/metrics.h"
#include "kerf/simulate/make_plan.h"
#include "kerf/verify/verify_plan.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

struct Shape {
  std::size_t nodes = 12;
  std::size_t devices = 3;
  int n_microbatches = 0;  // 0: a few
  bool training = false;
};

Problem random_setting(std::uint64_t seed, const Shape& shape) {
  RandomProblemOptions options;
  options.graph.num_nodes = shape.nodes;
  options.graph.batch = seed % 7 != 0;
  options.graph.writes = seed % 5 < 2;  // they glue nodes together
  options.num_devices = shape.devices;
  options.equal_links = seed % 3 == 0;
  options.shared_memory = seed % 2 == 0;
  Problem problem = random_problem(seed, options);
  Rng rng(seed * 31 + 7);
  const std::vector<std::string> models = comm_model_names();
  const std::vector<std::string> schedules = schedule_names();
  problem.comm_model = parse_comm_model(models[rng.below(models.size())]);
  problem.schedule = schedules[rng.below(schedules.size())];
  for (Device& device : problem.cluster.devices) device.host = rng.below(3) == 0;
  // All links on one wire, some, or none.
  const std::uint64_t wired = rng.below(4);
  for (Link& link : problem.cluster.links) link.shared = wired == 0 || (wired == 1 && rng.below(2));
  if (!problem.graph.is_static() && shape.n_microbatches > 0) {
    problem.n_microbatches = shape.n_microbatches;
    problem.batch = shape.n_microbatches + static_cast<int>(rng.below(3));
  }
  if (shape.training) make_training(problem, seed);
  return problem;
}

// A piece goes to the last stage of those it depends on, or to one of the `spread` - 1 after it:
// stages wait for each other in no circle, and most are no interval of the order. With a spread of
// more than two many do not depend on the stage before them and may run ahead of it.
std::vector<std::size_t> random_stages(const Graph& graph, std::uint64_t spread, Rng& rng) {
  std::vector<std::size_t> stage(graph.num_nodes());
  std::size_t n = 0;
  for (const std::size_t end : pieces_of(graph)) {
    std::size_t last = 0;
    for (std::size_t k = n; k < end; ++k) {
      for (const NodeId before : graph.predecessors(NodeId{k})) {
        last = std::max(last, stage[before.index()]);
      }
    }
    last += rng.below(spread);
    for (; n < end; ++n) stage[n] = last;
  }
  return stage;
}

Plan random_plan(const Problem& problem, std::uint64_t seed, std::uint64_t spread = 2) {
  Rng rng(seed + 17);
  std::vector<std::vector<NodeId>> stages((spread - 1) * problem.graph.num_nodes() + 1);
  const std::vector<std::size_t> stage_of = random_stages(problem.graph, spread, rng);
  for (std::size_t n = 0; n < stage_of.size(); ++n) stages[stage_of[n]].emplace_back(n);
  std::vector<DeviceId> devices;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    devices.emplace_back(rng.below(problem.cluster.num_devices()));
  }
  return make_plan(problem, std::move(stages), std::move(devices), "random");
}

void expect_agreement(const Problem& problem, const Plan& plan, std::uint64_t seed) {
  for (const Violation& violation : verify_plan(problem.graph, &problem.profile, plan)) {
    ADD_FAILURE() << "seed " << seed << ", " << to_string(problem.comm_model) << ", "
                  << problem.n_microbatches << " micro-batches: " << violation.rule << ": "
                  << violation.message;
  }
}

struct Seen {
  int wired = 0;      // a transfer over the shared wire
  int uneven = 0;     // a last micro-batch that is smaller
  int several = 0;    // stages on one device
  int grouped = 0;    // devices that share a memory
  int scattered = 0;  // a stage that is no interval
  std::set<std::string> settings;
};

void look_at(const Plan& plan, Seen& seen) {
  std::set<DeviceId> used;
  std::set<int> groups;
  for (const Stage& stage : plan.stages) used.insert(stage.device);
  for (const DeviceId device : used) groups.insert(plan.cluster.device(device).memory_group);
  bool wire = false;
  for (const Cut& cut : plan.cuts) {
    for (const StageId to : cut.to) {
      wire = wire || (plan.stage(to).device != plan.stage(cut.from).device &&
                      plan.cluster.link(plan.stage(cut.from).device, plan.stage(to).device).shared);
    }
  }
  seen.wired += wire ? 1 : 0;
  seen.uneven += plan.batch != plan.micro_batch * plan.n_microbatches ? 1 : 0;
  seen.several += used.size() < plan.num_stages() ? 1 : 0;
  seen.grouped += groups.size() < used.size() ? 1 : 0;
  seen.scattered += plan.contiguous ? 0 : 1;
  seen.settings.insert(std::string(to_string(plan.comm_model)) + ' ' + plan.schedule);
}

// Every schedule, frozen weights, nodes without gradients, blocks that are computed again and cut.
TEST(DerivedFigures, AreTheEnginesOnThousandsOfTrainingPlans) {
  Seen seen;
  int backwards = 0;
  int without = 0;
  int recomputed = 0;
  int returned = 0;  // gradients that come back
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Problem problem =
        random_setting(seed, {.nodes = 6 + seed % 20, .devices = 1 + seed % 5, .training = true});
    const Plan plan = random_plan(problem, seed);
    expect_agreement(problem, plan, seed);
    look_at(plan, seen);
    for (const Stage& stage : plan.stages) {
      (stage.has_backward ? backwards : without) += 1;
      recomputed += stage.recompute.count > 0 ? 1 : 0;
    }
    for (const Cut& cut : plan.cuts) returned += static_cast<int>(cut.gradients.size());
  }
  EXPECT_GT(backwards, 4000);
  EXPECT_GT(without, 1000);
  EXPECT_GT(recomputed, 1000);
  EXPECT_GT(returned, 3000);
  EXPECT_GT(seen.several, 1000);
  EXPECT_EQ(seen.settings.size(), comm_model_names().size() * schedule_names().size());
}

// Two stages of a device need one tensor, and the one with the higher number runs first.
TEST(DerivedFigures, FetchATensorForTheStageThatRunsFirst) {
  const std::uint64_t seed = 953;
  const Problem problem =
      random_setting(seed, {.nodes = 6 + seed % 20, .devices = 1 + seed % 5, .training = true});
  const Plan plan = random_plan(problem, seed, 4);
  expect_agreement(problem, plan, seed);
}

TEST(DerivedFigures, AreTheEnginesOnThousandsOfPlans) {
  Seen seen;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Problem problem = random_setting(seed, {.nodes = 6 + seed % 20, .devices = 1 + seed % 5});
    const Plan plan = random_plan(problem, seed);
    expect_agreement(problem, plan, seed);
    look_at(plan, seen);
  }
  EXPECT_GT(seen.wired, 600);
  EXPECT_GT(seen.uneven, 600);
  EXPECT_GT(seen.several, 1000);
  EXPECT_GT(seen.grouped, 300);
  EXPECT_GT(seen.scattered, 1000);
  EXPECT_EQ(seen.settings.size(), comm_model_names().size() * schedule_names().size());
}

TEST(DerivedFigures, AreTheEnginesOnManyMicroBatches) {
  for (std::uint64_t seed = 1; seed < 150; ++seed) {
    for (const int count : {2, 9, 60, 400}) {
      const Problem problem = random_setting(seed, {.n_microbatches = count});
      expect_agreement(problem, random_plan(problem, seed), seed);
    }
  }
}

// More than are walked one by one: memory leaves out the middle of the step, as the engine does.
TEST(DerivedFigures, AreTheEnginesOnAMillionMicroBatches) {
  int walked = 0;
  for (std::uint64_t seed = 1; walked < 4; ++seed) {
    Problem problem = random_setting(seed, {.n_microbatches = 1 << 20});
    for (Link& link : problem.cluster.links) link.shared = false;
    problem.comm_model = seed % 2 == 0 ? CommModel::link : CommModel::host_staged;
    if (problem.graph.is_static()) continue;
    const Plan plan = random_plan(problem, seed);
    if (plan.num_stages() < 4) continue;
    expect_agreement(problem, plan, seed);
    ++walked;
  }
}

TEST(DerivedFigures, CountReplicasAsTheEngineDoes) {
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    const Problem problem = random_setting(seed, {.devices = 6});
    Plan plan = random_plan(problem, seed);
    // On devices 0 to 2, and two times on the others.
    std::vector<std::vector<NodeId>> stages;
    std::vector<DeviceId> devices;
    std::vector<DeviceId> copy;
    for (const Stage& stage : plan.stages) {
      stages.push_back(stage.nodes);
      devices.emplace_back(stage.device.index() % 3);
      copy.emplace_back(5 - stage.device.index() % 3);
    }
    plan = with_replicas(problem, make_plan(problem, stages, devices, "random"), {copy});
    expect_agreement(problem, plan, seed);
  }
}

// One figure of a sound plan, changed a little.
struct Change {
  std::string name;
  std::string rule;
  std::function<void(Plan&)> make;
};

void add_time(Nanoseconds& time) { time.count += 1e-6 * std::max(1.0, time.count); }

// Changes of the last stage, the last cut and the device of the first stage.
std::vector<Change> all_changes() {
  return {
      {"stage.time", "time", [](Plan& p) { add_time(p.stages.back().time); }},
      {"stage.weights", "sizes", [](Plan& p) { p.stages.back().weights += Bytes{1}; }},
      {"stage.activations", "sizes", [](Plan& p) { p.stages.back().activations -= Bytes{1}; }},
      {"stage.inputs", "sizes", [](Plan& p) { p.stages.back().inputs += Bytes{1}; }},
      {"stage.outputs", "sizes", [](Plan& p) { p.stages.back().outputs += Bytes{1}; }},
      {"stage.after", "after",
       [](Plan& p) {
         std::vector<StageId>& after = p.stages.back().after;
         after.empty() ? after.push_back(StageId{0}) : after.pop_back();
       }},
      {"cut.tensor", "cuts", [](Plan& p) { p.cuts.back().tensor += "'"; }},
      {"cut.value", "cuts", [](Plan& p) { p.cuts.back().value = ValueId{1 << 30}; }},
      {"cut.bytes", "cuts", [](Plan& p) { p.cuts.back().bytes += Bytes{1}; }},
      {"cut.from", "cuts", [](Plan& p) { p.cuts.back().from = p.cuts.back().to.back(); }},
      {"cut.to", "cuts", [](Plan& p) { p.cuts.back().to.pop_back(); }},
      {"cuts, one less", "cuts", [](Plan& p) { p.cuts.pop_back(); }},
      {"cuts' order", "cuts", [](Plan& p) { std::swap(p.cuts.front(), p.cuts.back()); }},
      {"load.compute", "load", [](Plan& p) { add_time(p.loads[0].compute); }},
      {"load.communication", "load", [](Plan& p) { add_time(p.loads[0].communication); }},
      {"memory.weights", "memory", [](Plan& p) { p.memory[0].weights += Bytes{1}; }},
      {"memory.activations", "memory", [](Plan& p) { p.memory[0].activations -= Bytes{1}; }},
      {"memory.predicted", "memory", [](Plan& p) { p.memory[0].predicted -= Bytes{1}; }},
      {"memory.limit", "memory", [](Plan& p) { p.memory[0].limit += Bytes{1}; }},
      {"memory.limited", "memory", [](Plan& p) { p.memory[0].limited = !p.memory[0].limited; }},
      {"busiest", "objective", [](Plan& p) { add_time(p.busiest); }},
      {"step_time", "step", [](Plan& p) { add_time(p.step_time); }},
      {"latency", "latency", [](Plan& p) { add_time(p.latency); }},
      {"throughput", "throughput", [](Plan& p) { p.throughput = p.throughput * 0.999999 - 1; }},
      {"bubble", "bubble", [](Plan& p) { p.bubble -= 1e-6; }},
      {"lower_bound", "bound", [](Plan& p) { p.lower_bound.value = 1.01 * p.busiest.count + 1; }},
  };
}

TEST(DerivedFigures, MissNoFigureThatWasChanged) {
  int plans = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Problem problem = random_setting(seed, {});
    const Plan plan = random_plan(problem, seed);
    if (plan.cuts.size() < 2) continue;
    ++plans;
    for (const Change& change : all_changes()) {
      Plan changed = plan;
      change.make(changed);
      std::vector<std::string> rules;
      for (const Violation& each : verify_plan(problem.graph, &problem.profile, changed)) {
        rules.push_back(each.rule);
      }
      EXPECT_THAT(rules, ::testing::Contains(change.rule)) << change.name << ", seed " << seed;
    }
  }
  EXPECT_GT(plans, 50);
}

}  // namespace
}  // namespace kerf
