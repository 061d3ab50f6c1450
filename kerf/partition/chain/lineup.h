// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Which devices may still come next. Private to partition/chain/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/partition/chain/device_model.h"

namespace kerf::partition {

// What is used up of the devices, as one number; 0: nothing.
using LineState = std::uint32_t;

// Devices with the same model: for the dynamic program one is as good as another. place/ideals has
// classes of its own: an Instance knows one link for all, here every pair of devices has one.
struct DeviceKind {
  DeviceModel model;
  std::size_t count = 0;
  LineState step = 1;  // what taking one of them adds to a state
};

class Lineup {
 public:
  // Devices follow each other as the model has them, some left out. A state is the number of those
  // passed.
  static Lineup in_order(ChainModel model);
  // Devices of the model in whatever order. A state says how many of each kind are in use.
  static Lineup in_any_order(ChainModel model);

  bool is_ordered() const { return ordered_; }
  const ChainModel& model() const { return model_; }
  std::size_t num_devices() const { return model_.ids.size(); }
  // At most kMostStates, which then stands for more than anybody can look at.
  std::size_t num_states() const { return num_states_; }
  static constexpr std::size_t kMostStates = std::size_t{1} << 24;

  const std::vector<DeviceKind>& kinds() const { return kinds_; }
  // Of the model's device at a place.
  std::size_t kind_at(std::size_t place) const { return kind_at_[place]; }
  bool can_take(LineState state, std::size_t kind) const {
    if (ordered_) return state < num_devices() && kind_at_[state] == kind;
    return num_used(state, kind) < kinds_[kind].count;
  }
  // The device of a kind that comes next; of equals the first.
  DeviceId next_device(LineState state, std::size_t kind) const;

  // Together, of the devices used up in a state, and of the others.
  struct Sums {
    double speed_used = 0;
    double speed_left = 0;
    double room_used = 0;
    double room_left = 0;
    double used = 0;
    double left = 0;
  };
  Sums sums(LineState state) const;
  Rate best_link() const { return best_link_; }  // no device receives faster
  double slowest_speed() const { return slowest_speed_; }

 private:
  Lineup(ChainModel model, bool ordered);
  std::size_t num_used(LineState state, std::size_t kind) const {
    return state / kinds_[kind].step % (kinds_[kind].count + 1);
  }

  ChainModel model_;
  bool ordered_;
  std::size_t num_states_ = 1;
  std::vector<DeviceKind> kinds_;     // by first device
  std::vector<std::size_t> kind_at_;  // by place in the model
  Rate best_link_;
  double slowest_speed_ = kInfinity;
};

// Do all plans keep their loads and memory when two devices change places? Speed, memory, kind of
// memory and every link tell. An equivalence.
bool interchangeable(const Cluster& cluster, DeviceId a, DeviceId b);
// All of them: their order does not matter.
bool all_interchangeable(const Cluster& cluster);

}  // namespace kerf::partition
