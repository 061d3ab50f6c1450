// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The FX family as methods of the registry: any Problem in, a Plan out.
//
// The family counts every tensor of a device as held for ever, Kerf releases them; so tensors count
// in full only if they must: the share that counts goes up until the plan fits by Kerf's own memory
// engine. Costs are the serial model's, one micro-batch, times on the profiled kind, the slowest
// link for all.
#pragma once

#include "kerf/partition/fx/request.h"
#include "kerf/partition/method.h"

namespace kerf::partition {

Outcome<Plan, Infeasible> size(const Problem& problem, const Options& options);
Outcome<Plan, Infeasible> sparse_nn(const Problem& problem, const Options& options);
Outcome<Plan, Infeasible> cost_aware(const Problem& problem, const Options& options);
Outcome<Plan, Infeasible> kl(const Problem& problem, const Options& options);
// Options::node_to_partition and partition_to_device, checked and simulated.
Outcome<Plan, Infeasible> aot(const Problem& problem, const Options& options);

}  // namespace kerf::partition
