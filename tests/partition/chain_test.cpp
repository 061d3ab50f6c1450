// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The method `chain` on hundreds of small random problems, against brute force over all contiguous
// splits and all orders of devices.
#include "kerf/partition/chain/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/lower/contiguous.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/registry/solve.h"
#include "tests/support/expect_verified.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

// What one device needs for everything: limits around it are sometimes enough.
Problem limited_problem(std::uint64_t seed, const RandomProblemOptions& options) {
  Problem problem = random_problem(seed, options);
  const auto single = partition::solve(problem, "single");
  limit_memory(problem, seed, single->memory[single->stages[0].device.index()].predicted);
  return problem;
}

double sum_of_loads(const Plan& plan) {
  double sum = 0;
  for (const DeviceLoad& load : plan.loads) sum += load.busy().count;
  return sum;
}

struct Best {
  double busiest = -1;  // -1: nothing fits
  double sum = 0;       // of all loads, among the splits that reach it
};

// All contiguous splits through make_plan and nothing of the planner's.
class BruteForce {
 public:
  enum class Orders : std::uint8_t { given, any };

  BruteForce(const Problem& problem, Orders orders)
      : problem_(problem),
        orders_(orders),
        cuttable_(problem.graph.num_nodes() + 1, true),
        used_(problem.cluster.num_devices()) {
    // Glue again, by definition: no group may have nodes on both sides.
    for (std::size_t cut = 0; cut < cuttable_.size(); ++cut) {
      for (const auto& group : problem.graph.glued()) {
        if (group.front().index() < cut && group.back().index() >= cut) cuttable_[cut] = false;
      }
    }
  }

  Best run() {
    extend();
    return best_;
  }

 private:
  void extend() {
    if (cuts_.back() == problem_.graph.num_nodes()) return consider();
    const std::size_t start = cuts_.back();
    const bool in_order = orders_ == Orders::given && !devices_.empty();
    for (std::size_t d = in_order ? devices_.back().index() + 1 : 0; d < used_.size(); ++d) {
      if (used_[d]) continue;
      used_[d] = true;
      devices_.emplace_back(d);
      for (std::size_t end = start + 1; end < cuttable_.size(); ++end) {
        if (!cuttable_[end]) continue;
        cuts_.push_back(end);
        extend();
        cuts_.pop_back();
      }
      devices_.pop_back();
      used_[d] = false;
    }
  }

  void consider() {
    const Plan plan = make_plan(problem_, partition::intervals(cuts_), devices_, "brute");
    if (find_overflow(plan)) return;
    const double sum = sum_of_loads(plan);
    const bool equal = best_.busiest >= 0 && std::abs(plan.busiest.count - best_.busiest) < 1e-6;
    if (best_.busiest < 0 || (!equal && plan.busiest.count < best_.busiest)) {
      best_ = {plan.busiest.count, sum};
    } else if (equal) {
      best_.sum = std::min(best_.sum, sum);
    }
  }

  const Problem& problem_;
  Orders orders_;
  std::vector<bool> cuttable_;
  std::vector<bool> used_;
  std::vector<std::size_t> cuts_{0};
  std::vector<DeviceId> devices_;
  Best best_;
};

using Orders = BruteForce::Orders;

struct Count {
  int infeasible = 0;
  int reordered = 0;  // another order than the one given
};

bool in_given_order(const Plan& plan) {
  const std::vector<DeviceId> devices = plan.stage_devices();
  return std::is_sorted(devices.begin(), devices.end());
}

void expect_sound(const Problem& problem, const Plan& plan, std::uint64_t seed) {
  expect_verified(problem, plan, seed);
  EXPECT_TRUE(plan.contiguous);
  EXPECT_FALSE(plan.lower_bound.argument.empty());
  for (const LowerBound& bound : partition::lower_bounds(problem)) {
    EXPECT_LE(bound.value, plan.busiest.count * (1 + 1e-9)) << seed << bound.name;
  }
}

enum class Criteria : std::uint8_t { busiest, busiest_and_sum };

void expect_best(const Problem& problem, Orders orders, Criteria criteria, std::uint64_t seed,
                 Count& count) {
  const Best best = BruteForce(problem, orders).run();
  const auto outcome = orders == Orders::given ? partition::chain_in_order(problem, {})
                                               : partition::chain(problem, {});
  ASSERT_EQ(static_cast<bool>(outcome), best.busiest >= 0) << "seed " << seed;
  if (!outcome) {
    ++count.infeasible;
    EXPECT_GT(outcome.reason().short_by, Bytes{0});
    return;
  }
  expect_sound(problem, *outcome, seed);
  EXPECT_FALSE(outcome->truncated);
  EXPECT_NEAR(outcome->busiest.count, best.busiest, 1e-6) << "seed " << seed;
  if (criteria == Criteria::busiest_and_sum) {
    EXPECT_NEAR(sum_of_loads(*outcome), best.sum, 1e-6) << "seed " << seed;
  }
  count.reordered += in_given_order(*outcome) ? 0 : 1;
}

