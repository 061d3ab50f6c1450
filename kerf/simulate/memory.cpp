// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "kerf/plan/metrics.h"
#include "kerf/simulate/footprint.h"
#include "kerf/simulate/progress.h"

namespace kerf {
namespace {

class MemoryEngine {
 public:
  MemoryEngine(const Graph& graph, std::span<const Footprint> footprints,
               std::span<const DeviceId> stage_devices, const Cluster& cluster,
               const Schedule& schedule, const TaskTable& tasks, const Progress& progress,
               std::int64_t micro_batch, std::int64_t left_out)
      : graph_(graph),
        footprints_(footprints),
        stage_devices_(stage_devices),
        cluster_(cluster),
        schedule_(schedule),
        tasks_(tasks),
        progress_(progress),
        micro_batch_(micro_batch),
        left_out_(left_out) {}

  std::vector<DeviceMemory> run() {
    std::vector<DeviceMemory> memory(cluster_.num_devices());
    for (std::size_t d = 0; d < memory.size(); ++d) {
      memory[d].weights = weights_of([&](DeviceId device) { return device == DeviceId{d}; });
      memory[d].activations = peak(DeviceId{d});
    }
    for (int g = 0; g < cluster_.num_memory_groups(); ++g) {
      Bytes total = weights_of([&](DeviceId device) { return group_of(device) == g; });
      for (const DeviceId device : cluster_.group(g)) total += memory[device.index()].activations;
      for (const DeviceId device : cluster_.group(g)) {
        DeviceMemory& each = memory[device.index()];
        each.predicted = total;
        each.limited = cluster_.group_limited(g);
        if (each.limited) each.limit = cluster_.group_limit(g);
      }
    }
    return memory;
  }

 private:
  int group_of(DeviceId device) const { return cluster_.device(device).memory_group; }

  template <class Included>
  Bytes weights_of(Included&& included) const {
    std::set<StorageId> storages;
    for (std::size_t s = 0; s < footprints_.size(); ++s) {
      if (!included(stage_devices_[s])) continue;
      storages.insert(footprints_[s].weights.begin(), footprints_[s].weights.end());
    }
    Bytes sum;
    for (const StorageId id : storages) sum += Bytes{graph_.storage(id).bytes.eval(micro_batch_)};
    return sum;
  }

  // Held memory that is released together: same stages have to run first.
  struct HeldGroup {
    std::vector<StageId> users;
    bool result;
    friend auto operator<=>(const HeldGroup&, const HeldGroup&) = default;
  };
  using HeldGroups = std::map<HeldGroup, Bytes>;

  // The input buffers a stage has to make room for, and the groups it leaves behind. A tensor from
  // another memory that several stages of this device use is received by the first of them and held
  // for the others.
  struct StageBuffers {
    Bytes inputs;
    HeldGroups held;
  };

  std::vector<StageBuffers> buffers_of(DeviceId device) const {
    std::vector<StageBuffers> buffers(footprints_.size());
    std::map<ValueId, std::vector<StageId>> received;  // from other memories, with its users here
    std::map<ValueId, Bytes> bytes;
    for (std::size_t s = 0; s < footprints_.size(); ++s) {
      if (stage_devices_[s] != device) continue;
      for (const HeldItem& item : footprints_[s].held) {
        buffers[s].held[{item.users, item.result}] += item.bytes;
      }
      for (const ReceivedValue& value : footprints_[s].received) {
        const bool elsewhere =
            !value.from.valid() || group_of(stage_devices_[value.from.index()]) != group_of(device);
        if (!elsewhere) continue;
        received[value.value].emplace_back(s);
        bytes[value.value] = value.bytes;
      }
    }
    for (const auto& [value, users] : received) {
      StageBuffers& first = buffers[users.front().index()];
      first.inputs += bytes[value];
      if (users.size() > 1) {
        first.held[{{users.begin() + 1, users.end()}, false}] += bytes[value];
      }
    }
    return buffers;
  }

  // The most that is live on the device beside its weights, under any timing. Moments are numbered:
  // 2 i while task i runs, 2 i + 1 when it has ended and the next one may have to wait.
  Bytes peak(DeviceId device) const {
    const std::vector<Task>& tasks = schedule_[device.index()];
    const std::vector<StageBuffers> buffers = buffers_of(device);
    std::vector<Bytes> change(2 * tasks.size() + 2);
    if (left_out_ > 0) change[tasks.size()] += left_behind(device, buffers) * left_out_;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      for (const auto& [group, bytes] : buffers[tasks[i].stage.index()].held) {
        change[2 * i + 1] += bytes;
        change[std::min(release(device, tasks[i].microbatch, group), change.size() - 1)] -= bytes;
      }
    }
    Bytes held;
    Bytes most;
    for (std::size_t moment = 0; moment < 2 * tasks.size(); ++moment) {
      held += change[moment];
      most = std::max(most, held);
      if (moment % 2 == 1) continue;
      const std::size_t stage = tasks[moment / 2].stage.index();
      most = std::max(most, held + footprints_[stage].activations + buffers[stage].inputs);
    }
    return most;
  }

  // What a micro-batch of the middle leaves until the step ends: results, and what nothing tells
  // the device that it was used.
  Bytes left_behind(DeviceId device, const std::vector<StageBuffers>& buffers) const {
    const std::vector<Task>& tasks = schedule_[device.index()];
    if (tasks.empty()) return {};
    const int middle = tasks[tasks.size() / 2].microbatch;
    Bytes sum;
    for (const StageBuffers& stage : buffers) {
      for (const auto& [group, bytes] : stage.held) {
        if (release(device, middle, group) >= 2 * tasks.size() - 1) sum += bytes;
      }
    }
    return sum;
  }

