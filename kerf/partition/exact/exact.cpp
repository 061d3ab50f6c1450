// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: give every unit a device so that the busiest is least loaded, each device one stage, the
// stages acyclic, memory respected. Depth-first branch and bound: units in topological order,
// devices by resulting load. Bounds: the largest load so far (loads only grow, since the receiver
// pays for tensors and all makers are placed before), and the remaining work spread over all
// devices. Optimal; exponential at worst.
#include "kerf/partition/exact/exact.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "kerf/partition/finish.h"
#include "kerf/partition/units.h"
#include "kerf/plan/metrics.h"
#include "kerf/simulate/memory.h"

namespace kerf::partition {
namespace {

constexpr std::int64_t kDefaultWork = 20'000'000;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kNone = static_cast<std::size_t>(-1);

class Search {
 public:
  Search(const Problem& problem, std::int64_t work_limit)
      : problem_(problem),
        graph_(problem.graph),
        cluster_(problem.cluster),
        unit_of_(indivisible_units(problem.graph)),
        units_(collect_units(problem, unit_of_)),
        order_(topological_order(units_)),
        work_left_(work_limit),
        unit_device_(units_.size(), kNone),
        load_(num_devices()),
        copies_(num_devices(), std::vector<int>(graph_.num_values())),
        resident_(static_cast<std::size_t>(cluster_.num_memory_groups()),
                  std::vector<int>(graph_.storages().size())),
        weights_(resident_.size()),
        edges_(num_devices(), std::vector<int>(num_devices())) {
    for (const Device& device : cluster_.devices) total_speed_ += device.speed;
    for (const Unit& unit : units_) remaining_ += unit.time;
    for (const NodeCost& cost : problem.profile.nodes) workspace_.push_back(cost.workspace());
  }

  Outcome<Plan, Infeasible> run() {
    place(0);
    const bool truncated = work_left_ <= 0;
    const auto& assignment = best_ ? *best_ : closest_;
    std::vector<std::vector<NodeId>> stages(num_devices());
    for (std::size_t u = 0; u < units_.size(); ++u) {
      std::vector<NodeId>& stage = stages[assignment[u]];
      stage.insert(stage.end(), units_[u].nodes.begin(), units_[u].nodes.end());
    }
    std::vector<DeviceId> devices;
    for (std::size_t d = 0; d < num_devices(); ++d) devices.emplace_back(d);
    Outcome<Plan, Infeasible> outcome = finish_plan(problem_, std::move(stages), devices, "exact");
    if (outcome) outcome->truncated = truncated;
    return outcome;
  }

 private:
  std::size_t num_devices() const { return cluster_.num_devices(); }

  void place(std::size_t depth) {
    if (work_left_ <= 0 && !closest_.empty()) return;
    --work_left_;
    if (bound() >= value_) return;
    if (depth == order_.size()) return finish();
    const std::size_t unit = order_[depth];
    for (std::size_t device = 0; device < num_devices(); ++device) {
      unit_device_[unit] = device;
      const double load = load_[device];
      const double remaining = remaining_;
      add(unit, device);
      if (!cyclic() && within_reach(device)) place(depth + 1);
      remove(unit, device);
      load_[device] = load;  // restored, not subtracted: rounding must not creep in
      remaining_ = remaining;
      unit_device_[unit] = kNone;
    }
  }

  // No completion is below it.
  double bound() const {
    double work = remaining_;
    double largest = 0;
    for (std::size_t d = 0; d < num_devices(); ++d) {
      work += load_[d] * cluster_.devices[d].speed;
      largest = std::max(largest, load_[d]);
    }
    // Rounding must not rule out a solution that meets the bound exactly.
    return std::max(largest, work / total_speed_ * (1 - 1e-12));
  }

  // Until something fits, everything is tried: the closest miss is the answer if nothing does.
  bool within_reach(std::size_t device) const {
    const int group = cluster_.devices[device].memory_group;
    if (!cluster_.group_limited(group)) return true;
    const std::int64_t excess =
        weights_[static_cast<std::size_t>(group)] - cluster_.group_limit(group).count;
    return excess <= 0 || (!best_ && excess < least_excess_);
  }

  void add(std::size_t unit, std::size_t device) {
    load_[device] += units_[unit].time / cluster_.devices[device].speed;
    remaining_ -= units_[unit].time;
    for (const ValueId tensor : units_[unit].tensors) {
      const std::size_t from = device_of(tensor);
      if (from == device || copies_[device][tensor.index()]++ > 0) continue;
      const Bytes bytes = graph_.value(tensor).bytes(problem_.micro_batch());
      load_[device] += cluster_.link(DeviceId{from}, DeviceId{device}).time(bytes).count;
    }
    for (const std::size_t before : units_[unit].before) {
      if (unit_device_[before] != device) ++edges_[unit_device_[before]][device];
    }
    change_weights(unit, device, 1);
  }

