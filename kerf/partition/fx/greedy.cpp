// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "kerf/partition/fx/growing.h"
#include "kerf/partition/fx/size.h"

namespace kerf::partition::fx {
namespace {

class Greedy {
 public:
  Greedy(const OpGraph& graph, std::span<const Device> devices, bool compat)
      : graph_(graph), devices_(devices), compat_(compat), growing_(graph) {}

  std::vector<Partition> run() {
    partitions_.emplace_back();
    for (const OpIndex n : graph_.ops()) {
      if (partitions_.size() > devices_.size()) {
        add_alone(n);
      } else {
        add(n);
      }
    }
    reorganize(graph_, partitions_);
    if (!map_to_devices(graph_, partitions_, devices_, compat_)) {
      throw OriginalError(OriginalError::Kind::runtime,
                          "Cannot Get a Valid Partition to Logical Device Mapping");
    }
    return std::move(partitions_);
  }

 private:
  Partition& open() { return partitions_[open_partition_]; }
  bool nothing_in_it() { return compat_ ? open().used_bytes == 0 : open().nodes.empty(); }

  void add(OpIndex n) {
    if (nothing_in_it()) {
      take(find_device(n));
    } else if (left_ < growing_.extra_bytes(n)) {
      if (partitions_.size() == devices_.size()) return add_alone(n);
      const std::size_t device = find_device(n);
      growing_.leave(open());
      open_partition_ = partitions_.size();
      partitions_.emplace_back();
      take(device);
    }
    left_ -= growing_.extra_bytes(n);
    growing_.add(open(), n);
  }

  void add_alone(OpIndex n) {
    Partition& alone = partitions_.emplace_back();
    add_node(graph_, alone.nodes, n);
    alone.used_bytes = graph_.node(n).total_size;
    for (const OpIndex input : graph_.inputs(n)) {
      const OpNode& read = graph_.node(input);
      alone.used_bytes += read.leaf ? read.total_size : read.output_size;
    }
  }

  // The first device in the order given that is not taken and holds the node alone.
  std::size_t find_device(OpIndex n) const {
    std::int64_t bytes = graph_.node(n).total_size;
    for (const OpIndex input : graph_.inputs(n)) bytes += graph_.node(input).output_size;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const bool taken = std::any_of(taken_.begin(), taken_.end(), [&](std::size_t other) {
        return devices_[other] == devices_[d];
      });
      if (!taken && devices_[d].memory >= bytes) return d;
    }
    throw OriginalError(OriginalError::Kind::runtime,
                        graph_.node(n).name + " is too large to fit any device");
  }
  void take(std::size_t device) {
    taken_.push_back(device);
    left_ = devices_[device].memory;
    open().device_ids.push_back(devices_[device].id);
  }

  const OpGraph& graph_;
  std::span<const Device> devices_;
  bool compat_;
  Growing growing_;  // the open partition
  std::size_t open_partition_ = 0;
  std::int64_t left_ = 0;
  std::vector<std::size_t> taken_;
  std::vector<Partition> partitions_;
};

}  // namespace

std::vector<Partition> greedy_by_size(const OpGraph& graph, std::span<const Device> devices,
                                      bool compat) {
  return Greedy(graph, devices, compat).run();
}

}  // namespace kerf::partition::fx
