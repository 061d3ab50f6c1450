// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The contiguous search against all assignments of small problems, against the published values,
// and on graphs with many ideals.
#include "kerf/place/ideals/ideals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kerf/base/infinity.h"
#include "kerf/base/rng.h"
#include "kerf/base/step_clock.h"
#include "kerf/ingest/dnn_partitioning.h"
#include "kerf/place/ideals/decide.h"
#include "kerf/place/lower_load.h"
#include "tests/support/ids.h"
#include "tests/support/published.h"

namespace kerf {
namespace {

using place::find_chain;
using place::find_contiguous;
using place::IdealAnswer;
using place::IdealLimits;
using place::LoadAnswer;

// Small numbers: many ties, and some zeros.
LoadNode random_node(Rng& rng) {
  LoadNode node;
  if (rng.below(4) > 0) {
    node.accelerator_time = static_cast<double>(1 + rng.below(9));
    node.cpu_time = node.accelerator_time * static_cast<double>(1 + rng.below(6));
  }
  node.bytes = static_cast<double>(rng.below(5));
  node.transfer = static_cast<double>(rng.below(8)) * (rng.below(2) == 0 ? 1.0 : 0.25);
  node.on_accelerator = rng.below(12) > 0;
  return node;
}

void connect(LoadProblem& problem, std::uint32_t from, std::uint32_t to) {
  auto& list = problem.successors[from];
  if (std::find(list.begin(), list.end(), to) != list.end()) return;
  list.push_back(to);
  std::sort(list.begin(), list.end());
}

// Each backward node mirrors a forward one, or has no mate (an orphan).
void add_backward(LoadProblem& problem, Rng& rng) {
  const auto num_forward = static_cast<std::uint32_t>(problem.nodes.size());
  std::vector<std::uint32_t> mirrored;
  for (std::uint32_t n = num_forward; n-- > 0;) {
    LoadNode node = random_node(rng);
    node.backward = true;
    if (rng.below(5) > 0) {
      if (problem.nodes[n].colour == LoadNode::kNoColour) problem.nodes[n].colour = 100 + n;
      node.colour = problem.nodes[n].colour;
    }
    const auto number = static_cast<std::uint32_t>(problem.nodes.size());
    problem.nodes.push_back(node);
    problem.successors.emplace_back();
    for (const std::uint32_t earlier : mirrored) {
      if (rng.below(3) == 0) connect(problem, earlier, number);
    }
    if (rng.below(3) == 0) connect(problem, n, number);
    mirrored.push_back(number);
  }
}

LoadProblem random_problem(std::uint64_t seed) {
  Rng rng(seed);
  LoadProblem problem;
  const bool training = rng.below(2) == 0;
  const std::uint64_t size = training ? 2 + rng.below(3) : 2 + rng.below(6);
  const std::uint64_t density = 1 + rng.below(3);
  for (std::uint32_t n = 0; n < size; ++n) {
    problem.nodes.push_back(random_node(rng));
    problem.successors.emplace_back();
    if (rng.below(4) == 0) problem.nodes[n].colour = static_cast<std::int64_t>(rng.below(3));
    for (std::uint32_t before = 0; before < n; ++before) {
      if (rng.below(4) < density) connect(problem, before, n);
    }
  }
  if (training) add_backward(problem, rng);
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    problem.nodes[n].id = static_cast<std::int64_t>(n);
  }
  problem.num_accelerators = static_cast<int>(1 + rng.below(3));
  problem.num_cpus = rng.below(4) > 0 ? 1 : 0;
  if (problem.num_cpus == 0) {
    for (LoadNode& node : problem.nodes) node.on_accelerator = true;
  }
  problem.memory = rng.below(2) == 0 ? 1000 : static_cast<double>(4 + rng.below(8));
  return problem;
}

// Receivers that pay alone, accelerators that differ in speed, in memory, in both, or not at all, a
// CPU that runs out of memory: each drawn for itself.
void vary(LoadProblem& problem, std::uint64_t seed) {
  Rng rng(seed + 1'000'000);
  if (rng.below(2) == 0) problem.charging = Charging::link;
  const std::array<double, 4> slow = {1, 1, 1.5, 4};
  const bool unequal_times = rng.below(3) > 0;
  const bool unequal_memories = rng.below(2) == 0;
  double bytes = 0;
  for (const LoadNode& node : problem.nodes) bytes += node.bytes;
  if (rng.below(2) == 0) problem.memory = bytes * (0.4 + 0.4 * rng.uniform());
  for (int a = 0; a < problem.num_accelerators; ++a) {
    if (unequal_times) problem.slowness.push_back(slow[rng.below(slow.size())]);
    if (unequal_memories) {
      problem.memories.push_back(problem.memory * (rng.below(2) == 0 ? 1 : 0.5));
    }
  }
  if (unequal_memories) {
    problem.memory = *std::max_element(problem.memories.begin(), problem.memories.end());
  }
  if (rng.below(3) == 0) problem.cpu_memory = bytes * 0.5 * rng.uniform();
}

// Edges among units that a chain of ideals may not run against.
PairsOf<UnitId, UnitId> order_of(const LoadProblem& problem, const place::LoweredLoad& units) {
  std::vector<bool> orphan(units.instance.num_units(), true);
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    if (!problem.nodes[n].backward) orphan[units.unit_of[n]] = false;
  }
  PairsOf<UnitId, UnitId> out;
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    for (const std::uint32_t to : problem.successors[n]) {
      const UnitId a = units.unit_of[n];
      const UnitId b = units.unit_of[to];
      if (!problem.nodes[n].backward && !problem.nodes[to].backward) out.emplace_back(a, b);
      const bool both = problem.nodes[n].backward && problem.nodes[to].backward;
      if (both && (orphan[a] || orphan[b])) out.emplace_back(b, a);
    }
  }
  return out;
}

