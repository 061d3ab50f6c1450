// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "kerf/libtorch/device_graph.h"
#include "kerf/libtorch/kernel.h"
#include "kerf/libtorch/torch_run.h"
#include "kerf/libtorch/weight_store.h"
#include "kerf/runtime/backend.h"

namespace kerf {

class TorchStage;

// PyTorch's devices for a cluster's. Throws Error(missing_backend) naming the first that is not on
// this machine.
std::vector<c10::Device> find_devices(const Cluster& cluster);

// Runs programs on PyTorch: CPU devices by threads that own their cores, accelerators by a stream a
// worker. Speaks PyTorch's device-generic interfaces only, so that one build serves all.
class TorchBackend : public Backend {
 public:
  // By device: why its stages are run operator by operator. Empty: they are recorded where they can
  // be (StageGraphs).
  using WhyNotRecorded = std::vector<std::string>;

  // Throws Error(missing_backend) for devices that are not here.
  TorchBackend(const Graph& graph, const Cluster& cluster, std::vector<at::Tensor> weights,
               OpaqueCalls opaque, WhyNotRecorded why_not_recorded = {});

  std::unique_ptr<StageRunner> load(const Program& program) override;
  bool runs_on_caller(DeviceId device) const override;
  void start_worker(DeviceId device) override;
  void enter(BackendRun& run, DeviceId device) override;
  void leave(BackendRun& run, DeviceId device) override;

  WeightStore& weights() { return weights_; }
  c10::Device torch_device(DeviceId device) const { return devices_[device.index()]; }
  const std::vector<const TorchStage*>& stages() const { return stages_; }  // in order of loading
  // What recordings hold on a device, beside the weights and the tensors of a run.
  std::int64_t recorded_bytes(DeviceId device) const;
  // Notes on the caller's thread what its streams have to finish before workers may read `run`'s
  // inputs.
  void mark_inputs(TorchRun& run) const;
  // Makes the caller's streams wait for what the workers of a training step have queued.
  void wait_for_workers(const TorchRun& run) const;
  // From now on the run records what it has in memory: weights of the device's stages, recordings,
  // and what is allocated. Not where a profiler of the caller listens.
  void record_memory(TorchRun& run);

 private:
  Graph graph_;
  Cluster cluster_;
  WeightStore weights_;
  OpaqueCalls opaque_;
  std::vector<c10::Device> devices_;  // PyTorch's, by DeviceId
  WhyNotRecorded why_not_recorded_;
  std::vector<std::unique_ptr<GraphPool>> pools_;  // by DeviceId; null where nothing is recorded
  std::vector<const TorchStage*> stages_;
};

}  // namespace kerf
