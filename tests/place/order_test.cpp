// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Orders of units, and what makes them possible: units on cycles made one.
#include "kerf/place/order/orders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/base/topological_order.h"
#include "kerf/place/order/condense.h"
#include "tests/support/ids.h"

namespace kerf::place {
namespace {

// Units 0 .. count - 1 with edges to some later ones, and a tensor along each.
InstanceBuilder random_builder(Rng& rng, std::uint32_t count) {
  Devices devices{.cpu = SlotId{1}, .num_devices = 1, .slowness = {1}, .memory = {kInfinity}};
  InstanceBuilder builder(devices);
  for (UnitId t{0}; t < count; ++t) builder.add_unit({.accelerator_time = 1});
  for (UnitId t{0}; t < count; ++t) {
    for (UnitId to{t + 1}; to < count; ++to) {
      if (rng.below(count) >= 3) continue;
      builder.add_edge(t, to);
      builder.add_net(1 + static_cast<double>(rng.below(4)), t, {{to}});
    }
  }
  return builder;
}

TEST(AnOrder, PutsEveryUnitAfterItsPredecessorsAndStageAfterStage) {
  Rng rng(5);
  StepClock clock(kInfinity);
  for (int round = 0; round < 20; ++round) {
    const Instance instance = random_builder(rng, 60).build();
    Stages stages(60, 0);
    for (UnitId t{0}; t < 60; ++t) {
      stages[t] = static_cast<std::uint32_t>(rng.below(4));
      for (const UnitId before : instance.predecessors[t]) {
        stages[t] = std::max(stages[t], stages[before]);
      }
    }
    for (int kind = 0; kind <= kNumNaturalOrders; ++kind) {
      for (const Stages& asked : {Stages{}, stages}) {
        const Order order = make_order(instance, asked, static_cast<OrderKind>(kind), rng, clock);
        ASSERT_EQ(order.size(), 60U);
        const std::vector<std::uint32_t> place = places_in(order);
        for (UnitId t{0}; t < 60; ++t) {
          ASSERT_EQ(order[place[t]], t) << "kind " << kind;
          for (const UnitId to : instance.successors[t]) EXPECT_LT(place[t], place[to]);
          if (t == 0 || asked.empty()) continue;
          EXPECT_LE(asked[order[t - 1]], asked[order[t]]);
        }
      }
    }
  }
}

TEST(ACondensedInstance, MakesOneOfWhatLiesOnACycle) {
  Rng rng(6);
  InstanceBuilder builder = random_builder(rng, 20);
  builder.add_edge(3_unit, 4_unit);
  builder.add_edge(4_unit, 9_unit);
  builder.add_edge(9_unit, 3_unit);
  const Instance instance = std::move(builder).build();
  const Condensed groups = condense(instance);
  EXPECT_EQ(groups.group_of[3], groups.group_of[4]);
  EXPECT_EQ(groups.group_of[3], groups.group_of[9]);
  EXPECT_LE(groups.num_units(), 18U);
  EXPECT_DOUBLE_EQ(groups.total_accelerator_time(), 20);
  for (UnitId g{0}; g < groups.num_units(); ++g) {
    for (const UnitId to : groups.successors[g]) EXPECT_LT(g, to);
  }
  Order units = groups.spread(instance, count_up<UnitId>(groups.num_units()));
  for (std::size_t i = 1; i < units.size(); ++i) {
    EXPECT_LE(groups.group_of[units[i - 1]], groups.group_of[units[i]]);
  }
  std::ranges::sort(units);
  for (UnitId t{0}; t < 20; ++t) EXPECT_EQ(units[t], t);
}

}  // namespace
}  // namespace kerf::place
