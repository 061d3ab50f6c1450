// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/lineup.h"

#include <algorithm>
#include <utility>

namespace kerf::partition {
namespace {

bool same_cost(const Link& a, const Link& b) {
  return a.latency == b.latency && a.bytes_per_second == b.bytes_per_second;
}

bool same_links(const Cluster& cluster, DeviceId a, DeviceId b) {
  if (!same_cost(cluster.link(a, b), cluster.link(b, a))) return false;
  for (const DeviceId other : given_order(cluster)) {
    if (other == a || other == b) continue;
    if (!same_cost(cluster.link(a, other), cluster.link(b, other))) return false;
    if (!same_cost(cluster.link(other, a), cluster.link(other, b))) return false;
  }
  return true;
}

bool same_memory(const Cluster& cluster, DeviceId a, DeviceId b) {
  const int first = cluster.device(a).memory_group;
  const int second = cluster.device(b).memory_group;
  if (first == second) return true;
  if (cluster.group(first).size() != 1 || cluster.group(second).size() != 1) return false;
  if (cluster.group_limited(first) != cluster.group_limited(second)) return false;
  return !cluster.group_limited(first) || cluster.group_limit(first) == cluster.group_limit(second);
}

}  // namespace

Lineup::Lineup(ChainModel model, bool ordered) : model_(std::move(model)), ordered_(ordered) {
  for (const DeviceModel& device : model_.devices) {
    const auto same = [&](const DeviceKind& other) { return other.model == device; };
    auto found = std::find_if(kinds_.begin(), kinds_.end(), same);
    if (found == kinds_.end()) found = kinds_.insert(found, {.model = device});
    ++found->count;
    kind_at_.push_back(static_cast<std::size_t>(found - kinds_.begin()));
    slowest_speed_ = std::min(slowest_speed_, 1 / device.slowness);
  }
  // Nothing comes before the first of an order.
  const std::size_t first = ordered && model_.devices.size() > 1 ? 1 : 0;
  best_link_ = model_.devices[first].in;
  for (std::size_t d = first; d < model_.devices.size(); ++d) {
    const Rate& in = model_.devices[d].in;
    best_link_.latency = std::min(best_link_.latency, in.latency);
    best_link_.per_byte = std::min(best_link_.per_byte, in.per_byte);
  }
}

Lineup Lineup::in_order(ChainModel model) {
  Lineup lineup(std::move(model), true);
  lineup.num_states_ = lineup.num_devices() + 1;
  return lineup;
}

Lineup Lineup::in_any_order(ChainModel model) {
  Lineup lineup(std::move(model), false);
  for (DeviceKind& kind : lineup.kinds_) {
    kind.step = static_cast<LineState>(lineup.num_states_);
    lineup.num_states_ = std::min(lineup.num_states_ * (kind.count + 1), kMostStates);
  }
  return lineup;
}

DeviceId Lineup::next_device(LineState state, std::size_t kind) const {
  if (ordered_) return model_.ids[state];
  std::size_t before = num_used(state, kind);
  std::size_t place = 0;
  while (kind_at_[place] != kind || before-- > 0) ++place;
  return model_.ids[place];
}

Lineup::Sums Lineup::sums(LineState state) const {
  Sums sums;
  const auto add = [](const DeviceModel& device, double count, double& speed, double& room,
                      double& number) {
    const double limit = device.limit == kNoLimit ? kInfinity : static_cast<double>(device.limit);
    speed += count / device.slowness;
    if (count > 0) room += count * limit;
    number += count;
  };
  const auto add_both = [&](const DeviceModel& device, double used, double left) {
    add(device, used, sums.speed_used, sums.room_used, sums.used);
    add(device, left, sums.speed_left, sums.room_left, sums.left);
  };
  if (ordered_) {
    for (std::size_t d = 0; d < num_devices(); ++d) {
      add_both(model_.devices[d], d < state ? 1 : 0, d < state ? 0 : 1);
    }
    return sums;
  }
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    const std::size_t used = num_used(state, k);
    add_both(kinds_[k].model, static_cast<double>(used),
             static_cast<double>(kinds_[k].count - used));
  }
  return sums;
}

bool interchangeable(const Cluster& cluster, DeviceId a, DeviceId b) {
  if (a == b) return true;
  const Device& first = cluster.device(a);
  const Device& second = cluster.device(b);
  return first.speed == second.speed && first.host == second.host && same_memory(cluster, a, b) &&
         same_links(cluster, a, b);
}

bool all_interchangeable(const Cluster& cluster) {
  for (const DeviceId device : given_order(cluster)) {
    if (!interchangeable(cluster, DeviceId{0}, device)) return false;
  }
  return true;
}

}  // namespace kerf::partition