// Devices can be put in a row that no edge runs against: take away one without a predecessor.
bool has_row(const PairsOf<UnitId, UnitId>& order, const std::vector<SlotId>& device,
             std::size_t num_devices) {
  std::vector<bool> gone(num_devices, false);
  for (std::size_t round = 0; round < num_devices; ++round) {
    std::vector<bool> waits(num_devices, false);
    for (const auto& [a, b] : order) {
      if (device[a] != device[b] && !gone[device[a]]) waits[device[b]] = true;
    }
    for (std::size_t d = 0; d < num_devices; ++d) gone[d] = gone[d] || !waits[d];
  }
  return std::find(gone.begin(), gone.end(), false) == gone.end();
}

double least_of_all(const LoadProblem& problem) {
  const place::LoweredLoad lowered = place::lower_load(problem);
  const place::Instance& units = lowered.instance;
  const auto order = order_of(problem, lowered);
  const std::size_t num_devices = problem.num_devices();
  std::vector<SlotId> device(units.num_units(), 0_slot);
  double best = kInfinity;
  do {
    bool allowed = has_row(order, device, num_devices);
    for (std::size_t u = 0; u < device.size(); ++u) {
      allowed = allowed && (units.on_accelerator[u] != 0 || device[u] == units.cpu);
    }
    if (allowed) {
      const Loads loads = find_loads(problem, lowered.to_nodes(device));
      if (loads.fits) best = std::min(best, loads.busiest);
    }
  } while (next_split(device, num_devices));
  return best;
}

void expect_valid(const LoadProblem& problem, const LoadAnswer& answer) {
  const place::LoweredLoad lowered = place::lower_load(problem);
  const place::Instance& units = lowered.instance;
  ASSERT_EQ(answer.device.size(), units.num_units());
  EXPECT_TRUE(has_row(order_of(problem, lowered), answer.device, problem.num_devices()));
  const Loads loads = find_loads(problem, lowered.to_nodes(answer.device));
  EXPECT_TRUE(loads.fits);
  EXPECT_NEAR(loads.busiest, answer.objective, 1e-9 * (1 + loads.busiest));
  for (std::size_t u = 0; u < units.num_units(); ++u) {
    EXPECT_TRUE(units.on_accelerator[u] != 0 || answer.device[u] == units.cpu);
  }
}

