// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/device/cluster.h"
#include "kerf/graph/graph.h"
#include "kerf/profile/profile.h"

namespace kerf {

// One profile serves all devices of a cluster, scaled by their speeds. Devices of another kind than
// the profiled one whose speed nobody gave (it is 1) get the ratio of the two kinds' estimates for
// this graph, cores of a CPU device counted; a note says so. Kinds without a preset stay as they
// are.
Cluster with_relative_speeds(Cluster cluster, const Graph& graph, const Profile& profile);

}  // namespace kerf
