// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/derive_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "kerf/base/interrupt.h"
#include "kerf/profile/optimizer.h"
#include "kerf/verify/task_order.h"

namespace kerf::derive {
namespace {

constexpr auto kNever = std::numeric_limits<std::size_t>::max();

// One copy of the plan's stages.
class Copy {
 public:
  // The step has `left_out` micro-batches more, all of them in its middle.
  Copy(const Graph& graph, const Flow& flow, std::span<const StageNeeds> needs, const Plan& plan,
       std::span<const DeviceId> devices, TaskOrder order, std::size_t left_out)
      : graph_(graph),
        needs_(needs),
        cluster_(plan.cluster),
        micro_batch_(plan.micro_batch),
        devices_(devices),
        order_(std::move(order)),
        left_out_(static_cast<std::int64_t>(left_out)),
        followers_(flow.num_stages()) {
    for (std::size_t s = 0; s < flow.num_stages(); ++s) {
      for (const StageId before : flow.after[s]) followers_[before.index()].push_back(s);
    }
    if (!plan.training) return;
    state_ = optimizer(plan.optimizer).state;
    temporaries_ = optimizer(plan.optimizer).temporaries;
    for (const Weight& weight : graph.weights()) {
      const Value& value = graph.value(weight.value);
      if (value.requires_grad) trained_.insert(value.storage);
    }
  }

  // Adds what the copy needs to `sum`. Copies share nothing, not even in one memory.
  void add_to(std::vector<DeviceMemory>& sum) {
    std::map<int, Bytes> groups;  // their weights, each once, and the peaks of their devices
    std::map<int, std::set<StorageId>> seen;
    for (const DeviceId device : std::set<DeviceId>(devices_.begin(), devices_.end())) {
      DeviceMemory& memory = sum[device.index()];
      std::set<StorageId> own;
      for (const std::size_t s : stages_on(device)) {
        own.insert(needs_[s].weights.begin(), needs_[s].weights.end());
      }
      Bytes trained;
      for (const StorageId id : own) {
        const Bytes bytes{graph_.storage(id).bytes.eval(micro_batch_)};
        const bool has_gradient = trained_.contains(id);
        memory.weights += bytes;
        if (has_gradient) trained += bytes;
        if (!seen[group_of(device)].insert(id).second) continue;
        groups[group_of(device)] += bytes * (has_gradient ? 2 + state_ : 1);
      }
      memory.gradients += trained;
      memory.optimizer += trained * state_;
      Bytes peak = find_peak(device);
      if (!cluster_.device(device).host) peak = std::max(peak, trained * temporaries_);
      memory.activations += peak;
      groups[group_of(device)] += peak;
    }
    for (std::size_t d = 0; d < sum.size(); ++d) {
      const auto found = groups.find(cluster_.devices[d].memory_group);
      if (found != groups.end()) sum[d].predicted += found->second;
    }
  }

 private:
  int group_of(DeviceId device) const { return cluster_.device(device).memory_group; }
  std::vector<std::size_t> stages_on(DeviceId device) const {
    std::vector<std::size_t> stages;
    for (std::size_t s = 0; s < devices_.size(); ++s) {
      if (devices_[s] == device) stages.push_back(s);
    }
    return stages;
  }

  // Which stages have to run first, or `result`.
  using Users = std::pair<std::vector<StageId>, bool>;
  // What the stages of a device leave there, and what comes to them from other memories or from the
  // caller.
  struct Buffers {
    std::map<std::size_t, std::map<Users, Bytes>> kept;                            // by stage
    std::map<std::tuple<ValueId, StageId, Bytes>, std::vector<StageId>> received;  // its users
  };

  Buffers find_buffers(DeviceId device) const {
    Buffers buffers;
    for (const std::size_t s : stages_on(device)) {
      for (const Kept& kept : needs_[s].kept) {
        std::vector<StageId> users = kept.users;
        for (const StageId sharer : kept.sharers) {
          if (group_of(devices_[sharer.index()]) == group_of(device)) users.push_back(sharer);
        }
        buffers.kept[s][{users, kept.result}] += kept.bytes;
      }
      for (const Arrival& arrival : needs_[s].received) {
        const StageId maker = arrival.from;
        const bool here = maker.valid() && group_of(devices_[maker.index()]) == group_of(device);
        if (here) continue;
        buffers.received[{arrival.value, arrival.from, arrival.bytes}].emplace_back(s);
      }
    }
    return buffers;
  }

