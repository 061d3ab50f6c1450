// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the nodes before a position run, for the searches. Private to partition/chain/.
#pragma once

#include <algorithm>
#include <vector>

#include "kerf/partition/chain/device_model.h"
#include "kerf/partition/chain/intervals.h"

namespace kerf::partition {

class Placed {
 public:
  Placed(const Problem& problem, const Intervals& intervals)
      : problem_(problem), intervals_(intervals), device_of_(intervals.num_nodes()) {}

  void place(std::size_t start, std::size_t end, DeviceId device) {
    std::fill(device_of_.begin() + static_cast<std::ptrdiff_t>(start),
              device_of_.begin() + static_cast<std::ptrdiff_t>(end), device);
  }
  // What `device` pays for what node c fetches when its interval starts at `start`.
  double received_time(DeviceId device, std::size_t start, std::size_t c) const {
    double time = 0;
    for (const Intervals::Received& tensor : intervals_.received(c)) {
      if (tensor.low >= static_cast<std::int32_t>(start)) continue;
      const DeviceId from = device_of_[static_cast<std::size_t>(tensor.maker)];
      time += receive_time(problem_, from, device, tensor.bytes);
    }
    return time;
  }

 private:
  const Problem& problem_;
  const Intervals& intervals_;
  std::vector<DeviceId> device_of_;  // by node, for those placed
};

}  // namespace kerf::partition
