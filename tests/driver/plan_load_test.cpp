// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Splits of published problems are verified like any plan: searches that lie are planted.
#include "kerf/driver/plan_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "kerf/driver/refuse_unsound.h"
#include "kerf/driver/search_load.h"
#include "kerf/place/portfolio/load_methods.h"
#include "kerf/verify/verify_load.h"

namespace kerf {
namespace {

using place::LoadRequest;
using ::testing::AllOf;
using ::testing::HasSubstr;

// 0 -> 1 -> .. -> 5 on two accelerators of room for four nodes each, and a slow CPU.
LoadProblem small_load() {
  LoadProblem problem;
  for (int n = 0; n < 6; ++n) {
    LoadNode node;
    node.id = n;
    node.accelerator_time = 1 + n;
    node.cpu_time = 50;
    node.bytes = 1;
    node.transfer = 0.5;
    problem.nodes.push_back(node);
  }
  problem.successors = {{1}, {2}, {3}, {4}, {5}, {}};
  problem.num_accelerators = 2;
  problem.num_cpus = 1;
  problem.memory = 4;
  return problem;
}

LoadRequest request_for(Objective objective, bool serial = false) {
  LoadRequest request;
  request.objective = objective;
  request.serial = serial;
  request.options.time_budget = 0.05;
  return request;
}

template <class Lie>
std::optional<LoadPlan> lying(const LoadProblem& problem, const LoadRequest& request) {
  std::optional<LoadPlan> found = search_load(problem, request);
  Lie::tell(*found);
  return found;
}

struct Cheaper {
  static void tell(LoadPlan& plan) { plan.value *= 0.9; }
};
struct AllOnOne {
  static void tell(LoadPlan& plan) { plan.device.assign(plan.device.size(), SlotId{0}); }
};
struct LosesANode {
  static void tell(LoadPlan& plan) { plan.device.pop_back(); }
};

std::string refusal(const LoadRequest& request, LoadSearch search) {
  try {
    (void)plan(small_load(), request, search);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(ASplit, IsReturnedWhenItIsSound) {
  for (const bool serial : {false, true}) {
    for (const Objective objective : {Objective::throughput, Objective::latency}) {
      if (serial && objective != Objective::latency) continue;
      const auto outcome = plan(small_load(), request_for(objective, serial));
      ASSERT_TRUE(outcome);
      EXPECT_TRUE(verify_load_plan(small_load(), *outcome, serial).empty());
    }
  }
}

TEST(ASplit, OfASearchThatLiesIsNeverReturned) {
  for (const bool serial : {false, true}) {
    for (const Objective objective : {Objective::throughput, Objective::latency}) {
      if (serial && objective != Objective::latency) continue;
      const LoadRequest request = request_for(objective, serial);
      EXPECT_THAT(refusal(request, lying<Cheaper>),
                  AllOf(HasSubstr("method 'auto'"), HasSubstr("objective:")));
      EXPECT_THAT(refusal(request, lying<AllOnOne>), HasSubstr("limit:"));
      EXPECT_THAT(refusal(request, lying<LosesANode>), HasSubstr("coverage:"));
    }
  }
}

// A chain of which every sixth node runs on the CPU only: families that move those out of their
// stages leave splits behind that are not contiguous.
LoadProblem chain_with_cpu_nodes() {
  LoadProblem problem;
  problem.num_accelerators = 3;
  problem.num_cpus = 1;
  problem.memory = 1000;
  for (std::uint32_t n = 0; n < 30; ++n) {
    LoadNode node;
    node.id = n;
    node.accelerator_time = 1 + n % 3;
    node.cpu_time = 4 + n % 5;
    node.bytes = 1;
    node.transfer = 0.1;
    node.on_accelerator = n % 6 != 3;
    problem.nodes.push_back(node);
    problem.successors.emplace_back();
    if (n > 0) problem.successors[n - 1].push_back(n);
  }
  return problem;
}

TEST(ASplit, IsContiguousWhereThatIsAskedForOrThereIsNone) {
  int found = 0;
  for (const char* method :
       {"auto", "exact", "chain", "ideals", "multilevel", "acyclic", "pipedream"}) {
    LoadRequest request = request_for(Objective::throughput);
    request.method = method;
    request.contiguous = true;
    const auto outcome = plan(chain_with_cpu_nodes(), request);
    if (!outcome) continue;
    EXPECT_TRUE(outcome->contiguous) << method;
    ++found;
  }
  EXPECT_GE(found, 2);
}

TEST(ASplit, ThatIsNotContiguousAsAskedIsRefused) {
  LoadRequest request = request_for(Objective::throughput);
  LoadPlan split = *plan(small_load(), request);
  split.contiguous = false;
  request.contiguous = true;
  EXPECT_THROW(refuse_unsound(small_load(), split, request), Error);
}

TEST(ASplit, ThatWasTamperedWithIsRefused) {
  const LoadProblem problem = small_load();
  LoadPlan split = *plan(problem, request_for(Objective::throughput));
  EXPECT_NO_THROW(refuse_unsound(problem, split, {}));
  split.device[0] = problem.cpu();
  EXPECT_THROW(refuse_unsound(problem, split, {}), Error);
}

TEST(ASplit, ThatDoesNotExistHasAReason) {
  LoadProblem problem = small_load();
  problem.num_cpus = 0;
  problem.memory = 2;
  const auto outcome = plan(problem, request_for(Objective::throughput));
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.reason().message, HasSubstr("no split fits a memory of 2"));
}

}  // namespace
}  // namespace kerf
