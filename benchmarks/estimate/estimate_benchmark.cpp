// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// How long does it take to estimate a model's costs? See README.md.
#include <benchmark/benchmark.h>

#include <map>
#include <string>

#include "benchmarks/scale/families.h"
#include "kerf/device/kind.h"
#include "kerf/profile/estimate.h"

namespace kerf {
namespace {

// The generated models have no train mode: every weight and what follows from it learns.
Graph trained(const Graph& graph) {
  GraphData data = graph.data();
  data.training = true;
  for (const Weight& weight : data.weights) data.values[weight.value.index()].requires_grad = true;
  for (std::size_t n = 0; n < data.nodes.size(); ++n) {
    bool learns = false;
    for (const ValueId input : graph.inputs_of(NodeId{n})) {
      learns = learns || data.values[input.index()].requires_grad;
    }
    for (const ValueId output : data.nodes[n].outputs) {
      data.values[output.index()].requires_grad = learns;
    }
  }
  return Graph::freeze(std::move(data));
}

const Graph& cached_graph(const std::string& family, std::int64_t nodes) {
  static std::map<std::pair<std::string, std::int64_t>, Graph> cache;
  const auto key = std::make_pair(family, nodes);
  if (!cache.contains(key)) {
    const auto count = static_cast<std::size_t>(nodes);
    cache.emplace(key, trained(families::make(family, count, 0).graph));
  }
  return cache.at(key);
}

void run_estimate(benchmark::State& state, const std::string& family, bool training) {
  const Graph& graph = cached_graph(family, state.range(0));
  const DeviceKind& kind = device_kind("h200");
  // First the answer, then the time: products take twice their forward, the first layer once.
  const Profile checked = estimate(graph, kind, 0, training);
  double forward = 0;
  double backward = 0;
  for (const NodeCost& cost : checked.nodes) {
    forward += cost.macs;
    backward += cost.backward_macs;
  }
  if (!checked.unknown_ops.empty() ||
      (training && (backward < 1.5 * forward || backward > 2.5 * forward))) {
    state.SkipWithError("the estimate is not sound");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(estimate(graph, kind, 0, training));
  const auto nodes = static_cast<double>(graph.num_nodes());
  state.counters["s_per_node"] = benchmark::Counter(
      nodes, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Arg(1000)->Arg(10000)->Arg(100000)->Unit(benchmark::kMillisecond)->MinTime(0.2);
}

BENCHMARK_CAPTURE(run_estimate, transformer_forward, "transformer", false)->Apply(sizes);
BENCHMARK_CAPTURE(run_estimate, transformer_training, "transformer", true)->Apply(sizes);
BENCHMARK_CAPTURE(run_estimate, unet_forward, "unet", false)->Apply(sizes);
BENCHMARK_CAPTURE(run_estimate, unet_training, "unet", true)->Apply(sizes);
BENCHMARK_CAPTURE(run_estimate, experts_training, "mixture_of_experts", true)->Apply(sizes);
BENCHMARK_CAPTURE(run_estimate, inception_training, "inception", true)->Apply(sizes);

}  // namespace
}  // namespace kerf
