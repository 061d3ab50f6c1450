// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/partition/fx/judge.h"
#include "kerf/partition/raise/replicate.h"

namespace kerf::partition::fx {
namespace {

void check_homes(const Request& request, std::span<const Partition> partitions) {
  const auto known = [&](std::int64_t id) {
    return find_device(request.devices, id) < request.devices.size();
  };
  for (const Partition& partition : partitions) {
    const auto& ids = partition.device_ids;
    if (!ids.empty() && std::all_of(ids.begin(), ids.end(), known)) continue;
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format(
            "[partition.saturate_host] partition {} is on {}; expected ids of the given devices",
            partition.id, ids.empty() ? "no device" : "an unknown device"));
  }
}

}  // namespace

Answer saturate_host(const Request& request, std::vector<Partition> partitions) {
  check_request(request);
  check_homes(request, partitions);
  Answer answer;
  answer.node_to_partition = node_to_partition(request.graph, partitions);
  answer.device_bytes = bytes_by_device(request, partitions);
  answer.partitions = std::move(partitions);
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
  return answer;
}

}  // namespace kerf::partition::fx
