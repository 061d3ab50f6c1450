// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/measure.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "kerf/graph/condition.h"
#include "kerf/graph/train_mode.h"
#include "kerf/libtorch/block_gradients.h"
#include "kerf/libtorch/kept_memory.h"
#include "kerf/libtorch/measure_steps.h"
#include "kerf/libtorch/neighbours.h"
#include "kerf/libtorch/own_thread.h"
#include "kerf/libtorch/torch_backend.h"
#include "kerf/libtorch/torch_stage.h"
#include "kerf/libtorch/written_tensors.h"
#include "kerf/profile/measured_sizes.h"

namespace kerf {
namespace {

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

// A device with the whole graph on it. Made by the caller's thread, used by one of its own.
class Seat {
 public:
  // The caller's inputs stay as they are; weights are written, and put back by `restore`.
  Seat(const Graph& graph, const Cluster& cluster, DeviceId device, std::vector<at::Tensor> weights,
       const std::vector<at::Tensor>& inputs, std::int64_t batch, const OpaqueCalls& opaque)
      : graph_(graph),
        cluster_(cluster),
        device_(device),
        opaque_(opaque),
        inputs_(own_written_inputs(graph, inputs)),
        written_(graph, weights, inputs_),
        backend_(graph, cluster, std::move(weights), opaque),
        plan_(whole_plan(graph, cluster, device)),
        programs_(compile_programs(graph, plan_)),
        on_caller_(backend_.runs_on_caller(device)),
        run_(cluster.num_devices(), on_caller_) {
    run_.batches = {batch};
    run_.inputs = {inputs_};
    if (!on_caller_) backend_.mark_inputs(run_);
  }

  const WeightStore& weights() { return backend_.weights(); }
  // The thread that would run a single stage here: host memory, say, costs more on another.
  bool on_caller() const { return on_caller_; }
  c10::Device torch_device() const { return backend_.torch_device(device_); }
  void restore() { written_.restore(); }

  // Calls `use` with the loaded graph, on this thread.
  void with_stage(const std::function<void(const MeasuredStage&)>& use) {
    if (!on_caller_) backend_.start_worker(device_);
    backend_.enter(run_, device_);
    try {
      TorchStage stage(graph_, programs_[0], cluster_.device(device_), backend_.weights(), opaque_);
      use({graph_, plan_.stages[0].nodes, stage, run_, received_, torch_device(),
           [&] { restore(); }});
    } catch (...) {
      backend_.leave(run_, device_);
      throw;
    }
    backend_.leave(run_, device_);
  }

 private:
  const Graph& graph_;
  const Cluster& cluster_;
  DeviceId device_;
  const OpaqueCalls& opaque_;
  std::vector<at::Tensor> inputs_;
  WrittenTensors written_;
  TorchBackend backend_;
  Plan plan_;
  std::vector<Program> programs_;
  const std::vector<ParcelPtr> received_;  // nothing: there is one stage
  bool on_caller_;
  TorchRun run_;
};

bool is_core_of(const Device& device, int core) {
  return std::find(device.cores.begin(), device.cores.end(), core) != device.cores.end();
}

// CPU devices with cores of their own, beside a CPU device.
std::vector<DeviceId> neighbours_of(const Cluster& cluster, DeviceId measured) {
  std::vector<DeviceId> out;
  const Device& own = cluster.device(measured);
  if (!own.host) return out;
  for (std::size_t d = 0; d < cluster.num_devices(); ++d) {
    const Device& other = cluster.devices[d];
    const bool apart = std::none_of(other.cores.begin(), other.cores.end(),
                                    [&](int core) { return is_core_of(own, core); });
    if (other.host && !other.cores.empty() && apart) out.emplace_back(d);
  }
  return out;
}

bool has_blocks(const Graph& graph) {
  const std::vector<Node>& nodes = graph.nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const Node& node) { return node.op == "opaque"; });
}

}  // namespace

Profile measure(const Graph& graph, const Cluster& cluster, DeviceId device,
                std::vector<at::Tensor> weights, const std::vector<at::Tensor>& inputs,
                std::int64_t batch, const OpaqueCalls& opaque, const MeasureOptions& options) {
  if (options.training) check_train_mode(graph, "libtorch.measure");
  check_conditions(graph.conditions(), batch, 1, "[libtorch.measure]");
  const KeptMemory kept_memory;  // as in a pipeline that runs
  Profile profile = measured_sizes(graph, cluster.device(device).kind, cluster.device(device).host,
                                   batch, options.training);
  std::vector<DeviceId> beside = neighbours_of(cluster, device);
  if (!beside.empty() && has_blocks(graph)) {
    profile.notes.push_back(
        "measured while the other CPU devices were idle: opaque blocks cannot run beside each "
        "other");
    beside.clear();
  }
  std::vector<std::unique_ptr<Seat>> seats;
  for (const DeviceId other : beside) {
    seats.push_back(std::make_unique<Seat>(
        graph, cluster, other, own_written_weights(graph, weights), inputs, batch, opaque));
  }
  Seat seat(graph, cluster, device, std::move(weights), inputs, batch, opaque);
  std::optional<BlockGradients> kept_gradients;
  if (options.training) kept_gradients.emplace(graph, seat.weights());
  std::vector<Neighbours::Work> works;
  for (const auto& other : seats) {
    works.emplace_back([&](Neighbours::Gate& gate) {
      other->with_stage(
          [&](const MeasuredStage& stage) { keep_busy(stage, options.training, gate); });
    });
  }
  const auto work = [&] {
    Neighbours neighbours(std::move(works));
    seat.with_stage([&](const MeasuredStage& measured) {
      (options.training ? measure_training : measure_forward)(measured, options, neighbours,
                                                              profile);
    });
    neighbours.check();
  };
  std::exception_ptr failure;
  try {
    if (seat.on_caller()) {
      const c10::InferenceMode no_inference_mode(false);
      const c10::AutoGradMode no_grad(false);
      work();
    } else {
      run_on_own_thread(work);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  seat.restore();
  if (failure) std::rethrow_exception(failure);
  return profile;
}

}  // namespace kerf
