// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// How long does `chain` take, and how far is its answer from the lower bound? See README.md.
//
// The graphs are shaped like decoders: blocks with residual links, views, a mask that every block
// uses, tied ends, node times from the analytic estimator with some noise.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <map>

#include "kerf/base/rng.h"
#include "kerf/device/devices.h"
#include "kerf/graph/text.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/profile/estimate.h"
#include "kerf/verify/verify_plan.h"

namespace kerf {
namespace {

constexpr int kDevices = 8;

enum Setting { kPlain, kUnequal, kTight, kShort, kLinks, kSlowLinks, kLopsided };

std::string block(int layer) {
  const std::string l = std::to_string(layer);
  const std::string in = layer == 0 ? "%embed" : fmt::format("%out{}", layer - 1);
  const auto node = [&](const std::string& name, const std::string& shape,
                        const std::string& call) {
    return fmt::format("%{}{}: f32[{}] = {}\n", name, l, shape, call);
  };
  const auto view = [&](const std::string& name, const std::string& shape, const std::string& of) {
    return fmt::format("%{0}{1}: f32[{2}] in %{3}{1} = aten.view.default(%{3}{1})\n", name, l,
                       shape, of);
  };
  const std::string wide = "B, 64, 256";
  const std::string heads = "B, 4, 64, 64";
  return node("norm", wide, fmt::format("aten.layer_norm.default({}, [256])", in)) +
         node("q", wide, fmt::format("aten.linear.default(%norm{0}, @wq{0})", l)) +
         node("k", wide, fmt::format("aten.linear.default(%norm{0}, @wk{0})", l)) +
         node("v", wide, fmt::format("aten.linear.default(%norm{0}, @wv{0})", l)) +
         view("qh", heads, "q") + view("kh", heads, "k") + view("vh", heads, "v") +
         node("score", heads, fmt::format("aten.matmul.default(%qh{0}, %kh{0})", l)) +
         node("masked", heads, fmt::format("aten.add.Tensor(%score{}, %mask)", l)) +
         node("soft", heads, fmt::format("aten.softmax.int(%masked{}, -1)", l)) +
         node("mix", heads, fmt::format("aten.matmul.default(%soft{0}, %vh{0})", l)) +
         view("join", wide, "mix") +
         node("proj", wide, fmt::format("aten.linear.default(%join{0}, @wo{0})", l)) +
         node("res", wide, fmt::format("aten.add.Tensor({}, %proj{})", in, l)) +
         node("second", wide, fmt::format("aten.layer_norm.default(%res{}, [256])", l)) +
         node("up", "B, 64, 1024", fmt::format("aten.linear.default(%second{0}, @wu{0})", l)) +
         node("act", "B, 64, 1024", fmt::format("aten.gelu.default(%up{})", l)) +
         node("down", wide, fmt::format("aten.linear.default(%act{0}, @wd{0})", l)) +
         node("drop", wide, fmt::format("aten.dropout.default(%down{}, 0.1, false)", l)) +
         node("out", wide, fmt::format("aten.add.Tensor(%res{0}, %drop{0})", l));
}

Graph decoder(int num_nodes) {
  const int layers = (num_nodes - 3) / 20;
  std::string text =
      "kerf-graph 1.0\ngraph \"decoder\"\nbatch 8\n"
      "input %ids: i64[B, 64] = \"args.0\"\n"
      "weight @wte: f32[8000, 256] = parameter \"wte\"\n";
  for (int l = 0; l < layers; ++l) {
    for (const char* name : {"wq", "wk", "wv", "wo"}) {
      text += fmt::format("weight @{0}{1}: f32[256, 256] = parameter \"h.{1}.{0}\"\n", name, l);
    }
    text += fmt::format(
        "weight @wu{0}: f32[1024, 256] = parameter \"h.{0}.wu\"\n"
        "weight @wd{0}: f32[256, 1024] = parameter \"h.{0}.wd\"\n",
        l);
  }
  text +=
      "%embed: f32[B, 64, 256] = aten.embedding.default(@wte, %ids)\n"
      "%mask: f32[64, 64] = aten.full.default([64, 64], 0.0)\n";
  for (int l = 0; l < layers; ++l) text += block(l);
  text += fmt::format(
      "%logits: f32[B, 64, 8000] = aten.linear.default(%out{}, @wte)\n"
      "output \"logits\" = %logits\n",
      layers - 1);
  return parse_graph(text);
}

Problem make_problem(int num_nodes, Setting setting) {
  Problem problem;
  problem.graph = decoder(num_nodes);
  problem.n_microbatches = 4;
  problem.profile = estimate(problem.graph, device_kind("a100"), problem.micro_batch());
  Rng rng(7);
  for (NodeCost& cost : problem.profile.nodes)
    cost.forward = cost.forward * (0.8 + 0.4 * rng.uniform());
  std::vector<std::string> names;
  for (int d = 0; d < kDevices; ++d) names.push_back(fmt::format("a100:{}", d));
  problem.cluster = make_cluster(names);
  const Plan whole = *partition::solve(problem, "single");
  const double share = static_cast<double>(whole.memory[0].predicted.count) / kDevices;
  for (std::size_t d = 0; d < problem.cluster.num_devices(); ++d) {
    Device& device = problem.cluster.devices[d];
    if (setting == kUnequal) device.speed = d % 2 == 0 ? 1.0 : 0.6;
    if (setting == kTight) device.memory = Bytes{static_cast<std::int64_t>(1.6 * share)};
    if (setting == kShort) device.memory = Bytes{static_cast<std::int64_t>(0.5 * share)};
    // All but one device can hold next to nothing: the one interval is nearly the whole graph.
    if (setting == kLopsided && d != 3)
      device.memory = Bytes{static_cast<std::int64_t>(0.1 * share)};
    if (setting == kLinks && d > 0) {
      problem.cluster.link(DeviceId{d - 1}, DeviceId{d}).bytes_per_second *= 4;
    }
  }
  // Cutting never pays: nothing below the whole graph on one device can be ruled out early.
  if (setting == kSlowLinks) {
    for (Link& link : problem.cluster.links) link.bytes_per_second /= 1e6;
  }
  return problem;
}

const Problem& cached_problem(int num_nodes, Setting setting) {
  static std::map<std::pair<int, int>, Problem> cache;
  const auto key = std::make_pair(num_nodes, static_cast<int>(setting));
  if (!cache.contains(key)) cache.emplace(key, make_problem(num_nodes, setting));
  return cache.at(key);
}

void run_chain(benchmark::State& state, Setting setting) {
  const Problem& problem = cached_problem(static_cast<int>(state.range(0)), setting);
  // First the answer, then the time.
  const auto checked = partition::solve(problem, "chain");
  if (checked && !verify_plan(problem.graph, &problem.profile, *checked).empty()) {
    state.SkipWithError("the plan is not sound");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(partition::solve(problem, "chain"));
  state.counters["nodes"] = static_cast<double>(problem.graph.num_nodes());
  state.counters["feasible"] = checked ? 1 : 0;
  if (!checked) return;
  const auto even = partition::solve(problem, "even");
  state.counters["bound_us"] = checked->lower_bound.value / 1e3;
  state.counters["chain_us"] = checked->busiest.count / 1e3;
  state.counters["even_us"] = even ? even->busiest.count / 1e3 : -1;
  state.counters["truncated"] = checked->truncated ? 1 : 0;
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Arg(1000)->Arg(3000)->Arg(10000)->Unit(benchmark::kMillisecond)->MinTime(0.1);
}

BENCHMARK_CAPTURE(run_chain, equal_devices, kPlain)->Apply(sizes);
BENCHMARK_CAPTURE(run_chain, unequal_speeds, kUnequal)->Apply(sizes);
BENCHMARK_CAPTURE(run_chain, tight_memory, kTight)->Apply(sizes);
BENCHMARK_CAPTURE(run_chain, short_of_memory, kShort)->Apply(sizes);
BENCHMARK_CAPTURE(run_chain, unequal_links, kLinks)->Apply(sizes);
BENCHMARK_CAPTURE(run_chain, slow_links, kSlowLinks)->Apply(sizes);
BENCHMARK_CAPTURE(run_chain, lopsided_memory, kLopsided)->Apply(sizes);

}  // namespace
}  // namespace kerf
