// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/remove_needless_copies.h"

#include <gtest/gtest.h>

#include "kerf/graph/passes/find_effects.h"
#include "kerf/graph/passes/remove_identities.h"
#include "tests/graph/captured.h"

namespace kerf {
namespace {

const std::string kCopy =
    "weight @c: f32[4] = constant \"c\"\n"
    "%copy: f32[4] = aten.lift_fresh_copy.default(@c)\n";

Graph without_copies(const std::string& lines) {
  Captured calls = captured(kCopy + lines);
  find_effects(calls);
  remove_needless_copies(calls);
  return frozen(std::move(calls));
}

TEST(Copies, OfConstantsThatNothingChangesGo) {
  EXPECT_EQ(print_graph(without_copies("%y: f32[B, 4] = aten.add.Tensor(%x, %copy)\n"
                                       "output \"y\" = %y\n")),
            print_graph(graph_of("weight @c: f32[4] = constant \"c\"\n"
                                 "%y: f32[B, 4] = aten.add.Tensor(%x, @c)\n"
                                 "output \"y\" = %y\n")));
}

TEST(Copies, StayWhereTheyAreChanged) {
  EXPECT_EQ(without_copies("%v: f32[4] in %copy = aten.view.default(%copy, [4])\n"
                           "%a: f32[4] in %copy = aten.relu_.default(%v)\n"
                           "%y: f32[B, 4] = aten.add.Tensor(%x, %a)\n"
                           "output \"y\" = %y\n")
                .num_nodes(),
            4U);
}

// The dropout was traced in memory of its own, and gives back the copy when the model runs.
TEST(Copies, StayWhereTheyAreChangedBehindAnIdentity) {
  Captured calls = captured(kCopy +
                            "%d: f32[4] = aten.dropout.default(%copy, 0.5, false)\n"
                            "%a: f32[4] in %d = aten.relu_.default(%d)\n"
                            "%y: f32[B, 4] = aten.add.Tensor(%x, %a)\n"
                            "output \"y\" = %y\n");
  find_effects(calls);
  remove_identities(calls);
  remove_needless_copies(calls);
  ASSERT_EQ(calls.data.nodes.size(), 3U);
  EXPECT_EQ(calls.data.nodes[0].op, "aten.lift_fresh_copy.default");
}

TEST(Copies, StayWhereTheyLeaveTheModel) {
  EXPECT_EQ(without_copies("output \"y\" = %copy\n").num_nodes(), 1U);
  EXPECT_EQ(without_copies("%v: f32[2, 2] in %copy = aten.view.default(%copy, [2, 2])\n"
                           "output \"y\" = %v\n")
                .num_nodes(),
            2U);
}

TEST(Copies, StayWhereABlockChangesThem) {
  EXPECT_EQ(without_copies("%y: f32[B, 4] = opaque([%x, %copy], written=[&%copy])\n"
                           "output \"y\" = %y\n")
                .num_nodes(),
            2U);
}

}  // namespace
}  // namespace kerf