TEST(TheContiguousSearch, EqualsTheBestOfAllAssignments) {
  int infeasible = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(seed);
    const LoadProblem problem = random_problem(seed);
    const IdealAnswer answer = find_contiguous(place::to_instance(problem), {});
    ASSERT_TRUE(answer.optimal);
    const double best = least_of_all(problem);
    if (best == kInfinity) {
      ++infeasible;
      EXPECT_TRUE(answer.device.empty());
      continue;
    }
    expect_valid(problem, answer);
    ASSERT_NEAR(answer.objective, best, 1e-9 * (1 + best));
  }
  EXPECT_GT(infeasible, 10);
  EXPECT_LT(infeasible, 1000);
}

// A split of an order is contiguous too: never better than the best of these.
void expect_no_better(const LoadProblem& problem, const LoadAnswer& chain, double best) {
  EXPECT_TRUE(chain.optimal);
  if (chain.device.empty()) return;
  expect_valid(problem, chain);
  EXPECT_GE(chain.objective, best * (1 - 1e-8));
}

// Without first answers: there is a plan just above the best load, and none below it.
void expect_decides(const LoadProblem& problem, double best) {
  namespace ideals = place::ideals;
  StepClock clock(60);
  const ideals::Groups groups(place::to_instance(problem));
  const auto lattice = ideals::Lattice::build(groups, 100'000, 1'000'000, clock);
  ASSERT_TRUE(lattice);
  ideals::Decision decision(groups, *lattice, 1'000'000, clock);
  EXPECT_NEAR(decision.find_below(best * (1 + 1e-7) + 1e-9).load, best, 2e-7 * (1 + best));
  EXPECT_EQ(decision.find_below(best * (1 - 1e-7)).load, kInfinity);
}

TEST(TheContiguousSearch, EqualsTheBestOfAllAssignmentsToUnequalDevices) {
  int infeasible = 0;
  int links = 0;
  int unequal = 0;
  int chains_as_good = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    LoadProblem problem = random_problem(seed);
    vary(problem, seed);
    const IdealAnswer answer = find_contiguous(place::to_instance(problem), {});
    ASSERT_TRUE(answer.optimal);
    const LoadAnswer chain = find_chain(place::to_instance(problem), {});
    const double best = least_of_all(problem);
    if (best == kInfinity) {
      ++infeasible;
      EXPECT_TRUE(answer.device.empty());
      EXPECT_TRUE(chain.device.empty());
      continue;
    }
    expect_valid(problem, answer);
    ASSERT_NEAR(answer.objective, best, 1e-9 * (1 + best));
    expect_no_better(problem, chain, best);
    expect_decides(problem, best);
    links += problem.charging == Charging::link ? 1 : 0;
    unequal += problem.slowness.empty() && problem.memories.empty() ? 0 : 1;
    chains_as_good += chain.objective <= best * (1 + 1e-8) ? 1 : 0;
  }
  EXPECT_GT(infeasible, 100);
  EXPECT_GT(links, 500);
  EXPECT_GT(unequal, 500);
  EXPECT_GT(chains_as_good, 1000);
}

// A few more units: value[ideal][devices used] over all pairs of ideals, sets as bits.
class AllPairs {
 public:
  explicit AllPairs(const LoadProblem& problem)
      : units_(place::to_instance(problem)), order_(order_of(problem, place::lower_load(problem))) {
    const std::uint32_t all = (1U << units_.num_units()) - 1;
    for (std::uint32_t set = 0; set <= all; ++set) {
      if (is_ideal(set)) ideals_.push_back(set);
    }
  }
  double best() const {
    const std::size_t num_devices = units_.num_devices;
    const std::uint32_t choices = 1U << num_devices;
    std::vector<std::vector<double>> value(ideals_.size(), std::vector<double>(choices, kInfinity));
    value[0][0] = 0;
    for (std::size_t from = 0; from < ideals_.size(); ++from) {
      for (std::size_t to = from + 1; to < ideals_.size(); ++to) {
        if ((ideals_[from] & ~ideals_[to]) != 0) continue;
        const std::uint32_t stage = ideals_[to] & ~ideals_[from];
        for (SlotId d{0}; d < num_devices; ++d) {
          const double stage_load = load(stage, d);
          if (stage_load == kInfinity) continue;
          for (std::uint32_t used = 0; used < choices; ++used) {
            if ((used >> d & 1) == 1) continue;
            double& next = value[to][used | 1U << d];
            next = std::min(next, std::max(value[from][used], stage_load));
          }
        }
      }
    }
    return *std::min_element(value.back().begin(), value.back().end());
  }

