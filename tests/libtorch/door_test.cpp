// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What a graph says is checked against PyTorch's schemas before anything is called: operators that
// are called with the wrong types end the process.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"
#include "kerf/libtorch/torch_pipeline.h"
#include "tests/runtime/hand_plan.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& nodes, const OpaqueCalls& opaque = {}) {
  const Graph graph = parse_graph("kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n" +
                                  nodes + "\noutput \"y\" = %y\n");
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.push_back(node.name);
  try {
    TorchPipeline pipeline(graph, hand_plan(graph, {names}, {0}, {"cpu:0"}), {}, opaque, {});
    pipeline.run({at::ones({2, 4})}, 1);
  } catch (const Error& error) {
    return error.what();
  }
  return "it was taken";
}

TEST(TheDoor, RefusesArgumentsOfAnotherType) {
  const auto cat = [](const std::string& list) {
    return refusal("%y: f32[B, 8] = aten.cat.default(" + list + ")");
  };
  EXPECT_EQ(cat("[%x, %x], 1"), "it was taken");
  EXPECT_THAT(cat("[none, %x]"), HasSubstr("none as 'tensors'; expected Tensor"));
  EXPECT_THAT(cat("[[%x], %x]"), HasSubstr("a list as 'tensors'"));
  EXPECT_THAT(cat("[%x, 3]"), HasSubstr("as 'tensors'"));
  EXPECT_THAT(cat("none"), HasSubstr("none as 'tensors'"));
  EXPECT_THAT(cat("[%x], %x"), HasSubstr("tensor 'x' as 'dim'; expected int"));
  EXPECT_THAT(cat("[%x], \"1\""), HasSubstr("as 'dim'"));
  EXPECT_THAT(cat("[%x], [1]"), HasSubstr("a list as 'dim'"));
  EXPECT_THAT(cat("[%x], 1.5"), HasSubstr("as 'dim'"));
  EXPECT_THAT(cat("[%x], dtype(f32)"), HasSubstr("as 'dim'"));
  EXPECT_THAT(cat("[%x], 1, 1"), HasSubstr("does not take"));
  EXPECT_THAT(cat("[%x], dim=1, dim=1"), HasSubstr("gives 'dim' twice"));
  EXPECT_THAT(cat(""), HasSubstr("does not give 'tensors'"));
  const auto to = [](const std::string& arguments) {
    return refusal("%y: f32[B, 4] = aten._to_copy.default(%x, " + arguments + ")");
  };
  EXPECT_EQ(to("dtype=dtype(f32), device=device(\"cpu\")"), "it was taken");
  EXPECT_THAT(to("dtype=6"), HasSubstr("as 'dtype'"));
  EXPECT_THAT(to("device=\"cpu\""), HasSubstr("as 'device'"));
  EXPECT_THAT(to("device=device(\"sofa\")"), HasSubstr("PyTorch refuses"));
  EXPECT_THAT(to("layout=memory_format(preserve)"), HasSubstr("as 'layout'"));
  EXPECT_THAT(to("layout=layout(sofa)"), HasSubstr("layout(sofa)"));
  EXPECT_THAT(to("non_blocking=%x"), HasSubstr("as 'non_blocking'"));
}

TEST(TheDoor, RefusesResultsThatTheOperatorDoesNotGive) {
  EXPECT_THAT(refusal("%y: f32[B, 4], %z: f32[B, 4] = aten.relu.default(%x) ; name=\"n\""),
              HasSubstr("2 results; expected 1"));
  EXPECT_THAT(refusal("%y: f32[B] = aten.max.dim(%x, 1)"), HasSubstr("1 results; expected 2"));
  EXPECT_THAT(
      refusal("%s: scalar f32 = aten.relu.default(%x)\n%y: f32[B, 4] = aten.relu.default(%x)"),
      HasSubstr("expected Tensor"));
  EXPECT_THAT(refusal("%y: f32[B, 2]{4, 1} in %x = aten.split.Tensor(~%x, 2, 1)"),
              HasSubstr("it gave 2 results; the graph has 1"));
}

