// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/instance.h"
#include "kerf/place/coarsen/contraction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kerf/base/error.h"
#include "kerf/base/infinity.h"
#include "kerf/place/lower_load.h"
#include "tests/support/ids.h"

namespace kerf::place {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two accelerators and a CPU.
Devices devices(Charging charging) {
  Devices out;
  out.cpu = 2_slot;
  out.num_devices = 3;
  out.charging = charging;
  out.slowness = {1, 2};
  out.memory = {8, 8, std::numeric_limits<double>::infinity()};
  return out;
}

InstanceBuilder three_units(Charging charging) {
  InstanceBuilder builder(devices(charging));
  for (int i = 0; i < 3; ++i) builder.add_unit({.accelerator_time = 1, .cpu_time = 4, .bytes = 2});
  return builder;
}

TEST(AnInstance, HasEqualNetsAsOne) {
  for (const Charging charging : {Charging::host_staged, Charging::link}) {
    InstanceBuilder builder = three_units(charging);
    builder.add_net(0.5, 1_unit, {{2_unit, 2_unit}});
    builder.add_net(1, 0_unit, {{0_unit, 1_unit}});
    builder.add_net(0.25, 2_unit, {{1_unit}});
    const Instance instance = std::move(builder).build();
    // Who makes a tensor counts where only readers pay.
    const bool link = charging == Charging::link;
    ASSERT_EQ(instance.num_nets(), link ? 3U : 2U);
    EXPECT_THAT(instance.pins[0_net], ElementsAre(0, 1));
    EXPECT_THAT(instance.pins[1_net], ElementsAre(1, 2));
    EXPECT_EQ(instance.cost[1], link ? 0.5 : 0.75);
    EXPECT_EQ(instance.source[1], 1U);
    EXPECT_TRUE(instance.makes(1_unit, 1));
    EXPECT_FALSE(instance.makes(1_unit, 0));
  }
}

TEST(AnInstance, LeavesOutNetsThatNobodyPaysFor) {
  InstanceBuilder builder = three_units(Charging::link);
  builder.add_net(0, 0_unit, {{1_unit}});
  builder.add_net(1, 2_unit, {{2_unit}});
  EXPECT_EQ(std::move(builder).build().num_nets(), 0U);
}

TEST(AnInstance, IsCheckedWhereItIsBuilt) {
  InstanceBuilder net = three_units(Charging::link);
  net.add_net(1, 0_unit, {{3_unit}});
  EXPECT_THROW(std::move(net).build(), Error);
  InstanceBuilder edge = three_units(Charging::link);
  edge.add_edge(0_unit, 3_unit);
  EXPECT_THROW(std::move(edge).build(), Error);
  Devices short_of_memory = devices(Charging::link);
  short_of_memory.memory.pop_back();
  EXPECT_THROW(InstanceBuilder{short_of_memory}, Error);
}

TEST(AnInstance, IsOneWhenMerged) {
  InstanceBuilder builder = three_units(Charging::host_staged);
  builder.add_unit({.accelerator_time = 5, .cpu_time = 6, .bytes = 7, .on_accelerator = false});
  builder.add_net(1, 0_unit, {{1_unit, 2_unit}});
  builder.add_net(2, 0_unit, {{2_unit}});
  builder.add_net(3, 0_unit, {{1_unit}});
  const Instance merged =
      merge(std::move(builder).build(), std::vector{0_unit, 0_unit, 1_unit, 1_unit}, 2);
  ASSERT_EQ(merged.num_units(), 2U);
  EXPECT_THAT(merged.accelerator_time, ElementsAre(2, 6));
  EXPECT_THAT(merged.cpu_time, ElementsAre(8, 10));
  EXPECT_THAT(merged.bytes, ElementsAre(4, 9));
  EXPECT_FALSE(merged.runs_on(1_unit, 0_slot));
  EXPECT_TRUE(merged.runs_on(1_unit, merged.cpu));
  ASSERT_EQ(merged.num_nets(), 1U);
  EXPECT_EQ(merged.cost[0], 3);
  EXPECT_EQ(merged.time(0_unit, 1_slot), 4);
  // One accelerator, slower by two, and the CPU, whose memory is its own.
  const Loads loads = find_loads(merged, std::vector{1_slot, merged.cpu});
  EXPECT_EQ(loads.busiest, 10);
  EXPECT_EQ(loads.transfer[1], 3);
  EXPECT_TRUE(loads.fits);
}

// 0 -> 1 -> 2 -> 3, of which 1 is left out and 2 and 3 are one.
TEST(AnInstance, KeepsItsOrderWhenMerged) {
  InstanceBuilder builder = three_units(Charging::link);
  builder.add_unit({.accelerator_time = 5});
  builder.add_net(1, 1_unit, {{0_unit, 3_unit}});
  builder.add_net(2, 1_unit, {{2_unit, 3_unit}});
  for (UnitId t{0}; t < 3; ++t) builder.add_edge(t, UnitId{t + 1});
  builder.add_edge(0_unit, 3_unit);
  const Instance merged =
      merge_ordered(std::move(builder).build(), std::vector{0_unit, UnitId{}, 1_unit, 1_unit}, 2);
  ASSERT_EQ(merged.num_units(), 2U);
  EXPECT_THAT(merged.successors[0_unit], ElementsAre(1));
  EXPECT_THAT(merged.successors[1_unit], IsEmpty());
  EXPECT_THAT(merged.predecessors[1_unit], ElementsAre(0));
  EXPECT_THAT(merged.own_order, ElementsAre(0, 1));
  ASSERT_EQ(merged.num_nets(), 1U);
  EXPECT_THAT(merged.pins[0_net], ElementsAre(0, 1));
  EXPECT_EQ(merged.source[0], 0U);
  EXPECT_EQ(merged.cost[0], 1);
}

// 0 -> 1 forward, 2 -> 3 on the way back: 3 is 0's mate, 2 has none.
TEST(ALoweredLoad, HasColourClassesForUnitsAndTurnsBackwardEdgesRound) {
  LoadProblem problem;
  problem.nodes.resize(4);
  problem.successors = {{1}, {2}, {3}, {}};
  for (std::size_t n = 0; n < 4; ++n) {
    problem.nodes[n].accelerator_time = 1;
    problem.nodes[n].transfer = 1;
    problem.nodes[n].backward = n >= 2;
  }
  problem.nodes[0].colour = problem.nodes[3].colour = 9;
  const LoweredLoad lowered = lower_load(problem);
  EXPECT_THAT(lowered.unit_of, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(lowered.nodes[0_unit], ElementsAre(0, 3));
  EXPECT_THAT(lowered.to_nodes(std::vector{7_slot, 8_slot, 9_slot}), ElementsAre(7, 8, 9, 7));
  const Instance& instance = lowered.instance;
  EXPECT_THAT(instance.accelerator_time, ElementsAre(2, 1, 1));
  EXPECT_THAT(instance.successors[0_unit], ElementsAre(1, 2));
  EXPECT_THAT(instance.successors[1_unit], IsEmpty());
  EXPECT_THAT(instance.predecessors[2_unit], ElementsAre(0));
  EXPECT_THAT(instance.own_order, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace kerf::place
