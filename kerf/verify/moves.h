// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Traffic as the walks through a step see it (rules: simulate/simulate.h, "Rules"). What a stage
// waits for are moments of its micro-batch: that a stage has run, and that a tensor is in host
// memory (host_staged) or has arrived (overlapped). Each kind of moment is a row. Private to
// verify/.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "kerf/verify/traffic.h"

namespace kerf::derive {

// Before a stage runs: its device waits for the moment, and is busy for a while then. A tensor that
// several stages of a device need is fetched once for a micro-batch, by whichever runs first.
struct Incoming {
  std::size_t row = 0;
  double time = 0;
  bool wire = false;
  std::size_t fetch = 0;  // the same for all of those stages
  bool first = false;     // the first of them by number
};

// After a stage has run, one after the other: each takes a while, and its end is the row's moment.
// host_staged: of the device's own time; overlapped: of a time beside it.
struct Outgoing {
  std::size_t row = 0;
  double time = 0;
  bool wire = false;
  DeviceId to;  // overlapped: the receiver
};

struct Moves {
  std::vector<std::vector<Incoming>> incoming;  // by stage, in order of value
  std::vector<std::vector<Outgoing>> outgoing;  // by stage, in order of value and receiver
  // By row: the clocks from the moment to the last stage that waits for it. Rows 0 .. stages - 1
  // are the stages' ends.
  std::vector<std::size_t> wait;

  std::size_t num_fetches = 0;

  std::size_t num_rows() const { return wait.size(); }
};

Moves read_moves(const Flow& flow, const Traffic& traffic);

using Span = std::pair<double, double>;  // start and end

// What a walk finds.
struct Walked {
  double end = 0;
  std::vector<std::vector<Span>> busy;  // overlapped, by device: computing or receiving
};

}  // namespace kerf::derive
