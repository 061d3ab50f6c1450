// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Times of devices that share a machine. CPU devices own their cores, and share caches and memory:
// a node takes longer while the others work. A profile has both figures, and a plan needs one.
#pragma once

#include "kerf/device/cluster.h"
#include "kerf/profile/profile.h"

namespace kerf {

// How much of a device's work has another one working beside it, on average over all pairs of
// `devices` that take turns on n micro-batches: device i works from its i-th turn on,
//
//   0  |1|2|3|4|          while 0 works, 1 works in 3 turns of 4, and 2 in 2 of 4
//   1    |1|2|3|4|
//   2      |1|2|3|4|
//
// so that the share is the mean of max(0, n - |i - j|) / n. 0 for one device or one micro-batch.
double busy_share(int devices, int n_microbatches);

// Does it have times under load?
bool has_load(const Profile& profile);

// The profile as a plan for `cluster` needs it: each time goes from the one alone to the one under
// load as far as neighbours are busy (busy_share over the cluster's devices of the profile's kind
// that are hosts). What it returns has one figure a node; without times under load it is the same.
Profile with_load(Profile profile, const Cluster& cluster, int n_microbatches);

}  // namespace kerf
