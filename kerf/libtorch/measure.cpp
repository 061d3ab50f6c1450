// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <thread>

#include "kerf/base/interrupt.h"
#include "kerf/libtorch/random.h"
#include "kerf/libtorch/torch_backend.h"
#include "kerf/libtorch/torch_stage.h"

namespace kerf {
namespace {

struct Quartiles {
  double low = 0;
  double median = 0;
  double high = 0;
};

Quartiles quartiles(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1) + 0.5)];
  };
  return {at(0.25), at(0.5), at(0.75)};
}

// The whole graph as one stage.
Plan whole_plan(const Graph& graph, const Cluster& cluster, DeviceId device) {
  Plan plan;
  plan.graph_hash = graph.hash();
  plan.cluster = cluster;
  Stage& stage = plan.stages.emplace_back();
  stage.device = device;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) stage.nodes.push_back(NodeId(n));
  for (const Node& node : graph.nodes()) plan.node_names.push_back(node.name);
  return plan;
}

// Tensors that the model writes, with what they held: every pass begins with the same numbers, and
// the model's own weights are put back at the end.
class WrittenTensors {
 public:
  WrittenTensors(const Graph& graph, const std::vector<at::Tensor>& weights,
                 const std::vector<at::Tensor>& inputs) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      keep(graph, graph.weights()[i].value, weights[i]);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      keep(graph, graph.inputs()[i].value, inputs[i]);
    }
  }
  void restore() {
    const c10::AutoGradMode no_grad(false);
    for (auto& [tensor, copy] : saved_) tensor.copy_(copy);
  }

 private:
  void keep(const Graph& graph, ValueId value, const at::Tensor& tensor) {
    const StorageId storage = graph.value(value).storage;
    if (storage.valid() && graph.is_written(storage)) {
      saved_.emplace_back(tensor.detach(), tensor.detach().clone());
    }
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;
};

// The caller's tensors stay as they are: inputs that the model writes are copied, those that share
// one memory together.
std::vector<at::Tensor> own_inputs(const Graph& graph, std::vector<at::Tensor> inputs) {
  std::map<const void*, at::Tensor> copies;  // memory -> its copy, as bytes of one dimension
  const c10::AutoGradMode no_grad(false);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const StorageId storage = graph.value(graph.inputs()[i].value).storage;
    if (!storage.valid() || !graph.is_written(storage)) continue;
    at::Tensor& input = inputs[i];
    const void* const memory = input.storage().data();
    const auto [copy, is_new] = copies.try_emplace(memory);
    if (is_new) {
      const auto elements =
          static_cast<std::int64_t>(input.storage().nbytes() / input.element_size());
      copy->second = input.detach().as_strided({elements}, {1}, 0).clone();
    }
    at::Tensor& whole = copy->second;
    if (whole.scalar_type() != input.scalar_type()) whole = whole.view(input.scalar_type());
    input = whole.as_strided(input.sizes(), input.strides(), input.storage_offset());
  }
  return inputs;
}

// Passes over the graph until the total settles or the budget is spent.
std::vector<std::vector<double>> sample(TorchStage& stage, TorchRun& run, WrittenTensors& written,
                                        const MeasureOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::vector<double>> passes;
  std::vector<double> totals;
  std::vector<double> step_ns;
  const auto pass = [&] {
    written.restore();
    stage.run_timed(run, step_ns);
  };
  for (int i = 0; i < options.warmup; ++i) pass();
  while (static_cast<int>(passes.size()) < options.max_passes) {
    pass();
    passes.push_back(step_ns);
    double total = 0;
    for (const double ns : step_ns) total += ns;
    totals.push_back(total);
    if (static_cast<int>(passes.size()) < options.min_passes) continue;
    const Quartiles q = quartiles(totals);
    if (q.high - q.low <= options.spread * q.median) break;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (spent.count() > options.budget_seconds) break;
  }
  return passes;
}

Profile to_profile(const Graph& graph, const std::string& kind, std::int64_t batch,
                   const std::vector<std::vector<double>>& passes) {
  Profile profile;
  profile.graph_hash = graph.hash();
  profile.device_kind = kind;
  profile.batch = batch;
  profile.source = Source::measured;
  std::vector<double> samples(passes.size());
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    NodeCost cost = node_sizes(graph, NodeId(n), batch);
    for (std::size_t p = 0; p < passes.size(); ++p) samples[p] = passes[p][n];
    const Quartiles q = quartiles(samples);
    cost.forward = {q.median};
    cost.forward_spread = {q.high - q.low};
    cost.samples = static_cast<int>(passes.size());
    cost.source = Source::measured;
    profile.nodes.push_back(cost);
  }
  return profile;
}

// Calls `work` on a thread of its own. The caller polls meanwhile; what its poll throws ends the
// work where that polls, and is thrown here.
void run_on_own_thread(const std::function<void()>& work) {
  std::atomic<bool> stopped{false};
  auto done = std::async(std::launch::async, [&] {
    const PollScope scope([&] {
      if (stopped) throw Interrupted();
    });
    work();
  });
  std::exception_ptr interrupt;
  while (done.wait_for(std::chrono::duration<double>(kPollSeconds)) != std::future_status::ready) {
    try {
      poll_interrupt();
    } catch (...) {
      interrupt = std::current_exception();
      stopped = true;
    }
  }
  if (interrupt) std::rethrow_exception(interrupt);
  done.get();
}

}  // namespace

Profile measure(const Graph& graph, const Cluster& cluster, DeviceId device,
                std::vector<at::Tensor> weights, const std::vector<at::Tensor>& inputs,
                std::int64_t batch, const OpaqueCalls& opaque, const MeasureOptions& options) {
  const std::vector<at::Tensor> copied = own_inputs(graph, inputs);
  WrittenTensors written(graph, weights, copied);
  const Plan plan = whole_plan(graph, cluster, device);
  TorchBackend backend(graph, cluster, std::move(weights), opaque);
  const std::vector<Program> programs = compile_programs(graph, plan);
  TorchRun run(cluster.num_devices());
  run.batches = {batch};
  run.inputs = {copied};
  run.seed = draw_seed();
  backend.mark_inputs(run);

  // With the device's cores, as a worker would run it.
  std::vector<std::vector<double>> passes;
  std::exception_ptr failure;
  try {
    run_on_own_thread([&] {
      backend.start_worker(device);
      backend.enter(run, device);
      try {
        TorchStage stage(graph, programs[0], cluster.device(device), backend.weights(), opaque);
        passes = sample(stage, run, written, options);
      } catch (...) {
        run.adoptions[device.index()].reset();
        throw;
      }
      backend.leave(run, device);
    });
  } catch (...) {
    failure = std::current_exception();
  }
  written.restore();
  if (failure) std::rethrow_exception(failure);
  return to_profile(graph, cluster.device(device).kind, batch, passes);
}

}  // namespace kerf