  // By task of the device: what comes for it, and what goes after it. Whoever uses a tensor first
  // receives it, and the last one lets it go.
  struct Comings {
    std::vector<Bytes> before;
    std::vector<Bytes> after;
  };
  Comings find_comings(const Buffers& buffers, std::size_t num_tasks) const {
    Comings comings{std::vector<Bytes>(num_tasks), std::vector<Bytes>(num_tasks)};
    for (const auto& [arrival, users] : buffers.received) {
      for (std::size_t m = 0; m < order_.n_microbatches(); ++m) {
        std::vector<std::size_t> places;
        for (const StageId user : users) places.push_back(order_.position({user.index(), m}));
        const auto [first, last] = std::minmax_element(places.begin(), places.end());
        comings.before[*first] += std::get<Bytes>(arrival);
        comings.after[*last] += std::get<Bytes>(arrival);
      }
    }
    return comings;
  }

  // By task of another device: the place of the first task of `device` that cannot start before it
  // has ended.
  std::vector<std::size_t> find_first_dependents(DeviceId device) const {
    std::vector<std::size_t> first(order_.num_indices(), kNever);
    const auto reach = [&](const Task& next) {
      return devices_[next.stage] == device ? order_.position(next) : first[order_.index(next)];
    };
    for (std::size_t i = order_.all().size(); i-- > 0;) {
      const Task& task = order_.all()[i];
      if (task.stage == 0) poll_interrupt();
      if (devices_[task.stage] == device) continue;
      const std::vector<Task>& others = order_.of_device(devices_[task.stage].index());
      const std::size_t next = order_.position(task) + 1;
      std::size_t found = next < others.size() ? reach(others[next]) : kNever;
      for (const std::size_t follower : followers_[task.stage]) {
        found = std::min(found, reach({follower, task.microbatch}));
      }
      first[order_.index(task)] = found;
    }
    return first;
  }

  // Moments of a device: 2 i while its task i runs, 2 i + 1 when it has run and the next may still
  // have to wait.
  std::size_t released(DeviceId device, const Users& users, std::size_t microbatch,
                       const std::vector<std::size_t>& first_dependent) const {
    if (users.second) return kNever;
    std::size_t moment = 0;
    for (const StageId user : users.first) {
      const Task task{user.index(), microbatch};
      if (devices_[user.index()] == device) {
        moment = std::max(moment, 2 * order_.position(task) + 1);
        continue;
      }
      const std::size_t dependent = first_dependent[order_.index(task)];
      if (dependent == kNever) return kNever;
      moment = std::max(moment, 2 * dependent);
    }
    return moment;
  }

  // The most that is live beside the weights.
  Bytes find_peak(DeviceId device) const {
    const std::vector<Task>& tasks = order_.of_device(device.index());
    const Buffers buffers = find_buffers(device);
    const Comings comings = find_comings(buffers, tasks.size());
    const std::vector<std::size_t> first_dependent = find_first_dependents(device);
    std::vector<Bytes> freed(2 * tasks.size());  // by moment
    const std::size_t middle = tasks.size() / 2;
    Bytes held;
    Bytes most;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      held -= freed[2 * i];
      if (i == middle && left_out_ > 0) held += left_behind(device, buffers, first_dependent);
      most = std::max(most, held);
      held += comings.before[i];
      most = std::max(most, held + needs_[tasks[i].stage].activations);
      held -= comings.after[i];
      const auto kept = buffers.kept.find(tasks[i].stage);
      if (kept != buffers.kept.end()) {
        for (const auto& [users, bytes] : kept->second) {
          held += bytes;
          const std::size_t moment = released(device, users, tasks[i].microbatch, first_dependent);
          if (moment < freed.size()) freed[moment] += bytes;
        }
      }
      held -= freed[2 * i + 1];
      most = std::max(most, held);
    }
    return most;
  }

