// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/load.h"

#include <algorithm>
#include <utility>

namespace kerf {
namespace {

// Takes the figure under load out. 0: it was not measured.
Nanoseconds mix(Nanoseconds alone, Nanoseconds& under_load, double share) {
  const Nanoseconds loaded = std::exchange(under_load, Nanoseconds{});
  return loaded.count > 0 ? alone * (1 - share) + loaded * share : alone;
}

void mix_load(NodeCost& cost, double share) {
  cost.forward = mix(cost.forward, cost.forward_under_load, share);
  const Nanoseconds alone = cost.backward;
  cost.backward = mix(alone, cost.backward_under_load, share);
  if (alone.count <= 0) return;
  const double scale = cost.backward / alone;
  cost.backward_weights = std::min(cost.backward_weights * scale, cost.backward);
}

}  // namespace

double busy_share(int devices, int n_microbatches) {
  if (devices < 2 || n_microbatches < 1) return 0;
  double shared = 0;  // turns, over all ordered pairs
  for (int apart = 1; apart < std::min(devices, n_microbatches); ++apart) {
    shared += 2.0 * (devices - apart) * (n_microbatches - apart);
  }
  return shared / (static_cast<double>(devices) * (devices - 1) * n_microbatches);
}

bool has_load(const Profile& profile) {
  return std::any_of(profile.nodes.begin(), profile.nodes.end(), [](const NodeCost& cost) {
    return cost.forward_under_load.count > 0 || cost.backward_under_load.count > 0;
  });
}

Profile with_load(Profile profile, const Cluster& cluster, int n_microbatches) {
  if (!has_load(profile)) return profile;
  const auto sharing = std::count_if(
      cluster.devices.begin(), cluster.devices.end(),
      [&](const Device& device) { return device.host && device.kind == profile.device_kind; });
  const double share = busy_share(static_cast<int>(sharing), n_microbatches);
  for (NodeCost& cost : profile.nodes) mix_load(cost, share);
  return profile;
}

}  // namespace kerf
