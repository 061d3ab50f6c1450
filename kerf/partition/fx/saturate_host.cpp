// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kerf/partition/fx/search.h"
#include "kerf/partition/replicate.h"

namespace kerf::partition::fx {

void saturate_host(const Request& request, Answer& answer) {
  const std::size_t count = request.devices.size();
  std::vector<std::vector<std::size_t>> on(count);  // partitions
  std::vector<std::int64_t> bytes(count);
  std::vector<std::uint8_t> used(count);
  std::vector<std::int64_t> capacity(count);
  std::vector<std::size_t> originals;
  for (std::size_t d = 0; d < count; ++d) {
    for (std::size_t p = 0; p < answer.partitions.size(); ++p) {
      const auto& ids = answer.partitions[p].device_ids;
      if (std::find(ids.begin(), ids.end(), request.devices[d].id) != ids.end()) on[d].push_back(p);
    }
    used[d] = on[d].empty() ? 0 : 1;
    if (used[d] != 0) originals.push_back(d);
    bytes[d] = used_bytes(request, answer.device_bytes[d]);
    capacity[d] = request.devices[d].memory;
  }
  for (const std::vector<std::size_t>& copy : find_replicas(bytes, used, capacity)) {
    for (std::size_t i = 0; i < copy.size(); ++i) {
      for (const std::size_t p : on[originals[i]]) {
        answer.partitions[p].device_ids.push_back(request.devices[copy[i]].id);
      }
      answer.device_bytes[copy[i]] = answer.device_bytes[originals[i]];
    }
  }
}

}  // namespace kerf::partition::fx
