// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// May a run be thrown away?
#include "kerf/graph/pure.h"

#include <gtest/gtest.h>

#include <string>

#include "kerf/graph/text.h"

namespace kerf {
namespace {

bool pure(const std::string& lines) {
  return is_pure(
      parse_graph("kerf-graph 1.0\ninput %x: f32[4] = \"args.0\"\n"
                  "weight @mean: f32[4] = buffer \"mean\"\n" +
                  lines));
}

TEST(AGraph, IsPureWhereItWritesOnlyWhatItMade) {
  EXPECT_TRUE(pure("%y: f32[4] = op.add(%x, @mean)\n"));
  EXPECT_TRUE(pure("%y: f32[4] = op.add(%x, @mean)\n%z: f32[4] in %y = op.relu_(&%y)\n"));
}

TEST(AGraph, IsNotPureWhereAnInputOrAWeightIsWritten) {
  EXPECT_FALSE(pure("%y: f32[4] in %x = op.relu_(&%x)\n"));
  EXPECT_FALSE(pure("%v: f32[2] in %x + 8 = op.slice(%x)\n%w: f32[2] in %x + 8 = op.relu_(&%v)\n"));
  EXPECT_FALSE(pure("%y: f32[4] = op.norm(%x, &@mean)\n"));
}

TEST(AGraph, IsNotPureWhereItDrawsOrCallsPython) {
  EXPECT_FALSE(pure("%y: f32[4] = op.dropout(%x) ; random\n"));
  EXPECT_FALSE(pure("%y: f32[4] = opaque(%x)\n"));
}

}  // namespace
}  // namespace kerf
