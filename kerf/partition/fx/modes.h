// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The mended modes. Requests are checked (search.h: check_request); Infeasible when the mode finds
// nothing that fits.
#pragma once

#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

// Everything on the device that the request names.
Outcome<Answer, Infeasible> single(const Request& request);

// Nodes in graph order into the open partition while it has room; the rest one by one (size.h).
Outcome<Answer, Infeasible> size(const Request& request);

// Embedding tables one device each, everything else replicated next to each of them (sparse_nn.h).
Outcome<Answer, Infeasible> sparse_nn(const Request& request);

// The placement with the shortest run that fits. Both improve the same starts and keep the best;
// cost_aware takes more starts and more work. Not optimal, and never worse than the original where
// the graph is small enough to run that too.
Outcome<Answer, Infeasible> cost_aware(const Request& request);
Outcome<Answer, Infeasible> kl(const Request& request);

// Partitions and devices as the caller gives them, checked before anything is built. Throws
// Error(invalid_argument): nodes that are missing, partitions without devices, devices that do not
// exist, partitions that wait for each other (with the cycle).
Outcome<Answer, Infeasible> aot(const Request& request);

}  // namespace kerf::partition::fx
