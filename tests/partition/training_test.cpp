// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/infinity.h"
#include "kerf/graph/passes/coarsen.h"
#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/partition/training/recompute_bound.h"
#include "kerf/partition/training/recompute_search.h"
#include "kerf/plan/schedule/schedule.h"
#include "kerf/verify/verify_asked.h"
#include "tests/support/best_of_all.h"
#include "tests/support/expect_verified.h"
#include "tests/support/layered_problem.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

Problem random_training(std::uint64_t seed, std::size_t nodes, std::size_t devices,
                        bool writes = true) {
  Problem problem = random_problem(
      seed,
      {.graph = {.num_nodes = nodes, .writes = writes, .may_alias = writes, .decorate = false},
       .num_devices = devices,
       .equal_links = seed % 2 == 0,
       .shared_memory = seed % 5 == 0});
  make_training(problem, seed);
  const auto kinds = schedule_kinds();
  problem.schedule = kinds[seed % kinds.size()].name;
  const std::vector<std::string> models = comm_model_names();
  problem.comm_model = parse_comm_model(models[seed / 2 % models.size()]);
  return problem;
}

// Limits around what one device needs by itself: sometimes enough.
void limit(Problem& problem, std::uint64_t seed) {
  const auto alone = partition::solve(problem, "single");
  ASSERT_TRUE(alone);
  limit_memory(problem, seed, alone->memory[alone->stages[0].device.index()].predicted);
}

constexpr Objective kTrainingObjectives[] = {Objective::throughput, Objective::latency,
                                             Objective::step, Objective::memory};

TEST(TrainingBounds, HoldForEveryPlacementThereIs) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 160; ++seed) {
    Problem problem = random_training(seed, 6, 2 + seed % 2);
    limit(problem, seed);
    problem.objective = kTrainingObjectives[seed / 3 % 4];
    const std::optional<double> best = BestOfAll(problem).run();
    if (!best) continue;
    ++compared;
    for (const LowerBound& bound : partition::lower_bounds(problem)) {
      EXPECT_LE(bound.value, *best * (1 + 1e-9) + 1e-9) << seed << " " << bound.name;
    }
  }
  EXPECT_GT(compared, 80);
}

TEST(EveryMethod, PlansTrainingSoundlyAndNeverBeatsAllPlacements) {
  int compared = 0;
  int optimal = 0;
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    Problem problem = random_training(seed, 6, 2 + seed % 2);
    limit(problem, seed);
    const std::optional<double> best = BestOfAll(problem).run();
    for (const std::string& method : partition::comparable_methods()) {
      const auto outcome = partition::solve(problem, method, {.time_budget = 0.1});
      if (!outcome) continue;
      expect_verified(problem, *outcome, seed);
      ASSERT_TRUE(best) << seed << " " << method << " fits and no placement does";
      EXPECT_GE(outcome->objective_value(), *best * (1 - 1e-9)) << seed << method;
      EXPECT_LE(outcome->lower_bound.value, *best * (1 + 1e-9)) << seed << method;
      ++compared;
      optimal += outcome->objective_value() <= *best * (1 + 1e-9) ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 300);
  EXPECT_GT(optimal, compared / 3);
}

std::vector<std::string> blocks_of(const Graph& graph) {
  std::vector<std::string> blocks = recomputed_by(graph, "as_traced");
  for (const std::string& layer : recomputed_by(graph, "all")) blocks.push_back(layer);
  return blocks;
}

double recompute_time(const Plan& plan) {
  double time = 0;
  for (const Stage& stage : plan.stages) time += stage.recompute.count;
  return time;
}

bool fits(const Plan& plan) {
  return std::all_of(plan.memory.begin(), plan.memory.end(),
                     [](const auto& m) { return !m.limited || m.predicted <= m.limit; });
}

