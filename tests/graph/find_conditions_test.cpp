// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What operators ask of the batch.
#include "kerf/graph/passes/find_conditions.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/graph/captured.h"

namespace kerf {
namespace {

std::string conditions_of(const std::string& training, const std::string& reshaped = "") {
  const std::string input = reshaped.empty() ? "%x" : "%r";
  Captured calls = captured(
      (reshaped.empty() ? ""
                        : "%r: f32[" + reshaped + "] = aten.reshape.default(%x, [B, 2, 2])\n") +
      "%y: f32[" + (reshaped.empty() ? "B, 4" : reshaped) + "] = aten.batch_norm.default(" + input +
      ", none, none, none, none, " + training + ", 0.1, 1e-05, false)\noutput \"y\" = %y\n");
  find_conditions(calls);
  find_conditions(calls);  // says nothing twice
  std::string out;
  for (const Condition& condition : calls.data.conditions) out += condition.str() + ";";
  return out;
}

TEST(BatchNorm, TakesMoreThanOneValuePerChannel) {
  EXPECT_EQ(conditions_of("true"), "B != 1;");
  EXPECT_EQ(conditions_of("false"), "");
  EXPECT_EQ(conditions_of("true", "B, 2, 2"), "");  // two of one sample
}

}  // namespace
}  // namespace kerf
