// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A step in which transfers share one wire: it serves one at a time, in the order in which they can
// start, ties by receiver. So who comes first matters, and the walk goes by time. Private to
// verify/.
#pragma once

#include "kerf/verify/moves.h"
#include "kerf/verify/task_order.h"

namespace kerf::derive {

// Complexity: (tasks + transfers) x log(devices) and what each wakes up.
Walked walk_with_wire(const Flow& flow, const Traffic& traffic, const Moves& moves,
                      const Plan& plan, TaskOrder order);

}  // namespace kerf::derive
