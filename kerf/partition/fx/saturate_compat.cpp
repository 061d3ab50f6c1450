// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The original keeps devices in maps: those equal in every field are one key.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kerf/partition/fx/compat.h"

namespace kerf::partition::fx {
namespace {

struct Replica {
  std::size_t device;
  std::size_t original;
};
using Replicas = std::vector<Replica>;

class Saturation {
 public:
  Saturation(std::span<const Device> devices, const DeviceStats& stats)
      : devices_(devices), stats_(stats) {
    for (std::size_t d = 0; d < devices.size(); ++d) {
      if (!stats.partitions[slot(d)].empty()) used_.push_back(d);
    }
  }

  Replicas run() {
    Replicas all;
    while (used_.size() * 2 + all.size() <= devices_.size()) {
      const std::optional<Replicas> round = find_round(all);
      if (!round) break;
      all.insert(all.end(), round->begin(), round->end());
    }
    return all;
  }
  std::size_t slot(std::size_t device) const {
    std::size_t s = 0;
    while (devices_[stats_.distinct[s]] != devices_[device]) ++s;
    return s;
  }

 private:
  // A device for every used one, or nothing.
  std::optional<Replicas> find_round(const Replicas& before) const {
    std::vector<std::size_t> idle;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const auto same = [&](std::size_t other) { return devices_[other] == devices_[d]; };
      const auto same_replica = [&](const Replica& replica) { return same(replica.device); };
      if (std::none_of(used_.begin(), used_.end(), same) &&
          std::none_of(before.begin(), before.end(), same_replica)) {
        idle.push_back(d);
      }
    }
    Replicas round;
    for (const std::size_t original : used_) {
      const std::optional<std::size_t> found = smallest_that_holds(idle, original);
      if (!found) return std::nullopt;
      const auto same = [&](std::size_t other) { return devices_[other] == devices_[*found]; };
      idle.erase(std::find_if(idle.begin(), idle.end(), same));
      const auto twin = std::find_if(round.begin(), round.end(),
                                     [&](const Replica& replica) { return same(replica.device); });
      if (twin == round.end()) {
        round.push_back({*found, original});
      } else {
        twin->original = original;
      }
    }
    return round;
  }

  std::optional<std::size_t> smallest_that_holds(std::span<const std::size_t> idle,
                                                 std::size_t original) const {
    const std::int64_t bytes = devices_[original].memory - stats_.left_bytes[slot(original)];
    std::optional<std::size_t> best;
    for (const std::size_t d : idle) {
      if (devices_[d].memory < bytes) continue;
      if (!best || devices_[d].memory < devices_[*best].memory) best = d;
    }
    return best;
  }

  std::span<const Device> devices_;
  const DeviceStats& stats_;
  std::vector<std::size_t> used_;
};

}  // namespace

Answer saturate_host_compat(const Request& request, std::vector<Partition> partitions,
                            std::vector<std::size_t> device_lists) {
  Answer answer;
  answer.partitions = std::move(partitions);
  answer.device_lists = std::move(device_lists);
  const DeviceStats stats = device_stats(answer.partitions, request.devices);
  if (!stats.no_device.empty()) {
    throw OriginalError(OriginalError::Kind::assertion,
                        fmt::format("Expect no_device_partitions has 0 device, but get {}",
                                    stats.no_device.size()));
  }
  const auto list = [&](std::size_t p) {
    return answer.device_lists.empty() ? p : answer.device_lists.at(p);
  };
  Saturation saturation(request.devices, stats);
  for (const Replica& replica : saturation.run()) {
    const std::int64_t id = request.devices[replica.device].id;
    for (const std::size_t p : stats.partitions[saturation.slot(replica.original)]) {
      for (std::size_t other = 0; other < answer.partitions.size(); ++other) {
        if (list(other) == list(p)) answer.partitions[other].device_ids.push_back(id);  // S2
      }
    }
  }
  compat::add_figures(request, answer);
  return answer;
}

}  // namespace kerf::partition::fx
