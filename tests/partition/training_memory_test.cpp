// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Does a method find a training plan that fits, where one does? Memory is as short as it can be:
// the limit is what the best of all contiguous splits needs, or a little more.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "kerf/partition/chain/training_figures.h"
#include "kerf/partition/lower/contiguous.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/plan/schedule/schedule.h"
#include "kerf/profile/optimizer.h"
#include "kerf/simulate/make_plan.h"
#include "tests/support/expect_verified.h"
#include "tests/support/layered_problem.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

Problem training_problem(std::uint64_t seed, std::size_t nodes, std::size_t devices) {
  const bool writes = seed % 3 != 0;
  Problem problem = random_problem(
      seed,
      {.graph = {.num_nodes = nodes, .writes = writes, .may_alias = writes, .decorate = false},
       .num_devices = devices,
       .equal_links = seed % 2 == 0,
       .shared_memory = seed % 7 == 0});
  make_training(problem, seed);
  const auto kinds = schedule_kinds();
  problem.schedule = kinds[seed % kinds.size()].name;
  return problem;
}

// Every contiguous split on every choice and order of devices; of equal ones the first.
template <class Visit>
void for_each_contiguous_plan(const Problem& problem, bool equal, Visit&& visit) {
  const std::vector<bool> cuttable = partition::cut_positions(problem.graph);
  std::vector<std::size_t> cuts{0};
  std::vector<DeviceId> devices;
  const auto descend = [&](const auto& self) -> void {
    if (cuts.back() == problem.graph.num_nodes()) {
      return visit(make_plan(problem, partition::intervals(cuts), devices, "all"));
    }
    for (std::size_t d = 0; d < problem.cluster.num_devices(); ++d) {
      if (equal && d != devices.size()) continue;
      if (std::find(devices.begin(), devices.end(), DeviceId{d}) != devices.end()) continue;
      devices.emplace_back(d);
      for (std::size_t end = cuts.back() + 1; end <= problem.graph.num_nodes(); ++end) {
        if (!cuttable[end]) continue;
        cuts.push_back(end);
        self(self);
        cuts.pop_back();
      }
      devices.pop_back();
    }
  };
  descend(descend);
}

// The least limit, the same for all devices, that some contiguous split keeps.
Bytes least_limit(const Problem& problem, bool equal = false) {
  Bytes least{std::numeric_limits<std::int64_t>::max()};
  for_each_contiguous_plan(problem, equal, [&](const Plan& plan) {
    Bytes most;
    for (const DeviceMemory& memory : plan.memory) most = std::max(most, memory.predicted);
    least = std::min(least, most);
  });
  return least;
}

void limit_all(Problem& problem, Bytes limit) {
  for (Device& device : problem.cluster.devices) {
    device.memory = limit;
    device.memory_limited = true;
  }
}

// Which of the methods find no plan, by name.
using Missed = std::map<std::string, int>;

void count_missed(const Problem& problem, const std::vector<std::string>& methods,
                  std::uint64_t seed, Missed& missed) {
  for (const std::string& method : methods) {
    const auto outcome = partition::solve(problem, method, {.time_budget = 0.1});
    missed[method] += outcome ? 0 : 1;
    if (outcome) expect_verified(problem, *outcome, seed);
  }
}

Problem tight_random_problem(std::uint64_t seed) {
  static constexpr double kSpare[] = {1, 1.01, 1.05, 1.15};
  Problem problem = training_problem(seed, 9 + seed % 4, 2 + seed % 2);
  const double least = static_cast<double>(least_limit(problem).count);
  limit_all(problem, Bytes{static_cast<std::int64_t>(least * kSpare[seed / 4 % 4])});
  return problem;
}

Problem layers_of(std::uint64_t seed, std::size_t count) {
  Rng rng(seed);
  std::vector<int> widths;
  for (std::size_t l = 0; l < count; ++l) {
    widths.push_back(seed % 3 == 0 ? 128 : 32 << rng.below(4));
  }
  const auto kinds = schedule_kinds();
  return layered_problem(widths, 3 + seed % 2, static_cast<int>(4 + seed % 5),
                         std::string(kinds[seed % kinds.size()].name));
}

Problem tight_layers(std::uint64_t seed) {
  static constexpr double kSpare[] = {1, 1.01, 1.05, 1.15};
  Problem problem = layers_of(seed, 5 + seed % 2);
  if (seed % 5 == 4) set_recomputed(problem, {"h.1", "h.3"});
  const double least = static_cast<double>(least_limit(problem, true).count);
  limit_all(problem, Bytes{static_cast<std::int64_t>(least * kSpare[seed / 4 % 4])});
  return problem;
}

TEST(Chain, FindsATrainingPlanWhereverAContiguousOneFits) {
  Missed missed;
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    count_missed(tight_random_problem(seed), {"chain"}, seed, missed);
  }
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    count_missed(tight_layers(seed), {"chain"}, seed, missed);
  }
  EXPECT_EQ(missed["chain"], 0);
}

// Exact where tensors go from stage to stage, as with one cut in a layer; else no more than that.
TEST(TrainingFigures, AreThoseOfTheMemoryEngine) {
  constexpr std::size_t kLayers = 6;
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    const Problem problem = layers_of(seed, kLayers);
    const partition::Intervals intervals(problem);
    std::vector<std::size_t> positions(problem.graph.num_nodes() + 1);
    std::iota(positions.begin(), positions.end(), std::size_t{0});
    const partition::TrainingTable table(problem, intervals, positions);
    Rng rng(seed);
    const std::size_t stages = problem.cluster.num_devices();
    const auto moments =
        partition::pipeline_moments(problem.schedule, stages, problem.n_microbatches);
    for (int split = 0; split < 20; ++split) {
      const bool exact = split % 2 == 0;
      std::set<std::size_t> inner;
      while (inner.size() + 1 < stages) {
        const std::size_t cut = 1 + rng.below(positions.size() - 2);
        const auto in_layer = [&](std::size_t other) { return other / 5 == cut / 5; };
        if (!exact || std::none_of(inner.begin(), inner.end(), in_layer)) inner.insert(cut);
      }
      std::vector<std::size_t> cuts{0};
      cuts.insert(cuts.end(), inner.begin(), inner.end());
      cuts.push_back(problem.graph.num_nodes());
      std::vector<DeviceId> devices;
      for (std::size_t s = 0; s < stages; ++s) devices.emplace_back(s);
      const Plan plan = make_plan(problem, partition::intervals(cuts), devices, "split");
      for (std::size_t s = 0; s < stages; ++s) {
        const partition::TrainingFigures& figures = table.at(cuts[s], cuts[s + 1]);
        const std::int64_t found =
            figures.forward.weights +
            std::max(figures.activations(moments[s]),
                     figures.trained * optimizer(problem.optimizer).temporaries);
        const std::int64_t truth = plan.memory[s].predicted.count;
        EXPECT_LE(found, truth) << seed << " " << problem.schedule << " stage " << s;
        if (exact) {
          EXPECT_EQ(found, truth) << seed << " " << problem.schedule << " stage " << s;
        }
      }
    }
  }
}

TEST(OtherMethods, FindATrainingPlanWhereChainDoes) {
  std::vector<std::string> methods = partition::comparable_methods();
  // What these do is given: nothing is searched.
  std::erase(methods, "even");
  std::erase(methods, "single");
  Missed missed;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    count_missed(tight_random_problem(seed), methods, seed, missed);
    count_missed(tight_layers(seed), methods, seed, missed);
  }
  for (const auto& [method, count] : missed) EXPECT_EQ(count, 0) << method;
}

}  // namespace
}  // namespace kerf
