// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/torch_backend.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/libtorch/convert.h"
#include "kerf/libtorch/threads.h"
#include "kerf/libtorch/torch_stage.h"

namespace kerf {
namespace {

using c10::impl::VirtualGuardImpl;

void check_is_here(const Device& device, c10::Device found) {
  if (found.is_cpu()) return;
  const bool registered = c10::impl::hasDeviceGuardImpl(found.type());
  const int count = registered ? static_cast<int>(VirtualGuardImpl(found.type()).deviceCount()) : 0;
  if (found.index() < count) return;
  throw Error(ErrorKind::missing_backend,
              fmt::format("[libtorch.device] device '{}' is not on this machine, which has {} of "
                          "kind '{}'; expected devices of this machine; plan for other devices, or "
                          "run the plan on a machine that has them",
                          device.name, count, device.kind));
}

}  // namespace

std::vector<c10::Device> find_devices(const Cluster& cluster) {
  std::vector<c10::Device> out;
  for (const Device& device : cluster.devices) {
    out.push_back(to_torch_device(device));
    check_is_here(device, out.back());
  }
  return out;
}

TorchBackend::TorchBackend(const Graph& graph, const Cluster& cluster,
                           std::vector<at::Tensor> weights, OpaqueCalls opaque,
                           WhyNotRecorded why_not_recorded)
    : graph_(graph),
      cluster_(cluster),
      weights_(graph, std::move(weights)),
      opaque_(std::move(opaque)),
      devices_(find_devices(cluster)),
      why_not_recorded_(std::move(why_not_recorded)) {
  pools_.resize(devices_.size());
  why_not_recorded_.resize(devices_.size(), "recording was not requested");
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    if (why_not_recorded_[d].empty())
      pools_[d] = make_graph_pool(devices_[d], why_not_recorded_[d]);
  }
}

std::unique_ptr<StageRunner> TorchBackend::load(const Program& program) {
  const std::size_t d = program.device.index();
  auto stage =
      std::make_unique<TorchStage>(graph_, program, cluster_.device(program.device), weights_,
                                   opaque_, pools_[d].get(), why_not_recorded_[d]);
  stages_.push_back(stage.get());
  return stage;
}

std::int64_t TorchBackend::recorded_bytes(DeviceId device) const {
  std::int64_t bytes = pools_[device.index()] ? pools_[device.index()]->bytes() : 0;
  for (const TorchStage* stage : stages_) {
    if (stage->program().device == device) bytes += stage->graphs().place_bytes();
  }
  return bytes;
}

bool TorchBackend::runs_on_caller(DeviceId device) const {
  if (!torch_device(device).is_cpu()) return true;
  const auto& cores = cluster_.device(device).cores;
  const auto all = process_cores();
  return cores.empty() || std::all_of(all.begin(), all.end(), [&](int core) {
           return std::find(cores.begin(), cores.end(), core) != cores.end();
         });
}

void TorchBackend::start_worker(DeviceId device) {
  const c10::Device target = torch_device(device);
  if (target.is_cpu()) return own_cores(cluster_.device(device).cores);
  const VirtualGuardImpl guard(target.type());
  guard.setDevice(target);
  guard.exchangeStream(guard.getStreamFromGlobalPool(target));
}

void TorchBackend::mark_inputs(TorchRun& run) const {
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    if (devices_[d].is_cpu()) continue;
    run.inputs_ready[d] = std::make_shared<c10::Event>(devices_[d].type());
    run.inputs_ready[d]->record(VirtualGuardImpl(devices_[d].type()).getStream(devices_[d]));
  }
}

void TorchBackend::record_memory(TorchRun& run) {
  run.memory = MemoryRecord::start(devices_, run.start);
  if (!run.memory) return;
  std::set<std::pair<DeviceId, const void*>> counted;
  for (const TorchStage* stage : stages_) {
    const DeviceId device = stage->program().device;
    for (const ValueId id : stage->program().weights) {
      const at::Tensor& weight = weights_.on(graph_.value(id).position, torch_device(device));
      if (!counted.emplace(device, weight.storage().unsafeGetStorageImpl()).second) continue;
      const auto bytes = static_cast<std::int64_t>(weight.storage().nbytes());
      run.memory->add(device, MemoryKind::weights, {bytes});
    }
  }
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    const std::int64_t bytes = recorded_bytes(DeviceId{d});
    if (bytes > 0) run.memory->add(DeviceId{d}, MemoryKind::workspace, {bytes});
  }
}

void TorchBackend::enter(BackendRun& backend_run, DeviceId device) {
  auto& run = static_cast<TorchRun&>(backend_run);
  const std::size_t d = device.index();
  if (run.caller) run.adoptions[d] = std::make_unique<CallerState::Adoption>(*run.caller);
  run.listening[d].emplace(run.memory, device);
  const c10::Device target = torch_device(device);
  if (target.is_cpu()) {
    // Code of the user's that ran here in the last call may have set another number.
    if (run.caller) own_threads(cluster_.device(device).cores.size());
    return;
  }
  const VirtualGuardImpl guard(target.type());
  run.restore[d] = guard.exchangeDevice(target);
  if (!run.inputs_ready[d]) return;
  const c10::Stream stream = guard.getStream(target);
  run.inputs_ready[d]->block(stream);
  for (const auto& inputs : run.inputs) {
    for (const at::Tensor& tensor : inputs) {
      if (tensor.device() == target) tensor.record_stream(stream);
    }
  }
}

void TorchBackend::leave(BackendRun& backend_run, DeviceId device) {
  auto& run = static_cast<TorchRun&>(backend_run);
  const std::size_t d = device.index();
  if (run.training != nullptr && run.caller && !devices_[d].is_cpu()) {
    run.work_done[d] = std::make_shared<c10::Event>(devices_[d].type());
    run.work_done[d]->record(VirtualGuardImpl(devices_[d].type()).getStream(devices_[d]));
  }
  if (run.restore[d]) VirtualGuardImpl(run.restore[d]->type()).setDevice(*run.restore[d]);
  run.restore[d].reset();
  run.listening[d].reset();
  run.adoptions[d].reset();
}

void TorchBackend::wait_for_workers(const TorchRun& run) const {
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    if (!run.work_done[d]) continue;
    run.work_done[d]->block(VirtualGuardImpl(devices_[d].type()).getStream(devices_[d]));
  }
}

}  // namespace kerf