 private:
  bool is_ideal(std::uint32_t set) const {
    return std::all_of(order_.begin(), order_.end(), [&](const auto& edge) {
      return (set >> edge.second & 1) == 0 || (set >> edge.first & 1) == 1;
    });
  }
  double load(std::uint32_t stage, SlotId device) const {
    const bool is_cpu = device == units_.cpu;
    double load = 0;
    double bytes = 0;
    for (UnitId u{0}; u < units_.num_units(); ++u) {
      if ((stage >> u & 1) == 0) continue;
      if (!is_cpu && units_.on_accelerator[u] == 0) return kInfinity;
      load += units_.time(u, device);
      bytes += units_.bytes[u];
    }
    if (bytes > units_.memory[device]) return kInfinity;
    for (NetId net{0}; net < units_.num_nets(); ++net) {
      std::size_t inside = 0;
      for (const UnitId unit : units_.pins[net]) inside += stage >> unit & 1;
      const bool is_cut = inside > 0 && inside < units_.pins[net].size();
      const bool is_made_inside = (stage >> units_.source[net] & 1) == 1;
      const bool is_free = units_.charging == Charging::link ? is_made_inside : is_cpu;
      if (is_cut && !is_free) load += units_.cost[net];
    }
    return load;
  }

  place::Instance units_;
  PairsOf<UnitId, UnitId> order_;
  std::vector<std::uint32_t> ideals_;
};

// Layers in a few branches, tensors expensive or cheap, backward mates for half of the problems.
LoadProblem branched_problem(std::uint64_t seed) {
  Rng rng(seed);
  LoadProblem problem;
  problem.num_accelerators = static_cast<int>(2 + rng.below(3));
  problem.num_cpus = rng.below(4) > 0 ? 1 : 0;
  const auto size = static_cast<std::uint32_t>(9 + rng.below(5));
  const double expensive = std::pow(4.0, static_cast<double>(rng.below(5)) - 2);
  const bool training = rng.below(2) == 0;
  problem.nodes.resize(training ? 2 * size : size);
  problem.successors.resize(problem.nodes.size());
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    LoadNode& node = problem.nodes[n];
    node.id = n;
    node.accelerator_time = rng.uniform();
    node.cpu_time = node.accelerator_time * (1 + 9 * rng.uniform());
    node.bytes = rng.uniform();
    node.transfer = expensive * rng.uniform();
    node.backward = n >= size;
    node.colour = n % size;
  }
  for (std::uint32_t n = 1; n < size; ++n) {
    for (std::uint64_t edges = 1 + rng.below(2); edges > 0; --edges) {
      const std::uint64_t reach = std::min<std::uint64_t>(n, 3 + rng.below(8));
      const std::uint32_t from = n - 1 - static_cast<std::uint32_t>(rng.below(reach));
      connect(problem, from, n);
      if (training) connect(problem, size + n, size + from);
    }
    if (training && rng.below(2) == 0) connect(problem, n, size + n);
  }
  problem.memory = rng.below(2) == 0 ? 1e9 : (training ? 9.0 : 4.5);
  return problem;
}

TEST(TheContiguousSearch, EqualsAPlainSearchOfAllPairs) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    const LoadProblem problem = branched_problem(seed);
    const IdealAnswer answer = find_contiguous(place::to_instance(problem), {});
    ASSERT_TRUE(answer.optimal);
    const double best = AllPairs(problem).best();
    if (best == kInfinity) {
      EXPECT_TRUE(answer.device.empty());
      continue;
    }
    expect_valid(problem, answer);
    ASSERT_NEAR(answer.objective, best, 1e-8 * best);
    ++compared;
  }
  EXPECT_GE(compared, 75);
}

TEST(TheContiguousSearch, EqualsAPlainSearchOfAllPairsForUnequalDevices) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    LoadProblem problem = branched_problem(seed);
    vary(problem, seed);
    const IdealAnswer answer = find_contiguous(place::to_instance(problem), {});
    ASSERT_TRUE(answer.optimal);
    const double best = AllPairs(problem).best();
    if (best == kInfinity) {
      EXPECT_TRUE(answer.device.empty());
      continue;
    }
    expect_valid(problem, answer);
    ASSERT_NEAR(answer.objective, best, 1e-8 * best);
    ++compared;
    expect_no_better(problem, find_chain(place::to_instance(problem), {}), best);
    expect_decides(problem, best);
  }
  EXPECT_GE(compared, 75);
}

