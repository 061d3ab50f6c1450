// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/find_effects.h"

#include <gtest/gtest.h>

#include "tests/graph/captured.h"

namespace kerf {
namespace {

Graph with_effects(const std::string& lines) {
  Captured calls = captured(lines);
  find_effects(calls);
  return frozen(std::move(calls));
}

// The same lines, with and without marks.
void expect_marks(const std::string& bare, const std::string& marked) {
  EXPECT_EQ(print_graph(with_effects(bare)), print_graph(graph_of(marked)));
}

TEST(Effects, FollowTheSchema) {
  expect_marks(
      "%a: f32[B, 4] in %x = aten.relu_.default(%x)\n"
      "%b: f32[B, 4] in %x = aten.view.default(%a, [B, 4])\n"
      "%c: f32[B, 4] = aten.neg.default(%b)\noutput \"y\" = %c\n",
      "%a: f32[B, 4] in %x = aten.relu_.default(&~%x)\n"
      "%b: f32[B, 4] in %x = aten.view.default(~%a, [B, 4])\n"
      "%c: f32[B, 4] = aten.neg.default(%b)\noutput \"y\" = %c\n");
}

TEST(Effects, OfWritesThatSchemasHide) {
  const std::string statistics =
      "weight @m: f32[4] = buffer \"m\"\nweight @v: f32[4] = buffer \"v\"\n";
  const auto norm = [&](const std::string& mean, const std::string& rest) {
    return statistics + "%y: f32[B, 4] = aten.batch_norm.default(%x, none, none, " + mean + rest +
           ", 0.1, 1e-05, true)\noutput \"y\" = %y\n";
  };
  expect_marks(norm("@m, @v", ", true"), norm("&@m, &@v", ", true"));
  expect_marks(norm("@m, @v", ", false"), norm("@m, @v", ", false"));
}

TEST(Effects, OfHiddenWritesNeedSomethingToWrite) {
  const std::string lines =
      "%y: f32[B, 4] = aten.batch_norm.default(%x, none, none, none, none, true, 0.1, 1e-05, "
      "true)\noutput \"y\" = %y\n";
  expect_marks(lines, lines);
}

TEST(Effects, AreRandomOnlyWhereThereIsSomethingToDraw) {
  const auto drawn = [](const std::string& call) {
    return with_effects("%y: f32[B, 4] = " + call + "\noutput \"y\" = %y\n").nodes()[0].random;
  };
  EXPECT_TRUE(drawn("aten.dropout.default(%x, 0.5, true)"));
  EXPECT_TRUE(drawn("aten.dropout.default(%x, p=0.5, train=true)"));
  EXPECT_FALSE(drawn("aten.dropout.default(%x, 0.5, false)"));
  EXPECT_FALSE(drawn("aten.dropout.default(%x, 0.5, train=false)"));
  EXPECT_FALSE(drawn("aten.alpha_dropout.default(%x, 0.0, true)"));
  EXPECT_FALSE(drawn("aten.neg.default(%x)"));
  EXPECT_FALSE(drawn("aten.rrelu.default(%x, 0.1, 0.3)"));  // training is false unless given
  EXPECT_TRUE(drawn("aten.rrelu.default(%x, 0.1, 0.3, true)"));
}

TEST(Effects, OfBlocksThatRunAsPythonStayAsTheyWere) {
  const std::string lines =
      "%y: f32[B, 4] = opaque([%x], written=[&%x]) ; random\noutput \"y\" = %y\n";
  expect_marks(lines, lines);
}

}  // namespace
}  // namespace kerf