  void remove(std::size_t unit, std::size_t device) {
    for (const ValueId tensor : units_[unit].tensors) {
      if (device_of(tensor) != device) --copies_[device][tensor.index()];
    }
    for (const std::size_t before : units_[unit].before) {
      if (unit_device_[before] != device) --edges_[unit_device_[before]][device];
    }
    change_weights(unit, device, -1);
  }

  void change_weights(std::size_t unit, std::size_t device, int step) {
    const auto group = static_cast<std::size_t>(cluster_.devices[device].memory_group);
    for (const StorageId storage : units_[unit].weights) {
      int& users = resident_[group][storage.index()];
      const bool edge = step > 0 ? users == 0 : users == 1;
      users += step;
      if (edge)
        weights_[group] += step * graph_.storage(storage).bytes.eval(problem_.micro_batch());
    }
  }

  std::size_t device_of(ValueId tensor) const {
    return unit_device_[unit_of_[graph_.value(tensor).producer.index()]];
  }

  // Do the devices wait for each other? Repeatedly takes away those that nothing points to.
  bool cyclic() const {
    std::vector<bool> gone(num_devices());
    for (std::size_t left = num_devices(); left > 0;) {
      const std::size_t before = left;
      for (std::size_t d = 0; d < num_devices(); ++d) {
        bool waits = gone[d];
        for (std::size_t e = 0; e < num_devices(); ++e) waits |= !gone[e] && edges_[e][d] > 0;
        if (waits) continue;
        gone[d] = true;
        --left;
      }
      if (left == before) return true;
    }
    return false;
  }

  // The engine's word on memory; until something fits, the smallest excess is kept.
  void finish() {
    std::vector<StageId> stage_of(graph_.num_nodes());
    std::vector<DeviceId> stage_devices;
    number_stages(stage_of, stage_devices);
    const Schedule schedule = schedule_maker(problem_.schedule)(
        stage_devices, static_cast<int>(num_devices()), problem_.n_microbatches);
    std::int64_t excess = 0;
    for (const DeviceMemory& memory : device_memory(graph_, stage_of, stage_devices, cluster_,
                                                    schedule, problem_.micro_batch(), workspace_)) {
      if (memory.limited) excess = std::max(excess, (memory.predicted - memory.limit).count);
    }
    if (excess == 0) {
      value_ = *std::max_element(load_.begin(), load_.end());
      best_ = unit_device_;
    } else if (!best_ && excess < least_excess_) {
      least_excess_ = excess;
      closest_ = unit_device_;
    }
  }

  // Stages in an order in which none waits for a later one.
  void number_stages(std::vector<StageId>& stage_of, std::vector<DeviceId>& stage_devices) const {
    std::vector<bool> gone(num_devices());
    std::vector<StageId> number(num_devices());
    while (stage_devices.size() < num_devices()) {
      for (std::size_t d = 0; d < num_devices(); ++d) {
        bool waits = gone[d];
        for (std::size_t e = 0; e < num_devices(); ++e) waits |= !gone[e] && edges_[e][d] > 0;
        if (waits) continue;
        gone[d] = true;
        number[d] = StageId{stage_devices.size()};
        stage_devices.emplace_back(d);
      }
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
      for (const NodeId node : units_[u].nodes) stage_of[node.index()] = number[unit_device_[u]];
    }
  }

  const Problem& problem_;
  const Graph& graph_;
  const Cluster& cluster_;
  std::vector<std::size_t> unit_of_;  // by node
  std::vector<Unit> units_;
  std::vector<std::size_t> order_;
  std::int64_t work_left_;
  std::vector<Bytes> workspace_;
  double total_speed_ = 0;

  std::vector<std::size_t> unit_device_;    // kNone: not placed
  std::vector<double> load_;                // by device
  double remaining_ = 0;                    // work not placed
  std::vector<std::vector<int>> copies_;    // by device and value: units that fetched it
  std::vector<std::vector<int>> resident_;  // by memory and storage: units that use it
  std::vector<std::int64_t> weights_;       // by memory
  std::vector<std::vector<int>> edges_;     // between devices

  double value_ = kNever;
  std::optional<std::vector<std::size_t>> best_;
  std::vector<std::size_t> closest_;  // of those that do not fit
  std::int64_t least_excess_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

Outcome<Plan, Infeasible> exact(const Problem& problem, const Options& options) {
  const std::int64_t work = options.work_limit > 0 ? options.work_limit : kDefaultWork;
  return Search(problem, work).run();
}

}  // namespace kerf::partition
