// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/residence/residence_problem.h"

namespace kerf {

// What units take in calls with so many rows (tokens of a batch). The more there are, the longer
// the host computes, while a copy takes what it takes.
struct RowTimes {
  std::int64_t rows = 1;
  std::vector<Nanoseconds> device_time;  // by unit
  std::vector<Nanoseconds> host_time;    // by unit; kNotOnTheHost
};

struct HostShare {
  // By unit: the host computes it in calls of at most so many rows, and it is streamed in others;
  // 0: it is never the host's.
  std::vector<std::int64_t> most_rows;
  Nanoseconds time;  // of a call with the fewest rows
};

// The streamed units that the host computes while the link brings the others, so that a call takes
// as little time as possible: evenly spread over those that it may compute, for each number of rows
// among those of fewer rows. Who is resident, and the slots, stay as they are, so that one
// placement serves calls of any size. A search over shares of the bytes, then over single units:
// not always optimal.
//
// `times`: at least one, rows ascending.
HostShare share_with_host(const ResidenceProblem& problem, const Residences& residences,
                          std::span<const RowTimes> times);

}  // namespace kerf