TEST(TheDoor, RefusesWritesAndViewsThatTheGraphDoesNotTell) {
  EXPECT_THAT(refusal("%a: f32[B, 4] = aten.relu.default(%x)\n"
                      "%y: f32[B, 4] in %a = aten.relu_.default(%a)"),
              HasSubstr("without saying that it changes"));
  EXPECT_THAT(refusal("%a: f32[B, 4] = aten.relu.default(%x)\n"
                      "%y: f32[4, B] = aten.t.default(%a)"),
              HasSubstr("results may share its memory"));
}

TEST(TheDoor, RefusesWritesThatNeitherTheSchemaNorTheGraphTells) {
  const auto norm = [](const std::string& statistics, const std::string& training) {
    return refusal(
        "%m: f32[4] = aten.zeros.default([4])\n%v: f32[4] = aten.ones.default([4])\n"
        "%y: f32[B, 4] = aten.batch_norm.default(%x, none, none, " +
        statistics + ", " + training + ", 0.1, 1e-05, true)");
  };
  EXPECT_THAT(norm("%m, %v", "true"), HasSubstr("'running_mean' without saying that it changes"));
  EXPECT_THAT(norm("&%m, %v", "true"), HasSubstr("'running_var' without saying that it changes"));
  EXPECT_EQ(norm("&%m, &%v", "true"), "it was taken");
  EXPECT_EQ(norm("%m, %v", "false"), "it was taken");
}

TEST(TheDoor, RefusesOperatorsThatActOnMoreThanTensors) {
  EXPECT_THAT(refusal("%y: u8[4] = aten.from_file.default(\"/etc/passwd\", false, 4)"),
              HasSubstr("which no graph may call"));
  EXPECT_THAT(refusal("() = aten._print.default(\"hello\") ; name=\"p\"\n%y: f32[B, 4] = "
                      "aten.relu.default(%x)"),
              HasSubstr("which no graph may call"));
  EXPECT_THAT(refusal("%y: f32[B, 4] in %x = aten.set_.source_Tensor(&%x, %x)"),
              HasSubstr("which no graph may call"));
  EXPECT_THAT(refusal("%y: f32[B, 4] = profiler._record_function_enter_new.default(\"a\", \"b\")"),
              HasSubstr("operators of 'profiler'"));
}

at::Tensor twice(const at::Tensor& x, c10::string_view) { return x + x; }
at::Tensor load(c10::string_view) { return at::ones({2, 4}); }

TORCH_LIBRARY(kerf_door_test, m) {
  m.def("twice(Tensor x, str mode) -> Tensor", &twice);
  m.def("load(str filename) -> Tensor", &load);
}

TEST(TheDoor, TakesOperatorsThatTheProgramHasRegisteredButNoFiles) {
  EXPECT_EQ(refusal("%y: f32[B, 4] = kerf_door_test.twice.default(%x, \"fast\")"), "it was taken");
  EXPECT_THAT(refusal("%y: f32[2, 4] = kerf_door_test.load.default(\"/etc/passwd\")"),
              HasSubstr("its 'filename' names a file"));
}

TEST(TheDoor, RefusesOpaqueBlocksWithoutAListOfTensors) {
  const OpaqueCalls calls{{"y", [](const std::vector<at::Tensor>& in, std::int64_t) {
                             return std::vector<at::Tensor>{in.at(0).clone()};
                           }}};
  const auto opaque = [&](const std::string& arguments) {
    return refusal("%y: f32[B, 4] = opaque(" + arguments + ")", calls);
  };
  EXPECT_EQ(opaque("[%x]"), "it was taken");
  for (const char* arguments : {"3", "[none, %x]", "%x", "", "[[%x]]", "\"x\""}) {
    EXPECT_THAT(opaque(arguments), HasSubstr("expected one list of tensors")) << arguments;
  }
}

}  // namespace
}  // namespace kerf
