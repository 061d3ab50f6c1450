// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

// Seconds of one run when a device does one thing at a time and a tensor goes to a device once: the
// partitions as the stages of a plan, simulated. A partition with replicas counts on its first
// device. Unknown latencies count as 0.
double serial_latency(const Request& request, std::span<const Partition> partitions);

}  // namespace kerf::partition::fx
