// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/span_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kerf/base/error.h"
#include "tests/emit/golden.h"

namespace kerf {
namespace {

using testing::HasSubstr;
using testing::Not;

SpanProfile two_layers() {
  SpanProfile profile;
  profile.device_kind = "cuda";
  profile.spans.resize(3);
  profile.costs.resize(3);
  profile.spans[0] = {.name = "x", .kind = "placeholder", .target = "x"};
  profile.costs[0].accumulate = Bytes{512};
  profile.costs[0].output = Bytes{512};
  profile.spans[1] = {.name = "up", .kind = "call_module", .target = "up"};
  profile.costs[1].accumulate = Bytes{512};
  profile.costs[1].temp = Bytes{1024};
  profile.costs[1].param = Bytes{2176};
  profile.costs[1].backward = Bytes{512};
  profile.costs[1].fwd_flop = 8192;
  profile.costs[1].bwd_flop = 8448;
  profile.spans[2] = {.name = "fused<T>", .kind = "call_function", .target = "fused.my_op"};
  profile.costs[2].accumulate = Bytes{1536};
  profile.costs[2].fwd_flop = 2048;
  profile.costs[2].known = false;
  profile.totals.saved = Bytes{1536};
  profile.totals.param = Bytes{2176};
  profile.totals.fwd_flop = 10240;
  profile.totals.bwd_flop = 8448;
  profile.unknown_ops = {{.op = "fused.my_op.default", .count = 1, .share = 0.5}};
  profile.ops_without_rule = {"fused.my_op.default"};
  return profile;
}

TEST(ASpanTable, ReadsAsText) { expect_golden("span_table.txt", span_table(two_layers())); }

TEST(ASpanTable, IsSortedAndCutWhileTotalsCountAll) {
  const std::string text = span_table(two_layers(), {.sort = "fwd_flop", .limit = 1});
  EXPECT_THAT(text, HasSubstr("up"));
  EXPECT_THAT(text, Not(HasSubstr("placeholder")));
  EXPECT_THAT(text, HasSubstr("3 nodes"));
  EXPECT_THAT(text, HasSubstr("10.24 kFLOP"));
}

TEST(ASpanTable, RefusesAColumnThatIsNone) {
  EXPECT_THAT([] { span_table(two_layers(), {.sort = "fwd_flops"}); },
              testing::ThrowsMessage<Error>(HasSubstr("sort is 'fwd_flops'; expected one of")));
}

TEST(ASpanTable, EscapesNamesInHtml) {
  const std::string html = span_table_html(two_layers());
  EXPECT_THAT(html, HasSubstr("fused&lt;T&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("fused<T>")));
}

TEST(ASpanTable, HoldsEveryFigureInJson) {
  const auto json = nlohmann::json::parse(span_table_json(two_layers()));
  EXPECT_EQ(json.at("totals").at("saved"), 1536);
  EXPECT_EQ(json.at("nodes").at(2).at("incremental"), 1024);
  EXPECT_EQ(json.at("nodes").at(2).at("known"), false);
  EXPECT_EQ(json.at("unknown_ops").at(0).at("share"), 0.5);
}

}  // namespace
}  // namespace kerf
