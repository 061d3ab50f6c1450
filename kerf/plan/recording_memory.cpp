// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/recording_memory.h"

#include <algorithm>

namespace kerf {
namespace {

Bytes of_one_device(const Plan& plan, DeviceId device) {
  Bytes kept;
  Bytes between;
  for (const Stage& stage : plan.stages) {
    if (stage.device != device) continue;
    kept += stage.inputs + stage.outputs;
    between = std::max(between, stage.activations);
  }
  return kept + between;
}

}  // namespace

Bytes recording_memory(const Plan& plan, DeviceId device) {
  const Device& asked = plan.cluster.device(device);
  if (asked.host) return {};
  Bytes sum;
  for (std::size_t d = 0; d < plan.cluster.num_devices(); ++d) {
    if (plan.cluster.device(DeviceId(d)).memory_group == asked.memory_group) {
      sum += of_one_device(plan, DeviceId(d));
    }
  }
  return sum;
}

}  // namespace kerf
