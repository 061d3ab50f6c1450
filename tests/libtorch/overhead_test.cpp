// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the executor adds to each operator, over the dispatcher that it calls. The shortest of
// several runs counts, so that a busy machine does not.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>

#include "kerf/graph/text.h"
#include "kerf/libtorch/torch_pipeline.h"
#include "tests/runtime/hand_plan.h"

namespace kerf {
namespace {

constexpr int kNodes = 1000;
constexpr int kRuns = 30;

template <class Work>
double shortest_ns(Work&& work) {
  double best = 1e18;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  return best / kNodes;
}

TEST(TheExecutor, AddsLessThanThreeMicrosecondsToAnOperator) {
  std::string text = "kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n";
  std::string last = "x";
  std::vector<std::string> names;
  for (int i = 0; i < kNodes; ++i) {
    names.push_back(fmt::format("n{}", i));
    text += fmt::format("%{}: f32[B, 4] = aten.neg.default(%{})\n", names.back(), last);
    last = names.back();
  }
  const Graph graph = parse_graph(text + "output \"y\" = %" + last + "\n");
  TorchPipeline pipeline(graph, hand_plan(graph, {names}, {0}, {"cpu:0"}), {}, {}, {});
  const at::Tensor x = at::randn({2, 4});
  const double executor = shortest_ns([&] { pipeline.run({x}, 1); });

  const c10::OperatorHandle neg = c10::Dispatcher::singleton().findSchemaOrThrow("aten::neg", "");
  const double dispatcher = shortest_ns([&] {
    const at::AutoDispatchBelowAutograd below_autograd;
    std::vector<c10::IValue> stack{c10::IValue(x)};
    for (int i = 0; i < kNodes; ++i) neg.callBoxed(stack);
  });
  RecordProperty("executor_ns", fmt::format("{:.0f}", executor));
  RecordProperty("dispatcher_ns", fmt::format("{:.0f}", dispatcher));
  fmt::print("an operator: {:.0f} ns by the dispatcher, {:.0f} ns more by the executor\n",
             dispatcher, executor - dispatcher);
  EXPECT_LT(executor - dispatcher, 3000);
}

}  // namespace
}  // namespace kerf
