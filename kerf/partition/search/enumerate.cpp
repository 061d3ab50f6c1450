// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Depth-first: units in topological order, every device for each. Bounds for `throughput`: the
// largest load so far (loads only grow, since under `link` the receiver pays for tensors and all
// makers are placed before; under other models compute alone counts until all are placed), and the
// remaining work spread over all devices. Other objectives have no bound but the plans themselves.
#include "kerf/partition/search/enumerate.h"

#include <algorithm>
#include <limits>

#include "kerf/base/infinity.h"
#include "kerf/base/stop_clock.h"

namespace kerf::partition {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

class Enumerator {
 public:
  Enumerator(const Problem& problem, const SplitModel& model, BestPlan& best,
             const EnumerateLimits& limits)
      : problem_(problem),
        graph_(problem.graph),
        cluster_(problem.cluster),
        model_(model),
        units_(model.units),
        best_(best),
        work_left_(limits.work),
        clock_(limits.seconds),
        bounded_(problem.objective == Objective::throughput),
        charges_links_(problem.comm_model == CommModel::link),
        unit_device_(units_.size(), kNone),
        load_(num_devices()),
        copies_(num_devices(), std::vector<int>(graph_.num_values())),
        resident_(static_cast<std::size_t>(cluster_.num_memory_groups()),
                  std::vector<int>(graph_.storages().size())),
        weights_(resident_.size()) {
    for (const Device& device : cluster_.devices) total_speed_ += device.speed;
    for (const Unit& unit : units_) remaining_ += unit.time;
  }

  bool run() {
    if (best_.plan()) value_ = best_.plan()->objective_value();
    place(0);
    return work_left_ > 0 && !cut_short_;
  }

 private:
  std::size_t num_devices() const { return cluster_.num_devices(); }

  void place(std::size_t depth) {
    if (work_left_ <= 0 || cut_short_) return;
    constexpr std::int64_t kLookAtTheClock = 256;
    constexpr std::int64_t kStepsOfABranch = 15;
    if (--work_left_ % kLookAtTheClock == 0) {
      count_steps(kStepsOfABranch * kLookAtTheClock);
      cut_short_ = clock_.struck();
    }
    if (bounded_ && bound() >= value_) return;
    if (depth == model_.order.size()) return finish();
    const std::size_t unit = model_.order[depth];
    for (std::size_t device = 0; device < num_devices(); ++device) {
      unit_device_[unit] = device;
      const double load = load_[device];
      const double remaining = remaining_;
      add(unit, device);
      if (within_reach(device)) place(depth + 1);
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

  // Weights alone: what they exceed, everything does.
  bool within_reach(std::size_t device) const {
    const int group = cluster_.devices[device].memory_group;
    if (!cluster_.group_limited(group)) return true;
    return weights_[static_cast<std::size_t>(group)] <= cluster_.group_limit(group).count;
  }

  void add(std::size_t unit, std::size_t device) {
    load_[device] += units_[unit].time / cluster_.devices[device].speed;
    remaining_ -= units_[unit].time;
    for (const ValueId tensor : units_[unit].tensors) {
      if (!charges_links_) break;
      const std::size_t from = device_of(tensor);
      if (from == device || copies_[device][tensor.index()]++ > 0) continue;
      load_[device] += problem_.transfer_time(tensor, DeviceId{from}, DeviceId{device}).count;
    }
    change_weights(unit, device, 1);
  }

  void remove(std::size_t unit, std::size_t device) {
    for (const ValueId tensor : units_[unit].tensors) {
      if (!charges_links_) break;
      if (device_of(tensor) != device) --copies_[device][tensor.index()];
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
    return unit_device_[model_.unit_of[graph_.value(tensor).producer.index()]];
  }

  void finish() {
    constexpr std::int64_t kPlanWork = 100;
    work_left_ -= kPlanWork;
    std::vector<DeviceId> device;
    for (const std::size_t d : unit_device_) device.emplace_back(d);
    if (best_.offer(place_units(problem_, model_, device, "exact", best_.mixed()))) {
      value_ = best_.plan()->objective_value();
    }
    cut_short_ = cut_short_ || clock_.struck();  // a plan takes as long as many branches
  }

  const Problem& problem_;
  const Graph& graph_;
  const Cluster& cluster_;
  const SplitModel& model_;
  const std::vector<Unit>& units_;
  BestPlan& best_;
  std::int64_t work_left_;
  StopClock clock_;
  bool cut_short_ = false;
  bool bounded_;
  bool charges_links_;
  double total_speed_ = 0;

  std::vector<std::size_t> unit_device_;    // kNone: not placed
  std::vector<double> load_;                // by device
  double remaining_ = 0;                    // work not placed
  std::vector<std::vector<int>> copies_;    // by device and value: units that fetched it
  std::vector<std::vector<int>> resident_;  // by memory and storage: units that use it
  std::vector<std::int64_t> weights_;       // by memory
  double value_ = kInfinity;                // of the best plan
};

}  // namespace

bool is_enumerable(const SplitModel& model) {
  constexpr std::size_t kMostUnits = 40;
  return model.units.size() <= kMostUnits;
}

bool enumerate_splits(const Problem& problem, const SplitModel& model, BestPlan& best,
                      const EnumerateLimits& limits) {
  return Enumerator(problem, model, best, limits).run();
}

LowerBound tried_all(const Plan& plan) {
  return {"search", plan.objective_value(), "every split was tried or ruled out"};
}

}  // namespace kerf::partition