// Calls visit(plan) for the split with every set of blocks.
template <class Visit>
void for_each_set(const Problem& problem, const Plan& split, Visit&& visit) {
  const std::vector<std::string> blocks = blocks_of(problem.graph);
  std::vector<std::vector<NodeId>> stages;
  for (const Stage& stage : split.stages) stages.push_back(stage.nodes);
  for (std::size_t bits = 0; bits < (std::size_t{1} << blocks.size()); ++bits) {
    std::vector<std::string> names;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if ((bits >> b & 1) != 0) names.push_back(blocks[b]);
    }
    Problem tried = problem;
    set_recomputed(tried, names);
    visit(make_plan(tried, stages, split.stage_devices(), "hand"));
  }
}

// A split that does not fit, but may with some blocks computed again.
Plan tight_split(Problem& problem, std::uint64_t seed) {
  problem.recompute = "auto";
  set_recomputed(problem, {});
  const char* method = seed % 2 == 0 ? "even" : "chain";
  Plan split = *partition::solve(problem, method);
  for (int g = 0; g < problem.cluster.num_memory_groups(); ++g) {
    for (const DeviceId device : problem.cluster.group(g)) {
      Device& limited = problem.cluster.devices[device.index()];
      const auto needed = split.memory[device.index()].predicted.count;
      limited.memory = Bytes{needed * static_cast<std::int64_t>(85 + seed % 15) / 100 + 1};
      limited.memory_limited = true;
    }
  }
  return split;
}

TEST(Recompute, TakesTheCheapestBlocksThatFit) {
  int fitted = 0;
  int some = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Problem problem = random_training(seed, 12, 2);
    const Plan split = tight_split(problem, seed);
    const auto found = partition::fit_by_recompute(problem, split);
    std::optional<double> least;
    for_each_set(problem, split, [&](const Plan& plan) {
      if (fits(plan)) least = std::min(least.value_or(kInfinity), recompute_time(plan));
    });
    ASSERT_EQ(static_cast<bool>(found), least.has_value()) << seed;
    if (!found) continue;
    expect_verified(problem, *found, seed);
    EXPECT_NEAR(recompute_time(*found), *least, *least * 1e-9) << seed;
    ++fitted;
    some += found->recomputed.empty() ? 0 : 1;
  }
  EXPECT_GT(fitted, 12);
  EXPECT_GT(some, 12);
}

// More blocks than are tried one by one, unlike each other, and all sets that there are.
TEST(Recompute, IsAsGoodWithManyBlocks) {
  int fitted = 0;
  double worst = 1;  // the bound, as a share of the truth
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    Rng rng(seed);
    std::vector<int> widths;
    for (int l = 0; l < 11; ++l) widths.push_back(static_cast<int>(32 + 32 * rng.below(6)));
    const auto kinds = schedule_kinds();
    Problem problem = layered_problem(widths, 2, 5, std::string(kinds[seed % kinds.size()].name));
    const Plan split = tight_split(problem, seed);
    const double share = 0.6 + 0.04 * static_cast<double>(seed);
    for (Device& device : problem.cluster.devices) {
      device.memory =
          Bytes{static_cast<std::int64_t>(static_cast<double>(device.memory.count) * share)};
    }
    const auto found = partition::fit_by_recompute(problem, split);
    double least = kInfinity;
    for_each_set(problem, split, [&](const Plan& plan) {
      if (fits(plan)) least = std::min(least, recompute_time(plan));
    });
    ASSERT_EQ(static_cast<bool>(found), least < kInfinity) << seed;
    if (!found) continue;
    expect_verified(problem, *found, seed);
    ++fitted;
    EXPECT_NEAR(recompute_time(*found), least, least * 1e-9) << seed;
    EXPECT_THAT(found->notes.back(), ::testing::HasSubstr("with this split"));
    std::vector<std::vector<NodeId>> stages;
    for (const Stage& stage : split.stages) stages.push_back(stage.nodes);
    const Plan bare = make_plan(problem, stages, split.stage_devices(), "bare");
    std::vector<std::int64_t> excess;
    for (const DeviceMemory& memory : bare.memory) {
      excess.push_back((memory.predicted - memory.limit).count);
    }
    const partition::BlockFigures figures(problem, bare, blocks_of(problem.graph));
    worst = std::min(worst, figures.least_time(excess) / least);
  }
  EXPECT_GE(fitted, 5);
  EXPECT_GE(worst, 0.7);
  EXPECT_LE(worst, 1 + 1e-9);
}

