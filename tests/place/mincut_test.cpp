// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Minimum cuts, the bounds and the proofs made of them, against plain enumeration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>

#include "kerf/ingest/dnn_partitioning.h"
#include "kerf/place/bound/load_bounds.h"
#include "kerf/place/lower_load.h"
#include "kerf/place/mincut/cut_network.h"
#include "kerf/place/mincut/max_flow.h"
#include "kerf/place/mincut/prove.h"
#include "tests/support/ids.h"
#include "tests/support/published.h"

namespace kerf::place {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct LoadShape {
  std::size_t nodes = 7;
  int accelerators = 2;
  int cpus = 1;
  double transfer = 3;  // times are up to 10
  bool colours = true;
  bool tight_memory = false;
  double least_time = 0;  // near 10: units much alike, so that counting them matters
  Charging charging = Charging::host_staged;
  bool unequal = false;           // accelerators
  bool tight_cpu_memory = false;  // else endless
};

LoadProblem random_problem(std::mt19937& random, const LoadShape& shape) {
  const auto up_to = [&](double most) {
    return std::round(std::uniform_real_distribution<double>(0, most)(random) * 8) / 8;
  };
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  LoadProblem problem;
  problem.num_accelerators = shape.accelerators;
  problem.num_cpus = shape.cpus;
  problem.successors.resize(shape.nodes);
  double bytes = 0;
  for (std::uint32_t n = 0; n < shape.nodes; ++n) {
    LoadNode node;
    node.id = n;
    node.accelerator_time = one_in(4) ? up_to(10) : shape.least_time + up_to(10 - shape.least_time);
    node.cpu_time = node.accelerator_time * (1 + up_to(4));
    node.bytes = up_to(10);
    node.transfer = up_to(shape.transfer);
    node.on_accelerator = shape.cpus == 0 || !one_in(12);
    if (shape.colours && one_in(3)) node.colour = static_cast<std::int64_t>(random() % 3);
    bytes += node.bytes;
    for (std::uint32_t to = n + 1; to < shape.nodes; ++to) {
      if (one_in(3)) problem.successors[n].push_back(to);
    }
    problem.nodes.push_back(node);
  }
  problem.memory = shape.tight_memory ? bytes / shape.accelerators * 0.9 : bytes;
  problem.charging = shape.charging;
  if (shape.tight_cpu_memory) problem.cpu_memory = bytes * 0.4;
  for (int a = 0; shape.unequal && a < shape.accelerators; ++a) {
    constexpr double kSlowness[] = {1, 1.5, 1, 3};
    problem.slowness.push_back(kSlowness[random() % 4]);
    problem.memories.push_back(problem.memory * (one_in(2) ? 1 : 0.7));
  }
  return problem;
}

std::vector<LoadShape> shapes() {
  std::vector<LoadShape> out;
  for (const int accelerators : {1, 2, 3}) {
    for (const int cpus : {0, 1}) {
      for (const double transfer : {0.0, 0.5, 6.0}) {
        out.push_back({6, accelerators, cpus, transfer, false, false});
        out.push_back({8, accelerators, cpus, transfer, true, accelerators > 1});
      }
    }
  }
  for (const double transfer : {0.25, 1.0}) {
    out.push_back({7, 3, 1, transfer, false, false, 8.5});
    out.push_back({8, 3, 0, transfer, false, false, 9});
  }
  for (const Charging charging : {Charging::host_staged, Charging::link}) {
    for (const bool unequal : {false, true}) {
      if (charging == Charging::host_staged && !unequal) continue;  // those above
      for (const int accelerators : {1, 2, 3}) {
        for (const double transfer : {0.5, 3.0, 8.0}) {
          out.push_back({7, accelerators, 1, transfer, true, false, 0, charging, unequal});
          out.push_back({8, accelerators, 0, transfer, false, true, 0, charging, unequal});
          out.push_back({7, accelerators, 1, transfer, false, true, 6, charging, unequal, true});
        }
      }
    }
  }
  for (const double transfer : {0.5, 3.0}) {
    out.push_back({7, 2, 1, transfer, false, true, 0, Charging::host_staged, false, true});
    out.push_back({6, 0, 1, transfer, false, false, 0, Charging::link});
  }
  return out;
}

// By trying all; infinite when nothing fits.
double enumerate(const Instance& problem) {
  Split device(problem.num_units(), 0_slot);
  double best = kNever;
  do {
    bool allowed = true;
    for (std::size_t u = 0; u < device.size(); ++u) {
      allowed = allowed && (problem.on_accelerator[u] != 0 || device[u] == problem.cpu);
    }
    if (allowed) {
      const Loads loads = find_loads(problem, device);
      if (loads.fits) best = std::min(best, loads.busiest);
    }
  } while (next_split(device, problem.num_devices));
  return best;
}

Proof prove_it(const Instance& units, const LoadAnswer& incumbent,
               const ProofOptions& options = {}) {
  return prove(units, incumbent, tightest(find_load_bounds(units)), options);
}

template <typename Check>
void for_random_problems(unsigned rounds, const Check& check) {
  unsigned seed = 0;
  for (const LoadShape& shape : shapes()) {
    for (unsigned i = 0; i < rounds; ++i) {
      std::mt19937 random(++seed);
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      check(to_instance(random_problem(random, shape)), random);
    }
  }
}

// Least load of a device that holds `in` and not `out` (bits), by trying all sets.
Flow least_load(const CutNetwork& network, const DeviceKind& kind, std::uint32_t in,
                std::uint32_t out) {
  Flow least = kEndless;
  for (std::uint32_t set = 0; set < 1U << network.num_units(); ++set) {
    if ((set & in) != in || (set & out) != 0) continue;
    const auto has = [&](std::uint32_t c) { return (set >> c & 1U) != 0; };
    Flow load = 0;
    for (std::uint32_t c = 0; c < network.num_units(); ++c) load += has(c) ? kind.time[c] : 0;
    const Instance& instance = *network.instance;
    for (NetId net{0}; net < instance.num_nets(); ++net) {
      const auto pins = instance.pins[net];
      const auto inside = std::count_if(pins.begin(), pins.end(), has);
      const bool some = inside > 0;
      const bool all = static_cast<std::size_t>(inside) == pins.size();
      const bool free = instance.charging == Charging::link ? has(instance.source[net]) : all;
      if (some && !free) load += network.cost[net];
    }
    least = std::min(least, load);
  }
  return least;
}

template <typename Check>
void for_random_networks(unsigned rounds, const Check& check) {
  for_random_problems(rounds, [&](const Instance& units, std::mt19937& random) {
    const CutNetwork network(units, scale_for(50));
    for (const DeviceKind& kind : network.kinds) {
      if (kind.pays) check(network, kind, random);
    }
  });
}

TEST(AMaxFlow, EqualsTheLeastLoadOfAnySetWhateverIsTied) {
  const auto check = [](const CutNetwork& network, const DeviceKind& kind, std::mt19937& random) {
    MaxFlow flow = load_network(network, kind);
    FlowScratch scratch;
    std::uint32_t in = 0;
    std::uint32_t out = 0;
    for (std::uint32_t c = 0; c < network.num_units(); ++c) {
      const auto side = random() % 3;
      if (side == 0) flow.add_source(c, kEndless / 4);
      if (side == 1) flow.add_sink(c, kEndless / 4);
      (side == 0 ? in : out) |= side == 2 ? 0 : 1U << c;
      EXPECT_FALSE(flow.augment(scratch, kEndless / 8));
      ASSERT_EQ(flow.value(), least_load(network, kind, in, out));
      std::uint32_t reached = 0;
      for (std::uint32_t n = 0; n < network.num_units(); ++n) {
        if (scratch.reached(n)) reached |= 1U << n;
      }
      ASSERT_EQ(least_load(network, kind, reached, ~reached), flow.value());
    }
  };
  for_random_networks(4, check);
}

TEST(AMaxFlow, IsTheSameAfterAQuestionIsUndone) {
  const auto check = [](const CutNetwork& network, const DeviceKind& kind, std::mt19937&) {
    MaxFlow flow = load_network(network, kind);
    FlowScratch scratch;
    flow.add_source(0, kEndless / 4);
    flow.augment(scratch, kEndless / 8);
    const Flow before = flow.value();
    std::vector<std::uint8_t> closed(network.graph.num_nodes());
    for (std::uint32_t n = 0; n < closed.size(); ++n) closed[n] = scratch.reached(n) ? 1 : 0;
    for (std::uint32_t c = 1; c < network.num_units(); ++c) {
      if (closed[c] != 0) continue;
      flow.mark();
      flow.add_source(c, kEndless / 4);
      flow.augment_from(scratch, c, closed, kEndless / 8);
      ASSERT_EQ(flow.value(), least_load(network, kind, 1U | 1U << c, 0));
      flow.undo();
      ASSERT_EQ(flow.value(), before);
    }
  };
  for_random_networks(3, check);
}

TEST(ABound, NeverExceedsTheOptimum) {
  for_random_problems(12, [](const Instance& units, std::mt19937&) {
    const double optimum = enumerate(units);
    for (const LowerBound& bound : find_load_bounds(units)) {
      EXPECT_LE(bound.value, optimum * (1 + 1e-12)) << bound.name;
      EXPECT_FALSE(bound.argument.empty());
    }
  });
}

TEST(APackingBound, IsExactWithoutCommunication) {
  unsigned seed = 0;
  for (const int accelerators : {1, 2, 3}) {
    for (unsigned i = 0; i < 20; ++i) {
      std::mt19937 random(++seed);
      const Instance units =
          to_instance(random_problem(random, {7, accelerators, 1, 0, false, false}));
      const double optimum = enumerate(units);
      EXPECT_NEAR(packing_bound(units, work_bound(units)).value, optimum, 2e-7 * optimum);
    }
  }
}

// More than the search can tell apart.
TEST(APackingBound, CountsUnitsOfManyDevices) {
  Devices devices;
  devices.cpu = 64_slot;
  devices.num_devices = 64;
  devices.slowness.assign(64, 1);
  devices.memory.assign(64, 1000);
  InstanceBuilder builder(devices);
  for (int i = 0; i < 200; ++i) builder.add_unit({.accelerator_time = 1, .on_cpu = false});
  const Instance units = std::move(builder).build();
  EXPECT_NEAR(packing_bound(units, work_bound(units)).value, 4, 1e-6);
}

TEST(AProof, FindsTheOptimumOfSmallProblems) {
  for_random_problems(12, [](const Instance& units, std::mt19937&) {
    const double optimum = enumerate(units);
    const Proof proof = prove_it(units, {});
    ASSERT_TRUE(proof.answer.optimal);
    if (std::isinf(optimum)) {
      EXPECT_TRUE(proof.answer.device.empty());
      return;
    }
    ASSERT_EQ(proof.answer.device.size(), units.num_units());
    const Loads loads = find_loads(units, proof.answer.device);
    EXPECT_TRUE(loads.fits);
    EXPECT_EQ(loads.busiest, proof.answer.objective);
    EXPECT_NEAR(proof.answer.objective, optimum, 1e-5 * optimum + 1e-12);
    EXPECT_LE(proof.bound.value, optimum * (1 + 1e-12));
    EXPECT_GE(proof.bound.value, optimum * (1 - 1e-5));
  });
}

TEST(AProof, AcceptsAnOptimalIncumbentAndImprovesAnother) {
  for_random_problems(4, [](const Instance& units, std::mt19937&) {
    const Proof first = prove_it(units, {});
    if (first.answer.device.empty()) return;
    const Proof again = prove_it(units, first.answer);
    EXPECT_TRUE(again.answer.optimal);
    EXPECT_EQ(again.answer.device, first.answer.device);
    if (!units.has_cpu()) return;
    LoadAnswer on_cpu;
    on_cpu.device.assign(units.num_units(), units.cpu);
    const Loads loads = find_loads(units, on_cpu.device);
    if (!loads.fits) return;
    on_cpu.objective = loads.busiest;
    const Proof better = prove_it(units, on_cpu);
    EXPECT_TRUE(better.answer.optimal);
    EXPECT_NEAR(better.answer.objective, first.answer.objective,
                1e-5 * first.answer.objective + 1e-12);
  });
}

TEST(AProof, KeepsAValidBoundWhenItsBudgetEnds) {
  for_random_problems(4, [&](const Instance& units, std::mt19937&) {
    const double optimum = enumerate(units);
    ProofOptions options;
    options.work_budget = 1;
    const Proof proof = prove_it(units, {}, options);
    EXPECT_LE(proof.bound.value, optimum * (1 + 1e-12));
    EXPECT_EQ(proof.answer.truncated, !proof.answer.optimal);
    if (proof.answer.optimal && !std::isinf(optimum)) {
      EXPECT_NEAR(proof.answer.objective, optimum, 1e-5 * optimum);
    }
  });
}

TEST(AProof, FallsBackOnBoundsForMoreAcceleratorsThanItCanTrack) {
  std::mt19937 random(1);
  const Proof proof =
      prove_it(to_instance(random_problem(random, {8, 70, 1, 1, false, false})), {});
  EXPECT_GT(proof.bound.value, 0);
  EXPECT_FALSE(proof.answer.optimal);
}

TEST(AProof, SaysWhenNothingFits) {
  LoadProblem problem;
  problem.nodes.resize(3);
  problem.successors.resize(3);
  problem.num_accelerators = 2;
  problem.num_cpus = 0;
  problem.memory = 3;
  for (LoadNode& node : problem.nodes) node.bytes = 2;
  const Proof proof = prove_it(to_instance(problem), {});
  EXPECT_TRUE(proof.answer.optimal);
  EXPECT_TRUE(proof.answer.device.empty());
  EXPECT_TRUE(std::isinf(proof.bound.value));
}

// A chain with skips, its accelerators unequal under one charging: far too large to search.
Instance large_problem(Charging charging) {
  std::mt19937 random(7);
  constexpr std::uint32_t kNodes = 30'000;
  LoadProblem problem;
  problem.num_accelerators = 4;
  problem.charging = charging;
  problem.memory = kNever;
  if (charging == Charging::link) problem.slowness = {1, 1, 2, 3};
  problem.successors.resize(kNodes);
  for (std::uint32_t n = 0; n < kNodes; ++n) {
    LoadNode node;
    node.id = n;
    // Nearly free nodes behind costly tensors: flows have long ways to go.
    node.accelerator_time = n % 100 == 0 ? 10 : 0;
    node.cpu_time = 20 * node.accelerator_time + 1;
    node.transfer = static_cast<double>(random() % 1000);
    for (const std::uint32_t to : {n + 1, n + 2 + static_cast<std::uint32_t>(random() % 500)}) {
      if (to < kNodes) problem.successors[n].push_back(to);
    }
    problem.nodes.push_back(node);
  }
  return to_instance(problem);
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Generous limits: what is tested is that the time does not grow with the problem.
TEST(AProof, EndsInTimeOnLargeProblems) {
  for (const Charging charging : {Charging::host_staged, Charging::link}) {
    const Instance units = large_problem(charging);
    std::vector<LowerBound> bounds;
    EXPECT_LT(seconds_of([&] { bounds = find_load_bounds(units, 0.25); }), 5);
    EXPECT_GE(tightest(bounds).value, work_bound(units).value);
    EXPECT_LT(tightest(bounds).value, kNever);
    ProofOptions options;
    options.time_budget = 0.5;
    Proof proof;
    EXPECT_LT(seconds_of([&] { proof = prove(units, {}, tightest(bounds), options); }), 5);
    EXPECT_GE(proof.bound.value, work_bound(units).value);
    EXPECT_FALSE(proof.answer.optimal);
  }
}

// One tensor that every other node reads.
Instance star(Charging charging, std::uint32_t nodes) {
  LoadProblem problem;
  problem.num_accelerators = 4;
  problem.charging = charging;
  problem.memory = kNever;
  problem.successors.resize(nodes);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    LoadNode node;
    node.id = n;
    node.accelerator_time = 1 + n % 7;
    node.cpu_time = 20 * node.accelerator_time;
    node.transfer = n == 0 ? 3 : 0;
    problem.nodes.push_back(node);
    if (n > 0) problem.successors[0].push_back(n);
  }
  return to_instance(problem);
}

// Counted, not timed. The first is small enough to be fused, the second is not.
TEST(AProof, KeepsToItsWorkWhereOneTensorHasManyReaders) {
  for (const Charging charging : {Charging::host_staged, Charging::link}) {
    for (const std::uint32_t nodes : {2'100U, 20'000U}) {
      const Instance units = star(charging, nodes);
      ProofOptions options;
      options.work_budget = 2'000'000;
      const LowerBound known = work_bound(units);
      const Proof proof = prove(units, {}, known, options);
      EXPECT_LE(proof.answer.work, options.work_budget) << nodes;
      EXPECT_GE(proof.bound.value, known.value);
    }
  }
}

#ifdef NDEBUG  // what is known is asked of the code as it is shipped: checks take their time

struct Published {
  const char* file;
  double optimum;
};

class APublishedProblem : public testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    units_ = to_instance(load_dnn_partitioning(published_file("throughput", GetParam().file)));
  }
  Instance units_;
};