// Modules of parallel branches one after the other, each branch a row of layers.
LoadProblem inception(int num_modules, const std::vector<int>& branches, double transfer,
                      std::uint64_t seed) {
  Rng rng(seed);
  LoadProblem problem;
  problem.num_accelerators = 6;
  problem.memory = 1e9;
  const auto add = [&](double time, double bytes_out) {
    LoadNode node;
    node.id = static_cast<std::int64_t>(problem.nodes.size());
    node.accelerator_time = time;
    node.cpu_time = 10 * time;
    node.transfer = transfer * bytes_out;
    problem.nodes.push_back(node);
    problem.successors.emplace_back();
    return static_cast<std::uint32_t>(problem.nodes.size() - 1);
  };
  std::uint32_t last = add(1, 1);
  for (int module = 0; module < num_modules; ++module) {
    std::vector<std::uint32_t> ends;
    for (const int length : branches) {
      std::uint32_t at = last;
      for (int layer = 0; layer < length; ++layer) {
        const std::uint32_t next = add(0.2 + rng.uniform(), 0.2 + 0.3 * rng.uniform());
        connect(problem, at, next);
        at = next;
      }
      ends.push_back(at);
    }
    last = add(0.3, 1);
    for (const std::uint32_t end : ends) connect(problem, end, last);
  }
  return problem;
}

TEST(TheContiguousSearch, AvoidsThePairsOfManyIdeals) {
  for (const double transfer : {0.001, 1.0, 10.0}) {
    const LoadProblem problem = inception(9, {3, 6, 10, 10}, transfer, 3);
    place::LoadOptions options;
    options.time_budget = 60;
    const IdealAnswer answer = find_contiguous(place::to_instance(problem), options);
    EXPECT_TRUE(answer.optimal);
    EXPECT_GE(answer.num_ideals, 30000U);
    expect_valid(problem, answer);
    // There are more than four hundred million pairs.
    EXPECT_LT(answer.work, 60'000'000);
  }
}

TEST(TheContiguousSearch, SaysWhenThereAreTooManyIdeals) {
  const LoadProblem problem = inception(4, {5, 5, 5, 5}, 1, 5);
  const IdealAnswer answer =
      find_contiguous(place::to_instance(problem), {}, IdealLimits{1000, 1'000'000});
  EXPECT_TRUE(answer.truncated);
  EXPECT_FALSE(answer.optimal);
  EXPECT_EQ(answer.num_ideals, 0U);
  expect_valid(problem, answer);
  EXPECT_GE(answer.objective,
            find_contiguous(place::to_instance(problem), {}).objective * (1 - 1e-9));
}

TEST(TheContiguousSearch, AnswersWithTheBestSoFarWhenTimeIsUp) {
  const LoadProblem problem = inception(9, {3, 6, 10, 10}, 1, 3);
  place::LoadOptions options;
  options.time_budget = 0;
  const IdealAnswer answer = find_contiguous(place::to_instance(problem), options);
  EXPECT_TRUE(answer.truncated);
  EXPECT_FALSE(answer.optimal);
  expect_valid(problem, answer);
}

TEST(TheContiguousSearch, StopsAtABoundThatIsMet) {
  const LoadProblem problem = inception(5, {2, 4, 5}, 2, 7);
  const IdealAnswer best = find_contiguous(place::to_instance(problem), {});
  place::LoadOptions options;
  options.good_enough = best.objective;
  const IdealAnswer again = find_contiguous(place::to_instance(problem), options);
  EXPECT_TRUE(again.optimal);
  EXPECT_NEAR(again.objective, best.objective, 1e-8 * best.objective);
  EXPECT_LT(again.work, best.work);
}

TEST(TheContiguousSearch, AnswersForNothing) {
  LoadProblem nothing;
  const IdealAnswer answer = find_contiguous(place::to_instance(nothing), {});
  EXPECT_TRUE(answer.optimal);
  EXPECT_EQ(answer.objective, 0);
}

