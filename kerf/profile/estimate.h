// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The analytic estimator: flops and bytes from shapes, a time from a roofline. No device needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kerf/device/cluster.h"
#include "kerf/device/kind.h"
#include "kerf/profile/profile.h"

namespace kerf {

// time(node) = launch + max(flops / reachable peak of its dtype, bytes moved / memory bandwidth),
// 0 for views and for integer arithmetic on sizes. Operators without a formula are listed in
// unknown_ops and costed by the bytes they move, never at zero in silence.
// `batch` 0: the graph's example batch. Linear in the graph.
//
// `training`: saved bytes and backward times too, the latter as the sum of the kernels that
// autograd starts for a node's gradients; unknown operators at twice the bytes of their forward.
// Throws Error(invalid_argument) for a graph traced in eval mode.
Profile estimate(const Graph& graph, const DeviceKind& kind, std::int64_t batch = 0,
                 bool training = false);
// The same of the mode that the graph was traced in, whatever it is: for whoever shows the backward
// of a model in eval mode as such, and does not take it for a training step.
Profile estimate_as_traced(const Graph& graph, const DeviceKind& kind, std::int64_t batch = 0,
                           bool training = false);

// Is there a formula for this operator, "aten.linear.default"?
bool has_formula(std::string_view op);

// The kind that an estimate for these devices is made for: that of the first accelerator, else of
// the first device. Throws Error(invalid_argument) when there is no device.
std::string profiled_kind(const Cluster& cluster);

}  // namespace kerf
