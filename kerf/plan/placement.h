// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kerf/base/outcome.h"
#include "kerf/base/units.h"
#include "kerf/place/lower_bound.h"
#include "kerf/place/residence/host_share.h"
#include "kerf/place/residence/residence_problem.h"

namespace kerf {

std::string_view to_string(Residence residence);

// Where the weights of a model are that its device cannot hold: units in the order of their use.
struct Placement {
  struct Unit {
    std::string path;  // of the module
    Bytes bytes;
    Residence residence = Residence::resident;
    Nanoseconds time;  // of computing it once, where it is computed
    Nanoseconds copy;  // of its weights; 0 unless it is streamed
    // The host computes it in calls of at most so many rows, see HostShare.
    std::int64_t host_rows = 0;
  };
  // A call of so few rows that the host computes units as well as it can.
  struct WithHost {
    Nanoseconds time;
    LowerBound bound;
  };

  std::string device;               // that computes, "cpu:0"
  std::string source;               // what streamed weights come from, "disk"
  Bytes memory;                     // allowed on the device, for weights
  double bytes_per_nanosecond = 1;  // of the link, and what each copy takes beside
  Nanoseconds copy_latency;
  std::vector<Unit> units;
  std::size_t slots = 0;
  Bytes slot_bytes;
  Nanoseconds time;  // of a call, once calls follow each other
  LowerBound bound;  // of that time, in nanoseconds
  std::optional<WithHost> with_host;

  // What the device holds: residents and slots.
  Bytes device_bytes() const;
  Bytes bytes_of(Residence residence) const;
};

// `paths`: of the problem's units. Where nothing fits: a sentence that says what is needed.
Outcome<Placement, std::string> place_units(const ResidenceProblem& problem,
                                            const std::vector<std::string>& paths,
                                            const std::string& device, const std::string& source);

// The same where it is given which unit has which residence. `memory` of the problem may be
// kNoLimit; the placement's is then what it takes.
Outcome<Placement, std::string> place_as_given(const ResidenceProblem& problem,
                                               const std::vector<Residence>& residences,
                                               const std::vector<std::string>& paths,
                                               const std::string& device,
                                               const std::string& source);

// Decides which streamed units the host computes in calls of few rows (host_share.h), and again
// when times are known better. Residences and slots stay.
void give_to_host(Placement& placement, std::span<const RowTimes> row_times);

}  // namespace kerf