  // The first moment of the device at which every user has surely run the micro-batch: a user on
  // the device itself when it has run, another one when a task starts that depends on it.
  std::size_t release(DeviceId device, int microbatch, const HeldGroup& group) const {
    constexpr auto kNever = std::numeric_limits<std::size_t>::max();
    if (group.result) return kNever;
    std::size_t moment = 0;
    for (const StageId user : group.users) {
      const std::size_t first = progress_.first_after(device, tasks_.id({user, microbatch}));
      const bool here = stage_devices_[user.index()] == device;
      moment = std::max(moment, here ? 2 * first - 1 : 2 * first);
    }
    return moment;
  }

  const Graph& graph_;
  std::span<const Footprint> footprints_;
  std::span<const DeviceId> stage_devices_;
  const Cluster& cluster_;
  const Schedule& schedule_;
  const TaskTable& tasks_;
  const Progress& progress_;
  std::int64_t micro_batch_;
  std::int64_t left_out_;  // micro-batches of the middle of the step
};

int count_microbatches(const Schedule& schedule) {
  int count = 0;
  for (const std::vector<Task>& tasks : schedule) {
    for (const Task& task : tasks) count = std::max(count, task.microbatch + 1);
  }
  return count;
}

// A step whose middle is all alike is as well judged by a shorter one: an order of tasks that
// repeats itself guarantees the same in every repetition, once what it guarantees has come to all
// devices. One device hears of another through a chain of stages, each of which it may have to wait
// for once for every device on the way.
int enough_microbatches(const Plan& plan) {
  const std::size_t rounds = 2 * (plan.cluster.num_devices() + 1) * (plan.num_stages() + 1) + 4;
  const bool repeats = schedule_maker(plan.schedule) == fill_drain;
  const auto all = static_cast<std::size_t>(std::max(plan.n_microbatches, 0));
  return repeats ? static_cast<int>(std::min(all, rounds)) : plan.n_microbatches;
}

}  // namespace

std::vector<StageSizes> stage_sizes(const Graph& graph, std::span<const StageId> stage_of,
                                    std::size_t num_stages, std::int64_t micro_batch,
                                    std::span<const Bytes> workspace) {
  std::vector<StageSizes> sizes;
  for (const Footprint& footprint :
       stage_footprints(graph, stage_of, num_stages, micro_batch, workspace)) {
    StageSizes& each = sizes.emplace_back();
    each.activations = footprint.activations;
    for (const StorageId id : footprint.weights) {
      each.weights += Bytes{graph.storage(id).bytes.eval(micro_batch)};
    }
    for (const ReceivedValue& value : footprint.received) each.inputs += value.bytes;
    for (const HeldItem& item : footprint.held) each.outputs += item.bytes;
  }
  return sizes;
}

std::vector<DeviceMemory> device_memory(const Graph& graph, std::span<const StageId> stage_of,
                                        std::span<const DeviceId> stage_devices,
                                        const Cluster& cluster, const Schedule& schedule,
                                        std::int64_t micro_batch,
                                        std::span<const Bytes> workspace) {
  const std::vector<Footprint> footprints =
      stage_footprints(graph, stage_of, stage_devices.size(), micro_batch, workspace);
  const TaskTable tasks(stage_dependencies(graph, stage_of, stage_devices.size()),
                        count_microbatches(schedule));
  const Progress progress(schedule, tasks);
  return MemoryEngine(graph, footprints, stage_devices, cluster, schedule, tasks, progress,
                      micro_batch, 0)
      .run();
}

std::vector<std::vector<DeviceMemory>> copies_memory(const Graph& graph, const Plan& plan,
                                                     std::span<const std::vector<DeviceId>> copies,
                                                     std::span<const Bytes> workspace) {
  // What does not depend on the devices is found once.
  const std::vector<StageId> stage_of = plan.stage_of_nodes();
  const std::vector<Footprint> footprints =
      stage_footprints(graph, stage_of, plan.num_stages(), plan.micro_batch, workspace);
  const ScheduleMaker make = schedule_maker(plan.schedule);
  const int enough = enough_microbatches(plan);
  const TaskTable tasks(stage_dependencies(graph, stage_of, plan.num_stages()), enough);
  std::vector<std::vector<DeviceMemory>> memory;
  for (const std::vector<DeviceId>& devices : copies) {
    const Schedule schedule = make(devices, static_cast<int>(plan.cluster.num_devices()), enough);
    const Progress progress(schedule, tasks);
    memory.push_back(MemoryEngine(graph, footprints, devices, plan.cluster, schedule, tasks,
                                  progress, plan.micro_batch, plan.n_microbatches - enough)
                         .run());
  }
  return memory;
}

void add_memory(std::vector<DeviceMemory>& sum, std::span<const DeviceMemory> copy) {
  for (std::size_t d = 0; d < sum.size(); ++d) {
    sum[d].weights += copy[d].weights;
    sum[d].activations += copy[d].activations;
    sum[d].predicted += copy[d].predicted;
  }
}

std::vector<DeviceMemory> plan_memory(const Graph& graph, const Plan& plan,
                                      std::span<const Bytes> workspace) {
  auto copies = copies_memory(graph, plan, plan.copies(), workspace);
  std::vector<DeviceMemory> sum = std::move(copies.front());
  for (std::size_t c = 1; c < copies.size(); ++c) add_memory(sum, copies[c]);
  return sum;
}

}  // namespace kerf
