// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The load of one accelerator's stage, kept up as groups join it.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kerf/partition/ideals/groups.h"

namespace kerf::partition::ideals {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A plan: `ends` rise to the number of groups; groups order[ends[s-1]] .. order[ends[s]-1] are
// stage s, on the CPU when on_cpu[s].
struct Chain {
  std::vector<std::uint32_t> order;
  std::vector<std::uint32_t> ends;
  std::vector<bool> on_cpu;
  double load = kInfinity;  // the largest; infinite: no plan
};

// Sums of a stage. `load` may fall as the stage grows, when a net comes to lie inside it; the
// others cannot.
struct Sums {
  double load = 0;
  double time = 0;    // compute
  double shared = 0;  // nets that earlier stages hold too
  double bytes = 0;
  double least() const { return time + shared; }
};

class StageNets {
 public:
  explicit StageNets(const Groups& groups)
      : groups_(groups), in_stage_(groups.num_nets(), 0), before_(groups.num_nets(), 0) {
    for (std::uint32_t net = 0; net < groups.num_nets(); ++net) {
      num_pins_.push_back(static_cast<std::uint32_t>(groups.pins[net].size()));
    }
  }
  // Groups of earlier stages.
  void add_before(std::uint32_t group) {
    for (const std::uint32_t net : groups_.nets[group]) ++before_[net];
  }
  void remove_before(std::uint32_t group) {
    for (const std::uint32_t net : groups_.nets[group]) --before_[net];
  }
  Sums add(std::uint32_t group, Sums sums) {
    const Group& its = groups_.groups[group];
    sums.load += its.accelerator_time;
    sums.time += its.accelerator_time;
    sums.bytes += its.bytes;
    for (const std::uint32_t net : groups_.nets[group]) {
      const std::uint32_t count = ++in_stage_[net];
      if (count == 1) {
        sums.load += groups_.cost[net];
        if (before_[net] > 0) sums.shared += groups_.cost[net];
      } else if (count == num_pins_[net]) {
        sums.load -= groups_.cost[net];
      }
    }
    return sums;
  }
  void remove(std::uint32_t group) {
    for (const std::uint32_t net : groups_.nets[group]) --in_stage_[net];
  }

 private:
  const Groups& groups_;
  std::vector<std::uint32_t> num_pins_;
  std::vector<std::uint32_t> in_stage_;
  std::vector<std::uint32_t> before_;
};

}  // namespace kerf::partition::ideals