TEST_P(APublishedProblem, IsSolvedAndProvedWithoutAnIncumbent) {
  const Proof proof = prove_it(units_, {});
  ASSERT_TRUE(proof.answer.optimal);
  EXPECT_NEAR(proof.answer.objective, GetParam().optimum, 1e-5 * GetParam().optimum);
  EXPECT_GE(proof.bound.value, proof.answer.objective * (1 - 1e-5));
  const Loads loads = find_loads(units_, proof.answer.device);
  EXPECT_TRUE(loads.fits);
  EXPECT_EQ(loads.busiest, proof.answer.objective);
  const Proof again = prove_it(units_, {});
  EXPECT_EQ(again.answer.device, proof.answer.device);
  EXPECT_EQ(again.answer.work, proof.answer.work);
}

TEST_P(APublishedProblem, HasNoBoundAboveItsOptimum) {
  for (const LowerBound& bound : find_load_bounds(units_)) {
    EXPECT_LE(bound.value, GetParam().optimum * (1 + 1e-6)) << bound.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Throughput, APublishedProblem,
                         testing::Values(Published{"operator_bert_l-3_inference", 21.90838},
                                         Published{"operator_bert_l-3_training", 54.20740},
                                         Published{"operator_bert_l-6_inference", 28.33219},
                                         Published{"operator_resnet50_inference", 124.34885},
                                         Published{"operator_resnet50_training", 255.19442},
                                         Published{"layer_bert24_inference", 17.71472},
                                         Published{"layer_bert24_training", 39.78954}));

#endif

}  // namespace
}  // namespace kerf::place