  // What the micro-batches that are left out keep until the step ends.
  Bytes left_behind(DeviceId device, const Buffers& buffers,
                    const std::vector<std::size_t>& first_dependent) const {
    Bytes sum;
    for (const auto& [stage, kept] : buffers.kept) {
      for (const auto& [users, bytes] : kept) {
        const std::size_t microbatch = order_.n_microbatches() / 2;
        if (released(device, users, microbatch, first_dependent) == kNever) sum += bytes;
      }
    }
    return sum * left_out_;
  }

  const Graph& graph_;
  std::span<const StageNeeds> needs_;
  const Cluster& cluster_;
  std::int64_t micro_batch_;
  std::span<const DeviceId> devices_;  // by stage
  TaskOrder order_;
  std::int64_t left_out_;
  std::set<StorageId> trained_;  // weights with gradients
  std::int64_t state_ = 0;       // of the optimizer, in bytes per byte of those
  std::int64_t temporaries_ = 0;
  std::vector<std::vector<std::size_t>> followers_;  // by stage: those that wait for it
};

constexpr double kAllTasks = 1 << 23;   // tasks x devices that are all walked
constexpr double kMostTasks = 1 << 27;  // and that can be

// In the middle of a step of very many micro-batches every one does what the one before did, a
// clock later, so a step without most of them has the same peaks, but for what each keeps to the
// end. How many are needed: one device hears of another's task through a chain of tasks. Along a
// dependency the chain goes to a later stage at the clock which that stage is later by, along a
// device's order at most once back to an earlier one, a clock later. So it spans stages + 1 clocks
// for each device and once more; and both ends of the step have such a stretch.
std::size_t enough_microbatches(const Plan& plan, std::span<const DeviceId> devices) {
  const auto all = static_cast<std::size_t>(plan.n_microbatches);
  const std::size_t used = std::set<DeviceId>(devices.begin(), devices.end()).size();
  const double each = static_cast<double>(devices.size()) * static_cast<double>(used);
  if (each * static_cast<double>(all) <= kAllTasks) return all;
  const std::size_t enough = std::min(all, 2 * (used + 1) * (devices.size() + 1) + 4);
  const double amount = each * static_cast<double>(enough);
  if (amount <= kMostTasks) return enough;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[verify.memory] {} micro-batches of {} stages on {} devices are {:.3g} "
                          "tasks to follow; expected at most {:.3g}; use fewer micro-batches",
                          all, devices.size(), used, amount, kMostTasks));
}

// The smallest limit of those that devices of one memory have is that of them all.
void find_limits(const Cluster& cluster, std::vector<DeviceMemory>& memory) {
  std::map<int, Bytes> limits;
  for (const Device& device : cluster.devices) {
    if (!device.memory_limited) continue;
    const auto [found, fresh] = limits.try_emplace(device.memory_group, device.memory);
    if (!fresh) found->second = std::min(found->second, device.memory);
  }
  for (std::size_t d = 0; d < memory.size(); ++d) {
    const auto found = limits.find(cluster.devices[d].memory_group);
    memory[d].limited = found != limits.end();
    if (memory[d].limited) memory[d].limit = found->second;
  }
}

}  // namespace

std::vector<DeviceMemory> derive_memory(const Graph& graph, const Flow& flow,
                                        std::span<const StageNeeds> needs, const Plan& plan) {
  std::vector<DeviceMemory> memory(plan.cluster.num_devices());
  find_limits(plan.cluster, memory);
  for (const std::vector<DeviceId>& devices : plan.copies()) {
    const std::size_t enough = enough_microbatches(plan, devices);
    const std::size_t left_out = static_cast<std::size_t>(plan.n_microbatches) - enough;
    Copy(graph, flow, needs, plan, devices, {devices, plan.cluster.num_devices(), enough}, left_out)
        .add_to(memory);
  }
  return memory;
}

std::vector<DeviceMemory> derive_memory(const Graph& graph, const Flow& flow,
                                        std::span<const StageNeeds> needs, const Plan& plan,
                                        std::span<const std::vector<DeviceId>> copies,
                                        std::span<const TaskOrder> orders) {
  std::vector<DeviceMemory> memory(plan.cluster.num_devices());
  find_limits(plan.cluster, memory);
  for (std::size_t c = 0; c < copies.size(); ++c) {
    Copy(graph, flow, needs, plan, copies[c], orders[c], 0).add_to(memory);
  }
  return memory;
}

}  // namespace kerf::derive
