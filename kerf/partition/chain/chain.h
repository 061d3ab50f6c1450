// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/partition/method.h"

namespace kerf::partition {

// The best split of the graph's own order into intervals, each on a device of its own: devices
// follow each other in any order, some of them possibly left out.
//
// Minimises the busiest device; among the splits that reach the minimum, the sum of all devices'
// loads; among equals the order given is kept. Exact when each device has a memory of its own and
// the same link from (and, where makers pay, to) every other: no contiguous split in any order is
// better, and Infeasible means that none fits. Memory figures in the search are those of the
// engine.
//
// Devices that can change places make one class: a dynamic program over the position and how many
// of each class are in use. Devices that can all change places are taken in the order given.
// Exceptions:
//   - Where links differ, devices share a memory, or (`overlapped`, more than two devices) a maker
//     may have to send a tensor twice, the dynamic program works with bounds and a search over
//     orders and splits follows, exact too unless it meets Options::work_limit (default 2 million
//     interval evaluations); it does not go on to the second criterion.
//   - Where it does meet that limit, or the classes make too many states (more than 2^24 cells, or
//     400 million steps), only some orders are tried: the one given, by speed, by memory, host
//     devices first and last, and changes of neighbours. The plan is then marked `truncated`; an
//     Infeasible says that it is not proved.
//   - Graphs of more than 20,000 nodes are split at some positions, then at positions ever closer
//   to
//     those cuts (chain/zoom.h): `truncated` too.
// Never worse than chain_in_order.
//
// In a fixed order at most O(nodes x edges + nodes^2 x devices); in any order the product of each
// class's (count + 1) takes the place of `devices`. Intervals and states that the bounds rule out
// are never visited, which leaves about 1 / devices of them.
Outcome<Plan, Infeasible> chain(const Problem& problem, const Options& options);

// The same with the devices in the order given.
Outcome<Plan, Infeasible> chain_in_order(const Problem& problem, const Options& options);

}  // namespace kerf::partition