// Six thousand layers in blocks of two branches, for eight accelerators.
TEST(TheContiguousSearch, CutsALongChain) {
  LoadProblem problem = inception(1025, {1, 4}, 1, 9);
  problem.num_accelerators = 8;
  const IdealAnswer answer = find_contiguous(place::to_instance(problem), {.time_budget = 60});
  EXPECT_TRUE(answer.optimal);
  EXPECT_EQ(problem.nodes.size(), 6151U);
  expect_valid(problem, answer);
  EXPECT_LT(answer.work, 40'000'000);
}

TEST(TheContiguousSearch, AnswersTheSameForTheSameSeed) {
  const LoadProblem problem = inception(5, {2, 4, 5}, 2, 7);
  place::LoadOptions options;
  options.seed = 11;
  const IdealAnswer one = find_contiguous(place::to_instance(problem), options);
  options.threads = 2;
  EXPECT_EQ(one.device, find_contiguous(place::to_instance(problem), options).device);
}

// Two fast accelerators with little memory, two slow ones with much, one that is both bad.
LoadProblem mixed_inception() {
  LoadProblem problem = inception(7, {2, 4, 5}, 1, 7);
  for (LoadNode& node : problem.nodes) node.bytes = 1;
  problem.num_accelerators = 5;
  problem.slowness = {1, 2, 1, 2, 3};
  problem.memories = {20, 60, 20, 60, 15};
  problem.memory = 60;
  return problem;
}

TEST(TheContiguousSearch, MixesAcceleratorsInAnyOrder) {
  LoadProblem problem = mixed_inception();
  for (const Charging charging : {Charging::host_staged, Charging::link}) {
    problem.charging = charging;
    const IdealAnswer answer = find_contiguous(place::to_instance(problem), {.time_budget = 60});
    EXPECT_TRUE(answer.optimal);
    expect_valid(problem, answer);
    // Numbers are names: with the devices turned round the value stays.
    LoadProblem turned = problem;
    std::reverse(turned.slowness.begin(), turned.slowness.end());
    std::reverse(turned.memories.begin(), turned.memories.end());
    const IdealAnswer again = find_contiguous(place::to_instance(turned), {.time_budget = 60});
    EXPECT_NEAR(again.objective, answer.objective, 1e-8 * answer.objective);
    // Each as fast as the fastest and as large as the largest is no worse; each as bad as the worst
    // is no better.
    LoadProblem better = problem;
    better.slowness.clear();
    better.memories.clear();
    EXPECT_LE(find_contiguous(place::to_instance(better), {}).objective,
              answer.objective * (1 + 1e-8));
    LoadProblem worse = problem;
    worse.slowness.assign(5, 3);
    EXPECT_GE(find_contiguous(place::to_instance(worse), {}).objective,
              answer.objective * (1 - 1e-8));
  }
}

// A small fast accelerator holds x, a large slow one y; both could hold x, so neither is better.
TEST(TheContiguousSearch, KeepsTheLargeDeviceForWhatFitsNoOther) {
  LoadProblem problem;
  problem.num_accelerators = 2;
  problem.num_cpus = 0;
  problem.slowness = {1, 2};
  problem.memories = {2, 10};
  problem.memory = 10;
  problem.nodes = {{.id = 0, .accelerator_time = 1, .bytes = 1},
                   {.id = 1, .accelerator_time = 1, .bytes = 5}};
  problem.successors = {{1}, {}};
  expect_decides(problem, 2);
  EXPECT_EQ(find_contiguous(place::to_instance(problem), {}).device, slots({0, 1}));
}

// What x makes in no time is read by y and by z, which is as expensive to bring it to as all else:
// x belongs to z, though its only neighbour in the order is y.
TEST(TheContiguousSearch, LeavesTheMakerOfATensorWithItsDearestReader) {
  LoadProblem problem;
  problem.num_accelerators = 2;
  problem.num_cpus = 0;
  problem.charging = Charging::link;
  problem.memory = 1;
  problem.nodes = {{.id = 0, .transfer = 10},
                   {.id = 1, .accelerator_time = 5},
                   {.id = 2, .accelerator_time = 15, .backward = true}};
  problem.successors = {{1, 2}, {}, {}};
  const IdealAnswer answer = find_contiguous(place::to_instance(problem), {});
  EXPECT_EQ(answer.objective, 15);
  EXPECT_EQ(least_of_all(problem), 15);
}

