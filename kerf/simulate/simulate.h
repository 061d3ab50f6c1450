// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The event simulator: what a plan's schedule does in time. Pure arithmetic on the plan's own
// figures, so that a plan.json can be simulated with nothing else at hand.
//
// Rules
// - A device runs its tasks in the schedule's order, one at a time.
// - Before a task it fetches the tensors the stage needs from other devices, one after the
// other,
//   in order of value, each once for a device and micro-batch (model `link`): a transfer starts
//   when the producing stage has run that micro-batch, and occupies the receiver.
// - Model `host_staged`: after a task its device moves the tensors that others need to host
//   memory, in order of value; a transfer to a receiver starts when that has ended. Host devices
//   spend no time on either.
// - Model `overlapped`: the tensors that others need are sent when a task has ended, one after
//   the other in order of value and receiver, beside what the two devices compute.
// - Link contention: a private link carries one transfer at a time by construction, since its
//   receiver fetches one at a time. Transfers over shared links share one wire and are served one
//   at a time, in the order in which they can start, ties by receiver. (One that waits for the wire
//   can start when the wire is free.)
#pragma once

#include "kerf/plan/plan.h"
#include "kerf/plan/timeline.h"

namespace kerf {

// Complexity: (tasks + transfers) x devices. Throws Error(invalid_plan) when the schedule cannot
// run: a plan whose stages wait for each other.
Timeline simulate(const Plan& plan);
// The same plan with another number of micro-batches of the same size; 1 gives the latency.
Timeline simulate(const Plan& plan, int n_microbatches);
// Without the memory of the devices: for whoever asks for times alone, many times.
Timeline simulate_events(const Plan& plan, int n_microbatches);

}  // namespace kerf
