// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kerf/device/cluster.h"
#include "kerf/graph/graph.h"
#include "kerf/libtorch/kernel.h"
#include "kerf/profile/profile.h"

namespace kerf {

struct MeasureOptions {
  int warmup = 2;
  int min_passes = 5;
  int max_passes = 50;
  double budget_seconds = 2;  // no further pass is begun after it
  double spread = 0.03;       // enough when the quartiles of the total are this close, relatively
};

// Forward times of all nodes on one device of `cluster`, with that device's cores: the whole graph
// runs again and again on the given inputs, each node timed by itself, medians kept. Buffers the
// model writes are put back, inputs it writes are copied first. `inputs`: one tensor for each input
// of the graph, all of one batch, which is the batch of the profile.
Profile measure(const Graph& graph, const Cluster& cluster, DeviceId device,
                std::vector<at::Tensor> weights, const std::vector<at::Tensor>& inputs,
                std::int64_t batch, const OpaqueCalls& opaque, const MeasureOptions& options = {});

}  // namespace kerf
