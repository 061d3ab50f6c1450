// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_graph("kerf-graph 1.0\nbatch 2\n" + text, "hostile.graph");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_graph);
    return error.what();
  }
  return "it was taken";
}

TEST(AGraph, WhoseWeightsAddUpToMoreThanANumberHoldsIsRefused) {
  std::string weights;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "w" + std::to_string(i);
    weights += "weight @" + name + ": u8[4611686018427387904] = parameter \"" + name + "\"\n";
  }
  EXPECT_THAT(refusal(weights), HasSubstr("expected at most 2^60 bytes"));
  // Expanded: few bytes, many elements.
  std::string expanded;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "e" + std::to_string(i);
    expanded += "weight @" + name + ": u8[4611686018427387904]{0} = parameter \"" + name + "\"\n";
  }
  EXPECT_THAT(refusal(expanded), HasSubstr("expected at most 2^60 bytes"));
}

TEST(AGraph, WithBytesThatAreNoUtf8IsRefusedByName) {
  EXPECT_THAT(refusal("note \"caf\xe9\"\n"), HasSubstr("hostile.graph:3:10"));
  EXPECT_THAT(refusal("note \"caf\xe9\"\n"), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal("note \"caf\\xe9\"\n"), HasSubstr("UTF-8"));
  EXPECT_EQ(refusal("note \"caf\xc3\xa9 \\xc3\\xa9\"\n"), "it was taken");
}

// One node that writes and aliases n values of n others.
std::string wide_text(int n) {
  std::string text = "kerf-graph 1.0\nbatch 2\n";
  std::string arguments;
  std::string results;
  for (int i = 0; i < n; ++i) {
    const std::string k = std::to_string(i);
    text += "input %x" + k + ": f32[B] = \"args." + k + "\"\n";
    arguments += (i == 0 ? "&~%x" : ", &~%x") + k;
    results += (i == 0 ? "%y" : ", %y") + k + ": f32[B]";
  }
  return text + results + " = aten._foreach_add.Scalar([" + arguments + "], 1) ; name=\"n\"\n";
}

double seconds_to_load(int n) {
  const std::string text = wide_text(n);
  const auto start = std::chrono::steady_clock::now();
  parse_graph(text);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(AGraph, LoadsInNearlyLinearTimeWhenOneNodeWritesManyValues) {
  // Quadratic would be 25,000 times a small one's square: some 10 s.
  EXPECT_LT(seconds_to_load(25000), 2.0);
}

}  // namespace
}  // namespace kerf
