// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "kerf/libtorch/kernel.h"
#include "kerf/libtorch/torch_run.h"
#include "kerf/libtorch/weight_store.h"
#include "kerf/runtime/backend.h"

namespace kerf {

// PyTorch's devices for a cluster's. Throws Error(missing_backend) naming the first that is not on
// this machine.
std::vector<c10::Device> find_devices(const Cluster& cluster);

// Runs programs on PyTorch: CPU devices by threads that own their cores, accelerators by a stream a
// worker. Speaks PyTorch's device-generic interfaces only, so that one build serves all.
class TorchBackend : public Backend {
 public:
  // Throws Error(missing_backend) for devices that are not here.
  TorchBackend(const Graph& graph, const Cluster& cluster, std::vector<at::Tensor> weights,
               OpaqueCalls opaque);

  std::unique_ptr<StageRunner> load(const Program& program) override;
  bool runs_on_caller(DeviceId device) const override;
  void start_worker(DeviceId device) override;
  void enter(BackendRun& run, DeviceId device) override;
  void leave(BackendRun& run, DeviceId device) override;

  WeightStore& weights() { return weights_; }
  c10::Device torch_device(DeviceId device) const { return devices_[device.index()]; }
  // Notes on the caller's thread what its streams have to finish before workers may read `run`'s
  // inputs.
  void mark_inputs(TorchRun& run) const;

 private:
  Graph graph_;
  Cluster cluster_;
  WeightStore weights_;
  OpaqueCalls opaque_;
  std::vector<c10::Device> devices_;  // PyTorch's, by DeviceId
};

}  // namespace kerf
