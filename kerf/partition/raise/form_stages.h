// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// From a device for every unit to stages: any placement can be run, if need be with several stages
// on a device.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kerf/partition/lower/units.h"

namespace kerf::partition {

struct Stages {
  std::vector<std::vector<NodeId>> nodes;
  std::vector<DeviceId> devices;  // by stage
};

// As few stages as can be. Units of one device form one stage when the devices do not wait for each
// other. Otherwise units whose paths have crossed between devices equally often form one (an edge
// between devices then leads to a higher count, hence no cycle), and stages of one device are
// joined as long as that makes no cycle. `order` is topological.
Stages form_stages(const std::vector<Unit>& units, const std::vector<std::size_t>& order,
                   std::span<const DeviceId> device);

// Stages that neither wait for nor keep back more than they must: a device's units in `order`, cut
// before each that needs another device's and after each that another device needs. Every stage
// then waits for others at its first unit only, hence no cycle.
Stages form_short_stages(const std::vector<Unit>& units, const std::vector<std::size_t>& order,
                         std::span<const DeviceId> device);

}  // namespace kerf::partition