TEST(TheContiguousSearch, SaysWhenThereAreTooManyChoicesOfDevices) {
  LoadProblem problem = inception(7, {2, 4, 5}, 0.1, 7);
  problem.num_accelerators = 24;
  for (int a = 0; a < 24; ++a) problem.slowness.push_back(1 + 0.1 * a);
  const IdealAnswer answer = find_contiguous(place::to_instance(problem), {.time_budget = 60});
  EXPECT_TRUE(answer.truncated);
  EXPECT_FALSE(answer.optimal);
  expect_valid(problem, answer);
  const LoadAnswer chain = find_chain(place::to_instance(problem), {.time_budget = 60});
  EXPECT_TRUE(chain.truncated);
  expect_valid(problem, chain);
}

TEST(TheContiguousSearch, AnswersTheSameForUnequalDevicesOnAnyNumberOfThreads) {
  const LoadProblem problem = mixed_inception();
  const IdealAnswer one =
      find_contiguous(place::to_instance(problem), {.time_budget = 60, .threads = 1});
  EXPECT_EQ(one.device,
            find_contiguous(place::to_instance(problem), {.time_budget = 60, .threads = 2}).device);
  EXPECT_EQ(find_chain(place::to_instance(problem), {.time_budget = 60, .threads = 1}).device,
            find_chain(place::to_instance(problem), {.time_budget = 60, .threads = 2}).device);
}

// Layers one after the other, with tensors that skip some.
LoadProblem long_chain(std::uint32_t size, std::uint64_t seed) {
  Rng rng(seed);
  LoadProblem problem;
  problem.num_accelerators = 8;
  problem.memory = 1e9;
  for (std::uint32_t n = 0; n < size; ++n) {
    LoadNode node;
    node.id = n;
    node.accelerator_time = 0.1 + rng.uniform();
    node.cpu_time = 10 * node.accelerator_time;
    node.transfer = 5 * rng.uniform();
    problem.nodes.push_back(node);
    problem.successors.emplace_back();
    if (n > 0) connect(problem, n - 1, n);
    if (n > 9 && rng.below(4) == 0) {
      connect(problem, n - 2 - static_cast<std::uint32_t>(rng.below(8)), n);
    }
  }
  return problem;
}

TEST(TheChainSearch, EqualsTheContiguousSearchOnAChain) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    LoadProblem problem = long_chain(40, seed);
    problem.num_accelerators = static_cast<int>(1 + seed % 4);
    for (LoadNode& node : problem.nodes) node.bytes = 1;
    problem.memory = 25;
    vary(problem, seed);
    const IdealAnswer best = find_contiguous(place::to_instance(problem), {.time_budget = 60});
    const LoadAnswer chain = find_chain(place::to_instance(problem), {.time_budget = 60});
    ASSERT_TRUE(best.optimal && chain.optimal);
    ASSERT_EQ(best.device.empty(), chain.device.empty());
    if (best.device.empty()) continue;
    expect_valid(problem, chain);
    EXPECT_NEAR(chain.objective, best.objective, 1e-8 * best.objective);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(TheChainSearch, CutsALongChain) {
  LoadProblem problem = long_chain(6150, 3);
  for (const Charging charging : {Charging::host_staged, Charging::link}) {
    problem.charging = charging;
    const LoadAnswer chain = find_chain(place::to_instance(problem), {.time_budget = 60});
    EXPECT_TRUE(chain.optimal);
    expect_valid(problem, chain);
    EXPECT_LT(chain.work, 5'000'000);
  }
}

TEST(TheChainSearch, IsNoBetterThanTheContiguousSearchOnBranches) {
  for (const double transfer : {0.01, 1.0, 10.0}) {
    LoadProblem problem = inception(5, {2, 4, 5}, transfer, 7);
    const LoadAnswer chain = find_chain(place::to_instance(problem), {.time_budget = 60});
    EXPECT_TRUE(chain.optimal);
    expect_valid(problem, chain);
    const double best = find_contiguous(place::to_instance(problem), {.time_budget = 60}).objective;
    EXPECT_GE(chain.objective, best * (1 - 1e-8));
    EXPECT_LE(chain.objective, best * 1.1);
  }
}