TEST(ChainInOrder, IsTheBestContiguousSplit) {
  Count count;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Problem problem = limited_problem(
        seed, {.graph = {.num_nodes = 12, .decorate = false}, .num_devices = 1 + seed % 3});
    expect_best(problem, Orders::given, Criteria::busiest_and_sum, seed, count);
  }
  EXPECT_GT(count.infeasible, 30);
  EXPECT_LT(count.infeasible, 200);
  EXPECT_EQ(count.reordered, 0);
}

TEST(ChainInOrder, IsTheBestContiguousSplitOverUnequalLinksAndSharedMemories) {
  Count count;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Problem problem = limited_problem(seed, {.graph = {.num_nodes = 10, .decorate = false},
                                                   .num_devices = 3,
                                                   .equal_links = seed % 2 == 0,
                                                   .shared_memory = seed % 3 != 0});
    expect_best(problem, Orders::given, Criteria::busiest, seed, count);
  }
  EXPECT_GT(count.infeasible, 10);
}

TEST(Chain, IsTheBestContiguousSplitInAnyOrder) {
  Count count;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Problem problem = limited_problem(
        seed, {.graph = {.num_nodes = 10, .decorate = false}, .num_devices = 1 + seed % 3});
    expect_best(problem, Orders::any, Criteria::busiest_and_sum, seed, count);
  }
  EXPECT_GT(count.infeasible, 30);
  EXPECT_LT(count.infeasible, 200);
  EXPECT_GT(count.reordered, 30);
}

// More devices than speeds: classes of several.
TEST(Chain, IsTheBestContiguousSplitOfClassesOfDevices) {
  Count count;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Problem problem = limited_problem(
        seed, {.graph = {.num_nodes = 7, .decorate = false}, .num_devices = 4 + seed % 2});
    expect_best(problem, Orders::any, Criteria::busiest_and_sum, seed, count);
  }
  EXPECT_GT(count.reordered, 10);
}

TEST(Chain, IsTheBestContiguousSplitInAnyOrderOverUnequalLinksAndSharedMemories) {
  Count count;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Problem problem = limited_problem(seed, {.graph = {.num_nodes = 9, .decorate = false},
                                                   .num_devices = 2 + seed % 5 / 2,
                                                   .equal_links = seed % 2 == 0,
                                                   .shared_memory = seed % 3 != 0});
    expect_best(problem, Orders::any, Criteria::busiest, seed, count);
  }
  EXPECT_GT(count.infeasible, 10);
  EXPECT_GT(count.reordered, 30);
}

// Makers pay, host devices do not, or only what takes longer than the compute counts.
TEST(Chain, IsTheBestContiguousSplitUnderEveryCommunicationModel) {
  for (const CommModel model : {CommModel::host_staged, CommModel::overlapped}) {
    for (const Orders orders : {Orders::given, Orders::any}) {
      Count count;
      for (std::uint64_t seed = 0; seed < 120; ++seed) {
        Problem problem = limited_problem(seed, {.graph = {.num_nodes = 9, .decorate = false},
                                                 .num_devices = 2 + seed % 2,
                                                 .equal_links = seed % 4 < 2,
                                                 .shared_memory = seed % 5 == 0});
        problem.comm_model = model;
        problem.cluster.devices[seed % 3 % problem.cluster.num_devices()].host = seed % 7 < 3;
        const bool exact = seed % 4 < 2 && seed % 5 != 0 &&
                           (problem.comm_model != CommModel::overlapped || seed % 2 == 0);
        expect_best(problem, orders, exact ? Criteria::busiest_and_sum : Criteria::busiest, seed,
                    count);
      }
      EXPECT_GT(count.infeasible, 5);
      if (orders == Orders::any) {
        EXPECT_GT(count.reordered, 20);
      }
    }
  }
}

// Large enough for the coarse split that caps the search to come into play.
TEST(Chain, IsTheBestContiguousSplitOfLongGraphs) {
  for (const Orders orders : {Orders::given, Orders::any}) {
    Count count;
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      const Problem problem = limited_problem(
          seed,
          {.graph = {.num_nodes = 270 + 10 * seed, .writes = seed % 4 == 0, .decorate = false},
           .num_devices = 2,
           .shared_memory = seed % 4 == 3});
      expect_best(problem, orders, seed % 4 == 3 ? Criteria::busiest : Criteria::busiest_and_sum,
                  seed, count);
    }
    EXPECT_GT(count.infeasible, 0);
    EXPECT_LT(count.infeasible, 12);
  }
}