// As many as models have, in next to no time, and proved to be the least.
TEST(Recompute, SolvesDeepModelsOfEqualLayers) {
  for (const std::size_t layers : {12U, 48U, 96U}) {
    for (const std::size_t devices : {2U, 8U}) {
      Problem problem = layered_problem(std::vector<int>(layers, 256), devices, 16, "1f1b");
      const Plan split = *partition::solve(problem, "chain");
      Problem all = problem;
      set_recomputed(all, recomputed_by(problem.graph, "all"));
      const Plan least = *partition::solve(all, "chain");
      const auto most = [](const Plan& plan) {
        Bytes bytes;
        for (const DeviceMemory& memory : plan.memory) bytes = std::max(bytes, memory.predicted);
        return bytes.count;
      };
      problem.recompute = "auto";
      for (Device& device : problem.cluster.devices) {
        device.memory = Bytes{(most(split) + 2 * most(least)) / 3};
        device.memory_limited = true;
      }
      const auto found = partition::fit_by_recompute(problem, split);
      ASSERT_TRUE(found) << found.reason().message();
      expect_verified(problem, *found);
      EXPECT_FALSE(found->recomputed.empty());
      EXPECT_THAT(found->notes.back(), ::testing::HasSubstr("the least with this split"));
    }
  }
}

// Whatever the limits are: a set that frees so much costs at least what the bound says.
TEST(RecomputeBound, HoldsForEverySetOfBlocks) {
  int compared = 0;
  int met = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Problem problem = random_training(seed, 12, 1 + seed % 3);
    const Plan split = tight_split(problem, seed);
    std::vector<std::vector<NodeId>> stages;
    for (const Stage& stage : split.stages) stages.push_back(stage.nodes);
    const Plan bare = make_plan(problem, stages, split.stage_devices(), "bare");
    const partition::BlockFigures figures(problem, bare, blocks_of(problem.graph));
    for_each_set(problem, split, [&](const Plan& plan) {
      std::vector<std::int64_t> freed(
          static_cast<std::size_t>(problem.cluster.num_memory_groups()));
      for (std::size_t d = 0; d < plan.memory.size(); ++d) {
        const auto group = static_cast<std::size_t>(problem.cluster.devices[d].memory_group);
        freed[group] = (bare.memory[d].predicted - plan.memory[d].predicted).count;
      }
      const double bound = figures.least_time(freed);
      ASSERT_LE(bound, recompute_time(plan) * (1 + 1e-9) + 1e-9) << seed;
      ++compared;
      met += bound > 0 && bound >= recompute_time(plan) * (1 - 1e-9) ? 1 : 0;
    });
  }
  EXPECT_GT(compared, 3000);
  EXPECT_GT(met, 30);  // no bound that says nothing
}

TEST(Looped, PutsStagesOnDevicesInTurn) {
  Problem problem = random_training(2, 24, 2, /*writes=*/false);
  problem.schedule = "interleaved_1f1b";
  problem.comm_model = CommModel::link;
  problem.stages_per_device = 3;
  problem.recompute = "none";
  set_recomputed(problem, {});
  for (Device& device : problem.cluster.devices) device.speed = 1;
  for (Link& link : problem.cluster.links) link = {};
  const auto plan = partition::solve(problem, "chain");
  ASSERT_TRUE(plan);
  expect_verified(problem, *plan);
  EXPECT_GT(plan->num_stages(), 2U);
  for (std::size_t s = 0; s < plan->num_stages(); ++s) {
    EXPECT_EQ(plan->stages[s].device, DeviceId{s % 2});
  }
  try {
    partition::solve(problem, "metis");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("expected chain or auto"));
  }
}

