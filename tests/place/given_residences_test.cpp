// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/residence/given_residences.h"

#include <gtest/gtest.h>

#include "kerf/place/residence/stream_time.h"

namespace kerf {
namespace {

constexpr Residence kStays = Residence::resident;
constexpr Residence kStreams = Residence::streamed;

ResidenceProblem layers(std::vector<std::int64_t> bytes, double device, Bytes memory) {
  ResidenceProblem problem;
  for (const std::int64_t b : bytes) problem.units.push_back({{b}, {device}});
  problem.memory = memory;
  return problem;
}

TEST(GivenResidences, HaveSlotsForTheLargestUnitThatIsStreamed) {
  const auto choice = give_slots(layers({500, 100, 300, 200}, 20, kNoLimit),
                                 {kStays, kStreams, kStreams, kStreams});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->residences.slot_bytes, Bytes{300});
  EXPECT_EQ(choice->residences.slots, 2U);  // a third would gain nothing
  EXPECT_DOUBLE_EQ(choice->time.count, 600);
  EXPECT_DOUBLE_EQ(choice->bound.value, 600);
}

TEST(GivenResidences, TakeTheSlotsThatTheMemoryHasRoomFor) {
  const std::vector<Residence> of = {kStays, kStreams, kStreams, kStreams};
  const auto one = give_slots(layers({500, 100, 300, 200}, 20, {1099}), of);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->residences.slots, 1U);
  const auto two = give_slots(layers({500, 100, 300, 200}, 20, {1100}), of);
  ASSERT_TRUE(two);
  EXPECT_EQ(two->residences.slots, 2U);
  EXPECT_LT(two->time, one->time);
}

TEST(GivenResidences, ThatDoNotFitSayHowMuchIsNeeded) {
  const auto none = give_slots(layers({500, 100, 300}, 150, {799}), {kStays, kStreams, kStreams});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.reason().needed, Bytes{800});
  EXPECT_EQ(none.reason().largest, 0U);
  EXPECT_FALSE(give_slots(layers({500}, 150, {499}), {kStays}));
}

TEST(GivenResidences, ThatAllStayNeedNoSlot) {
  const auto choice = give_slots(layers({500, 100}, 150, {600}), {kStays, kStays});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->residences.slots, 0U);
  EXPECT_DOUBLE_EQ(choice->time.count, 300);
  EXPECT_EQ(choice->bound.argument, "computing takes 300 ns per call");
  EXPECT_TRUE(give_slots(layers({}, 0, {0}), {}));
}

}  // namespace
}  // namespace kerf
