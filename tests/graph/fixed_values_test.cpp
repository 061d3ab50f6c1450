// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Which values no call can change, and at every batch repeat what they are at batch one.
#include "kerf/graph/passes/fixed_values.h"

#include <gtest/gtest.h>

#include "kerf/graph/text.h"

namespace kerf {
namespace {

// What is known about the value `name`.
Fixed fixed(const std::string& lines, const std::string& name) {
  const Graph graph = parse_graph(
      "kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n"
      "weight @w: bool[4, 4] = buffer \"mask\"\n"
      "weight @one: u8[3] = constant \"one\" data 00ff7f\n" +
      lines);
  const std::vector<Fixed> all = fixed_values(graph);
  for (std::size_t v = 0; v < graph.num_values(); ++v) {
    if (graph.values()[v].name == name) return all[v];
  }
  ADD_FAILURE() << "no value " << name;
  return Fixed::no;
}

constexpr const char* kCount = "%n: i64[B] = aten.arange.default(B)\n";
constexpr const char* kRows = "%r: i64[B, 4] = aten.ones.default([B, 4], dtype=dtype(i64))\n";

std::string counts(const std::string& line) { return kCount + line + "\n"; }
std::string rows(const std::string& line) { return kRows + line + "\n"; }

TEST(AValue, ThatAnInputOrAWeightDecidesIsNotFixed) {
  EXPECT_EQ(fixed("%a: bool[B, 4] = aten.gt.Scalar(%x, 0)\n", "a"), Fixed::no);
  EXPECT_EQ(fixed("%a: bool[4, 4] = aten.logical_not.default(@w)\n", "a"), Fixed::no);
  EXPECT_EQ(fixed("", "x"), Fixed::no);
  EXPECT_EQ(fixed("", "w"), Fixed::no);
}

TEST(AValue, MadeOfNumbersAloneIsFixed) {
  EXPECT_EQ(fixed("", "one"), Fixed::repeated);
  EXPECT_EQ(fixed("%a: f32[4] = aten.full.default([4], 1.0)\n", "a"), Fixed::repeated);
  EXPECT_EQ(fixed(rows(""), "r"), Fixed::repeated);
}

TEST(AValue, ThatTakesOnlyTheFormOfAnInputIsFixed) {
  EXPECT_EQ(fixed("%a: f32[B, 4] = aten.ones_like.default(%x)\n", "a"), Fixed::repeated);
  EXPECT_EQ(fixed("%a: bool[B] = aten.new_zeros.default(%x, [B], dtype=dtype(bool))\n", "a"),
            Fixed::repeated);
}

TEST(AValue, FilledWithTheBatchIsNotFixed) {
  EXPECT_EQ(fixed("%a: i64[B, 4] = aten.full.default([B, 4], B)\n", "a"), Fixed::no);
  EXPECT_EQ(fixed("%a: f32[4] = aten.full.default([4], B)\n", "a"), Fixed::no);
  EXPECT_EQ(fixed(rows("%a: i64[B, 4] = aten.add.Tensor(%r, B)"), "a"), Fixed::no);
}

TEST(AValue, ThatIsWrittenOrDrawnIsNotFixed) {
  EXPECT_EQ(fixed("%a: f32[4] = aten.full.default([4], 1.0)\n"
                  "%b: f32[4] in %a = aten.zero_.default(&~%a)\n",
                  "a"),
            Fixed::no);
  EXPECT_EQ(fixed("%a: f32[4] = aten.full.default([4], 1.0) ; random\n", "a"), Fixed::no);
  EXPECT_EQ(fixed("%a: f32[4] = aten.empty.memory_format([4])\n", "a"), Fixed::no);
}

TEST(AValue, OfAnotherDeviceIsNotFixed) {
  EXPECT_EQ(fixed("%a: f32[4] = aten.full.default([4], 1.0, device=device(\"cuda:1\"))\n", "a"),
            Fixed::no);
}

TEST(ACount, StaysOneWhereItsNumbersDo) {
  EXPECT_EQ(fixed(kCount, "n"), Fixed::counting);
  EXPECT_EQ(fixed("%n: i64[B] = aten.arange.start_step(0, B, 1)\n", "n"), Fixed::counting);
  EXPECT_EQ(fixed(counts("%a: i64[B, 1] in %n = aten.unsqueeze.default(~%n, 1)"), "a"),
            Fixed::counting);
  EXPECT_EQ(fixed(counts("%a: i64[B] = aten.add.Tensor(%n, 0)"), "a"), Fixed::counting);
  EXPECT_EQ(fixed(counts("%a: i64[B, 1, 1] in %n = aten.view.default(~%n, [B, 1, 1])"), "a"),
            Fixed::counting);
}

TEST(ACount, IsNothingElse) {
  EXPECT_EQ(fixed("%n: i64[B] = aten.arange.start(1, B+1)\n", "n"), Fixed::no);
  EXPECT_EQ(fixed("%n: i64[B] = aten.arange.start_step(0, 2*B, 2)\n", "n"), Fixed::no);
  EXPECT_EQ(fixed("%n: f32[B] = aten.arange.default(B)\n", "n"), Fixed::no);
  EXPECT_EQ(fixed(counts("%a: i64[B] = aten.add.Tensor(%n, 1)"), "a"), Fixed::no);
  EXPECT_EQ(fixed(counts("%a: bool[B] = aten.lt.Scalar(%n, 3)"), "a"), Fixed::no);
  EXPECT_EQ(fixed(counts("%a: bool[B] = aten.to.dtype(%n, dtype(bool))"), "a"), Fixed::no);
  EXPECT_EQ(fixed(counts("%a: i64[B] = aten.cumsum.default(%n, 0)"), "a"), Fixed::no);
  EXPECT_EQ(fixed(counts("%a: i64[B, B]{0, 1} in %n = aten.expand.default(~%n, [B, B])"), "a"),
            Fixed::no);
}

TEST(EqualRows, StayEqualAlongOtherDimensions) {
  EXPECT_EQ(fixed(rows("%a: i64[B, 4] = aten.cumsum.default(%r, -1)"), "a"), Fixed::repeated);
  EXPECT_EQ(fixed(rows("%a: i64[B, 1]{4, 1} in %r = aten.slice.Tensor(~%r, 1, 0, 1)"), "a"),
            Fixed::repeated);
  EXPECT_EQ(fixed(rows("%a: i64[B, 2, 2] in %r = aten.view.default(~%r, [B, 2, 2])"), "a"),
            Fixed::repeated);
  EXPECT_EQ(fixed(rows("%a: bool[B, 4] = aten.eq.Tensor(%r, %r)"), "a"), Fixed::repeated);
  EXPECT_EQ(fixed("%a: i64[4] = aten.arange.default(4)\n"
                  "%b: i64[B, 4]{0, 1} in %a = aten.expand.default(~%a, [B, -1])\n",
                  "b"),
            Fixed::repeated);
}

TEST(EqualRows, AreNotProvedAlongTheBatch) {
  EXPECT_EQ(fixed(rows("%a: i64[B, 4] = aten.cumsum.default(%r, 0)"), "a"), Fixed::no);
  EXPECT_EQ(fixed(rows("%a: i64[4*B] in %r = aten.view.default(~%r, [4*B])"), "a"), Fixed::no);
  EXPECT_EQ(fixed(rows("%a: i64[4, B] in %r = aten.view.default(~%r, [4, B])"), "a"), Fixed::no);
  EXPECT_EQ(fixed(rows("%a: i64[B, 4] = aten.tril.default(%r)"), "a"), Fixed::no);
  EXPECT_EQ(fixed(rows("%a: i64[4] = aten.sum.dim_IntList(%r, [0])"), "a"), Fixed::no);
}

TEST(EqualRows, MayBePickedByACountOfTheBatch) {
  const std::string both = std::string(kCount) + kRows +
                           "%c: i64[B, 1] in %n = aten.unsqueeze.default(~%n, 1)\n"
                           "%i: i64[4] = aten.arange.default(4)\n";
  EXPECT_EQ(fixed(both + "%a: i64[B, 4] = aten.index.Tensor(%r, [%c, %i])\n", "a"),
            Fixed::repeated);
  // A count of the batch picks other columns for other samples.
  EXPECT_EQ(fixed(both + "%a: i64[B, 4] = aten.index.Tensor(%r, [%i, %c])\n", "a"), Fixed::no);
}

}  // namespace
}  // namespace kerf