TEST(Advice, SaysWhatWouldFitOrHowMuchIsMissing) {
  int helped = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Problem problem = random_training(seed, 10, 2);
    problem.recompute = "none";
    problem.optimizer = "adamw";
    problem.schedule = "fill_drain";
    set_recomputed(problem, {});
    const auto alone = partition::solve(problem, "chain");
    ASSERT_TRUE(alone);
    for (Device& device : problem.cluster.devices) {
      device.memory = Bytes{alone->memory[0].predicted.count * 97 / 100 + 1};
      device.memory_limited = true;
    }
    const auto outcome = partition::solve(problem, "chain");
    if (outcome) continue;
    const std::string help = outcome.reason().help();
    EXPECT_THAT(help, ::testing::AnyOf(::testing::HasSubstr("what would fit: "),
                                       ::testing::HasSubstr("not enough: ")));
    if (help.find("what would fit: recompute='all'") == std::string::npos) continue;
    ++helped;
    set_recomputed(problem, recomputed_by(problem.graph, "all"));
    EXPECT_TRUE(partition::solve(problem, "chain")) << "seed " << seed << ": " << help;
  }
  EXPECT_GE(helped, 2);
}

// Equal layers that are not cut; of each node forward 1, backward 2.
Problem asynchronous_chain(std::size_t layers, std::size_t devices) {
  Problem problem = layered_problem(std::vector<int>(layers, 64), devices, 8, "1f1b");
  for (NodeCost& cost : problem.profile.nodes) {
    cost.forward = Nanoseconds{1e6};
    cost.backward = Nanoseconds{2e6};
    cost.backward_weights = {};
  }
  problem.graph = coarsen(problem.graph, {kAllDepths, {"Layer"}});
  problem.recompute = "all";
  set_recomputed(problem, recomputed_by(problem.graph, "all"));
  for (Link& link : problem.cluster.links) link = {};
  return problem;
}

TEST(AKeptLastStage, GetsAThirdMoreOfEqualLayersAndComputesNothingAgain) {
  for (const std::size_t devices : {2U, 3U, 4U, 8U}) {
    Problem problem = asynchronous_chain(devices * 40, devices);
    const double usual = partition::solve(problem, "chain")->busiest.count;
    problem.keep_last_stage = true;
    for (const char* method : {"chain", "auto"}) {
      const auto plan = partition::solve(problem, method, {.time_budget = 0.2});
      ASSERT_TRUE(plan);
      EXPECT_TRUE(verify_asked(problem, *plan).empty()) << method;
      expect_verified(problem, *plan, devices);
      EXPECT_EQ(plan->stages.back().recompute.count, 0) << method;
      for (std::size_t s = 0; s + 1 < plan->num_stages(); ++s) {
        EXPECT_GT(plan->stages[s].recompute.count, 0) << method;
      }
      const double nodes = static_cast<double>(plan->stages.back().nodes.size());
      const double others = static_cast<double>(plan->stages.front().nodes.size());
      EXPECT_NEAR(nodes / others, 4.0 / 3, 0.15) << method << " on " << devices;
      EXPECT_LT(plan->busiest.count, usual) << method;
      // All of the time, in units that cost 4 and 3: no split is much better.
      const double work = static_cast<double>(problem.graph.num_nodes()) * 4e6;
      EXPECT_LT(plan->busiest.count, work / (static_cast<double>(devices) + 1.0 / 3) * 1.06);
    }
  }
}

TEST(AKeptLastStage, NeedsBlocksThatAreSaid) {
  Problem problem = asynchronous_chain(4, 2);
  problem.keep_last_stage = true;
  problem.recompute = "auto";
  EXPECT_THROW(partition::solve(problem, "chain"), Error);
  problem.training = false;
  EXPECT_THROW(partition::solve(problem, "chain"), Error);
}

TEST(AKeptLastStage, IsKeptByEveryMethodOnRandomProblems) {
  int plans = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Problem problem = random_training(seed, 12, 2 + seed % 2);
    problem.recompute = "all";
    set_recomputed(problem, recomputed_by(problem.graph, "all"));
    problem.keep_last_stage = true;
    for (const char* method : {"chain", "refine", "mixed_pipe"}) {
      const auto plan = partition::solve(problem, method, {.time_budget = 0.02});
      if (!plan) continue;
      ++plans;
      expect_verified(problem, *plan, seed);
      for (const Violation& violation : verify_asked(problem, *plan)) {
        ADD_FAILURE() << seed << " " << method << ": " << violation.message;
      }
    }
  }
  EXPECT_GT(plans, 60);
}

}  // namespace
}  // namespace kerf
