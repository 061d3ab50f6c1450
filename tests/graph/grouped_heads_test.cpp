// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/grouped_heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/graph/text.h"

namespace kerf {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kRepeats = R"(%u: f32[B, 2, 1, 6, 4] in %k = aten.unsqueeze.default(~%k, 2)
%e: f32[B, 2, 3, 6, 4]{48, 24, 0, 4, 1} in %k = aten.expand.default(~%u, [B, 2, 3, 6, 4])
%r: f32[B, 6, 6, 4] = aten.reshape.default(~%e, [B, 6, 6, 4])
)";

std::string grouped(const std::string& arguments, const std::string& repeats = kRepeats) {
  return print_graph(group_heads(
      parse_graph("kerf-graph 1.0\nbatch 2\ninput %q: f32[B, 6, 8, 4] = \"args.0\"\n"
                  "input %k: f32[B, 2, 6, 4] = \"args.1\"\ninput %m: bool[8, 6] = \"args.2\"\n" +
                  repeats + "%y: f32[B, 6, 8, 4] = aten.scaled_dot_product_attention.default(" +
                  arguments + ")\noutput \"y\" = %y\n")));
}

TEST(RepeatedHeads, AreSaidToBeGroups) {
  const std::string text = grouped("%q, %r, %r, none, is_causal=true, scale=0.5");
  EXPECT_THAT(text, HasSubstr("default(%q, %k, %k, none, is_causal=true, scale=0.5, "
                              "enable_gqa=true)"));
  EXPECT_THAT(text, Not(HasSubstr("aten.reshape")));
}

TEST(RepeatedHeads, AreKeptUnderAMask) {
  EXPECT_THAT(grouped("%q, %r, %r, %m"), HasSubstr("default(%q, %r, %r, %m)"));
}

TEST(RepeatedHeads, AreKeptWhereTheResultIsUsedOtherwise) {
  // One of the two is not repeated so: groups would repeat both.
  EXPECT_THAT(grouped("%q, %r, %c",
                      std::string(kRepeats) + "%c: f32[B, 6, 6, 4] = aten.clone.default(%r)\n"),
              HasSubstr("default(%q, %r, %c)"));
}

TEST(RepeatedHeads, OfAnotherOrderAreNoGroups) {
  // Head by head of all groups: 0 1 0 1 0 1, where enable_gqa means 0 0 0 1 1 1.
  EXPECT_THAT(grouped("%q, %r, %r",
                      R"(%u: f32[B, 1, 2, 6, 4] in %k = aten.unsqueeze.default(~%k, 1)
%e: f32[B, 3, 2, 6, 4]{48, 0, 24, 4, 1} in %k = aten.expand.default(~%u, [B, 3, 2, 6, 4])
%r: f32[B, 6, 6, 4] = aten.reshape.default(~%e, [B, 6, 6, 4])
)"),
              HasSubstr("default(%q, %r, %r)"));
}

}  // namespace
}  // namespace kerf
