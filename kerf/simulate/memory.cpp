// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "kerf/plan/metrics.h"
#include "kerf/plan/recompute.h"
#include "kerf/profile/optimizer.h"
#include "kerf/simulate/footprint.h"
#include "kerf/simulate/progress.h"
#include "kerf/simulate/training_footprint.h"

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

  void train(const Optimizer& optimizer) {
    trained_ = trained_storages(graph_);
    states_ = optimizer.state;
    step_temporaries_ = optimizer.temporaries;
  }

  std::vector<DeviceMemory> run() {
    std::vector<DeviceMemory> memory(cluster_.num_devices());
    for (std::size_t d = 0; d < memory.size(); ++d) {
      const WeightBytes bytes = weights_of([&](DeviceId device) { return device == DeviceId{d}; });
      memory[d].weights = bytes.weights;
      memory[d].gradients = bytes.trained;
      memory[d].optimizer = bytes.trained * states_;
      memory[d].activations = peak(DeviceId{d});
      if (!cluster_.devices[d].host) {
        memory[d].activations = std::max(memory[d].activations, bytes.trained * step_temporaries_);
      }
    }
    for (int g = 0; g < cluster_.num_memory_groups(); ++g) {
      const WeightBytes bytes = weights_of([&](DeviceId device) { return group_of(device) == g; });
      Bytes total = bytes.weights + bytes.trained * (1 + states_);
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

  struct WeightBytes {
    Bytes weights;
    Bytes trained;  // of those that have gradients
  };

  template <class Included>
  WeightBytes weights_of(Included&& included) const {
    std::set<StorageId> storages;
    for (std::size_t s = 0; s < footprints_.size(); ++s) {
      if (!included(stage_devices_[s])) continue;
      storages.insert(footprints_[s].weights.begin(), footprints_[s].weights.end());
    }
    WeightBytes sum;
    for (const StorageId id : storages) {
      const Bytes bytes{graph_.storage(id).bytes.eval(micro_batch_)};
      sum.weights += bytes;
      if (!trained_.empty() && trained_[id.index()]) sum.trained += bytes;
    }
    return sum;
  }

  // Held memory that is released together: same stages have to run first.
  struct HeldGroup {
    std::vector<PassId> users;
    bool result;
    friend auto operator<=>(const HeldGroup&, const HeldGroup&) = default;
  };
  using HeldGroups = std::map<HeldGroup, Bytes>;

  // What comes from another memory, or from the caller: it is there from when the first of the
  // device's passes that use it starts, whichever the schedule has first, until the last has run.
  struct Arrival {
    Bytes bytes;
    std::vector<PassId> users;
  };
  struct Buffers {
    std::vector<HeldGroups> held;   // by pass: what it leaves behind
    std::vector<Bytes> inputs;      // by pass: what comes for it alone
    std::vector<Arrival> arrivals;  // what comes for several
  };

  Buffers buffers_of(DeviceId device) const {
    Buffers buffers{
        std::vector<HeldGroups>(footprints_.size()), std::vector<Bytes>(footprints_.size()), {}};
    // A tensor and its gradients are different parcels.
    std::map<std::pair<ValueId, PassId>, Arrival> received;
    for (std::size_t s = 0; s < footprints_.size(); ++s) {
      if (stage_devices_[s] != device) continue;
      for (const HeldItem& item : footprints_[s].held) {
        std::vector<PassId> users = item.users;
        for (const PassId keeper : item.keepers) {
          if (group_of(stage_devices_[keeper.index()]) == group_of(device)) users.push_back(keeper);
        }
        buffers.held[s][{std::move(users), item.result}] += item.bytes;
      }
      for (const ReceivedValue& value : footprints_[s].received) {
        const bool elsewhere =
            !value.from.valid() || group_of(stage_devices_[value.from.index()]) != group_of(device);
        if (!elsewhere) continue;
        Arrival& arrival = received[{value.value, value.from}];
        arrival.bytes = value.bytes;
        arrival.users.emplace_back(s);
      }
    }
    for (auto& [parcel, arrival] : received) {
      if (arrival.users.size() == 1) {
        buffers.inputs[arrival.users.front().index()] += arrival.bytes;
      } else {
        buffers.arrivals.push_back(std::move(arrival));
      }
    }
    return buffers;
  }

  // The most that is live on the device beside its weights, under any timing. Moments are numbered:
  // 2 i while task i runs, 2 i + 1 when it has ended and the next one may have to wait.
  Bytes peak(DeviceId device) const {
    const std::vector<Task>& tasks = schedule_[device.index()];
    const Buffers buffers = buffers_of(device);
    std::vector<Bytes> change(2 * tasks.size() + 2);
    if (left_out_ > 0) change[tasks.size()] += left_behind(device, buffers) * left_out_;
    for (const Arrival& arrival : buffers.arrivals) add_arrival(arrival, change);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      for (const auto& [group, bytes] : buffers.held[tasks_.pass(tasks[i]).index()]) {
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
      const std::size_t pass = tasks_.pass(tasks[moment / 2]).index();
      most = std::max(most, held + footprints_[pass].activations + buffers.inputs[pass]);
    }
    return most;
  }

  void add_arrival(const Arrival& arrival, std::vector<Bytes>& change) const {
    for (int m = 0; m < tasks_.n_microbatches(); ++m) {
      std::size_t first = change.size();
      std::size_t last = 0;
      for (const PassId user : arrival.users) {
        const std::size_t index = progress_.index(tasks_.id(user, m));
        first = std::min(first, index);
        last = std::max(last, index);
      }
      change[2 * first] += arrival.bytes;
      change[2 * last + 1] -= arrival.bytes;
    }
  }

  // What a micro-batch of the middle leaves until the step ends: results, and what nothing tells
  // the device that it was used.
  Bytes left_behind(DeviceId device, const Buffers& buffers) const {
    const std::vector<Task>& tasks = schedule_[device.index()];
    if (tasks.empty()) return {};
    const int middle = tasks[tasks.size() / 2].microbatch;
    Bytes sum;
    for (const HeldGroups& held : buffers.held) {
      for (const auto& [group, bytes] : held) {
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
    for (const PassId user : group.users) {
      const std::size_t first = progress_.first_after(device, tasks_.id(user, microbatch));
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
  // Training: by storage, and bytes per byte of what is trained.
  std::vector<bool> trained_;
  std::int64_t states_ = 0;
  std::int64_t step_temporaries_ = 0;
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
  const auto all = static_cast<std::size_t>(std::max(plan.n_microbatches, 0));
  return !plan.training ? static_cast<int>(std::min(all, rounds)) : plan.n_microbatches;
}

}  // namespace

StageSizes stage_sizes(const Graph& graph, const Footprint& footprint, std::int64_t micro_batch,
                       std::size_t num_stages) {
  StageSizes sizes;
  sizes.activations = footprint.activations;
  for (const StorageId id : footprint.weights) {
    sizes.weights += Bytes{graph.storage(id).bytes.eval(micro_batch)};
  }
  for (const ReceivedValue& value : footprint.received) sizes.inputs += value.bytes;
  for (const HeldItem& item : footprint.held) {
    const bool leaves = std::any_of(item.users.begin(), item.users.end(),
                                    [&](PassId user) { return user.index() < num_stages; });
    if (leaves || item.result) sizes.outputs += item.bytes;
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
  const TaskTable tasks({stage_dependencies(graph, stage_of, stage_devices.size()), {}, false},
                        count_microbatches(schedule));
  const Progress progress(schedule, tasks);
  return MemoryEngine(graph, footprints, stage_devices, cluster, schedule, tasks, progress,
                      micro_batch, 0)
      .run();
}

PlanMemory plan_footprints(const Graph& graph, const Plan& plan, const Profile& profile) {
  PlanMemory out;
  if (plan.training) {
    TrainingFootprints found = training_footprints(graph, plan, profile);
    out.saved = std::move(found.saved);
    out.passes = std::move(found.passes);
  } else {
    out.passes = stage_footprints(graph, plan.stage_of_nodes(), plan.num_stages(), plan.micro_batch,
                                  profile.workspaces());
  }
  return out;
}

std::vector<std::vector<DeviceMemory>> copies_memory(const Graph& graph, const Plan& plan,
                                                     std::span<const std::vector<DeviceId>> copies,
                                                     const Profile& profile) {
  return copies_memory(graph, plan, copies, plan_footprints(graph, plan, profile));
}

std::vector<std::vector<DeviceMemory>> copies_memory(const Graph& graph, const Plan& plan,
                                                     std::span<const std::vector<DeviceId>> copies,
                                                     const PlanMemory& footprints) {
  const int enough = enough_microbatches(plan);
  const TaskTable tasks(step_shape(plan), enough);
  std::vector<std::vector<DeviceMemory>> memory;
  for (const std::vector<DeviceId>& devices : copies) {
    const Schedule schedule = make_schedule(plan, devices, enough);
    const Progress progress(schedule, tasks);
    std::vector<DeviceId> pass_devices;
    for (std::size_t phase = 0; phase < tasks.shape().num_phases(); ++phase) {
      pass_devices.insert(pass_devices.end(), devices.begin(), devices.end());
    }
    MemoryEngine engine(graph, footprints.passes, pass_devices, plan.cluster, schedule, tasks,
                        progress, plan.micro_batch, plan.n_microbatches - enough);
    if (plan.training) engine.train(optimizer(plan.optimizer));
    memory.push_back(engine.run());
  }
  return memory;
}

void add_memory(std::vector<DeviceMemory>& sum, std::span<const DeviceMemory> copy) {
  for (std::size_t d = 0; d < sum.size(); ++d) {
    sum[d].weights += copy[d].weights;
    sum[d].gradients += copy[d].gradients;
    sum[d].optimizer += copy[d].optimizer;
    sum[d].activations += copy[d].activations;
    sum[d].predicted += copy[d].predicted;
  }
}

std::vector<DeviceMemory> sum_of_copies(std::vector<std::vector<DeviceMemory>> copies) {
  std::vector<DeviceMemory> sum = std::move(copies.front());
  for (std::size_t c = 1; c < copies.size(); ++c) add_memory(sum, copies[c]);
  return sum;
}

std::vector<DeviceMemory> plan_memory(const Graph& graph, const Plan& plan,
                                      const Profile& profile) {
  return sum_of_copies(copies_memory(graph, plan, plan.copies(), profile));
}

}  // namespace kerf
