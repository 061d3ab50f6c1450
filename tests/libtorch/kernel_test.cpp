// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The executor without Python: graphs as text, tensors from C++.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"
#include "kerf/libtorch/threads.h"
#include "kerf/libtorch/torch_pipeline.h"
#include "tests/runtime/hand_plan.h"

namespace kerf {
namespace {

Graph model(const std::string& nodes) {
  return parse_graph("kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n" + nodes);
}

std::vector<std::string> all_nodes(const Graph& graph) {
  std::vector<std::string> out;
  for (const Node& node : graph.nodes()) out.push_back(node.name);
  return out;
}

at::Tensor run_one_stage(const Graph& graph, const at::Tensor& x,
                         std::vector<at::Tensor> weights = {}) {
  const Plan plan = hand_plan(graph, {all_nodes(graph)}, {0}, {"cpu:0"});
  TorchPipeline pipeline(graph, plan, std::move(weights), {}, {});
  return pipeline.run({x}, 1).outputs.at(0).toTensor();
}

TEST(AKernel, FillsInDefaultsAndWrapsNumbers) {
  const Graph graph = model(R"(%a: f32[B, 4] = aten.add.Tensor(%x, 2, alpha=3)
%b: f32[B, 4] = aten.mul.Tensor(%a, 0.5)
output "y" = %b
)");
  const at::Tensor x = at::randn({2, 4});
  EXPECT_TRUE(at::equal(run_one_stage(graph, x), at::mul(at::add(x, 2, 3), 0.5)));
}

TEST(AKernel, MakesSizesForEachBatch) {
  const Graph graph = model(R"(%v: f32[4*B] in %x = aten.view.default(~%x, [4*B])
%w: f32[2*B, 2] in %x = aten.view.default(~%v, [2*B, 2])
output "y" = %w
)");
  for (const int batch : {1, 5, 2}) {
    const at::Tensor x = at::randn({batch, 4});
    EXPECT_TRUE(at::equal(run_one_stage(graph, x), x.view({2 * batch, 2})));
  }
}

TEST(AKernel, FlattensListsOfResults) {
  const Graph graph = model(
      R"(%a: f32[B, 2]{4, 1} in %x, %b: f32[B, 2]{4, 1} in %x + 8 = aten.split.Tensor(~%x, 2, 1)
%c: f32[B, 4] = aten.cat.default([%b, %a], 1)
%m: f32[B], _ = aten.max.dim(%c, 1) ; name="m"
output "y" = %m
)");
  const at::Tensor x = at::randn({3, 4});
  EXPECT_TRUE(at::equal(run_one_stage(graph, x), std::get<0>(at::max(x, 1))));
}

TEST(AKernel, TakesOptionalTensorsInLists) {
  const Graph graph = model(
      R"(%i: i64[2] = aten.arange.start_step(3, 0, -2, dtype=dtype(i64), device=device(), pin_memory=false)
%s: f32[B, 2] = aten.index.Tensor(%x, [none, %i])
output "y" = %s
)");
  const at::Tensor x = at::randn({3, 4});
  EXPECT_TRUE(
      at::equal(run_one_stage(graph, x), x.index({at::indexing::Slice(), at::tensor({3, 1})})));
}

// Where a device lays memory out otherwise than the traced one did: the text says contiguous, the
// operator keeps the strides of a transpose.
TEST(AKernel, CopiesForAViewThatItsDevicesStridesMakeImpossible) {
  const Graph graph = model(R"(%t: f32[4, B]{1, 4} in %x = aten.t.default(~%x)
%n: f32[4, B] = aten.neg.default(%t)
%v: f32[4*B] in %n = aten.view.default(~%n, [4*B])
output "y" = %v
)");
  const at::Tensor x = at::randn({3, 4});
  EXPECT_TRUE(at::equal(run_one_stage(graph, x), x.t().neg().reshape({12})));
}

TEST(AKernel, GivesAsStridedTheMemoryThatWasTraced) {
  const Graph graph = model(R"(%t: f32[4, B]{1, 4} in %x = aten.t.default(~%x)
%n: f32[4, B] = aten.neg.default(%t)
%v: f32[2, B] in %n = aten.as_strided.default(~%n, [2, B], [B, 1], 0)
output "y" = %v
)");
  const at::Tensor x = at::randn({3, 4});
  EXPECT_TRUE(at::equal(run_one_stage(graph, x), x.t().neg().slice(0, 0, 2)));
}

TEST(AKernel, RefusesACopyWhereAWriteThroughTheViewWouldBeLost) {
  const Graph graph = model(R"(%t: f32[4, B]{1, 4} in %x = aten.t.default(~%x)
%n: f32[4, B] = aten.neg.default(%t)
%v: f32[4*B] in %n = aten.view.default(~%n, [4*B])
%w: f32[4*B] in %n = aten.add_.Tensor(&~%v, 1)
output "n" = %n
)");
  try {
    run_one_stage(graph, at::randn({3, 4}));
    FAIL() << "ran";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has strides [1, 4]"), std::string::npos)
        << error.what();
  }
}

// One sample is contiguous in any order. The model copies, where it is given the batch as a whole.
TEST(AKernel, CopiesForAMicroBatchWhatTheWholeBatchCopies) {
  const Graph graph = model(R"(%h: f32[B, 4] = aten.neg.default(%x)
%t: f32[4, B]{1, 4} in %h = aten.t.default(~%h)
%y: f32[4, B] = aten.contiguous.default(~%t)
%w: f32[4, B] in %y = aten.mul_.Tensor(&~%y, 2)
%z: f32[B, 4] = aten.neg.default(%h)
output "z" = %z
)");
  const Plan plan = hand_plan(graph, {all_nodes(graph)}, {0}, {"cpu:0"});
  TorchPipeline pipeline(graph, plan, {}, {}, {});
  const auto run = [&](const at::Tensor& x, int parts) {
    return pipeline.run({x}, parts).outputs.at(0).toTensor();
  };
  const at::Tensor x = at::randn({3, 4});
  EXPECT_TRUE(at::equal(run(x, 1), x));
  EXPECT_TRUE(at::equal(run(x, 3), x));
  EXPECT_TRUE(at::equal(run(x, 2), x));  // of two samples and of one
  const at::Tensor one = at::randn({1, 4});
  EXPECT_TRUE(at::equal(run(one, 1), one * 2));  // as the model, which copies nothing here
  EXPECT_TRUE(at::equal(run(one, 3), one * 2));
}

TEST(AKernel, NamesAnOperatorThatIsNotThere) {
  const Graph graph = model("%a: f32[B, 4] = nobody.knows.default(%x)\noutput \"y\" = %a\n");
  try {
    run_one_stage(graph, at::randn({2, 4}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported_operator);
    EXPECT_NE(std::string(error.what()).find("nobody.knows.default"), std::string::npos);
  }
}

TEST(AWrite, ToAReceivedTensorLeavesTheOthersAlone) {
  // Stage 2 reads %a while stage 1 overwrites its own copy.
  const Graph graph = model(R"(%a: f32[B, 4] = aten.add.Tensor(%x, 0)
%s: f32[B, 4] = aten.mul.Tensor(%a, 2)
%r: f32[B, 4] in %a = aten.relu_.default(&~%a)
%t: f32[B, 4] = aten.add.Tensor(%r, %s)
output "y" = %t
output "s" = %s
)");
  const at::Tensor x = at::randn({6, 4});
  const Plan plan = hand_plan(graph, {{"a"}, {"s"}, {"r", "t"}}, {0, 1, 0}, {"cpu:0", "cpu:1"}, 3);
  TorchPipeline pipeline(graph, plan, {}, {}, {});
  const auto result = pipeline.run({x}, 3);
  EXPECT_TRUE(at::equal(result.outputs[0].toTensor(), x.relu() + 2 * x));
  EXPECT_TRUE(at::equal(result.outputs[1].toTensor(), 2 * x));
}

TEST(AWorker, OwnsItsCoresAndLeavesTheCallersThreadsAlone) {
  const int before = at::get_num_threads();
  std::thread worker([] {
    own_cores({process_cores().front()});
    EXPECT_EQ(at::get_num_threads(), 1);
  });
  worker.join();
  EXPECT_EQ(at::get_num_threads(), before);
}

// Threads that PyTorch has not seen take the user's number at their first parallel loop, and tell
// it to MKL as well: a team of two on one core takes twice as long as one thread.
TEST(AWorker, KeepsToItsCoresWhateverTheUserHasSet) {
  using GetThreads = int (*)();
  void* const library = ::dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  const auto mkl_threads = reinterpret_cast<GetThreads>(::dlsym(library, "MKL_Get_Max_Threads"));
  const int before = at::get_num_threads();
  at::set_num_threads(before + 1);
  std::thread worker([&] {
    own_cores({process_cores().front()});
    int parts = 0;
    at::parallel_for(0, 1 << 20, 1, [&](std::int64_t, std::int64_t) { ++parts; });
    EXPECT_EQ(parts, 1);
    EXPECT_EQ(at::get_num_threads(), 1);
    if (mkl_threads != nullptr) EXPECT_EQ(mkl_threads(), 1);
  });
  worker.join();
  EXPECT_EQ(at::get_num_threads(), before + 1);
  at::set_num_threads(before);
}

TEST(Weights, OfAnotherShapeAreRefusedByName) {
  const Graph graph = model(R"(weight @w: f32[3, 4] = parameter "head.weight"
%a: f32[B, 3] = aten.linear.default(%x, @w)
output "y" = %a
)");
  const at::Tensor x = at::randn({2, 4});
  const at::Tensor w = at::randn({3, 4});
  EXPECT_TRUE(at::allclose(run_one_stage(graph, x, {w}), at::linear(x, w)));
  try {
    run_one_stage(graph, x, {at::randn({4, 4})});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("head.weight"), std::string::npos);
  }
}

}  // namespace
}  // namespace kerf
