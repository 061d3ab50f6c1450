// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the devices of a training pipeline hold at their fullest, by place in it. Private to
// partition/chain/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kerf/plan/schedule/task.h"

namespace kerf::partition {

// Of how many micro-batches a device has each of these at one moment (simulate/memory.h has the
// rules), and what it is doing.
struct Moment {
  std::int64_t kept = 0;       // what its stage made and keeps for backward
  std::int64_t received = 0;   // what it received and keeps for backward
  std::int64_t outputs = 0;    // what it made for the next stage alone
  std::int64_t results = 0;    // what the caller gets
  std::int64_t gradients = 0;  // what it made for the stage before
  std::int64_t waiting = 0;    // what its backward was given, until gradients of weights are made
  enum class Running : std::uint8_t {
    nothing,
    forward,
    backward,
    weights
  } running = Running::nothing;
};

// By place in a pipeline of so many stages, each on a device of its own, each waiting for the one
// before it and all with a backward: the moments at which something is fuller than at all others.
// Steps of more micro-batches than it takes to see what repeats itself are judged by shorter ones.
std::vector<std::vector<Moment>> pipeline_moments(const std::string& schedule,
                                                  std::size_t num_stages, int n_microbatches);

}  // namespace kerf::partition
