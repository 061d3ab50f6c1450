// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/measure.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>

#include "kerf/base/interrupt.h"
#include "kerf/graph/train_mode.h"
#include "kerf/libtorch/kept_memory.h"
#include "kerf/libtorch/measure_steps.h"
#include "kerf/libtorch/neighbours.h"
#include "kerf/libtorch/torch_backend.h"
#include "kerf/libtorch/torch_stage.h"
#include "kerf/profile/saved/saved.h"

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

// Tensors that the model writes are copied, those that share one memory together; the others stay.
// `items`: what the tensors are for, inputs or weights of the graph.
template <class Items>
std::vector<at::Tensor> own_written(const Graph& graph, const Items& items,
                                    std::vector<at::Tensor> tensors) {
  std::map<const void*, at::Tensor> copies;  // memory -> its copy, as bytes of one dimension
  const c10::AutoGradMode no_grad(false);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const StorageId storage = graph.value(items[i].value).storage;
    if (!storage.valid() || !graph.is_written(storage)) continue;
    at::Tensor& tensor = tensors[i];
    const void* const memory = tensor.storage().data();
    const auto [copy, is_new] = copies.try_emplace(memory);
    if (is_new) {
      const auto elements =
          static_cast<std::int64_t>(tensor.storage().nbytes() / tensor.element_size());
      copy->second = tensor.detach().as_strided({elements}, {1}, 0).clone();
    }
    at::Tensor& whole = copy->second;
    if (whole.scalar_type() != tensor.scalar_type()) whole = whole.view(tensor.scalar_type());
    tensor = whole.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  return tensors;
}

// With the bytes that follow from shapes.
Profile sizes_alone(const Graph& graph, const std::string& kind, std::int64_t batch,
                    bool training) {
  Profile profile;
  profile.graph_hash = graph.hash();
  profile.device_kind = kind;
  profile.batch = batch;
  profile.training = training;
  profile.source = Source::measured;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    profile.nodes.push_back(node_sizes(graph, NodeId(n), batch));
    profile.nodes.back().source = Source::measured;
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
        inputs_(own_written(graph, graph.inputs(), inputs)),
        written_(graph, weights, inputs_),
        backend_(graph, cluster, std::move(weights), opaque),
        programs_(compile_programs(graph, whole_plan(graph, cluster, device))),
        on_caller_(backend_.runs_on_caller(device)),
        run_(cluster.num_devices(), on_caller_) {
    run_.batches = {batch};
    run_.inputs = {inputs_};
    if (!on_caller_) backend_.mark_inputs(run_);
  }

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
      use({graph_, stage, run_, torch_device(), [&] { restore(); }});
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
  std::vector<Program> programs_;
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
  const KeptMemory kept_memory;  // as in a pipeline that runs
  Profile profile = sizes_alone(graph, cluster.device(device).kind, batch, options.training);
  std::vector<DeviceId> beside = neighbours_of(cluster, device);
  if (!beside.empty() && has_blocks(graph)) {
    profile.notes.push_back(
        "measured while the other CPU devices were idle: opaque blocks cannot run beside each "
        "other");
    beside.clear();
  }
  std::vector<std::unique_ptr<Seat>> seats;
  for (const DeviceId other : beside) {
    seats.push_back(std::make_unique<Seat>(graph, cluster, other,
                                           own_written(graph, graph.weights(), weights), inputs,
                                           batch, opaque));
  }
  Seat seat(graph, cluster, device, std::move(weights), inputs, batch, opaque);
  if (options.training) {  // by the rules: autograd does not say what it keeps
    const SavedSets sets = find_saved(graph, batch, !seat.torch_device().is_cpu());
    const std::vector<Bytes> saved = saved_alone(graph, sets, batch);
    for (std::size_t n = 0; n < saved.size(); ++n) profile.nodes[n].saved = saved[n];
  }
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
