// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kerf/device/cluster.h"
#include "kerf/graph/graph.h"
#include "kerf/libtorch/kernel.h"
#include "kerf/libtorch/samples.h"
#include "kerf/profile/profile.h"

namespace kerf {

struct MeasureOptions : SampleLimits {
  bool training = false;  // backward times, too
};

// Times of all nodes on one device of `cluster`, with that device's cores: the whole graph runs
// again and again on the given inputs, each node timed by itself, medians kept. `inputs`: one
// tensor for each input of the graph, all of one batch, which is the batch of the profile.
//
// Where the cluster has other CPU devices with cores of their own, a CPU device is measured alone
// and, in turns, while each of the others runs the same graph on its cores: `forward_under_load`,
// `backward_under_load` (profile/load.h). A graph with opaque blocks is measured alone, which a
// note says.
//
// On an accelerator that can be held back (device_hold.h) nobody waits for single operators: the
// host's time to issue them is taken with the device idle, the device's time by events while it is
// behind, and a node's `forward` is what it adds to a replay of both (profile/replay.h). The
// workspaces that operators ask the allocator for are in `peak`, on the host too. On others each
// operator is waited for, which a note says.
//
// Training: forward runs with autograd, each node on inputs of its own (sweep.h), backward through
// the engine. What gradients of weights take is the difference to a backward without them. `saved`
// is by the rules (profile/saved).
// Throws Error(invalid_argument) for graphs traced in eval mode.
//
// Inputs that the model writes are copied first; buffers, parameters, their gradients and the
// caller's random numbers are as before when it returns.
Profile measure(const Graph& graph, const Cluster& cluster, DeviceId device,
                std::vector<at::Tensor> weights, const std::vector<at::Tensor>& inputs,
                std::int64_t batch, const OpaqueCalls& opaque, const MeasureOptions& options = {});

}  // namespace kerf