// Raising every limit by what was said to be short makes the problem feasible; less does not.
TEST(Chain, SaysExactlyHowMuchMemoryIsShort) {
  int tried = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Problem problem = limited_problem(seed, {.graph = {.num_nodes = 12, .decorate = false}});
    const auto outcome = partition::solve(problem, "chain");
    if (outcome) continue;
    ++tried;
    const Infeasible& reason = outcome.reason();
    EXPECT_EQ(reason.needed - reason.limit, reason.short_by);
    EXPECT_EQ(problem.cluster.device(reason.tightest).name, reason.device);
    EXPECT_THAT(reason.message(), ::testing::HasSubstr(reason.device));
    const auto raised = [&](Bytes by) {
      Problem other = problem;
      for (Device& device : other.cluster.devices) device.memory += by;
      return static_cast<bool>(partition::solve(other, "chain"));
    };
    EXPECT_TRUE(raised(reason.short_by)) << seed;
    EXPECT_FALSE(raised(reason.short_by - Bytes{1})) << seed;
  }
  EXPECT_GT(tried, 20);
}

TEST(Chain, KeepsTheOrderGivenWhereDevicesAreEqual) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Problem problem = random_problem(seed, {.num_devices = 4});
    const auto single = partition::solve(problem, "single");
    const bool share = seed % 3 == 0;
    for (Device& device : problem.cluster.devices) {
      device.speed = 2;
      device.memory =
          Bytes{1 + single->memory[single->stages[0].device.index()].predicted.count * 4 / 5};
      device.memory_limited = seed % 2 == 0;
      if (share) device.memory_group = 0;
    }
    const auto any = partition::chain(problem, {});
    const auto given = partition::chain_in_order(problem, {});
    ASSERT_EQ(static_cast<bool>(any), static_cast<bool>(given));
    if (any) {
      EXPECT_EQ(print_plan(*any), print_plan(*given)) << seed;
    } else {
      EXPECT_EQ(any.reason().message(), given.reason().message());
    }
  }
}

TEST(Chain, KeepsTheOrderGivenWhereNoOtherIsBetter) {
  int kept = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Problem problem = limited_problem(seed, {.graph = {.num_nodes = 10, .decorate = false}});
    const auto given = partition::chain_in_order(problem, {});
    const auto any = partition::chain(problem, {});
    if (!given) continue;
    const bool equal = std::abs(any->busiest.count - given->busiest.count) < 1e-6 &&
                       std::abs(sum_of_loads(*any) - sum_of_loads(*given)) < 1e-6;
    if (!equal) continue;
    ++kept;
    EXPECT_EQ(print_plan(*any), print_plan(*given)) << seed;
  }
  EXPECT_GT(kept, 20);
}

// The only order in which both halves fit is the other one.
TEST(Chain, PutsTheLargeMemoryWhereItIsNeeded) {
  int tried = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Problem problem = limited_problem(seed, {.num_devices = 2});
    const auto given = partition::chain_in_order(problem, {});
    const auto any = partition::chain(problem, {});
    if (given || !any) continue;
    ++tried;
    expect_sound(problem, *any, seed);
    EXPECT_FALSE(in_given_order(*any)) << seed;
  }
  EXPECT_GT(tried, 3);
}

// Where not every order can be tried the answer is sound, marked, and no worse than in order.
void expect_no_worse(const Problem& problem, const partition::Options& options, std::uint64_t seed,
                     int& better, int& truncated) {
  const auto given = partition::chain_in_order(problem, options);
  const auto any = partition::chain(problem, options);
  if (!any) {
    EXPECT_FALSE(given) << seed;
    return;
  }
  expect_sound(problem, *any, seed);
  truncated += any->truncated ? 1 : 0;
  if (given) {
    EXPECT_LE(any->busiest.count, given->busiest.count * (1 + 1e-9)) << seed;
  }
  better += !given || any->busiest.count < given->busiest.count * (1 - 1e-9) ? 1 : 0;
}

TEST(Chain, IsNoWorseThanInOrderWithManyDevicesThatAllDiffer) {
  int better = 0;
  int truncated = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Problem problem =
        limited_problem(seed, {.graph = {.num_nodes = 100, .writes = false, .decorate = false},
                               .num_devices = 30,
                               .equal_links = seed % 2 == 0,
                               .shared_memory = seed % 4 == 1});
    Rng rng(seed);
    for (Device& device : problem.cluster.devices) device.speed = 0.5 + rng.uniform();
    expect_no_worse(problem, {.work_limit = 20'000}, seed, better, truncated);
  }
  EXPECT_GT(truncated, 6);
  EXPECT_GT(better, 3);
}

TEST(Chain, IsNoWorseThanInOrderWhenTheSearchIsStopped) {
  int better = 0;
  int truncated = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Problem problem = limited_problem(seed, {.graph = {.num_nodes = 16, .decorate = false},
                                                   .num_devices = 4,
                                                   .equal_links = false,
                                                   .shared_memory = seed % 2 == 0});
    expect_no_worse(problem, {.work_limit = 100}, seed, better, truncated);
  }
  EXPECT_GT(truncated, 20);
  EXPECT_GT(better, 20);
}

}  // namespace
}  // namespace kerf
