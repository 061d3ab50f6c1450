// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Conditions on the batch and attributes that were read: records of the graph since format 1.1.
#include "kerf/graph/condition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"

namespace kerf {
namespace {

using testing::HasSubstr;

Condition condition(const std::string& line) {
  return parse_graph("kerf-graph 1.1\nbatch 4\nrequire " + line + "\n").conditions().at(0);
}

std::string refusal(const std::string& lines) {
  try {
    parse_graph("kerf-graph 1.1\n" + lines, "a.graph");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_graph) << error.what();
    return error.what();
  }
  return "accepted";
}

TEST(ACondition, HoldsForSomeBatches) {
  EXPECT_TRUE(condition("B % 2 == 0").holds(6));
  EXPECT_FALSE(condition("B % 2 == 0").holds(7));
  EXPECT_TRUE(condition("B//2 == 2").holds(5));
  EXPECT_FALSE(condition("B//2 == 2").holds(6));
  EXPECT_FALSE(condition("B != 1").holds(1));
  EXPECT_FALSE(condition("2 < B").holds(2));
  EXPECT_TRUE(condition("2 <= B").holds(2));
  EXPECT_FALSE(condition("2 <= B").holds(1));
}

TEST(ACondition, DoesNotHoldWhereItCannotBeComputed) {
  EXPECT_FALSE(condition("8//(B-1) < 9").holds(1)) << "a division by zero";
  EXPECT_FALSE(condition("0 < B*B").holds(std::int64_t{1} << 40)) << "an overflow";
}

TEST(ACondition, IsFoundAndSaidInWordsWithTheModelsLine) {
  const Graph graph = parse_graph(
      "kerf-graph 1.1\nbatch 4\nrequire B <= 8\nrequire B % 2 == 0 ; source=\"model.py:12\"\n");
  EXPECT_EQ(find_violated(graph.conditions(), 6), nullptr);
  EXPECT_EQ(describe_violation(graph.conditions(), 6), "");
  EXPECT_EQ(describe_violation(graph.conditions(), 3),
            "a batch of 3, but model.py:12 took its path because (B%2) == 0 held for the example");
  EXPECT_EQ(describe_violation(graph.conditions(), 9),
            "a batch of 9, but the model took its path because B <= 8 held for the example");
}

std::string refused_sizes(const std::string& line, std::int64_t batch, int parts) {
  const Condition conditions[] = {condition(line)};
  try {
    check_conditions(conditions, batch, parts, "[here]");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(ACondition, IsCheckedForTheBatchAndForEachMicroBatch) {
  EXPECT_EQ(refused_sizes("B % 2 == 0", 8, 4), "");
  EXPECT_THAT(refused_sizes("B % 2 == 0", 7, 1), HasSubstr("[here] a batch of 7, but"));
  EXPECT_THAT(refused_sizes("B < 10", 16, 4), HasSubstr("a batch of 16"));
  EXPECT_THAT(refused_sizes("1 < B", 4, 4), HasSubstr("a micro-batch of 1"));
  EXPECT_THAT(refused_sizes("1 < B", 5, 3), HasSubstr("a micro-batch of 1")) << "2, 2, 1";
  EXPECT_EQ(refused_sizes("1 < B", 6, 3), "");
  EXPECT_THAT(refused_sizes("1 < B", 2, 100), HasSubstr("a micro-batch of 1"));
}

TEST(ACondition, MustHoldForTheExampleAndNeedsABatch) {
  EXPECT_THAT(refusal("batch 3\nrequire B % 2 == 0\n"),
              HasSubstr("the condition (B%2) == 0 and an example of batch 3"));
  EXPECT_THAT(refusal("require 1 == 1\n"), HasSubstr("in a static graph"));
}

TEST(ACondition, IsRefusedWithItsPlaceWhenItIsMalformed) {
  EXPECT_THAT(refusal("require B >= 2\n"), HasSubstr("a.graph:2:9"));
  EXPECT_THAT(refusal("require B = 2\n"), HasSubstr("expected ==, !=, < or <="));
  EXPECT_THAT(refusal("require B ==\n"), HasSubstr("a.graph:2"));
  EXPECT_THAT(refusal("require == 2\n"), HasSubstr("a.graph:2"));
  EXPECT_THAT(refusal("require B == 2 ; line=3\n"), HasSubstr("'source='"));
  EXPECT_THAT(refusal("require B == 2 ; source=\"a\" more\n"), HasSubstr("end of the line"));
}

TEST(AnAttribute, IsPlainData) {
  EXPECT_EQ(refusal("attribute \"up\" \"eps\" = [1, 1e-05, \"x\", none, [true]]\n"), "accepted");
  EXPECT_THAT(refusal("batch 2\nattribute \"up\" \"eps\" = B\n"), HasSubstr("plain data"));
  EXPECT_THAT(refusal("batch 2\ninput %x: f32[B] = \"args.0\"\nattribute \"\" \"x\" = [%x]\n"),
              HasSubstr("plain data"));
  EXPECT_THAT(refusal("attribute \"up\" \"\" = 1\n"), HasSubstr("without a name"));
  EXPECT_THAT(refusal("attribute \"up\" = 1\n"), HasSubstr("a.graph:2:16"));
}

TEST(AGraphFileOfFormat10, StillLoads) {
  const Graph graph = parse_graph("kerf-graph 1.0\ngraph \"g\"\nbatch 2\n");
  EXPECT_TRUE(graph.conditions().empty());
  EXPECT_EQ(print_graph(graph), "kerf-graph 1.1\ngraph \"g\"\nbatch 2\n");
}

}  // namespace
}  // namespace kerf
