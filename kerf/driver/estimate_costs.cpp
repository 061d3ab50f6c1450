// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/estimate_costs.h"

#include "kerf/device/kind.h"
#include "kerf/profile/estimate.h"

namespace kerf {

Profile estimate_costs(const Graph& graph, const std::string& kind, std::int64_t batch,
                       bool training) {
  const DeviceKind& known = device_kind(kind);
  if (!graph.is_static()) check_conditions(graph.conditions(), batch, 1, "[driver.estimate]");
  return estimate(graph, known, batch, training);
}

}  // namespace kerf