TEST(TheChainSearch, AnswersForNothing) {
  const LoadAnswer answer = find_chain({}, {});
  EXPECT_TRUE(answer.optimal);
  EXPECT_EQ(answer.objective, 0);
}

// Seconds of this process, which wait for no other.
template <class Run>
double seconds(Run&& run) {
  const std::clock_t start = std::clock();
  run();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// Every node reads two of any earlier ones: as many ready nodes as can be.
LoadProblem wide_graph(std::uint32_t size, std::uint64_t seed) {
  LoadProblem problem = long_chain(size, seed);
  Rng rng(seed);
  for (auto& list : problem.successors) list.clear();
  for (std::uint32_t n = 1; n < size; ++n) {
    connect(problem, static_cast<std::uint32_t>(rng.below(n)), n);
    connect(problem, static_cast<std::uint32_t>(rng.below(n)), n);
  }
  return problem;
}

// Times are asked of optimised builds; what is found in them, of all.
TEST(TheContiguousSearch, StopsInTimeOnLargeGraphs) {
#ifdef NDEBUG
  constexpr double kMost = 3 * 0.4;  // time is counted, and machines are unlike
#else
  constexpr double kMost = 60;
#endif
  for (const std::uint32_t size : {30'000U, 100'000U}) {
    for (const bool wide : {false, true}) {
      for (const bool unequal : {false, true}) {
        LoadProblem problem = wide ? wide_graph(size, 5) : long_chain(size, 5);
        if (unequal) problem.slowness = {1, 1, 2, 2, 3, 3, 4, 5};
        SCOPED_TRACE(testing::Message() << size << (wide ? " wide" : " long") << unequal);
        const place::LoadOptions options{.time_budget = 0.4};
        IdealAnswer answer;
        EXPECT_LT(seconds([&] { answer = find_contiguous(place::to_instance(problem), options); }),
                  kMost);
        expect_valid(problem, answer);
        LoadAnswer chain;
        EXPECT_LT(seconds([&] { chain = find_chain(place::to_instance(problem), options); }),
                  kMost);
        expect_valid(problem, chain);
      }
    }
  }
}

#ifdef NDEBUG  // what is published is asked of the code as it is shipped: checks take their time

TEST(TheContiguousSearch, EqualsThePublishedValues) {
  const std::vector<std::tuple<std::string, double, std::size_t>> published = {
      {"layer_bert24_inference", 17.7899, 30},
      {"layer_bert24_training", 41.7458, 30},
      {"layer_resnet50_inference", 33.7747, 242},
      {"layer_resnet50_training", 78.6318, 242},
      {"operator_bert_l-3_inference", 27.9186, 1428},
      {"operator_bert_l-3_training", 65.3031, 2774},
      {"operator_bert_l-6_inference", 29.5795, 1923},
      {"operator_resnet50_inference", 124.3490, 241},
      {"operator_resnet50_training", 255.1940, 258}};
  for (const auto& [name, load, num_ideals] : published) {
    SCOPED_TRACE(name);
    const LoadProblem problem = load_dnn_partitioning(published_file("throughput", name));
    const IdealAnswer answer = find_contiguous(place::to_instance(problem), {.clock = 60});
    EXPECT_TRUE(answer.optimal);
    EXPECT_NEAR(answer.objective, load, 1e-4 * load);
    EXPECT_EQ(answer.num_ideals, num_ideals);
    expect_valid(problem, answer);
  }
}

// Communication times a thousand: values of an exact search of another make.
TEST(TheContiguousSearch, EqualsTheKnownValuesWithDearCommunication) {
  const std::vector<std::pair<std::string, double>> known = {{"layer_bert24_inference", 20.591},
                                                             {"layer_bert24_training", 46.608},
                                                             {"layer_resnet50_inference", 181.900},
                                                             {"layer_resnet50_training", 479.038}};
  for (const auto& [name, load] : known) {
    SCOPED_TRACE(name);
    LoadProblem problem = load_dnn_partitioning(published_file("throughput", name));
    for (LoadNode& node : problem.nodes) node.transfer *= 1000;
    EXPECT_NEAR(find_contiguous(place::to_instance(problem), {.clock = 60}).objective, load,
                1e-4 * load);
  }
}

#endif

}  // namespace
}  // namespace kerf
