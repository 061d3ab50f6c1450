// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What partitions are worth for a request: whether they may be its answer, what they cost, and why
// there are none.
#pragma once

#include "kerf/partition/fx/placement.h"

namespace kerf::partition::fx {

// Throws Error(invalid_argument) for devices, sizes or latencies that no mode can use.
void check_request(const Request& request);

// Every op in one partition, every partition on known devices, no cycle, every device within its
// memory by the request's accounting.
bool is_valid(const Request& request, std::span<const Partition> partitions);

// Seconds of one run when a device does one thing at a time and a tensor goes to a device once: the
// partitions as the stages of a plan, simulated. A partition with replicas counts on its first
// device. Unknown latencies count as 0.
double serial_latency(const Request& request, std::span<const Partition> partitions);

// Cost, serial cost and bytes of partitions that stay as they are. Numbers are kept.
Answer finish(const Request& request, std::vector<Partition> partitions);

// By device of the request, whatever the partitions are.
std::vector<DeviceBytes> bytes_by_device(const Request& request,
                                         std::span<const Partition> partitions);

// `device` would hold `bytes`.
Infeasible too_small(const Request& request, std::size_t device, std::int64_t bytes,
                     std::string help);

// Why nothing fits: the device that is shortest of memory when the ops are spread by room, or the
// node that fits nowhere.
Infeasible no_room(const Request& request, const OpTable& table);

}  // namespace kerf::partition::fx
