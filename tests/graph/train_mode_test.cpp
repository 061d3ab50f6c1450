// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/train_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"

namespace kerf {
namespace {

std::string refusal_of(const std::string& mode, const std::string& scopes, const std::string& op) {
  const Graph graph = parse_graph(
      "kerf-graph 1.0\ngraph \"net\"" + mode + "\nbatch 2\nscope 0 \"\" \"Net\"\n" + scopes +
      "input %x: f32[B, 8] = \"args.0\"\n%y: f32[B, 8] = " + op + "\noutput \"y\" = %y\n");
  try {
    check_train_mode(graph, "plan.make");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(AGraphTracedInTrainMode, IsTaken) {
  EXPECT_EQ(refusal_of(" training", "", "aten.relu.default(%x)"), "no error");
}

TEST(AGraphTracedInEvalMode, IsRefusedWithWhatDiffersAndTheFix) {
  EXPECT_EQ(refusal_of("", "", "aten.relu.default(%x)"),
            "[plan.make] graph 'net' was traced in eval mode, where dropout does nothing and batch "
            "norm takes its running statistics; expected a graph of the model in train mode; trace "
            "model.train()");
}

TEST(AGraphTracedInEvalMode, NamesModulesThatDifferAndNodesWithoutAModule) {
  const std::string text = refusal_of("",
                                      "scope 1 \"a\" \"Dropout\"\nscope 2 \"b\" \"Dropout\"\n"
                                      "scope 3 \"c\" \"Dropout2d\"\nscope 4 \"d\" \"Dropout\"\n",
                                      "aten.batch_norm.default(%x, none, none, none, none, false, "
                                      "0.1, 1e-05, true)");
  EXPECT_THAT(text, testing::HasSubstr("does nothing (a, b, c and 1 more)"));
  EXPECT_THAT(text, testing::HasSubstr("statistics (y)"));
}

}  // namespace
}  // namespace kerf
